"""Groups of states in steps of learning an RBM by TAP: gradient, and packed couplings.

With means m, covariances C and second moments u of the layers v and h (u = m in a group, otherwise
the variance), the terms of second order have the gradient C_v W C_h by the couplings W:

    W (u_v u_h')
    for each visible group i        - m_i (C_h s_i)'            on its rows, s_i = W_i' m_i
    for each hidden group k         - (u_v r_k) m_k'            on its columns, r_k = W_k m_k

The first is one of the products of all steps; what the others add to the gradient of the
log-likelihood, averaged over solutions, is found here: see
`fastmf.learning.layered.group_gradients`.
"""

import numpy as np

from fastmf._jit.intrinsics import fetch_and_increment, row, smaller
from fastmf._jit.kernel import REORDER, kernel
from fastmf.kernels.linear.copies import copy, set_to_zero
from fastmf.kernels.linear.product import product
from fastmf.kernels.mean_field.arguments import (
    GROUP,
    N_PANELS,
    N_TARGETS,
    N_UNITS,
    PRODUCT,
    SCALARS,
    START,
    WIDTH,
    packed_couplings,
    sources_of,
    targets_of,
)
from fastmf.kernels.mean_field.groups import subtract_response
from fastmf.kernels.mean_field.rows import MEAN, VAR
from fastmf.kernels.training.arguments import GROUP_GRADIENT, WEIGHT_MATRIX
from fastmf.kernels.training.gradients import weights_between


@kernel(mode="merged")
def _find_second_moments(layer, target, state, second_moments):
    """Second moments of some units in all rows: variances, or the means of states of a group."""
    first, n, plane = layer[START] + target[0], target[1], MEAN if target[3] >= 0 else VAR
    for r in range(second_moments.shape[0]):
        copy(row(state, (plane, r, first), n), row(second_moments, (r, first), n))


@kernel(mode="merged")
def _packed(layer, first, n, sources, like):
    """Packed couplings of `n` units, from a panel on, to some of those they are coupled to."""
    packed = packed_couplings(layer, 0, first, first - (-n // layer[WIDTH]), like)
    return packed[:, sources[0] : sources[0] + sources[1]]


@kernel(mode="merged")
def _respond(mean, var, sources, field, out):
    """Set `out` to C field, source by source: the response of units to the field of a group."""
    for k in range(sources.shape[0]):
        begin, n, kind = sources[k, 0], sources[k, 1], sources[k, 2]
        # Loops that begin at 0 have no negative index, which would keep them from vectors.
        m, v = row(mean, (begin,), n), row(var, (begin,), n)
        s, response = row(field, (sources[k, 4],), n), row(out, (begin,), n)
        if kind == SCALARS:
            for j in range(n):
                response[j] = v[j] * s[j]
        if kind == GROUP:
            subtract_response(m, s, response)
            for j in range(n):
                response[j] = m[j] - response[j]


@kernel(mode="merged")
def _pack_row(units, r, right):
    """Let these be row `r` of a packed matrix."""
    n, width = units.shape[0], right.shape[2]
    for begin in range(0, n, width):
        n_here = smaller(width, n - begin)
        copy(row(units, (begin,), n_here), row(right, (begin // width, r, 0), n_here))


@kernel(mode="merged")
def _add_products(layer, n_rows, memory, effect, block):
    """Add averages of left' right, of so many rows in memory, to a block of `effect`."""
    (first, n), (column, n_columns), products = block[0], block[1], memory.products
    scale, right = 1 / effect.dtype.type(n_rows), memory.right
    right = right[: -(-n_columns // right.shape[2])]
    product(layer[PRODUCT], memory.left[:n_rows].T, n, np.int64(0), right, products, n_columns)
    for i in range(n):
        total = row(effect, (first + i, column), n_columns)
        p = row(products, (i, 0), n_columns)
        for j in range(n_columns):
            total[j] += scale * p[j]


@kernel(mode="merged")
def _pack_responses(layers, group, state, memory):
    """Pack the response of the hidden units to a visible group, in all rows."""
    (visible, hidden), first, mean, products = layers, group[0], state[MEAN], memory.products
    targets, sources, n_starts = targets_of(hidden), sources_of(visible), state.shape[1]
    out = row(memory.vectors, (1, 0), hidden[N_UNITS])
    for begin in range(0, n_starts, products.shape[0]):
        n_rows = smaller(products.shape[0], n_starts - begin)
        for t in range(targets.shape[0]):
            n_columns, panel, column = targets[t, 1], targets[t, 2], targets[t, 5]
            packed = _packed(hidden, panel, n_columns, group, products)
            states, fields = mean[begin:], products[:, column:]
            product(visible[PRODUCT], states, n_rows, first, packed, fields, n_columns)
        for s in range(n_rows):
            place = begin + s, hidden[START]
            m, v = row(mean, place, hidden[N_UNITS]), row(state[VAR], place, hidden[N_UNITS])
            _respond(m, v, sources, products[s], out)
            _pack_row(out, begin + s, memory.right)


@kernel(mode="merged")
def _add_visible_group(layers, group, state, memory, effect):
    """Add the response of the hidden units to a visible group to the rows of its states."""
    (first, n), n_starts, n_hidden = group, state.shape[1], layers[1][N_UNITS]
    _pack_responses(layers, group, state, memory)
    width = layers[0][WIDTH]
    for begin in range(0, n, width):
        n_here = smaller(width, n - begin)
        for r in range(n_starts):
            m = row(state[MEAN], (r, first + begin), n_here)
            copy(m, row(memory.left, (r, 0), n_here))
        block = (first + begin, n_here), (np.int64(0), n_hidden)
        _add_products(layers[0], n_starts, memory, effect, block)


@kernel(mode="merged")
def _multiply_fields(layers, units, group, moments, memory):
    """Fields of a hidden group on some visible units, times their second moments, in all rows."""
    (visible, hidden), (first, n, panel), products = layers, units, memory.products
    (state, second_moments), n_starts = moments, moments[1].shape[0]
    packed, start = _packed(visible, panel, n, group, products), hidden[START] + group[0]
    for begin in range(0, n_starts, products.shape[0]):
        n_rows = smaller(products.shape[0], n_starts - begin)
        states = state[MEAN, begin:]
        product(visible[PRODUCT], states, n_rows, start, packed, products, n)
        for s in range(n_rows):
            u = row(second_moments, (begin + s, first), n)
            x = row(memory.left, (begin + s, 0), n)
            for i in range(n):
                x[i] = products[s, i] * u[i]


@kernel(mode="merged")
def _add_hidden_groups(layers, target, moments, memory, effect):
    """Add the response of some visible units to the hidden groups to the columns of these."""
    (visible, hidden), state, n_starts = layers, moments[0], moments[1].shape[0]
    sources, width = sources_of(visible), visible[WIDTH]
    for k in range(sources.shape[0]):
        group = sources[k, 0], sources[k, 1]
        if sources[k, 2] != GROUP:
            continue
        for r in range(n_starts):
            m = row(state[MEAN], (r, hidden[START] + group[0]), group[1])
            _pack_row(m, r, memory.right)
        for begin in range(0, target[1], width):
            first, n, panel = target[0] + begin, target[1] - begin, target[2] + begin // width
            n = smaller(n, width)
            _multiply_fields(layers, (first, n, panel), group, moments, memory)
            _add_products(visible, n_starts, memory, effect, ((first, n), group))


@kernel(mode="by_address", views=True, fastmath=REORDER)
def find_effects(step, batches, parameters, sweep, settings, statistics, memory, queue):
    """Second moments of units, and what the groups add to the gradient, target by target."""
    layers, state = (sweep.layers[0], sweep.layers[1]), statistics.model.state
    second_moments = statistics.second_moments
    effect = weights_between(sweep.layers, 0, parameters, GROUP_GRADIENT)
    n_visible, t = layers[0][N_TARGETS], fetch_and_increment(queue)
    while t < n_visible + layers[1][N_TARGETS]:
        if t >= n_visible:
            target = targets_of(layers[1])[t - n_visible]
            _find_second_moments(layers[1], target, state, second_moments)
        else:
            target = targets_of(layers[0])[t]
            _find_second_moments(layers[0], target, state, second_moments)
            for i in range(target[0], target[0] + target[1]):
                set_to_zero(row(effect, (i, 0), effect.shape[1]))
            if target[3] >= 0:
                _add_visible_group(layers, (target[0], target[1]), state, memory, effect)
            _add_hidden_groups(layers, target, (state, second_moments), memory, effect)
        t = fetch_and_increment(queue)


# --- packed couplings -----------------------------------------------------------------------------


@kernel(mode="merged")
def _fill_panel(k, weights, first, n, packed):
    """Fill in the couplings of some units of layer `k`, the columns of one panel."""
    if k == 1:
        for i in range(weights.shape[0]):
            copy(row(weights, (i, first), n), row(packed, (i, 0), n))
        return
    for i in range(n):
        w = row(weights, (first + i, 0), weights.shape[1])
        for j in range(w.shape[0]):
            packed[j, i] = w[j]


@kernel(mode="merged")
def _pack_panel(layer, k, panel, weights, order):
    """Fill in a panel of the couplings of a layer, and the one of the squares of this number."""
    width, targets, t = layer[WIDTH], targets_of(layer), np.int64(0)
    while t + 1 < targets.shape[0] and targets[t + 1, 2] <= panel:
        t += 1
    skipped = (panel - targets[t, 2]) * width
    n = smaller(width, targets[t, 1] - skipped)
    packed = packed_couplings(layer, 0, panel, panel + 1, weights)[0]
    _fill_panel(k, weights, targets[t, 0] + skipped, n, packed)
    n = smaller(width, layer[N_UNITS] - panel * width)
    if order == 1 or n <= 0:
        return
    squares = packed_couplings(layer, 1, panel, panel + 1, weights)[0]
    _fill_panel(k, weights, panel * width, n, squares)
    for j in range(squares.shape[0]):
        w = row(squares, (j, 0), n)
        for i in range(n):
            w[i] *= w[i]


@kernel(mode="by_address", views=True)
def repack_groups(step, batches, parameters, sweep, settings, statistics, memory, queue):
    """Fill in the packed couplings, panel by panel."""
    weights = weights_between(sweep.layers, 0, parameters, WEIGHT_MATRIX)
    n_visible, p = sweep.layers[0, N_PANELS], fetch_and_increment(queue)
    while p < n_visible + sweep.layers[1, N_PANELS]:
        k = 1 if p >= n_visible else 0
        _pack_panel(sweep.layers[k], k, p - k * n_visible, weights, settings.order)
        p = fetch_and_increment(queue)
