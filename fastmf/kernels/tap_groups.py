"""The update of a block in models with groups of states (categorical units).

The states of a group have the covariance C = diag(m) - m m', so that the Onsager term of a group i
is a matrix. With the field r_k = W_k' m_k of each group k, a whole group of units is updated by

    s = W_i m_i                       fields of the group alone on the units it is coupled to
    b = W' (m - C s)                  with C s = v s for units that are no groups
    a = -sum_j v_j W_j^2 - sum_k [(W_k^2)' m_k - r_k^2]
    m_i = softmax(field_i + b - a / 2)

and a unit that is no group by b = W' m + a m, with the same a. The fields of single groups are kept
from the update of one side to that of the other, where they are s. So an RBM of groups beside other
units needs four products a sweep, and a fully visible machine three.

Formulas: order 2 of Plefka's expansion at fixed means of all states; it is `fastmf.kernels.tap` for
groups of two states.
"""

from functools import partial

import numpy as np

from fastmf._numba import REORDER, kernel, larger, row, smaller, view
from fastmf.kernels.mean_field_types import (
    GROUP,
    N_SOURCE,
    N_SOURCES,
    PRODUCT,
    SCALARS,
    SHIFTED,
    SOURCE,
    SOURCES,
    START,
    TARGETS,
    WIDTH,
    packed_couplings,
)
from fastmf.kernels.product import TILE_VECTORS, product
from fastmf.kernels.tap import relax, update_address
from fastmf.kernels.tap_rows import MEAN, ROW, SLOT_SIZE, STEP, VAR, A, B
from fastmf.priors._compiled import tilted_moments
from fastmf.priors._group_loops import subtract_response

# Planes of products: fields, variances of fields, and products with one of several sources.
FIELD, ONSAGER, OWN = range(3)

_NUMBERS = np.empty(0, np.int64)


@kernel(merged=True)
def _shift(mean, var, s, shifted, sources):
    """Set `shifted` to m - C s: the means of the sources less their response to a group."""
    for k in range(sources.shape[0]):
        begin, n, kind = (sources[k, 0],), sources[k, 1], sources[k, 2]
        if kind == SCALARS:
            # Loops that begin at 0 have no negative index, which would keep them from vectors.
            m, v = row(mean, begin, n), row(var, begin, n)
            out, field = row(shifted, begin, n), row(s, begin, n)
            for j in range(n):
                out[j] = m[j] - v[j] * field[j]
        if kind == GROUP:
            subtract_response(mean, s, begin[0], begin[0] + n, shifted)


@kernel(inner=True)
def _multiply(layer, active, n_active, source, packed, planes):
    """Products of one source with its rows of packed couplings, or their squares.

    `planes` holds the plane of the state, that of the products, the first column of these, and
    their number. Whole vectors are written: the columns after them are filled later.
    """
    plane, out, column, n = planes
    begin, end = source[0], source[0] + source[1]
    states, out = active.state[plane], active.products[out, :, column:]
    product(layer[PRODUCT], states, n_active, layer[SOURCE] + begin, packed[:, begin:end], out, n)


@kernel(merged=True)
def _add_own(active, s, plane, column, n):
    """Add the products with one source to their sums."""
    total, own = row(active.products, (plane, s, column), n), row(active.products, (OWN, s, 0), n)
    for i in range(n):
        total[i] += own[i]


@kernel(merged=True)
def _add_variances(layer, active, n_active, sources, columns):
    """Sums of W^2 v, of W^2 m over groups, for some columns of the packed squares."""
    first, n = columns
    n_panels = -(-n // layer[WIDTH])
    packed = packed_couplings(layer, 1, first, first + n_panels, active.products)
    plane = np.int64(ONSAGER)
    for k in range(sources.shape[0]):
        source = sources[k]
        if source[2] == GROUP:
            continue
        of_state = VAR if source[2] == SCALARS else MEAN
        _multiply(layer, active, n_active, source, packed, (of_state, plane, np.int64(0), n))
        for s in range(n_active if plane == OWN else 0):
            _add_own(active, s, ONSAGER, 0, n)
        plane = np.int64(OWN)


@kernel(inner=True)
def _copy_columns(source, n_active, first, n, target, column):
    """Copy the columns `first`, ... of the active rows of an array to columns of another one."""
    for s in range(n_active):
        given, copied = row(source, (s, first), n), row(target, (s, column), n)
        for i in range(n):
            copied[i] = given[i]


@kernel(inner=True)
def _keep_group(layer, active, n_active, source, packed, first, n):
    """Store the fields of a single group on the units `first`, ... of a layer."""
    fields, own, position = active.group_fields[0], active.products[OWN], source[3] + first
    # Products fill whole vectors: the fields on later units are put back.
    end, lanes = position + n, layer[WIDTH] // TILE_VECTORS
    n_after = -n % lanes
    _copy_columns(fields, n_active, end, n_after, own, 0)
    begin, states = source[0], active.state[MEAN]
    packed, out = packed[:, begin : begin + source[1]], fields[:, position:]
    product(layer[PRODUCT], states, n_active, layer[SOURCE] + begin, packed, out, n)
    _copy_columns(own, n_active, 0, n_after, fields, end)


@kernel(merged=True)
def _group_field(active, s, source, first, n):
    """The field of a single group on the units `first`, ... of a layer."""
    return row(active.group_fields, (0, s, source[3] + first), n)


@kernel(merged=True)
def _add_groups(active, s, sources, first, n, column):
    """Add the fields of single groups, and to the variances less their squares."""
    field = row(active.products, (FIELD, s, column), n)
    onsager = row(active.products, (ONSAGER, s, column), n)
    k = np.int64(0)
    while k < sources.shape[0]:
        n_groups = np.int64(0)
        while n_groups < 4 and k + n_groups < sources.shape[0]:
            if sources[k + n_groups, 2] != GROUP:
                break
            n_groups += 1
        r = _group_field(active, s, sources[k], first, n)
        if n_groups == 4:
            # Four at once: the sums are loaded and stored a quarter as often.
            r2 = _group_field(active, s, sources[k + 1], first, n)
            r3 = _group_field(active, s, sources[k + 2], first, n)
            r4 = _group_field(active, s, sources[k + 3], first, n)
            for i in range(n):
                field[i] += (r[i] + r2[i]) + (r3[i] + r4[i])
                onsager[i] -= (r[i] * r[i] + r2[i] * r2[i]) + (r3[i] * r3[i] + r4[i] * r4[i])
        elif n_groups > 0:
            n_groups = np.int64(1)
            for i in range(n):
                field[i] += r[i]
                onsager[i] -= r[i] * r[i]
        k += larger(n_groups, 1)


@kernel(merged=True)
def _add_fields(layer, active, n_active, target, sources, column):
    """Fields of some units; those of single groups are kept, and squared in the variances.

    The fields of a group are left out but for the sources that are groups.
    """
    first, n, panel, is_group = target[0], target[1], target[2], target[3] >= 0
    n_panels = -(-n // layer[WIDTH])
    packed = packed_couplings(layer, 0, panel, panel + n_panels, active.products)
    for s in range(n_active):
        zero = row(active.products, (FIELD, s, column), n)
        for i in range(n):
            zero[i] = 0
    for k in range(sources.shape[0]):
        source = sources[k]
        if source[2] == GROUP:
            _keep_group(layer, active, n_active, source, packed, first, n)
        elif source[2] == SCALARS and not is_group:
            _multiply(layer, active, n_active, source, packed, (MEAN, OWN, np.int64(0), n))
            for s in range(n_active):
                _add_own(active, s, FIELD, column, n)
    for s in range(n_active):
        _add_groups(active, s, sources, first, n, column)


@kernel(merged=True)
def _multiply_shifted(layer, active, n_active, target, sources, column):
    """Fields of a group on which its own effect on the neighbours is left out."""
    n_source, n = layer[N_SOURCE], target[1]
    for s in range(n_active):
        mean = row(active.state, (MEAN, s, layer[SOURCE]), n_source)
        var = row(active.state, (VAR, s, layer[SOURCE]), n_source)
        own = row(active.group_fields, (0, s, target[3]), n_source)
        shifted = row(active.group_fields, (0, s, layer[SHIFTED]), n_source)
        _shift(mean, var, own, shifted, sources)
    n_panels = -(-n // layer[WIDTH])
    packed = packed_couplings(layer, 0, target[2], target[2] + n_panels, active.products)
    states, out = active.group_fields[0], active.products[FIELD, :, column:]
    product(layer[PRODUCT], states, n_active, layer[SHIFTED], packed, out, n)


@kernel(merged=True)
def _multiply_means(layer, active, n_active, target, column):
    """Fields of some units from all sources alike."""
    n = target[1]
    n_panels = -(-n // layer[WIDTH])
    packed = packed_couplings(layer, 0, target[2], target[2] + n_panels, active.products)
    source = (np.int64(0), layer[N_SOURCE])
    _multiply(layer, active, n_active, source, packed, (MEAN, FIELD, column, n))


@kernel(merged=True)
def finish(layer, active, s, targets, order, tilt):
    """New moments of the units of some targets, of one row, from their products."""
    first, slot = targets[0, 0], row(active.slots, (0, s, 0), SLOT_SIZE)
    n = targets[targets.shape[0] - 1, 0] + targets[targets.shape[0] - 1, 1] - first
    here, index, start = layer[START] + first, np.int64(slot[ROW]), targets[0, 4] % layer[WIDTH]
    state, scratch = active.state, active.scratch
    mean, a = row(state, (MEAN, s, here), n), row(state, (A, s, here), n)
    new_mean, new_var = row(scratch, (0, 0), n), row(scratch, (1, 0), n)
    b, total_a = row(state, (B, s, here), n), row(scratch, (2, 0), n)
    external = row(tilt.field, (smaller(index, tilt.field.shape[0] - 1), here), n)
    precision = row(tilt.precision, (smaller(index, tilt.precision.shape[0] - 1), here), n)
    field, implicit = row(active.products, (FIELD, s, start), n), row(scratch, (3, 0), n)
    if order > 1:
        onsager = row(active.products, (ONSAGER, s, start), n)
        for i in range(n):
            a[i] = -onsager[i]
    t = np.int64(0)
    while t < targets.shape[0]:
        begin, is_group = targets[t, 0] - first, targets[t, 3] >= 0
        while t < targets.shape[0] and (targets[t, 3] >= 0) == is_group:
            t += 1
        end = targets[t, 0] - first if t < targets.shape[0] else n
        # The states of a group take steps of one size, so that their means still sum to 1.
        factor = mean.dtype.type(0 if is_group else 1)
        onsager, part = row(a, (begin,), end - begin), row(implicit, (begin,), end - begin)
        for i in range(end - begin):
            part[i] = factor * onsager[i]
    for i in range(n):
        total_a[i] = a[i] + precision[i]
    for i in range(n):
        b[i] = field[i] + implicit[i] * mean[i] + external[i]
    tilted_moments(layer, first, b, total_a, new_mean, new_var)
    clamped = row(tilt.clamped, (smaller(index, tilt.clamped.shape[0] - 1), here), n)
    var, step = row(state, (VAR, s, here), n), row(state, (STEP, s, here), n)
    relax((mean, var, step, implicit), (new_mean, new_var), clamped, slot)


@kernel(by_address=True, fastmath=REORDER, views=True)
def _update_block(layer, block, rows, active, settings, tilt):
    """Update the targets `block` (first, last) of a layer together, in all active rows."""
    n_active, width = rows[0], layer[WIDTH]
    targets = view(layer[TARGETS], (block[1], 5), _NUMBERS)[block[0] :]
    sources = view(layer[SOURCES], (layer[N_SOURCES], 4), _NUMBERS)
    last, first_panel = targets[targets.shape[0] - 1], targets[0, 4] // width
    start = first_panel * width
    if settings.order > 1:
        columns = (first_panel, last[4] + last[1] - start)
        _add_variances(layer, active, n_active, sources, columns)
    for t in range(targets.shape[0]):
        target = targets[t]
        column = target[4] - start
        if settings.order > 1:
            _add_fields(layer, active, n_active, target, sources, column)
            if target[3] >= 0:
                _multiply_shifted(layer, active, n_active, target, sources, column)
        else:
            _multiply_means(layer, active, n_active, target, column)
    for s in range(n_active):
        finish(layer, active, s, targets, settings.order, tilt)


# Address of the compiled update of a block of targets, for a floating type.
group_update_address = partial(update_address, update=_update_block)
