"""The mean-field log-partition (minus the free energy) of given means and variances.

With b and a as in `fastmf.kernels.mean_field.tap`, before external tilts are added,

    log Z = sum_i [log Z_i(b + field, a + precision) - b m + a (m^2 + v) / 2]
            + sum_(i,j) [W m_i m_j + W^2 v_i v_j / 2 + W^3 k_i k_j / 6]

where the second sum has each pair once, and its three terms are those of order 1, 2 and 3.
"""

from contextlib import nullcontext
from itertools import pairwise

import numpy as np

from fastmf._threads.workers import for_each, in_parallel, one_blas_thread, workers_for
from fastmf.inference.mean_field import _grouped_free_energy
from fastmf.inference.mean_field._grouped_free_energy import second_moments, second_order
from fastmf.kernels.linear.product import multiply, product_address
from fastmf.models._layered import Layered

# Entries of the arrays of some rows that are taken together, so that they stay in the cache, and
# how many rows there are at least: all couplings are read once for each block.
CACHED_ENTRIES, MIN_BLOCK_ROWS = 1 << 17, 16


def log_partition_of_rows(model, layout, state, order, tilt, n_threads=None):
    """Compute the log-partition of each row; clamped units have pair terms only."""
    of_block = _grouped_free_energy.log_partition_of_rows if layout.grouped else _of_block
    n_rows, n_units = state.shape[1:]
    step = max(MIN_BLOCK_ROWS, CACHED_ENTRIES // n_units)
    starts, out = range(0, n_rows, step), np.empty(n_rows)

    def fill_block(first):
        rows = slice(first, first + step)
        here = tilt._make(part[rows] if len(part) > 1 else part for part in tilt)
        with np.errstate(invalid="ignore", over="ignore"):
            out[rows] = of_block(model, layout, state[:, rows], order, here)

    n_workers = workers_for(len(starts), 100 * n_rows * n_units, n_threads)
    # Products of groups are BLAS's.
    with one_blas_thread() if layout.grouped else nullcontext():
        for_each(fill_block, starts, n_workers)
    return out


def _of_block(model, layout, state, order, tilt):
    mean, var = state[:2]
    total = np.zeros(len(mean))
    third = np.empty_like(mean) if order == 3 else None
    for prior, units in zip(model.layers if order == 3 else (), layout.bounds, strict=False):
        third[:, units] = prior.third_cumulant(mean[:, units])[0]
    for layer, prior, units in zip(
        layout.layers.of_model, model.layers, layout.bounds, strict=True
    ):
        powers = (mean, layer.couplings), (var, layer.squares), (third, layer.cubes)
        products = [_products(states, layer, packed) for states, packed in powers[:order]]
        cumulants = [part[:, units] for part in (mean, var, third)[: max(order, 2)]]
        total += of_units(prior, cumulants, products, tilt, units)
    return total


def of_units(prior, cumulants, products, tilt, units):
    """Sum log-partitions of some units and half of the terms of their pairs, by row.

    `cumulants` are means, variances and third cumulants, `products` W' m, (W^2)' v and (W^3)' k, up
    to the order; the first of these is overwritten.
    """
    (m, v, *k), (b, *higher) = cumulants, products
    a = -higher[0] if higher else np.zeros_like(m)
    b += a * m
    # Half of the pairs' terms and the terms -b m + a (m^2 + v) / 2 of the units, put together.
    total = _sum(a, v) / 4 - _sum(m, b) / 2
    if k:
        more = higher[1] * (prior.third_cumulant(m)[1] / 6)
        total += _sum(k[0], higher[1]) / 12 - _sum(m, more)
        b += more
    return total + _units_alone(prior, (m, v, b, a), tilt, units)


def _products(states, layer, packed):
    """Rows of states times the packed couplings to the units of a layer."""
    n_panels, _, width = packed.shape
    out = np.empty((len(states), n_panels * width), states.dtype)
    queue = np.zeros(1, np.int64)
    arguments = states, layer.source, packed, layer.n_units, queue, out
    in_parallel(multiply, (product_address(states.dtype), *arguments), 1)
    return out[:, : layer.n_units]


def _units_alone(prior, state, tilt, units):
    """Log-partitions of the units; adds their external tilts to b and a.

    Clamped units have none, and their terms -b m + a (m^2 + v) / 2 are taken back.
    """
    m, v, b, a = state
    clamped = np.broadcast_to(tilt.clamped[:, units], m.shape)
    some = tilt.clamped.any()
    taken_back = np.where(clamped, a * (m * m + v) / 2 - b * m, 0).sum(1) if some else 0
    for natural, external in ((b, tilt.field), (a, tilt.precision)):
        if external.any():
            natural += external[:, units]
    own = prior.log_partition(b, a)
    if some:
        own = np.where(clamped, 0, own)
    return own.sum(1, dtype=np.float64) - taken_back


def _sum(x, y):
    """Sums over the units of each row, in double precision."""
    return np.einsum("ij,ij->i", x, y, dtype=np.float64)


def log_partition_of_tilts(model, b, a, order, field=0.0, precision=0.0):
    """Log-partition as a function of the moments that tilts of the units give, by layer.

    It is the entropy of the units less their energy, with the pair terms up to second order.
    """
    moments, total = [], 0.0
    for prior, b_, a_ in zip(model.layers, b, a, strict=True):
        mean, var = prior.moments(b_, a_)
        moments.append((prior, mean, var))
        square = second_moments(prior, mean, mean * mean + var)
        total = total + prior.log_partition(b_, a_).sum(1)
        total = total + ((a_ - precision) * square / 2 + (field - b_) * mean).sum(1)
    layered = isinstance(model, Layered)
    pairs = list(pairwise(moments)) if layered else [(moments[0], moments[0])]
    couplings = model.couplings if layered else (model.couplings,)
    for weights, (below, above) in zip(couplings, pairs, strict=True):
        terms = ((below[1] @ weights) * above[1]).sum(1)
        if order > 1:
            terms = terms + second_order(weights, below, above)
        total = total + (terms if layered else terms / 2)
    return total
