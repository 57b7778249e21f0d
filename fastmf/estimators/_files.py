"""Fitted estimators in .npz files."""

import json
from numbers import Integral

import numpy as np
from sklearn.utils.validation import check_is_fitted

from fastmf.models._io import (
    field_from_arrays,
    field_to_arrays,
    model_from_arrays,
    model_to_arrays,
    plain,
    read_arrays,
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
            # A class or an instance: the fitted prior stands for it.
            arrays |= field_to_arrays(f"option.{name}", getattr(estimator, f"{name}_"))
            continue
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
    """Estimators that go to a file and back: what they have learned, and their options."""

    # Options that say how to train rather than what was learned, and may hold anything.
    _forgotten: tuple = ("callbacks", "checkpoint")

    # Subclasses say what more there is: plain values (attributes), and arrays to make others of.
    def _saved(self):
        raise NotImplementedError

    def _restore(self, arrays):
        raise NotImplementedError

    def _model_arrays(self):
        """The model as arrays."""
        return model_to_arrays(self.model_)

    def _restore_model(self, arrays):
        self.model_ = model_from_arrays(arrays)

    def save(self, path):
        """Write the fitted estimator to `path` (.npz, without pickles, atomically).

        Its options are kept, but for `callbacks`, `checkpoint`, `init` of machines that are
        trained, and a `random_state` that is no integer.

        Parameters
        ----------
        path : str or path

        Raises
        ------
        TypeError
            If an option or a prior cannot be written without a pickle.

        Examples
        --------
        >>> import pathlib, tempfile
        >>> import numpy as np, fastmf as mf
        >>> X = np.where(np.random.default_rng(0).random((200, 4)) < 0.3, 1, -1)
        >>> machine = mf.FullyVisibleBoltzmannMachine().fit(X)
        >>> path = pathlib.Path(tempfile.mkdtemp()) / "machine.npz"
        >>> machine.save(path)
        >>> path.exists()
        True
        """
        check_is_fitted(self)
        options, arrays = _options(self)
        fitted, more = self._saved()
        arrays |= self._model_arrays() | more
        names = [type(self).__name__, json.dumps(options), json.dumps(fitted, default=plain)]
        arrays["estimator"] = np.array(names)
        if hasattr(self, "feature_names_in_"):
            arrays["feature_names"] = np.array(self.feature_names_in_, dtype=str)
        write_arrays(path, arrays)

    @classmethod
    def load(cls, path):
        """Read an estimator that was written by `save`.

        Parameters
        ----------
        path : str or path

        Returns
        -------
        estimator of this class

        Raises
        ------
        ValueError
            If the file is damaged or not such an estimator.
        LookupError
            If its units have a prior that is not this package's, and not registered.

        Examples
        --------
        >>> import pathlib, tempfile
        >>> import numpy as np, fastmf as mf
        >>> X = np.where(np.random.default_rng(0).random((200, 4)) < 0.3, 1, -1)
        >>> machine = mf.FullyVisibleBoltzmannMachine().fit(X)
        >>> path = pathlib.Path(tempfile.mkdtemp()) / "machine.npz"
        >>> machine.save(path)
        >>> again = mf.FullyVisibleBoltzmannMachine.load(path)
        >>> bool((again.couplings_ == machine.couplings_).all())
        True
        """
        arrays = read_arrays(path)
        if "estimator" not in arrays:
            raise ValueError(
                f"{path} is not a {cls.__name__} of fastmf: it holds no estimator (fastmf.load "
                "reads models)."
            )
        try:
            name, options, fitted = (str(text) for text in arrays["estimator"])
            if name != cls.__name__:
                raise ValueError(f"holds a {name}")
            options = json.loads(options)
            for layer in ("visible", "hidden"):
                if f"option.{layer}" in arrays:
                    options[layer] = field_from_arrays(f"option.{layer}", arrays)
            # JSON knows lists only.
            options = {k: tuple(v) if isinstance(v, list) else v for k, v in options.items()}
            estimator = cls(**options)
            estimator._restore_model(arrays)
            for key, value in json.loads(fitted).items():
                setattr(estimator, key, value)
            estimator._restore(arrays)
            if "feature_names" in arrays:
                estimator.feature_names_in_ = arrays["feature_names"].astype(object)
        except (KeyError, IndexError, TypeError, ValueError) as error:
            raise ValueError(f"{path} is not a {cls.__name__} of fastmf: {error!r}") from error
        return estimator
