"""Rows of data of any kind: checks that units can take the values, and sums over rows.

Data are labels of groups of states, or flat values, dense or sparse (`fastmf._common.rows`), and
may have missing values. Units are independent, so that a sum over the units of sparse rows is the
sum at zero plus a difference for each stored entry, where `take(prior, X.indices)` is the prior of
the units of the entries. Groups of states are not independent: their sparse rows are made dense,
some rows at a time.
"""

import numpy as np

from fastmf._common.rows import column_sums, is_incomplete, is_sparse, nonzero_values, row_blocks
from fastmf._threads.workers import matrix_product
from fastmf.priors._groups import as_states, column_sizes, columns_by_parts, has_groups
from fastmf.priors._protocol import (
    by_parts,
    contains,
    is_concatenated,
    joined,
    log_prob_gradient,
    n_units,
    parameter_names,
    take,
)
from fastmf.priors._queries import common_support, mean_limits, mean_log_prob, two_values


def admissible(prior, X, *, means=False):
    """Return whether each entry of data is a value that its unit can take."""
    values, pair = common_support(prior), mean_limits(prior)
    if means and pair:
        low, high = pair
        # Twenty times as fast as comparing each entry; NaN fails this test.
        if X.size and low <= X.min() and X.max() <= high:
            return True
        allowed = (low <= X) & (X <= high)
    elif means and has_groups(prior):
        allowed = prior.admits(X)
    else:
        allowed = contains(prior, X) if values is None else np.isin(X, values)
    return allowed | np.isnan(X)


def describe_support(prior, unit, *, means=False):
    """Describe the values that `admissible` admits for one unit, after "expected ... to be"."""
    values, pair = common_support(prior), two_values(prior)
    if means and pair:
        return "in [{:g}, {:g}]".format(*pair)
    if values is not None:
        return f"one of {values}"
    if has_groups(prior):
        return "a label, or one of the probabilities of a group, which sum to 1"
    columns = getattr(prior, "support", None)
    if columns is not None:
        column = columns[:, unit]
        first, *later = (f"{x:g}" for x in column[~np.isnan(column)])
        middle = later[:-1] if len(later) < 4 else [later[0], "..."]
        return f"one of {', '.join([first, *middle, *later[-1:]])}"
    if hasattr(prior, "lower"):
        return "between the bounds `lower` and `upper` of its unit"
    return "where its log_prob is above -inf"


def refuse_clamped(prior, x, wrong):
    """Raise a ValueError for the first clamped value that its unit cannot take."""
    *_, unit = np.argwhere(wrong)[0]
    value = np.asarray(x)[wrong][0]
    raise ValueError(
        "clamp has values outside the support of its units: expected each to be "
        f"{describe_support(prior, unit)}, or NaN where the unit is free, got {value:g} for unit "
        f"{unit}."
    )


def check_support(prior, X, means=True, dtype=np.float64, name="X"):
    """Raise a ValueError unless every entry of `X` lies in the support of its unit.

    If `means`, two-valued units also accept values in between, as probabilities (or means), like
    scikit-learn's BernoulliRBM.
    """
    sizes = column_sizes(prior)
    places, first = np.repeat(np.arange(X.shape[1]), sizes if X.shape[1] == len(sizes) else 1), 0
    if is_sparse(X) and not has_groups(prior):
        for part, columns in columns_by_parts(prior, X):
            check_part(part, columns, means, places[first:], name=name)
            first += columns.shape[1]
        return
    for rows in row_blocks(X, dense=True):
        first = 0
        for part, columns in by_parts(prior, states(prior, X[rows], dtype)):
            check_part(part, columns, means, places[first:], rows.start, name=name)
            first += columns.shape[1]


def check_part(prior, X, means=True, places=None, first_row=0, zero="0", name="X"):
    """Do as `check_support` for one part of a prior, or for a class of priors.

    Messages number columns by `places`, count rows from `first_row`, and call a zero `zero`.
    """
    if means and 0 not in (two_values(prior) or (0,)) and _holds_bits(X):
        raise ValueError(
            f"{name} has no values but 0 and 1, got for units of the values -1 and 1, whose means "
            f"may be between: give 2 * {name} - 1, or take units of the kind 'bernoulli'."
        )
    if is_sparse(X):
        if not _all_stored_admissible(prior, X, means):
            for rows in row_blocks(X, dense=True):
                zero = "0 (a zero that is not stored)"
                check_part(prior, X[rows].toarray(), means, places, rows.start, zero, name)
        return
    allowed = admissible(prior, X, means=means)
    if np.all(allowed):
        return
    row, column = np.argwhere(~allowed)[0]
    value = str(X[row, column]).removesuffix(".0") if X[row, column] else zero  # with all digits
    class_ = prior if isinstance(prior, type) else type(prior)
    raise ValueError(
        f"{name} must hold values that {class_.__name__} units can take: expected each to be "
        f"{describe_support(prior, column, means=means)}, got {value} in row {first_row + row}, "
        f"column {column if places is None else places[column]}: recode, scale or clip them (8-bit "
        "images as X / 255, sklearn's MinMaxScaler by clip=True), or take other units."
    )


def _holds_bits(X):
    """Return whether all entries are 0 or 1, and both occur; missing ones do not count."""
    if not X.size or X.min() < 0:  # the usual case of -1 and 1
        return False
    values = nonzero_values(X)
    ones = values == 1
    return ones.any() and (ones | np.isnan(values)).all() and values.size < np.prod(X.shape)


def _all_stored_admissible(prior, X, means):
    """Return whether the stored values of sparse rows, and zeros not stored, are admissible."""
    n_rows, n_columns = X.shape
    zeros_allowed = admissible(prior, np.zeros((1, n_columns), X.dtype), means=means)
    all_stored = np.bincount(X.indices, minlength=n_columns) == n_rows
    if not np.all(zeros_allowed | all_stored):
        return False
    uniform = isinstance(prior, type) or common_support(prior) is not None
    stored = (slice(X.indptr[rows.start], X.indptr[rows.stop]) for rows in row_blocks(X))
    return all(
        np.all(admissible(prior if uniform else take(prior, X.indices[k]), X.data[k], means=means))
        for k in stored
    )


def checked_values(visible, X, dtype, *, missing=False, means=True):
    """Return the rows; raise a ValueError if visible units cannot take some values."""
    grouped = has_groups(visible)
    if is_sparse(X) and grouped and X.shape[1] != n_units(visible):
        raise ValueError(
            "X must be a dense array of labels, got a sparse matrix: of categorical units only "
            f"one-hot rows of {n_units(visible)} columns may be sparse."
        )
    if not missing and grouped and not is_sparse(X):
        _refuse_missing(visible, X)
    if missing and grouped and is_incomplete(X):
        _check_whole_groups(visible, X)
    check_support(visible, X, means, dtype)
    return X if is_sparse(X) or X.dtype.kind != "f" else as_states("X", visible, X)


def _check_whole_groups(visible, X):
    """Raise a ValueError if only some states of a group are missing."""
    if X.shape[1] != n_units(visible):
        return
    absent, sizes = np.isnan(X), column_sizes(visible)
    of_first = np.repeat(absent[:, np.cumsum(sizes) - sizes], sizes, axis=1)
    if (absent != of_first).any():
        row, column = np.argwhere(absent != of_first)[0]
        raise ValueError(
            "X must have NaN in all states of a categorical unit, or in none, got both in row "
            f"{row}, at column {column}."
        )


def _refuse_missing(visible, X):
    """Raise a ValueError if labels are missing: negative, or NaN in the states of a group."""
    if X.dtype.kind in "ub" or (X.dtype.kind == "i" and X.min() >= 0):
        return
    for rows in row_blocks(X):
        if np.isnan(states(visible, X[rows], np.float64)).any():
            raise ValueError(
                "X has missing labels (negative ones), which are not taken here: fill them in by "
                "`impute`, leave such rows out, or give missing values a state of their own."
            )


# Fraction of stored entries at which products with sparse rows take about as long as with dense
# rows (200 hidden units, float32: 0.15).
MAX_DENSITY = 0.1


def states(prior, X, dtype):
    """Convert some rows of data to a dense array of the values of all units."""
    X = X.toarray() if is_sparse(X) else X
    return np.ascontiguousarray(as_states("X", prior, X.astype(dtype, copy=False)))


def data_fields(prior, X, weights, n_threads=None):
    """Compute X @ weights, (n_rows, n_hidden), of flat values or labels, dense or sparse."""
    if is_sparse(X):
        return X.astype(weights.dtype, copy=False) @ weights
    if X.dtype == weights.dtype and X.shape[1] == len(weights):
        return matrix_product(X, weights, n_threads)
    return np.concatenate([states(prior, X[b], weights.dtype) @ weights for b in row_blocks(X)])


def few_stored(X):
    """Return whether rows are sparse, and products with them faster than with dense rows."""
    return is_sparse(X) and X.nnz <= MAX_DENSITY * X.shape[0] * X.shape[1]


def sparse_or_states(prior, X, dtype):
    """Return sparse rows if products with them are faster, and their `states` otherwise."""
    if few_stored(X) and not has_groups(prior):
        return X.astype(dtype, copy=False)
    return states(prior, X, dtype)


def log_prob_of_rows(prior, X, dtype):
    """Sum `fastmf.priors._queries.mean_log_prob` over the units of each row."""
    if not is_sparse(X) or has_groups(prior):
        return _log_prob_of_dense_rows(prior, X, dtype)
    if is_concatenated(prior):
        return sum(log_prob_of_rows(*part, dtype) for part in columns_by_parts(prior, X))
    X, total = X.astype(dtype, copy=False), np.zeros(X.shape[0])
    at_zero = mean_log_prob(prior, np.zeros((1, X.shape[1]), dtype))[0]
    if not np.isfinite(at_zero).all():  # units that are never 0
        return _log_prob_of_dense_rows(prior, X, dtype)
    for rows in row_blocks(X):
        block = X[rows]
        if block.nnz:
            change = mean_log_prob(take(prior, block.indices), block.data) - at_zero[block.indices]
            row = np.repeat(np.arange(block.shape[0]), np.diff(block.indptr))
            total[rows] = np.bincount(row, change, block.shape[0])
    return total + at_zero.sum(dtype=np.float64)


def _log_prob_of_dense_rows(prior, X, dtype):
    """Do as `log_prob_of_rows` for rows that are made dense a block at a time."""
    blocks = (states(prior, X[rows], dtype) for rows in row_blocks(X, dense=True))
    return np.concatenate([mean_log_prob(prior, x).sum(1, dtype=np.float64) for x in blocks])


def mean_log_prob_gradient(prior, X):
    """Return derivatives of the average log_prob of sparse rows, as the same NamedTuple."""
    if is_concatenated(prior):
        return joined(prior, [mean_log_prob_gradient(*part) for part in columns_by_parts(prior, X)])

    def mean_derivative(name):
        def derivative(x, columns):
            return getattr(log_prob_gradient(take(prior, columns), x), name)

        return column_sums(X, derivative) / X.shape[0]

    return prior._replace(**{name: mean_derivative(name) for name in parameter_names(prior)})
