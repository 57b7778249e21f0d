"""The update of a block in models with groups of states (categorical units).

The states of a group have the covariance C = diag(m) - m m', so that the Onsager term of a group i
is a matrix. With the field r_k = W_k' m_k of each group k, a whole group of units is updated by

    s = W_i m_i                       fields of the group alone on the units it is coupled to
    b = W' (m - C s)                  with C s = v s for units that are no groups
    a = -sum_j v_j W_j^2 - sum_k [(W_k^2)' m_k - r_k^2]
    m_i = softmax(field_i + b - a / 2)

and a unit that is no group by b = W' m + a m, with the same a. The fields of single groups are kept
from the update of one side to the update of the other, where they are s. So an RBM of groups beside
other units needs four products a sweep, and a fully visible machine three.

Formulas: order 2 of Plefka's expansion at fixed means of all states; it is
`fastmf.kernels.mean_field.tap` for groups of two states.
"""

import numpy as np

from fastmf._jit.intrinsics import row, view
from fastmf._jit.kernel import REORDER, kernel
from fastmf.kernels.linear.copies import set_to_zero
from fastmf.kernels.linear.product import product
from fastmf.kernels.mean_field.arguments import (
    ALONE,
    GROUP,
    N_SOURCE,
    PRODUCT,
    SCALARS,
    SHIFTED,
    SOURCE,
    WIDTH,
    packed_couplings,
    sources_of,
    targets_of,
)
from fastmf.kernels.mean_field.rows import FIELD, MEAN, ONE_SOURCE, ONSAGER, VAR, WHOLE_FIELD
from fastmf.kernels.mean_field.units import update_units


@kernel(mode="merged")
def _shift(mean, var, s, shifted, sources):
    """Set `shifted` to m - C s: the means of the sources less their response to a group."""
    for k in range(sources.shape[0]):
        begin, n, kind = sources[k, 0], sources[k, 1], sources[k, 2]
        # Loops that begin at 0 have no negative index, which would keep them from vectors.
        m, out, field = (
            row(mean, (begin,), n),
            row(shifted, (begin,), n),
            row(s, (sources[k, 4],), n),
        )
        if kind == SCALARS:
            v = row(var, (begin,), n)
            for j in range(n):
                out[j] = m[j] - v[j] * field[j]
        if kind == GROUP:
            subtract_response(m, field, out)


@kernel(mode="inner", fastmath=REORDER)
def subtract_response(mean, field, out):
    """Set `out` to mean - C field for one group, with C = diag(mean) - mean mean'."""
    total = mean[0] * field[0]
    for i in range(1, mean.shape[0]):
        total += mean[i] * field[i]
    total += 1
    for i in range(mean.shape[0]):
        out[i] = mean[i] * (total - field[i])


@kernel(mode="inner")
def _multiply(layer, n_active, states, source, packed, out, n):
    """Products of one source with its rows of packed couplings, or their squares.

    Whole vectors are written: the columns after them are filled later.
    """
    begin, packed = layer[SOURCE] + source[0], packed[:, source[0] : source[0] + source[1]]
    product(layer[PRODUCT], states, n_active, begin, packed, out, n)


@kernel(mode="inner")
def _add_own(active, n_active, plane, column, n):
    """Add the products with one source to their sums."""
    for s in range(n_active):
        total, of_source = (
            row(active.products, (plane, s, column), n),
            row(active.products, (ONE_SOURCE, s, 0), n),
        )
        for i in range(n):
            total[i] += of_source[i]


@kernel(mode="merged")
def _add_variances(layer, active, n_active, sources, columns):
    """Sums of W^2 v, of W^2 m over groups, for some columns of the packed squares."""
    first, n = columns
    packed = packed_couplings(layer, 1, first, first - (-n // layer[WIDTH]), active.products)
    plane = np.int64(ONSAGER)
    for s in range(n_active if sources.shape[0] == 0 else 0):
        set_to_zero(row(active.products, (plane, s, 0), n))
    for k in range(sources.shape[0]):
        source = sources[k]
        if source[2] == GROUP:
            continue
        states = active.state[VAR if source[2] == SCALARS else MEAN]
        _multiply(layer, n_active, states, source, packed, active.products[plane], n)
        if plane == ONE_SOURCE:
            _add_own(active, n_active, np.int64(ONSAGER), np.int64(0), n)
        plane = np.int64(ONE_SOURCE)


@kernel(mode="merged")
def _group_field(active, s, source, target, n):
    """The field of a single group on some units."""
    return row(active.group_fields, (0, s, source[3] + target[5]), n)


@kernel(mode="merged")
def _add_groups(active, s, sources, target, n, column):
    """Add the fields of single groups, and to the variances less their squares."""
    field = row(active.products, (FIELD, s, column), n)
    onsager = row(active.products, (ONSAGER, s, column), n)
    # Four at once: the sums are loaded and stored a quarter as often. In the last round some of
    # the four may be there twice, with weight 0.
    r = r2 = r3 = r4 = field
    one, n_groups, n_sources = field.dtype.type(1), np.int64(0), sources.shape[0]
    for k in range(n_sources):
        if sources[k, 2] == GROUP:
            r, r2, r3, r4 = _group_field(active, s, sources[k], target, n), r, r2, r3
            if n_groups == 0:
                r2 = r3 = r4 = r
            n_groups += 1
        if n_groups == 4 or (k + 1 == n_sources and n_groups > 0):
            u, v, w = one * (n_groups > 1), one * (n_groups > 2), one * (n_groups > 3)
            for i in range(n):
                x, y, z = u * r2[i], v * r3[i], w * r4[i]
                field[i] += (r[i] + x) + (y + z)
                onsager[i] -= (r[i] * r[i] + x * x) + (y * y + z * z)
            n_groups = np.int64(0)


@kernel(mode="merged")
def _add_fields(layer, active, n_active, target, sources, packed, column):
    """Fields of some units; fields of single groups are stored, and squared in the variances.

    The fields of a group are left out but for the sources that are groups.
    """
    n, is_group = target[1], target[3] >= 0
    states, of_source = active.state[MEAN], active.products[ONE_SOURCE]
    for s in range(n_active):
        zero = row(active.products, (FIELD, s, column), n)
        for i in range(n):
            zero[i] = 0
    for k in range(sources.shape[0]):
        source = sources[k]
        if source[2] == GROUP:
            out = active.group_fields[0, :, source[3] + target[5] :]
            _multiply(layer, n_active, states, source, packed, out, n)
        elif source[2] == SCALARS and not is_group:
            _multiply(layer, n_active, states, source, packed, of_source, n)
            _add_own(active, n_active, np.int64(FIELD), column, n)
    for s in range(n_active):
        _add_groups(active, s, sources, target, n, column)


@kernel(mode="inner")
def _multiply_means(layer, active, n_active, target, packed, plane, column):
    """Fields W' m of a target."""
    states, out = active.state[MEAN], active.products[plane, :, column:]
    product(layer[PRODUCT], states, n_active, layer[SOURCE], packed, out, target[1])


@kernel(mode="merged")
def _multiply_shifted(layer, active, n_active, target, sources, packed, column):
    """Fields of a group on which its own effect on the neighbours is left out."""
    n_source, n_fields = layer[N_SOURCE], active.group_fields.shape[2] - target[3]
    for s in range(n_active):
        mean = row(active.state, (MEAN, s, layer[SOURCE]), n_source)
        var = row(active.state, (VAR, s, layer[SOURCE]), n_source)
        of_source = row(active.group_fields, (0, s, target[3]), n_fields)
        shifted = row(active.group_fields, (0, s, layer[SHIFTED]), n_source)
        _shift(mean, var, of_source, shifted, sources)
    states, out = active.group_fields[0], active.products[FIELD, :, column:]
    product(layer[PRODUCT], states, n_active, layer[SHIFTED], packed, out, target[1])


@kernel(mode="merged")
def finish(layer, active, s, targets, settings, tilt):
    """New moments of the units of some targets, of one row, from their products."""
    first, last = targets[0, 0], targets.shape[0] - 1
    n, column = targets[last, 0] + targets[last, 1] - first, targets[0, 4] % layer[WIDTH]
    like, units = active.products, (s, first, n, column)
    alone = view(layer[ALONE] + first * like.itemsize, (n,), like)
    update_units(settings.finish, layer, active, units, settings.order, tilt, alone)


@kernel(mode="by_address", fastmath=REORDER, views=True)
def update_block(layer, block, n_active, active, settings, tilt):
    """Update the targets `block` (first, last) of a layer together, in all active rows."""
    width = layer[WIDTH]
    targets = targets_of(layer)[block[0] : block[1]]
    sources = sources_of(layer)
    last, first_panel = targets[targets.shape[0] - 1], targets[0, 4] // width
    start = first_panel * width
    if settings.order > 1:
        columns = (first_panel, last[4] + last[1] - start)
        _add_variances(layer, active, n_active, sources, columns)
    for t in range(targets.shape[0]):
        target = targets[t]
        column, panel = target[4] - start, target[2]
        packed = packed_couplings(layer, 0, panel, panel - (-target[1] // width), active.products)
        if settings.order == 1:
            _multiply_means(layer, active, n_active, target, packed, np.int64(FIELD), column)
        else:
            _add_fields(layer, active, n_active, target, sources, packed, column)
        if settings.order > 1 and target[3] >= 0:
            _multiply_shifted(layer, active, n_active, target, sources, packed, column)
        if settings.measures:
            _multiply_means(layer, active, n_active, target, packed, np.int64(WHOLE_FIELD), column)
    for s in range(n_active):
        finish(layer, active, s, targets, settings, tilt)
