"""Averages in steps of learning units of which more than the fields is learned.

Of the units of this package, the derivatives of log_prob(x) by the parameters are linear in x, x^2
and whether x is not 0, so that averages of these three are all that a step has to know of its rows:

    <x> = m,    <x^2> = m^2 + v,    <x is not 0> = 1 - exp(-log-partition)

with moments m, v under a tilt; the last is that of units with a spike at zero, whose weight there
is 1. See `fastmf.priors._domain.average_gradient`.
"""

from fastmf._intrinsics import fetch_and_increment, row
from fastmf._numba import kernel
from fastmf.kernels.mean_field_types import START
from fastmf.kernels.memory import set_to_zero
from fastmf.kernels.tap_rows import MEAN, VAR, A, B
from fastmf.kernels.training import phases
from fastmf.kernels.training_ascent import (
    add_means,
    pack_hidden,
    subtract_means_of_model,
)
from fastmf.kernels.training_types import AVERAGES, FIELDS, NONZERO, OFFSET, SECOND
from fastmf.priors._compiled import LOG_PARTITION, tilted_log_partition
from fastmf.special import exp


@kernel(merged=True)
def _add_squares(mean, var, first, scale, out):
    """Add `scale` times <x^2> of some units in all rows."""
    n = out.shape[0]
    for r in range(mean.shape[0]):
        m, v = row(mean, (r, first), n), row(var, (r, first), n)
        for i in range(n):
            out[i] += scale * (m[i] * m[i] + v[i])


@kernel(merged=True)
def _add_nonzero(layer, first, tilt, scale, out, log_z):
    """Add `scale` times the probability that x is not 0 in one row; `log_z` is scratch memory."""
    one = out.dtype.type(1)
    tilted_log_partition(layer, first - layer[START], tilt[0], tilt[1], log_z)
    for i in range(out.shape[0]):
        out[i] += scale * (one - exp(-log_z[i]))


@kernel(merged=True)
def _count_nonzero(x, first, scale, out):
    """Add `scale` for each row in which x is not 0."""
    n = out.shape[0]
    for r in range(x.shape[0]):
        of_row = row(x, (r, first), n)
        for i in range(n):
            if of_row[i] != 0:
                out[i] += scale


@kernel(merged=True)
def _compare_averages(layers, k, statistics, first, n, vectors):
    """Differences between data and model of the averages of x^2, and of whether x is not 0."""
    data, state, units = statistics.data, statistics.model.state, statistics.units
    second, nonzero = row(units, (SECOND, first), n), row(units, (NONZERO, first), n)
    one = units.dtype.type(1)
    of_data, of_model = one / data.mean.shape[0], -one / state.shape[1]
    set_to_zero(second)
    set_to_zero(nonzero)
    _add_squares(data.mean, data.var, first, of_data, second)
    _add_squares(state[MEAN], state[VAR], first, of_model, second)
    if layers[k, LOG_PARTITION] == 0:
        return
    scratch = row(vectors, (1, 0), n)
    if k == 0:
        _count_nonzero(data.mean, first, of_data, nonzero)
    for r in range(data.mean.shape[0] if k > 0 else 0):
        tilt = row(data.b, (r, first), n), row(data.a, (r, first), n)
        _add_nonzero(layers[k], first, tilt, of_data, nonzero, scratch)
    for r in range(state.shape[1]):
        tilt = row(state, (B, r, first), n), row(state, (A, r, first), n)
        _add_nonzero(layers[k], first, tilt, of_model, nonzero, scratch)


@kernel(by_address=True, views=True)
def _average(step, batches, parameters, sweep, settings, statistics, memory, queue):
    """Averages of units over the rows, and the packed hidden units of the gradient's terms."""
    tasks, task = statistics.averages, fetch_and_increment(queue)
    while task < tasks.shape[0]:
        k, first, n = tasks[task, 0], tasks[task, 1], tasks[task, 2]
        offset = row(statistics.units, (OFFSET, first), n)
        set_to_zero(offset)
        add_means(statistics.data.mean, first, offset)
        subtract_means_of_model(statistics, first, n, row(memory.vectors, (1, 0), n))
        _compare_averages(sweep.layers, k, statistics, first, n, memory.vectors)
        task = fetch_and_increment(queue)
    pack_hidden(statistics, memory.slab.shape[0], task, queue)


def phases_of_parameters(order):
    """The phases of steps after which the caller moves the parameters of the units."""
    found = phases(order) | {AVERAGES: _average}
    del found[FIELDS]
    return found
