"""Unit priors for the layers of an estimator, from its options `visible` and `hidden`."""

from itertools import groupby

import numpy as np

from fastmf._common.rows import is_sparse
from fastmf.estimators.common.rows import check_squares
from fastmf.models._checks import unit_prior
from fastmf.priors import Bernoulli, Categorical, Gaussian, Ordinal
from fastmf.priors._groups import column_sizes, has_groups, has_groups_of_states
from fastmf.priors._protocol import is_unit_prior, n_units, repeated
from fastmf.priors._queries import (
    can_be_fitted,
    common_support,
    fitted,
    hidden_unit,
    independent_units,
)
from fastmf.priors._registry import REGISTRY, floating_type
from fastmf.priors._values import check_part
from fastmf.priors.categorical import MAX_STATES
from fastmf.priors.concatenated import concatenate
from fastmf.priors.ordinal import MAX_SCORE


def _class(name, spec):
    """The class of a registered name, or a class itself; None for an instance."""
    if isinstance(spec, str):
        if spec not in REGISTRY:
            raise ValueError(f"{name} must be one of {sorted(REGISTRY)} or a prior, got {spec!r}.")
        return REGISTRY[spec]
    return spec if isinstance(spec, type) else None


def _instance(name, prior, n, dtype):
    """A prior of `n` units; a single unit is repeated."""
    if is_unit_prior(prior):
        prior = repeated(prior, n)
    return unit_prior(name, prior, n, dtype)


def visible_prior(spec, X, rows=None, more=False, categories=None):
    """Make the initial visible prior, fitted to the columns if `spec` is a name or class."""
    if categories is not None:
        prior = _of_kinds(X, categories)
        return prior if rows is None else independent_units(prior, X[rows])
    spec = "bernoulli" if isinstance(spec, str) and spec == "auto" else spec
    class_, dtype = _class("visible", spec), floating_type(X)
    if class_ is None:
        n = n_units(spec) if is_unit_prior(spec) and has_groups(spec) else X.shape[1]
        return _instance("visible", spec, n, dtype)
    if not can_be_fitted(class_):
        raise TypeError(f"visible: {class_.__name__} has no from_data; give an instance.")
    if has_groups_of_states(class_):
        labels = _labels(X)
        prior = class_.from_data(labels, sizes=max(int(labels.max()), 1) + 1 if more else None)
    else:
        if common_support(class_):
            check_part(class_, X)
        else:
            sizes = abs(X).max(0).toarray() if is_sparse(X) else np.nanmax(abs(X), axis=0)
            check_squares("X", sizes, dtype)
        prior = unit_prior("visible", fitted(class_, X), X.shape[1], dtype)
    return prior if rows is None else independent_units(prior, X[rows])


def _of_kinds(X, categories):
    """Units of columns of any kinds, with lists of categories, or None of numbers."""
    kinds = [_kind(X[:, [j]], listed) for j, listed in enumerate(categories)]
    parts = []
    for kind, run in groupby(range(len(kinds)), kinds.__getitem__):
        columns, options = list(run), {}
        if kind is Categorical:
            options["sizes"] = np.array([max(2, len(categories[j])) for j in columns])
        parts.append(kind.from_data(X[:, columns], **options))
    return concatenate(parts)


def _kind(column, categories):
    """The class of the units of a column.

    Whole numbers from 0 are scores where a weight of each explains them better than a normal
    density, by the Bayesian information criterion.
    """
    if categories is not None:
        return Categorical
    if np.isin(column, (0, 1)).all():
        return Bernoulli
    n, largest = len(column), column.max()
    if (column != np.rint(column)).any() or column.min() < 0 or largest > MAX_SCORE:
        return Gaussian

    def criterion(kind, n_parameters):
        prior = kind.from_data(column)
        logs = prior.log_prob(column) - prior.log_partition(0.0, 0.0)
        return logs.sum() - n_parameters / 2 * np.log(n)

    return Ordinal if criterion(Ordinal, largest) > criterion(Gaussian, 2) else Gaussian


def _labels(X):
    """Data as labels of groups, complete and not too large for a table of states."""
    if is_sparse(X):
        raise ValueError(
            "X must be a dense array of labels of categorical units, got a sparse matrix: use "
            "X.toarray(), or for sparse one-hot rows pass visible=mf.Categorical(field)."
        )
    integers = np.isfinite(X) & (X == np.round(X))
    if not integers.all() or (X < 0).any() or X.max() >= MAX_STATES:
        raise ValueError(
            "X must hold one label for each categorical unit, an integer from 0 to "
            f"{MAX_STATES - 1}, or NaN or a negative one where it is missing; for one-hot rows "
            "pass visible=mf.Categorical(field)."
        )
    return X


def hidden_prior(spec, n_components, dtype):
    """The hidden prior to start from: centred units if `spec` is a name or class."""
    class_ = _class("hidden", spec)
    if class_ is None:
        return _instance("hidden", spec, n_components, dtype)
    prior = hidden_unit(class_)
    if prior is None:
        raise TypeError(f"hidden: no default parameters for {class_.__name__}; give an instance.")
    return _instance("hidden", prior, n_components, dtype)


def given_layers(init, X, *kinds):
    """Couplings, in the type of the data, and layers of a model that learning begins with."""
    if not isinstance(init, kinds):
        names = " or ".join(kind.__name__ for kind in kinds)
        raise TypeError(f"init must be of type {names}, or None, got {type(init).__name__}.")
    if any(weights.size == 0 for weights in init.couplings):
        raise ValueError(f"init must have hidden units, got {init}: there is nothing to train.")
    visible = init.layers[0]
    n_columns = len(column_sizes(visible))  # labels, or the states of categorical units
    if X.shape[1] not in (n_columns, n_units(visible)):
        raise ValueError(
            f"init must have a visible unit for each column of X, got {n_columns} units and "
            f"{X.shape[1]} columns."
        )
    return tuple(weights.astype(floating_type(X)) for weights in init.couplings), init.layers
