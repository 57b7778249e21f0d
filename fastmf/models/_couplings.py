"""Symmetric couplings of a fully visible machine: dense, or a SciPy sparse array.

Couplings between categorical units may be -inf, which forbids a pair of states. Functions of this
module take both kinds of matrices.
"""

import numpy as np
import scipy

from fastmf._common.rows import canonical, is_sparse
from fastmf.models import _checks


def checked_couplings(value):
    """Check couplings, and return a symmetric read-only copy with a zero diagonal."""
    if is_sparse(value):
        couplings = _sparse(value)
    else:
        value = _checks.by_states(value, 4)
        couplings = _checks.matrix("couplings", value, may_be_forbidden=True)
    if couplings.shape[0] != couplings.shape[1]:
        raise ValueError(f"couplings must be square, got shape {couplings.shape}.")
    with np.errstate(invalid="ignore"):
        # The difference of two entries of -inf is NaN; of one such entry it is infinite.
        asymmetry = _largest(entries(couplings - couplings.T), np.isnan)
    rounding = 8 * np.finfo(couplings.dtype).eps * _largest(entries(couplings), np.isinf)
    if asymmetry > rounding:
        raise ValueError(f"couplings must be symmetric, got entries that differ by {asymmetry:g}.")
    if couplings.diagonal().any():
        raise ValueError("couplings must have a zero diagonal, got non-zero entries there.")
    if asymmetry > 0:
        mean = (couplings + couplings.T) / couplings.dtype.type(2)
        couplings = _sparse(mean) if is_sparse(mean) else _checks.read_only(mean)
    return couplings


def _largest(array, ignored):
    """Return the largest absolute value, without the values for which `ignored` is true."""
    largest = abs(array).max(initial=0.0)
    return abs(array[~ignored(array)]).max(initial=0.0) if ignored(largest) else largest


def _sparse(value):
    """Convert a sparse matrix to a read-only csr_array in canonical form, without stored zeros."""
    if value.dtype.kind not in "fiub":
        raise TypeError(f"couplings must be real numbers, got dtype {value.dtype}.")
    if value.ndim != 2 or 0 in value.shape:
        raise ValueError(f"couplings must be a non-empty matrix, got shape {value.shape}.")
    dtype = value.dtype if value.dtype in (np.float32, np.float64) else np.float64
    couplings = scipy.sparse.csr_array(
        canonical(value.astype(dtype, copy=False), "couplings"), copy=True
    )
    couplings.eliminate_zeros()
    _checks.not_nan_or_plus_inf("couplings", couplings.data)
    for array in (couplings.data, couplings.indices, couplings.indptr):
        array.flags.writeable = False
    return couplings


def entries(couplings):
    """Return all entries that may differ from zero, as one array."""
    return couplings.data if is_sparse(couplings) else couplings


def stored(couplings):
    """Return rows, columns and values of the entries of sparse couplings, row by row."""
    rows = np.repeat(np.arange(couplings.shape[0]), np.diff(couplings.indptr))
    return rows, couplings.indices, couplings.data


def with_entries(couplings, function):
    """Apply a function with f(0) = 0 to each entry; return a matrix of the same kind."""
    if not is_sparse(couplings):
        return function(couplings)
    arrays = function(couplings.data), couplings.indices, couplings.indptr
    return scipy.sparse.csr_array(arrays, shape=couplings.shape)


def check_states(couplings, sizes, is_group):
    """Raise a ValueError if couplings within a group are not zero, or -inf outside of groups."""
    column = np.repeat(np.arange(len(sizes)), sizes)
    if is_sparse(couplings):
        rows, columns, values = stored(couplings)
        within = (column[rows] == column[columns]).any()
    else:
        ends = np.cumsum(sizes)
        groups = zip((ends - sizes)[is_group], ends[is_group], strict=True)
        within = any(couplings[a:b, a:b].any() for a, b in groups)
    if within:
        raise ValueError(
            "couplings must be zero between the states of one group, got non-zero entries."
        )
    if not has_forbidden(couplings):
        return
    if not is_sparse(couplings):
        rows, columns = np.nonzero(np.isneginf(couplings))
    else:
        rows, columns = rows[np.isneginf(values)], columns[np.isneginf(values)]
    if not (is_group[column[rows]] & is_group[column[columns]]).all():
        raise ValueError(
            "couplings must be finite, got -inf: only pairs of states of categorical units can be "
            "forbidden."
        )


def has_forbidden(couplings):
    """Whether some entries are -inf."""
    return bool(np.isneginf(entries(couplings).min(initial=0.0)))


def pair_sums(couplings, x):
    """Compute x'Jx / 2 of rows x, (..., n_units); -inf if a forbidden pair of states occurs."""
    if not has_forbidden(couplings):
        return (_product(couplings, x) * x).sum(-1) / 2
    finite, forbidden = finite_and_forbidden(couplings)
    sums = (_product(finite, x) * x).sum(-1) / 2
    return np.where((_product(forbidden, x) * x).sum(-1) > 0, -np.inf, sums)


def finite_and_forbidden(couplings):
    """Split couplings into the finite ones and an indicator of -inf, both zero elsewhere."""
    finite = with_entries(couplings, lambda w: np.where(np.isinf(w), w.dtype.type(0), w))
    return finite, with_entries(couplings, lambda w: np.isneginf(w).astype(w.dtype))


def _product(couplings, x):
    """Compute x @ couplings for an array with any number of axes."""
    if not is_sparse(couplings):
        return x @ couplings
    # The matrix is symmetric.
    return (couplings @ x.reshape(-1, x.shape[-1]).T).T.reshape(x.shape)


# --- files ----------------------------------------------------------------------------------------


def sparse_to_arrays(name, couplings):
    """Convert sparse couplings to named arrays."""
    parts = {"data": couplings.data, "indices": couplings.indices, "indptr": couplings.indptr}
    return {name: np.array(["sparse"])} | {f"{name}.{key}": part for key, part in parts.items()}


def sparse_from_arrays(name, arrays):
    """Read the couplings that `sparse_to_arrays` wrote from an `Archive`."""
    parts = [arrays.member(f"{name}.{key}", "iu", (None,)) for key in ("indices", "indptr")]
    n = len(parts[1]) - 1
    return scipy.sparse.csr_array(
        (arrays.member(f"{name}.data", "f", (None,)), *parts), shape=(n, n)
    )
