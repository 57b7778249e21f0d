"""Fitted estimators in .npz files."""

import json

import numpy as np

from fastmf.models._io import (
    field_from_arrays,
    field_to_arrays,
    model_from_arrays,
    model_to_arrays,
    prior_from_arrays,
    prior_to_arrays,
    read_arrays,
    write_arrays,
)

_ARRAYS = ("starts_",)
_NUMBERS = ("n_iter_", "n_features_in_")
# Options that say how to train rather than what was learned, and may hold anything.
_FORGOTTEN = ("callbacks", "checkpoint", "random_state")


def _options(estimator):
    """The constructor's options as text, and the priors among them as arrays."""
    options, arrays = {}, {}
    for name, value in estimator.get_params(deep=False).items():
        if name in _FORGOTTEN:
            continue
        if name in ("visible", "hidden") and not isinstance(value, str):
            # A class or an instance: the fitted prior stands for it.
            arrays |= field_to_arrays(f"option.{name}", getattr(estimator, f"{name}_"))
            continue
        try:
            options[name] = json.loads(json.dumps(value, default=_plain))
        except TypeError:
            raise TypeError(
                f"{name}={value!r} cannot be saved; set it to None or a plain value first."
            ) from None
    return options, arrays


def _plain(value):
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError


def save(path, estimator):
    """Write a fitted estimator."""
    options, arrays = _options(estimator)
    fitted = {name: getattr(estimator, name) for name in _NUMBERS}
    fitted["history_"] = estimator.history_
    arrays |= model_to_arrays(estimator.model_)
    arrays |= prior_to_arrays("pointwise", estimator.pointwise_)
    arrays |= {name: getattr(estimator, name) for name in _ARRAYS}
    arrays["estimator"] = np.array(
        [type(estimator).__name__, json.dumps(options), json.dumps(fitted)]
    )
    if hasattr(estimator, "feature_names_in_"):
        arrays["feature_names"] = np.array(estimator.feature_names_in_, dtype=str)
    write_arrays(path, arrays)


def load(path, class_):
    """Read a fitted estimator."""
    arrays = read_arrays(path)
    try:
        name, options, fitted = (str(text) for text in arrays["estimator"])
        if name != class_.__name__:
            raise ValueError(f"holds a {name}")
        options = json.loads(options)
        for layer in ("visible", "hidden"):
            if f"option.{layer}" in arrays:
                options[layer] = field_from_arrays(f"option.{layer}", arrays)
        # JSON knows lists only.
        options = {k: tuple(v) if isinstance(v, list) else v for k, v in options.items()}
        estimator = class_(**options)
        estimator.model_ = model_from_arrays(arrays)
        estimator.pointwise_ = prior_from_arrays("pointwise", arrays)
        for key, value in json.loads(fitted).items():
            setattr(estimator, key, value)
        for key in _ARRAYS:
            setattr(estimator, key, arrays[key])
        if "feature_names" in arrays:
            estimator.feature_names_in_ = arrays["feature_names"].astype(object)
    except (KeyError, IndexError, TypeError, ValueError) as error:
        raise ValueError(f"{path} is not a {class_.__name__} of fastmf: {error!r}") from error
    return estimator
