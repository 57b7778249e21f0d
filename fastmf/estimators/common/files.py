"""Fitted estimators in .npz files."""

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
    """The constructor's options as text, and the priors among them as arrays."""
    options, arrays = {}, {}
    for name, value in estimator.get_params(deep=False).items():
        if name in estimator._forgotten:
            continue
        if name == "random_state" and not isinstance(value, Integral):
            continue  # the state of a generator is no option of a fit to come
        if name in ("visible", "hidden") and not isinstance(value, str):
            # A class or an instance: the fitted prior is saved in its place.
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
    """Numbers and arrays as JSON knows them."""
    if hasattr(value, "to_numpy"):
        value = value.to_numpy()
    return value.tolist() if isinstance(value, np.ndarray) else plain(value)


class Saved:
    """Estimators with options and fitted values, which are kept in files.

    A class gives `_saved()`, fitted values that JSON holds, which are attributes, and arrays; and
    `_restore(arrays)`, which sets all other attributes.
    """

    # Options that say how to train rather than what was learned, and may hold anything.
    _forgotten: tuple = ("callbacks",)

    # Names of the classes that the model may have; none: any.
    _models: tuple = ()

    def _store(self, given):
        """Options as attributes, from all local variables of a constructor."""
        vars(self).update({k: v for k, v in given.items() if k not in ("self", "__class__")})

    def __getattr__(self, name):
        """Raise an AttributeError; before `fit`, for what it sets, scikit-learn's kind of it."""
        if name.startswith("_") != name.endswith("_") and not self.__sklearn_is_fitted__():
            raise NotFittedError(f"This {type(self).__name__} is not fitted yet: call `fit` first.")
        return self.__getattribute__(name)

    def __sklearn_is_fitted__(self):
        return "n_iter_" in vars(self)

    def _model_from(self, arrays):
        """The model in an `Archive`, of a class that suits."""
        model = model_from_arrays(arrays)
        name = type(model).__name__
        if self._models and name not in self._models:
            raise ValueError(f"its model is a {name}, expected {' or '.join(self._models)}.")
        return model

    def save(self, path):
        """Write the fitted estimator to `path` (.npz, without pickles, atomically).

        Its options are kept, but for `callbacks`, `init` of machines that are
        trained, and a `random_state` that is no integer.

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
            If the file is damaged, not such an estimator, or would take more memory.
        LookupError
            If its units have a prior that is not this package's, and not registered.
        """
        with reading(path, f"a {cls.__name__}", max_bytes) as arrays:
            return _from_arrays(cls, arrays)


def _from_arrays(cls, arrays):
    """The estimator of a class that `save` wrote, in an `Archive`."""
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
        n_columns = estimator.n_features_in_
        estimator.columns_ = arrays.member("columns", "iu", (n_columns,), low=0)
    if "feature_names" in arrays:
        names = arrays.member("feature_names", "U", (estimator.n_features_in_,))
        estimator.feature_names_in_ = names.astype(object)
    return estimator


def check_n_features(estimator, n_features):
    """Raise unless the model has the number of features that the estimator has seen."""
    if estimator.n_features_in_ not in n_features:
        raise ValueError(
            f"n_features_in_ must be {' or '.join(map(str, n_features))}, as the model says, got "
            f"{estimator.n_features_in_}."
        )


def _named(what, text):
    """Values by their names, of text in JSON."""
    values = json.loads(text)
    if not isinstance(values, dict):
        raise ValueError(f"its {what} must be named, got {shown(text)}.")
    return values
