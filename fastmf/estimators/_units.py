"""Unit priors for the layers of an estimator, from its options `visible` and `hidden`."""

import numpy as np

from fastmf.models._checks import unit_prior
from fastmf.priors._domain import (
    admissible,
    can_be_fitted,
    common_support,
    describe_support,
    hidden_unit,
)
from fastmf.priors._groups import has_groups, has_groups_of_states
from fastmf.priors._protocol import by_parts, is_unit_prior, n_units, repeated
from fastmf.priors._registry import REGISTRY

# More states of a categorical unit than that are taken for a mistake in the data.
MAX_LABELS = 1000


def _class(name, spec):
    """The class of a registered name, or a class itself; None for an instance."""
    if isinstance(spec, str):
        if spec not in REGISTRY:
            raise ValueError(f"{name} must be one of {sorted(REGISTRY)} or a prior, got {spec!r}.")
        return REGISTRY[spec]
    return spec if isinstance(spec, type) else None


def _instance(name, prior, n, dtype):
    """A prior of `n` units; one of a single unit stands for `n` equal ones."""
    if is_unit_prior(prior):
        prior = repeated(prior, n)
    return unit_prior(name, prior, n, dtype)


def visible_prior(spec, X):
    """The visible prior to start from: fitted to the columns of data if `spec` is a name or class.

    Parameters
    ----------
    spec : str, class or unit prior
    X : array of shape (n_samples, n_features)
        With one label for each categorical unit, which all have as many states as the largest
        label requires; an instance may also have rows of one-hot states.

    Returns
    -------
    unit prior
    """
    class_ = _class("visible", spec)
    if class_ is None:
        n = n_units(spec) if is_unit_prior(spec) and has_groups(spec) else X.shape[1]
        return _instance("visible", spec, n, X.dtype)
    if not can_be_fitted(class_):
        raise TypeError(f"visible: {class_.__name__} has no from_data; give an instance.")
    if has_groups_of_states(class_):
        return class_.from_data(_labels(X))
    if common_support(class_):
        _check_columns(class_, X, True, 0)
    return unit_prior("visible", class_.from_data(X), X.shape[1], X.dtype)


def _labels(X):
    """Data as labels of groups, complete and not too large for a table of states."""
    whole = np.isfinite(X) & (X == np.round(X))
    if not whole.all() or (X < 0).any() or X.max() >= MAX_LABELS:
        raise ValueError(
            "X must hold one label for each categorical unit, an integer from 0 to "
            f"{MAX_LABELS - 1}; give missing values to `impute`, and for one-hot rows pass "
            "visible=mf.Categorical(field)."
        )
    return X


def hidden_prior(spec, n_components, dtype):
    """The hidden prior to start from: centred units if `spec` is a name or class.

    Parameters
    ----------
    spec : str, class or unit prior
    n_components : int
    dtype : numpy dtype

    Returns
    -------
    unit prior
    """
    class_ = _class("hidden", spec)
    if class_ is None:
        return _instance("hidden", spec, n_components, dtype)
    prior = hidden_unit(class_)
    if prior is None:
        raise TypeError(f"hidden: no default parameters for {class_.__name__}; give an instance.")
    return _instance("hidden", prior, n_components, dtype)


def check_support(prior, X, means=True):
    """Raise unless every entry of `X` lies in the support of its unit.

    Two-valued units also accept values in between, as probabilities (or means), like
    scikit-learn's BernoulliRBM, if `means` says so.
    """
    first = 0
    for part, columns in by_parts(prior, X):
        _check_columns(part, columns, means, first)
        first += columns.shape[1]


def _check_columns(prior, X, means, first):
    """The same for one part of a prior, or a class; `first` is the number of its first column."""
    allowed = admissible(prior, X, means=means)
    if not np.all(allowed):
        row, column = np.argwhere(~allowed)[0]
        name = (prior if isinstance(prior, type) else type(prior)).__name__
        raise ValueError(
            f"X must hold values that {name} units can take: expected each to be "
            f"{describe_support(prior, column, means=means)}, got {X[row, column]:g} in row {row}, "
            f"column {first + column}."
        )
