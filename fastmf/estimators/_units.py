"""Unit priors for the layers of an estimator, from its options `visible` and `hidden`."""

import numpy as np

from fastmf._common.rows import is_sparse, row_blocks
from fastmf.models._checks import unit_prior
from fastmf.priors._domain import (
    admissible,
    can_be_fitted,
    common_support,
    describe_support,
    fitted,
    hidden_unit,
    independent_units,
)
from fastmf.priors._groups import (
    column_sizes,
    columns_by_parts,
    has_groups,
    has_groups_of_states,
)
from fastmf.priors._protocol import by_parts, is_unit_prior, n_units, repeated, take
from fastmf.priors._registry import REGISTRY, floating_type
from fastmf.priors._rows import states

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


def visible_prior(spec, X, rows=None):
    """The visible prior to start from: fitted to the columns of data if `spec` is a name or class.

    Parameters
    ----------
    spec : str, class or unit prior
    X : array or csr_array of shape (n_samples, n_features)
        With one label for each categorical unit, which all have as many states as the largest
        label requires; an instance may also have rows of one-hot states.
    rows : int array, optional
        Rows that units are fitted to, as often as they occur; bounds and states are of all rows.

    Returns
    -------
    unit prior
    """
    class_, dtype = _class("visible", spec), floating_type(X)
    if class_ is None:
        n = n_units(spec) if is_unit_prior(spec) and has_groups(spec) else X.shape[1]
        return _instance("visible", spec, n, dtype)
    if not can_be_fitted(class_):
        raise TypeError(f"visible: {class_.__name__} has no from_data; give an instance.")
    if has_groups_of_states(class_):
        prior = class_.from_data(_labels(X))
    else:
        if common_support(class_):
            (_check_stored if is_sparse(X) else _check_columns)(class_, X, True, 0)
        prior = unit_prior("visible", fitted(class_, X), X.shape[1], dtype)
    return prior if rows is None else independent_units(prior, X[rows])


def _labels(X):
    """Data as labels of groups, complete and not too large for a table of states."""
    if is_sparse(X):
        raise ValueError(
            "X must be a dense array of labels of categorical units, got a sparse matrix: use "
            "X.toarray(), or for sparse one-hot rows pass visible=mf.Categorical(field)."
        )
    whole = np.isfinite(X) & (X == np.round(X))
    if not whole.all() or (X < 0).any() or X.max() >= MAX_LABELS:
        raise ValueError(
            "X must hold one label for each categorical unit, an integer from 0 to "
            f"{MAX_LABELS - 1}, or NaN or a negative one where it is missing; for one-hot rows "
            "pass visible=mf.Categorical(field)."
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


def check_support(prior, X, means=True, dtype=np.float64):
    """Raise unless every entry of `X` lies in the support of its unit.

    Two-valued units also accept values in between, as probabilities (or means), like
    scikit-learn's BernoulliRBM, if `means` says so.

    Parameters
    ----------
    prior : unit prior
    X : array or csr_array of shape (n_rows, n_columns)
        Labels of groups of states, or flat values.
    means : bool
    dtype : numpy dtype
        In which labels and integers are compared.
    """
    if is_sparse(X) and not has_groups(prior):
        first = 0
        for part, columns in columns_by_parts(prior, X):
            _check_stored(part, columns, means, first)
            first += columns.shape[1]
        return
    for rows in row_blocks(X, dense=True):
        first = 0
        for part, columns in by_parts(prior, states(prior, X[rows], dtype)):
            _check_columns(part, columns, means, first, rows.start)
            first += columns.shape[1]


def _check_columns(prior, X, means, first, first_row=0):
    """The same for one part of a prior, or a class; the first column and row have these numbers."""
    allowed = admissible(prior, X, means=means)
    if not np.all(allowed):
        row, column = np.argwhere(~allowed)[0]
        _refuse(prior, X[row, column], (first_row + row, column), means, first)


def _check_stored(prior, X, means, first):
    """The same for sparse rows, in which zeros that are not stored count as any others."""
    n_rows, n_columns = X.shape
    zeros_allowed = np.zeros((1, n_columns), bool)
    zeros_allowed |= admissible(prior, np.zeros((1, n_columns), X.dtype), means=means)
    if not zeros_allowed.all():
        wrong = (np.bincount(X.indices, minlength=n_columns) < n_rows) & ~zeros_allowed[0]
        if wrong.any():
            column = np.argmax(wrong)
            row = np.setdiff1d(np.arange(n_rows), X[:, [column]].nonzero()[0])[0]
            _refuse(prior, 0, (row, column), means, first, " (a zero that is not stored)")
    alike = isinstance(prior, type) or common_support(prior) is not None
    for rows in row_blocks(X):
        stored = slice(X.indptr[rows.start], X.indptr[rows.stop])
        values, columns = X.data[stored], X.indices[stored]
        allowed = admissible(prior if alike else take(prior, columns), values, means=means)
        if not np.all(allowed):
            k = np.argmin(allowed)
            row = np.searchsorted(X.indptr, stored.start + k, "right") - 1
            _refuse(prior, values[k], (row, columns[k]), means, first)


def _refuse(prior, value, place, means, first, how=""):
    """Raise for a value that a unit of a prior, or a class, cannot take."""
    name = (prior if isinstance(prior, type) else type(prior)).__name__
    row, column = place
    raise ValueError(
        f"X must hold values that {name} units can take: expected each to be "
        f"{describe_support(prior, column, means=means)}, got {value:g}{how} in row {row}, "
        f"column {first + column}."
    )


def given_layers(init, X, *kinds):
    """Couplings, in the type of the data, and layers of a model that learning begins with."""
    if not isinstance(init, kinds):
        known = " or ".join(kind.__name__ for kind in kinds)
        raise TypeError(f"init must be of type {known}, or None, got {type(init).__name__}.")
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
