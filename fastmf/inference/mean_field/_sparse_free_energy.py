"""The mean-field log-partition with sparse couplings, by sums over stored entries.

The formulas are those of `fastmf.inference.mean_field.free_energy`, and with groups of states those
of `fastmf.inference.mean_field._grouped_free_energy`.
"""

import numpy as np

from fastmf.inference.mean_field import _grouped_free_energy as grouped
from fastmf.inference.mean_field.free_energy import of_units
from fastmf.models._couplings import with_entries
from fastmf.priors._groups import column_is_group, column_sizes


def log_partition_of_rows(layout, state, order, tilt):
    """Mean-field log-partition of each row of a `SparseLayout`.

    Parameters
    ----------
    layout : SparseLayout
    state : array of shape (2 or more, n_rows, n_units)
    order : {1, 2, 3}
    tilt : Tilt

    Returns
    -------
    float64 array of shape (n_rows,)
    """
    of_row = _with_groups if layout.grouped else _of_units
    out = np.empty(state.shape[1])
    with np.errstate(invalid="ignore", over="ignore"):
        for r in range(len(out)):
            here = tilt._make(part[r : r + 1] if len(part) > 1 else part for part in tilt)
            out[r] = of_row(layout, state[:2, r], order, here)
    return out


def _of_units(layout, state, order, tilt):
    prior, powers = layout.prior, (None, np.square, lambda w: w**3)
    cumulants = [*state, prior.third_cumulant(state[0])[0]] if order == 3 else state
    products = [
        (with_entries(layout.couplings, power) if power else layout.couplings) @ states
        for power, states in zip(powers[:order], cumulants, strict=False)
    ]
    rows = [[part[None] for part in parts] for parts in (cumulants, products)]
    return of_units(prior, *rows, tilt, slice(None))[0]


def _with_groups(layout, state, order, tilt):
    mean, var = state
    tilts = _fields(layout, mean, var, order)
    rows = [[part[None] for part in parts] for parts in (state, tilts)]
    return grouped.of_units(layout.prior, *rows, tilt, slice(None))[0]


def _fields(layout, mean, var, order):
    """Fields W' m on all units, and the tilts b and a, as in `_grouped_free_energy.fields`."""
    sizes, couplings = column_sizes(layout.prior), layout.couplings
    scalar = ~np.repeat(column_is_group(layout.prior), sizes)
    field = couplings @ mean
    if order < 2:
        return field, field.copy(), np.zeros_like(field)
    # Entries of a unit's row are divided into its sources: columns of units.
    column = np.repeat(np.arange(len(sizes)), sizes)
    row = np.repeat(np.arange(len(mean)), np.diff(couplings.indptr))
    source = column[couplings.indices]
    begins = np.flatnonzero(np.diff(source, prepend=-1) | np.diff(row, prepend=-1))
    from_group = ~scalar[couplings.indices[begins]]
    of_source = np.add.reduceat(couplings.data * mean[couplings.indices], begins)
    second = np.where(scalar, var, mean)
    a = -(with_entries(couplings, np.square) @ second)
    a += np.bincount(row[begins], np.where(from_group, of_source**2, 0), len(mean))
    # Fields of groups on their sources, s, by the symmetry of the couplings; what they respond is
    # W' C s, with one dot product of means and fields for each pair of columns.
    target = column[row]
    pairs = target.astype(np.int64) * len(sizes) + source
    order_of = np.lexsort((couplings.indices, source, target))
    keys = pairs[order_of] * 1, couplings.indices[order_of]
    starts = np.flatnonzero(np.diff(keys[0], prepend=-1) | np.diff(keys[1], prepend=-1))
    own = np.add.reduceat((couplings.data * mean[row])[order_of], starts)
    unit, pair = keys[1][starts], keys[0][starts]
    firsts = np.flatnonzero(np.diff(pair, prepend=-1))
    dots = np.add.reduceat(own * mean[unit], firsts)
    dots = np.repeat(dots, np.diff(firsts, append=len(pair)))
    response = np.where(scalar[unit], var[unit] * own, mean[unit] * (own - dots))
    lengths = np.diff(starts, append=len(row))
    spread = np.empty(len(row), response.dtype)
    spread[order_of] = np.repeat(response, lengths)
    responses = np.bincount(row, couplings.data * spread, len(mean))
    return field, np.where(scalar, field + a * mean, field - responses), a
