"""TAP of layered machines whose Gaussian units are integrated out: `integrate_gaussians`.

Learning and estimators solve machines of Gaussian and bounded units in this way, for rows of
starts, external tilts and clamped units of all layers.
"""

from functools import partial

import numpy as np

from fastmf._outcomes import CONVERGED, DIVERGED
from fastmf.inference.fixed_point import Question
from fastmf.inference.mean_field._layouts import layout_of, record_from, result, start_and_tilt
from fastmf.inference.mean_field.solutions import mixture
from fastmf.inference.mean_field.tap import TapOptions, solve, tap
from fastmf.kernels.mean_field.units import Tilt
from fastmf.models import BoltzmannMachine
from fastmf.models.layered import IntegratedMachine, run_of
from fastmf.priors._protocol import as_dtype


def collapsed_tap(
    model, init=None, *, field=None, precision=None, clamp=None, variances=True, **options
):
    """Solve by `tap`, after Gaussian units are integrated out if all other units are bounded.

    Without `variances` the variances of Gaussian units are 0: with many units of both kinds they
    would take most of the time. The remaining units are all coupled, and strongly, so that their
    schedule is "sequential": updated in blocks they would oscillate.
    """
    if not model.is_integrated:
        return tap(model, init, field=field, precision=precision, clamp=clamp, **options)
    options = TapOptions(**options)._replace(schedule="sequential").checked()
    layout = layout_of(model, min(options.order, 2), "blocked")
    state, tilt, n_rows = start_and_tilt(model, layout, init, field, precision, clamp)
    record = record_from(state, options.max_iter, options.history)
    record.status[:], record.n_iter[:] = CONVERGED, 1
    values = np.zeros(state.shape[1])
    for rows in _rows_alike(model.integrate_gaussians().gaussian, tilt):
        alike = tilt._make(part[rows] if len(part) > 1 else part for part in tilt)
        _solve_alike(model, rows, alike, options, variances, record, values)
    mixed = partial(mixture, partial(collapsed_tap, order=options.order))
    question = Question(model, tilt, init is None, mixed)
    values = values if options.log_partition else None
    return result(layout, record, values, question, single=n_rows is None)


def averages(model, solutions, order):
    """Average covariances of layers, (n_below, n_above), and x^2, (n_units,), over solutions."""
    mean, var = (
        np.hstack([*part[::2], *part[1::2]]).astype(np.float64)
        for part in (solutions.mean, solutions.var)
    )
    return model.integrate_gaussians().average_products(mean, var, order)


def rest_of_row(model, row):
    """Integrate out the Gaussian units of one row: return the remaining machine, row and constant.

    A row is (field, precision, mask of clamped units, their values). The machine is None if no unit
    remains or the integral does not exist; then the constant (in log Z) may be infinite.
    """
    field, precision, clamped, values = row
    integrated = IntegratedMachine(model, clamped[0], precision[0].astype(np.float64))
    fields, _, constant = _fields_of_rest(integrated, values.astype(np.float64), field, precision)
    remaining = integrated.rest
    if not (len(remaining) and integrated.exists):
        return None, row, float(constant[0])
    prior = as_dtype(integrated.machine.prior, np.float64)
    row = fields[:, remaining], precision[:, remaining] + integrated.precision
    row = *row, clamped[:, remaining], values[:, remaining]
    return BoltzmannMachine(integrated.couplings, prior), row, float(constant[0])


def _rows_alike(gaussian, tilt):
    """Group the rows with the same clamped Gaussian units and the same external precisions."""
    if len(tilt.clamped) == len(tilt.precision) == 1:
        return [slice(None)]
    keys = np.hstack(np.broadcast_arrays(tilt.clamped[:, gaussian], tilt.precision[:, gaussian]))
    _, members = np.unique(keys, axis=0, return_inverse=True)
    return [np.flatnonzero(members.ravel() == k) for k in range(members.max() + 1)]


def _solve_alike(model, rows, tilt, options, variances, record, values):
    """Solve rows in which the same Gaussian units are clamped, with equal precisions."""
    start = record.state[:2, rows]
    clamped, precision = tilt.clamped, tilt.precision
    integrated = model.integrate_gaussians()
    if clamped[0].any() or precision[0].any():
        integrated = IntegratedMachine(model, clamped[0], precision[0].astype(np.float64))
    x, remaining = run_of(integrated.gaussian), run_of(integrated.rest)
    fields, gaussian_means, constants = _fields_of_rest(integrated, start[0], tilt.field, precision)
    state = np.zeros((4, *start[0].shape), start.dtype)
    state[0], state[2] = start[0], _fields_of_clamped(integrated, start[0])
    machine = integrated.machine
    if machine is not None:
        tilt = [
            fields[:, remaining].astype(model.dtype),
            (precision[:, remaining] + integrated.precision).astype(model.dtype),
            clamped[:, remaining],
        ]
        tilt = Tilt(*map(np.ascontiguousarray, tilt))
        first = _start_of_rest(model, integrated, start, tilt.clamped)
        layout = layout_of(machine, options.order, options.schedule)
        solved, log_partitions = solve(layout, first, tilt, options)
        state[:, :, remaining] = solved.state
        if options.log_partition:
            constants = constants + log_partitions
        for part, of_rest in zip(record[1:], solved[1:], strict=True):
            if len(part):
                part[rows] = of_rest
    state[0][:, x] = gaussian_means + state[0][:, remaining] @ integrated.means.T
    if variances:
        var = integrated.variances(state[0][:, remaining], state[1][:, remaining], options.order)
        state[1][:, x] = var
        state[2][:, x] = state[0][:, x] / var - integrated.fields[x]
        state[3][:, x] = 1 / var - integrated.precisions[x]
    if not integrated.exists:
        constants, record.status[rows] = -np.inf, DIVERGED
    record.state[:, rows], values[rows] = state, constants


def _fields_of_clamped(integrated, mean):
    """Compute the fields of clamped Gaussian units on all units, one row if none is clamped."""
    fixed = integrated.clamped
    if not len(fixed):
        return np.zeros((1, mean.shape[1]))
    return mean[:, fixed].astype(np.float64) @ integrated.between(fixed, np.arange(mean.shape[1]))


def _fields_of_rest(integrated, mean, field, precision):
    """Return fields of all units, and means and log-partitions of Gaussian units without couplings.

    Arrays have one row if external fields and clamped units are the same in all rows.
    """
    x, remaining, fixed = run_of(integrated.gaussian), run_of(integrated.rest), integrated.clamped
    of_clamped = _fields_of_clamped(integrated, mean)
    fields = field + of_clamped
    fields[:, x] += integrated.fields[x]
    means = integrated.times_covariance(fields[:, x])
    log_partition = np.einsum("ij,ij->i", means, fields[:, x]) / 2
    log_partition -= integrated.half_log_determinant
    if len(fixed):
        y = mean[:, fixed].astype(np.float64)
        linear = integrated.fields[fixed] + field[:, fixed] + of_clamped[:, fixed] / 2
        square = (integrated.precisions[fixed] + precision[:, fixed]) * y / 2
        log_partition += ((linear - square) * y).sum(1)
    fields[:, remaining] += fields[:, x] @ integrated.means
    return fields, means, log_partition


def _start_of_rest(model, integrated, start, clamped):
    """Return the starting state of the remaining units, (4, n_rows, n_rest).

    Units coupled to data start from their moments given the data, as in the first half of a sweep.
    """
    remaining, machine = integrated.rest, model.bipartite()
    state = np.zeros((4, start.shape[1], len(remaining)), model.dtype)
    state[:2] = np.maximum(start[:, :, remaining], [[[-np.inf]], [[0]]])
    n = machine.n_visible
    if not (start[0][:, n:].any() or start[1][:, n:].any()):
        above = remaining >= n
        b = np.zeros(state.shape[1:])
        b[:, above] = start[0][:, :n].astype(np.float64) @ machine.weights[:, remaining[above] - n]
        moments = integrated.machine.prior.moments(b.astype(model.dtype), model.dtype.type(0))
        state[:2] = np.where(above & ~clamped, moments, state[:2])
    return state
