"""Saving and loading of fitted estimators in .npz files."""

import json
from numbers import Integral

import numpy as np
from sklearn.exceptions import NotFittedError

from fastmf._common.warning import warn_user
from fastmf.models._io import (
    field_from_arrays,
    field_to_arrays,
    model_from_arrays,
    plain,
    reading,
    shown,
    write_arrays,
)


def _options(estimator):
    """Return the constructor's options for JSON, and options that are priors as arrays."""
    options, arrays = {}, {}
    for name, value in estimator.get_params(deep=False).items():
        if name in estimator._forgotten:
            continue
        if name == "random_state" and not isinstance(value, Integral):
            continue  # the state of a generator cannot be stored as an option
        if name in ("visible", "hidden") and not isinstance(value, str):
            # For a class or an instance, save the fitted prior instead.
            arrays |= field_to_arrays(f"option.{name}", getattr(estimator, f"{name}_"))
            continue
        if name == "graph" and value is not None:
            value = getattr(estimator, "graph_", value)
        try:
            options[name] = json.loads(json.dumps(value, default=_plain_or_list))
        except TypeError:
            raise TypeError(
                f"{name}={value!r} cannot be saved; set it to None or a plain value first."
            ) from None
    return options, arrays


def _plain_or_list(value):
    """Convert numbers and arrays to types that JSON supports."""
    if hasattr(value, "to_numpy"):
        value = value.to_numpy()
    return value.tolist() if isinstance(value, np.ndarray) else plain(value)


class Saved:
    """Mixin for saving estimators with their options and fitted values to files.

    A subclass defines `_saved()`, which returns fitted attributes for JSON, and arrays; and
    `_restore(arrays)`, which sets all other attributes.
    """

    # Options that are not saved: they do not affect fitted values, and may be of any type.
    _forgotten: tuple = ("callbacks",)

    # Allowed names of the class of the model; empty: any.
    _models: tuple = ()

    def _store(self, given):
        """Set options as attributes, given the local variables of a constructor."""
        vars(self).update({k: v for k, v in given.items() if k not in ("self", "__class__")})

    def __getattr__(self, name):
        """Raise an AttributeError, or NotFittedError for a fitted attribute before `fit`."""
        if name.startswith("_") != name.endswith("_") and not self.__sklearn_is_fitted__():
            raise NotFittedError(f"This {type(self).__name__} is not fitted yet: call `fit` first.")
        return self.__getattribute__(name)

    def __sklearn_is_fitted__(self):
        return "n_iter_" in vars(self)

    def _model_from(self, arrays):
        """Read the model from an `Archive`; raise if its class is not allowed."""
        model = model_from_arrays(arrays)
        name = type(model).__name__
        if self._models and name not in self._models:
            raise ValueError(f"its model is a {name}, expected {' or '.join(self._models)}.")
        return model

    def save(self, path):
        """Write the fitted estimator to `path` (.npz, without pickles, atomically).

        Options are saved as well, except for `callbacks`, `init` of layered machines, and a
        `random_state` that is not an integer.

        Parameters
        ----------
        path : str or path

        Raises
        ------
        TypeError
            If an option or a prior cannot be written without a pickle.
        """
        fitted, arrays = self._saved()
        options, priors = _options(self)
        arrays |= priors
        names = [type(self).__name__, json.dumps(options), json.dumps(fitted, default=plain)]
        arrays["estimator"] = np.array(names)
        if hasattr(self, "alphabet_"):
            arrays["alphabet"], arrays["columns"] = np.array([self.alphabet_]), self.columns_
        if hasattr(self, "feature_names_in_"):
            arrays["feature_names"] = np.array(self.feature_names_in_, dtype=str)
        write_arrays(path, arrays)

    @classmethod
    def load(cls, path, *, max_bytes=None):
        """Read an estimator that was written by `save`.

        Parameters
        ----------
        path : str or path
        max_bytes : int, optional
            Largest memory that its arrays may take: see `fastmf.load`.

        Returns
        -------
        estimator of this class

        Raises
        ------
        ValueError
            If the file is damaged, holds another estimator, or would need more memory.
        LookupError
            If its units have a custom prior that is not registered.
        """
        with reading(path, f"a {cls.__name__}", max_bytes) as arrays:
            return _from_arrays(cls, arrays)


def _from_arrays(cls, arrays):
    """Read an estimator of a class from an `Archive` written by `save`."""
    if "estimator" not in arrays:
        raise ValueError("it holds no estimator (fastmf.load reads models).")
    name, options, fitted = arrays.texts("estimator", 3)
    if name != cls.__name__:
        raise ValueError(f"it holds a {shown(name)}.")
    options, fitted = _named("options", options), _named("fitted values", fitted)
    if unknown := sorted(set(options) - set(cls._get_param_names())):
        warn_user(
            f"{cls.__name__} has no option {shown(unknown[0])} (any more): the estimator is loaded "
            "without it."
        )
        options = {name: value for name, value in options.items() if name not in unknown}
    for layer in ("visible", "hidden"):
        if f"option.{layer}" in arrays:
            options[layer] = field_from_arrays(f"option.{layer}", arrays)
    # JSON knows lists only.
    estimator = cls(**{k: tuple(v) if isinstance(v, list) else v for k, v in options.items()})
    vars(estimator).update(fitted)
    try:
        estimator._restore(arrays)
        expected = set(estimator._saved()[0])
    except AttributeError as error:
        raise ValueError(f"its fitted values lack {error.name}.") from error
    for name in fitted.keys() - expected:  # of earlier versions
        if vars(estimator).get(name) is fitted[name]:
            delattr(estimator, name)
    if "alphabet" in arrays:
        (estimator.alphabet_,) = arrays.texts("alphabet", 1)
        estimator.columns_ = arrays.member("columns", "iu", (estimator.n_features_in_,), low=0)
    if "feature_names" in arrays:
        names = arrays.member("feature_names", "U", (estimator.n_features_in_,))
        estimator.feature_names_in_ = names.astype(object)
    return estimator


def check_n_features(estimator, n_features):
    """Raise unless `n_features_in_` agrees with the model."""
    if estimator.n_features_in_ not in n_features:
        raise ValueError(
            f"n_features_in_ must be {' or '.join(map(str, n_features))}, as the model says, got "
            f"{estimator.n_features_in_}."
        )


def _named(what, text):
    """Parse a JSON object."""
    values = json.loads(text)
    if not isinstance(values, dict):
        raise ValueError(f"its {what} must be named, got {shown(text)}.")
    return values
