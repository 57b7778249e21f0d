"""Averages in steps of learning units of which more than the fields is learned.

For the units of this package, the derivatives of log_prob(x) by the parameters are linear in x, x^2
and whether x is not 0, so that averages of these three are all that a step has to know of its rows:

    <x> = m,    <x^2> = m^2 + v,    <x is not 0> = 1 - exp(-log-partition)

with moments m, v under a tilt; over data and samples they are averages of these themselves. The
last is that of units with a spike at zero, whose weight there is 1. See
`fastmf.priors._queries.average_gradient`.
"""

from fastmf._jit.intrinsics import fetch_and_increment, row
from fastmf._jit.kernel import kernel
from fastmf.kernels.linear.copies import copy, set_to_zero
from fastmf.kernels.mean_field.arguments import START
from fastmf.kernels.mean_field.rows import MEAN, VAR, A, B
from fastmf.kernels.training.arguments import FIRST, NONZERO, OFFSET, SECOND
from fastmf.kernels.training.gradients import pack_hidden
from fastmf.priors._compiled import LOG_PARTITION, tilted_log_partition
from fastmf.special import exp


@kernel(mode="merged")
def _add_nonzero(layer, unit, tilt, scale, out, log_z):
    """Add `scale` times the probability that x is not 0 in one row; `log_z` is scratch memory."""
    one = out.dtype.type(1)
    tilted_log_partition(layer, unit, tilt[0], tilt[1], log_z)
    for i in range(out.shape[0]):
        out[i] += scale * (one - exp(-log_z[i]))


@kernel(mode="merged")
def _count_nonzero(x, scale, out):
    """Add `scale` where x is not 0."""
    for i in range(out.shape[0]):
        if x[i] != 0:
            out[i] += scale


@kernel(mode="merged")
def _add_row(layers, task, are_values, moments, r, scale, sums):
    """Add `scale` times <x>, <x^2> and, for units with a spike, <x is not 0> in one row."""
    (mean, var, b, a), (k, first, n), (total, squares, nonzero, log_z) = moments, task, sums
    m, v = row(mean, (r, first), n), row(var, (r, first), n)
    for i in range(n):
        total[i] += scale * m[i]
        squares[i] += scale * (m[i] * m[i] + v[i])
    if layers[k, LOG_PARTITION] == 0:
        return
    if are_values:
        _count_nonzero(m, scale, nonzero)
        return
    tilt = row(b, (r, first), n), row(a, (r, first), n)
    _add_nonzero(layers[k], first - layers[k, START], tilt, scale, nonzero, log_z)


@kernel(mode="by_address", views=True)
def average_moments(step, batches, parameters, sweep, settings, statistics, memory, queue):
    """Averages of units over the rows, and the packed hidden units of the gradient's terms."""
    tasks, data, units = statistics.averages, statistics.data, statistics.units
    state, n_data, one = statistics.model.state, data.mean.shape[0], units.dtype.type(1)
    task = fetch_and_increment(queue)
    while task < tasks.shape[0]:
        here = tasks[task, 0], tasks[task, 1], tasks[task, 2]
        k, first, n = here
        total, squares = row(units, (FIRST, first), n), row(units, (SECOND, first), n)
        sums = total, squares, row(units, (NONZERO, first), n), row(memory.vectors, (1, 0), n)
        for kind in range(FIRST, NONZERO + 1):
            set_to_zero(row(units, (kind, first), n))
        for r in range(n_data + state.shape[1]):
            of_data = r < n_data
            if r == n_data:
                copy(total, row(units, (OFFSET, first), n))
            moments = (
                data.mean if of_data else state[MEAN],
                data.var if of_data else state[VAR],
                data.b if of_data else state[B],
                data.a if of_data else state[A],
            )
            scale = one / n_data if of_data else -one / state.shape[1]
            # Data, and samples of the even layers.
            are_values = k == 0 if of_data else k % 2 == 0 and not settings.solved
            place = r if of_data else r - n_data
            _add_row(sweep.layers, here, are_values, moments, place, scale, sums)
        task = fetch_and_increment(queue)
    pack_hidden(statistics, memory.weight_rows.shape[0], task, queue)
