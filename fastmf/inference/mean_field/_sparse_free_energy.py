"""The mean-field log-partition with sparse couplings, by sums over stored entries.

The formulas are those of `fastmf.inference.mean_field.free_energy`, and with groups of states those
of `fastmf.inference.mean_field._grouped_free_energy`.
"""

import numpy as np

from fastmf.inference.mean_field import _grouped_free_energy as grouped
from fastmf.inference.mean_field.free_energy import of_units
from fastmf.kernels.mean_field.rows import FIELD, ONSAGER, ActiveRows
from fastmf.kernels.mean_field.sparse import WHOLE_FIELD, products_of_columns
from fastmf.models._couplings import with_entries


def log_partition_of_rows(layout, state, order, tilt):
    """Mean-field log-partition of each row of a `SparseLayout`."""
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
    n, dtype = state.shape[1], state.dtype
    shapes = (2, 1, n), (WHOLE_FIELD + 1, 1, n), (1, 1), (1, 1, layout.max_sources)
    active = ActiveRows(np.empty((1, 1, 1)), *(np.empty(shape, dtype) for shape in shapes))
    active.state[:, 0] = state
    products_of_columns(layout.graph, order, active)
    b, variance, whole = (active.products[plane] for plane in (FIELD, ONSAGER, WHOLE_FIELD))
    a = -variance if order > 1 else np.zeros_like(b)
    b += layout.graph.alone * a * active.state[0]
    return grouped.of_units(layout.prior, active.state, (whole, b, a), tilt, slice(None))[0]
