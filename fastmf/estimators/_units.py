"""Unit priors for the layers of an estimator, from what its users type."""

import numpy as np

from fastmf.models._checks import unit_prior
from fastmf.priors import (
    Bernoulli,
    GaussBernoulli,
    Gaussian,
    Ising,
    TruncatedGaussBernoulli,
    TruncatedGaussian,
)
from fastmf.priors._protocol import REGISTRY, by_parts, contains, n_units

# Hidden units before learning: centred, and of unit scale where there is one.
_HIDDEN = {
    Bernoulli: (0.0,),
    Ising: (0.0,),
    Gaussian: (0.0, 1.0),
    TruncatedGaussian: (0.0, 1.0, 0.0, 1.0),
    GaussBernoulli: (0.0, 1.0, 0.0),
    TruncatedGaussBernoulli: (0.0, 1.0, 0.0, 0.0, 1.0),
}


def _class(name, spec):
    """The class of a registered name, or a class itself; None for an instance."""
    if isinstance(spec, str):
        if spec not in REGISTRY:
            raise ValueError(f"{name} must be one of {sorted(REGISTRY)} or a prior, got {spec!r}.")
        return REGISTRY[spec]
    return spec if isinstance(spec, type) else None


def _instance(name, prior, n, dtype):
    """A prior of `n` units; one of a single unit stands for `n` equal ones."""
    if hasattr(prior, "_fields") and hasattr(prior, "moments") and n_units(prior) == 1:
        if not hasattr(prior, "parts"):
            prior = prior._make(np.broadcast_to(np.ravel(f), (n,)) for f in prior)
    return unit_prior(name, prior, n, dtype)


def visible_prior(spec, X):
    """The visible prior to start from: fitted to the columns of data if `spec` is a name or class.

    Parameters
    ----------
    spec : str, class or unit prior
    X : array of shape (n_samples, n_features)

    Returns
    -------
    unit prior
    """
    class_ = _class("visible", spec)
    if class_ is None:
        return _instance("visible", spec, X.shape[1], X.dtype)
    if not hasattr(class_, "from_data"):
        raise TypeError(f"visible: {class_.__name__} has no from_data; give an instance.")
    if hasattr(class_, "support"):
        check_support(class_, X)
    return unit_prior("visible", class_.from_data(X), X.shape[1], X.dtype)


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
    if class_ not in _HIDDEN:
        raise TypeError(f"hidden: no default parameters for {class_.__name__}; give an instance.")
    return _instance("hidden", class_(*_HIDDEN[class_]), n_components, dtype)


def independent_units(prior, X):
    """The prior of independent units fitted to data: what a pointwise estimator knows."""
    if hasattr(prior, "parts"):
        fitted = (independent_units(*part) for part in by_parts(prior, X))
        return prior._replace(parts=tuple(fitted))
    class_ = type(prior)
    if hasattr(prior, "log_odds") and not X.any():
        # There is no value that a slab could be fitted to.
        return prior._replace(log_odds=np.full_like(prior.log_odds, -np.log(len(X) + 1.0)))
    if not hasattr(class_, "from_data"):
        return prior
    bounds = (prior.lower, prior.upper) if hasattr(prior, "lower") else ()
    return class_.from_data(X, *bounds)


def check_support(prior, X, soft=True):
    """Raise unless every entry of `X` lies in the support of its unit (of a prior, or its class).

    Two-valued units also accept values in between, as probabilities (or means), like
    scikit-learn's BernoulliRBM; `soft` says whether they are accepted here.
    """
    first = 0
    for part, columns in by_parts(prior, X):
        _check_columns(part, columns, soft, first)
        first += columns.shape[1]


def _check_columns(prior, X, soft, first):
    """The same for a prior without parts, whose units begin with the column `first` of all data."""
    values = getattr(prior, "support", None)
    if values is not None:
        low, high = min(values), max(values)
        if soft and X.size and low <= X.min() and X.max() <= high:
            return  # twenty times as quick as looking at each entry, and rarely not so
        allowed = (low <= X) & (X <= high) if soft else np.isin(X, values)
        expected = f"in [{low:g}, {high:g}]" if soft else f"one of {values}"
    elif hasattr(prior, "lower"):
        allowed = (prior.lower <= X) & (prior.upper >= X)
        if hasattr(prior, "log_odds"):
            allowed |= X == 0
        expected = "between the bounds `lower` and `upper` of its unit"
    elif isinstance(prior, type) or type(prior) in REGISTRY.values():
        return
    else:
        allowed, expected = contains(prior, X), "where its log_prob is above -inf"
    allowed |= np.isnan(X)
    if not allowed.all():
        row, column = np.argwhere(~allowed)[0]
        name = (prior if isinstance(prior, type) else type(prior)).__name__
        raise ValueError(
            f"X must hold values that {name} units can take: expected each to be "
            f"{expected}, got {X[row, column]:g} in row {row}, column {first + column}."
        )
