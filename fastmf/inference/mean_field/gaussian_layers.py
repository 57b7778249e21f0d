"""Gaussian units integrated out of a layered machine, exactly.

Given all other units h, Gaussian units x with fields f are jointly Gaussian. With the precision
matrix L = diag(p) - (couplings among x) and the couplings C between x and h,

    p(h) ~ prior(h) exp(h' J h / 2 + h' C' L^-1 f) exp(other couplings),     J = C' L^-1 C

is a fully visible machine of the other units, in which mean-field iterations meet no unit of
unbounded variance. The diagonal of J changes the precisions of its units. All moments follow:

    E x = L^-1 (f + C E h),    Cov(x, h) = L^-1 C Cov(h),    Cov x = L^-1 + L^-1 C Cov(h) C' L^-1

and log Z is that of the other units plus f' L^-1 f / 2 - log det(L / 2 pi) / 2. With no other units
everything is exact. Cov(h) has the variances on its diagonal, and elsewhere what the approximation
of log Z has as the derivative by J: J v v', of order 3 also J^2 k k' / 2.
"""

import threading
import weakref

import numpy as np

from fastmf._common.linalg import LinAlgError, cholesky
from fastmf._outcomes import CONVERGED, DIVERGED, messages_of
from fastmf._threads.workers import computed_once
from fastmf.inference.fixed_point import FixedPoint, ending_of
from fastmf.inference.mean_field._layouts import layout_of
from fastmf.inference.mean_field._rows import start_and_tilt
from fastmf.models import BoltzmannMachine
from fastmf.priors._protocol import as_dtype
from fastmf.priors._queries import fields_of, gaussian_units, precisions, without_units


class Integrated:
    """The machine of the units that are left.

    Parameters
    ----------
    model : RBM or DBM
        One that `is_integrated`.
    kept : bool array of shape (n_units,), optional
        Gaussian units that are clamped, among all units: even layers first, then odd ones.
    precision : array of shape (n_units,), optional
        External precisions of the Gaussian units.

    Attributes
    ----------
    gaussian, rest : int array
        Units that are integrated out, and the free or clamped units of all other kinds.
    means : array of shape (n_gaussian, n_rest)
        L^-1 C: means of the Gaussian units for each unit of the others.
    covariance : array of shape (n_gaussian, n_gaussian), or (n_gaussian,)
        L^-1, or its diagonal where it has no other elements.
    half_log_determinant : float
        Half the logarithm of det(L / 2 pi).
    couplings : array of shape (n_rest, n_rest)
        With a zero diagonal.
    diagonal : array of shape (n_rest,)
        The diagonal of J.
    exists : bool
        Whether L is positive definite.
    """

    def __init__(self, model, kept=None, precision=None):
        machine = model.bipartite()
        self.dtype, layers = model.dtype, machine.layers
        gaussian = np.concatenate([gaussian_units(layer) for layer in layers])
        free = gaussian if kept is None else gaussian & ~kept
        self.gaussian, self.rest = np.flatnonzero(free), np.flatnonzero(~gaussian)
        self.fields = np.concatenate([fields_of(layer) for layer in layers])
        self.precisions = np.concatenate([precisions(layer) for layer in layers])
        self._weights = machine.weights.astype(np.float64)
        diagonal = self.precisions[free]
        if precision is not None:
            diagonal = diagonal + precision[free]
        own = self.between(self.gaussian, self.gaussian)
        self.exists = bool((diagonal > 0).all())
        if own.any():
            self._invert(np.diag(diagonal) - own)
        elif self.exists:
            self.covariance = 1 / diagonal
            self.half_log_determinant = np.log(diagonal / (2 * np.pi)).sum() / 2
        if not self.exists:
            self.covariance, self.half_log_determinant = np.ones(len(diagonal)), 0.0
        to_rest = self.between(self.gaussian, self.rest)
        self.means = self.times_covariance(to_rest.T).T
        with np.errstate(over="ignore", invalid="ignore"):  # `machine` says it
            couplings = self.between(self.rest, self.rest) + to_rest.T @ self.means
        self.diagonal = couplings.diagonal().copy()
        np.fill_diagonal(couplings, 0)
        self.couplings = (couplings + couplings.T) / 2
        self.kept = np.flatnonzero(gaussian & ~free)
        self._layers = layers

    def _invert(self, matrix):
        try:
            factor = cholesky(matrix)
        except LinAlgError:
            self.exists = False
            return
        self.covariance = factor.inverse()
        of_constant = len(matrix) * np.log(2 * np.pi) / 2
        self.half_log_determinant = factor.half_log_determinant - of_constant

    def between(self, rows, columns):
        """Couplings between units of the model, given by their numbers."""
        n = len(self._weights)
        above, left = rows >= n, columns >= n
        out = np.zeros((len(rows), len(columns)))
        out[np.ix_(~above, left)] = self._weights[np.ix_(rows[~above], columns[left] - n)]
        out[np.ix_(above, ~left)] = self._weights[np.ix_(columns[~left], rows[above] - n)].T
        return out

    def times_covariance(self, rows):
        """Rows of the Gaussian units times L^-1."""
        return rows * self.covariance if self.covariance.ndim == 1 else rows @ self.covariance

    @computed_once
    def machine(self):
        """The fully visible machine of the other units."""
        gone = np.concatenate([self.gaussian, self.kept])
        with np.errstate(over="ignore"):
            couplings = self.couplings.astype(self.dtype)
        if not np.isfinite(couplings).all():
            raise ValueError(
                "model has weights so large that couplings without its Gaussian units exceed the "
                f"range of {self.dtype}: divide the weights by a number."
            )
        return BoltzmannMachine(couplings, without_units(self._layers, gone))

    def responses(self):
        """Derivatives of the means of all units by those of the others, (n_units, n_rest)."""
        out = np.zeros((len(self.fields), len(self.rest)))
        out[self.rest, np.arange(len(self.rest))] = 1
        out[self.gaussian] = self.means
        return out

    def mean_covariance(self, mean, var, order):
        """Covariance of the others, averaged over rows with these means and variances."""
        n_rows, out = len(var), np.zeros(self.couplings.shape)
        if order > 1:
            out += self.couplings * (var.T @ var) / n_rows
        if order == 3:
            third = self.machine.prior.third_cumulant(mean)[0]
            out += self.couplings**2 * (third.T @ third) / (2 * n_rows)
        out[np.diag_indices_from(out)] = var.mean(0)
        return out

    def variances(self, mean, var, order):
        """Variances of the Gaussian units in each row: O(n_gaussian n_rest^2) for a row."""
        own = self.covariance if self.covariance.ndim == 1 else self.covariance.diagonal()
        out = own + var @ np.square(self.means).T
        if order == 1 or not self.couplings.any():
            return out
        for row in range(len(var)):
            covariance = self.mean_covariance(mean[row : row + 1], var[row : row + 1], order)
            products = self.means @ covariance
            out[row] = own + np.einsum("ij,ij->i", products, self.means)
        return np.maximum(out, own)


class _LatestGaussian(threading.local):
    """The last machine of which a thread has integrated units out."""

    model, integrated = None, None


_latest = _LatestGaussian()


def integrated_of(model):
    """The `Integrated` of a model, kept until another is asked for."""
    kept = _latest.model and _latest.model()
    if kept is not model:
        _latest.model, _latest.integrated = weakref.ref(model), Integrated(model)
    return _latest.integrated


def averages(model, solutions, order):
    """Average covariances (n_below, n_above) of layers and x^2 (n_units,) over solutions."""
    integrated, layout = integrated_of(model), layout_of(model, 1, "blocked")
    shape = len(solutions.mean[0]), layout.n_units
    mean, var = (layout.join(part, np.zeros(shape)) for part in (solutions.mean, solutions.var))
    of_rest = integrated.mean_covariance(*(p[:, integrated.rest] for p in (mean, var)), order)
    responses = integrated.responses()
    products = responses @ of_rest
    own = np.zeros(0)
    if integrated.covariance.ndim == 2:
        own = np.zeros((layout.n_units, layout.n_units))
        own[np.ix_(integrated.gaussian, integrated.gaussian)] = integrated.covariance
    covariances = []
    for below, above in zip(layout.bounds[:-1], layout.bounds[1:], strict=True):
        covariance = products[below] @ responses[above].T
        covariances.append(covariance + own[below, above] if own.size else covariance)
    squares = np.einsum("ij,ij->i", products, responses) + np.square(mean).mean(0)
    diagonal = integrated.covariance
    squares[integrated.gaussian] += diagonal if diagonal.ndim == 1 else diagonal.diagonal()
    return covariances, list(layout.split(squares))


def log_partition_at(model, b, a, order):
    """Mean-field log-partition of the moments that tilts of the units give; order 1, or up to 2."""
    integrated, layout = integrated_of(model), layout_of(model, 1, "blocked")
    shape, x, rest = (len(b[0]), layout.n_units), integrated.gaussian, integrated.rest
    b, a = (layout.join(part, np.zeros(shape))[:, rest] for part in (b, a))
    field = integrated.fields[x]
    alone = integrated.times_covariance(field)
    total = np.full(len(b), alone @ field / 2 - integrated.half_log_determinant)
    if not len(rest):
        return total
    prior, couplings = integrated.machine.prior, integrated.couplings
    mean, var = prior.moments(b, a)
    square = var + mean * mean
    total += prior.log_partition(b, a).sum(1) + (a * square / 2 - b * mean).sum(1)
    total += mean @ (field @ integrated.means) + square @ integrated.diagonal / 2
    total += np.einsum("ij,ij->i", mean @ couplings, mean) / 2
    if order > 1:
        total += np.einsum("ij,ij->i", var @ couplings**2, var) / 4
    return total


def solve(model, solve_rest, init, tilts, rng, *, variances=True, **options):
    """Solve a machine with Gaussian units by `solve_rest` (`tap`) of all other units.

    Without `variances` those of the Gaussian units are 0.
    """
    layout = layout_of(model, 1, "blocked")
    state, tilt, n_rows = start_and_tilt(model, layout, init, *tilts, rng)
    found = []
    for rows in _rows_alike(integrated_of(model).gaussian, tilt, state.shape[1]):
        here = tilt._make(part[rows] if len(part) > 1 else part for part in tilt)
        start = state[:2, rows].astype(np.float64)
        found.append((rows, *_solve_alike(model, solve_rest, start, here, variances, options)))
    return _joined(found, layout, n_rows is None, options["log_partition"])


def rest_of_row(model, row):
    """Integrate Gaussian units of one row out: machine of the other units, its row, and a constant.

    The row has field, precision, mask and values of clamped units. The machine is None if there are
    no other units or it does not exist; then the constant of the log-partition may be infinite.
    """
    field, precision, clamped, values = row
    integrated = Integrated(model, clamped[0], precision[0].astype(np.float64))
    fields, _, constant = _fields_of_rest(integrated, values.astype(np.float64), field, precision)
    constant, rest = float(constant[0]) if integrated.exists else np.inf, integrated.rest
    if not (len(rest) and integrated.exists):
        return None, row, constant
    prior = as_dtype(integrated.machine.prior, np.float64)
    row = fields[:, rest], precision[:, rest] - integrated.diagonal
    row = *row, clamped[:, rest], values[:, rest]
    return BoltzmannMachine(integrated.couplings, prior), row, constant


def _rows_alike(gaussian, tilt, n_rows):
    """Rows in which the same Gaussian units are clamped, and their external precisions equal."""
    if len(tilt.clamped) == len(tilt.precision) == 1:
        return [np.arange(n_rows)]
    keys = np.hstack(np.broadcast_arrays(tilt.clamped[:, gaussian], tilt.precision[:, gaussian]))
    _, members = np.unique(keys, axis=0, return_inverse=True)
    return [np.flatnonzero(members.ravel() == k) for k in range(members.max() + 1)]


def _solve_alike(model, solve_rest, start, tilt, variances, options):
    """Fixed points of rows in which the same Gaussian units are clamped, with equal precisions.

    Returns the state, (4, n_rows, n_units), the fixed point of the other units or None, the
    log-partitions, and whether the machine exists.
    """
    mean = start[0]
    clamped, field, precision = (
        np.broadcast_to(part, mean.shape) for part in (tilt.clamped, tilt.field, tilt.precision)
    )
    if clamped[0].any() or precision[0].any():
        integrated = Integrated(model, clamped[0], precision[0].astype(np.float64))
    else:
        integrated = integrated_of(model)
    x, rest, kept = integrated.gaussian, integrated.rest, integrated.kept
    fields, alone, log_partition = _fields_of_rest(integrated, mean, field, precision)
    of_kept = _fields_of_kept(integrated, mean)
    state = np.zeros((4, *mean.shape))
    state[0, :, kept], state[2, :, kept] = mean[:, kept].T, of_kept[:, kept].T
    found = None
    if len(rest):
        found = _solve_rest(model, integrated, solve_rest, start, fields, tilt, options)
        state[:, :, rest] = found.mean, found.var, found.b, found.a
        if options["log_partition"]:
            log_partition = log_partition + found.log_partition
    state[0, :, x] = (alone + state[0][:, rest] @ integrated.means.T).T
    if variances:
        v_x = integrated.variances(state[0][:, rest], state[1][:, rest], options["order"])
        state[1, :, x] = v_x.T
        state[2, :, x] = (state[0][:, x] / v_x - integrated.fields[x]).T
        state[3, :, x] = (1 / v_x - integrated.precisions[x]).T
    if not integrated.exists:
        log_partition = np.full(len(mean), -np.inf)
    return state, found, log_partition, integrated.exists


def _fields_of_kept(integrated, mean):
    """Fields that the clamped Gaussian units are to all units."""
    kept = integrated.kept
    return mean[:, kept] @ integrated.between(kept, np.arange(mean.shape[1]))


def _fields_of_rest(integrated, mean, field, precision):
    """Return fields of all units, means of the Gaussian ones alone, and their log-partitions."""
    x, rest, kept = integrated.gaussian, integrated.rest, integrated.kept
    of_kept = _fields_of_kept(integrated, mean)
    fields = field + of_kept
    fields[:, x] += integrated.fields[x]
    alone = integrated.times_covariance(fields[:, x])
    log_partition = np.einsum("ij,ij->i", alone, fields[:, x]) / 2
    log_partition -= integrated.half_log_determinant
    if len(kept):
        y = mean[:, kept]
        own = integrated.fields[kept] + field[:, kept] + of_kept[:, kept] / 2
        square = (integrated.precisions[kept] + precision[:, kept]) * y / 2
        log_partition += ((own - square) * y).sum(1)
    fields[:, rest] += fields[:, x] @ integrated.means
    return fields, alone, log_partition


def _solve_rest(model, integrated, solve_rest, start, fields, tilt, options):
    """Fixed points of the machine of the other units."""
    mean, var = (part[:, integrated.rest] for part in start)
    machine = model.bipartite()
    n = machine.n_visible
    unknown = (integrated.rest >= n) & ~(start[0][:, n:].any() or start[1][:, n:].any())
    clamped = np.broadcast_to(tilt.clamped[:, integrated.rest], mean.shape)
    precision = tilt.precision[:, integrated.rest] - integrated.diagonal
    prior = integrated.machine
    if unknown.any():
        # As in the first half of a sweep from data.
        hidden = integrated.rest[unknown]
        b = start[0][:, :n] @ machine.weights[:, hidden - n]
        whole = np.zeros(mean.shape)
        whole[:, unknown] = b
        moments = prior.prior.moments(whole.astype(model.dtype), model.dtype.type(0))
        here = unknown & ~clamped
        mean, var = (
            np.where(here, new, old) for new, old in zip(moments, (mean, var), strict=True)
        )
    dtype = model.dtype
    return solve_rest(
        prior,
        (mean.astype(dtype), np.maximum(var, 0).astype(dtype)),
        field=fields[:, integrated.rest].astype(dtype),
        precision=precision.astype(dtype),
        clamp=np.where(clamped, mean, np.nan).astype(dtype) if clamped.any() else None,
        # All of these units are coupled, and strongly: a block of them would oscillate.
        schedule="sequential",
        **options,
    )


def _joined(parts, layout, single, with_log_partition):
    """The `FixedPoint` of all rows."""
    n_rows = sum(len(rows) for rows, *_ in parts)
    dtype = layout.layers.of_model[0].couplings.dtype
    state = np.zeros((4, n_rows, layout.n_units), dtype)
    log_partition, residual = np.zeros((2, n_rows))
    converged, n_iter = np.ones(n_rows, bool), np.ones(n_rows, np.int64)
    message = np.full(n_rows, messages_of(np.array([CONVERGED]))[0], dtype=object)
    histories = [f.history for _, _, f, *_ in parts if f is not None and f.history is not None]
    longest = max((h.shape[1] for h in histories), default=0)
    history = np.zeros((n_rows, longest), dtype) if longest else None
    for rows, of_rows, found, values, exists in parts:
        state[:, rows], log_partition[rows] = of_rows, values
        if found is not None:
            converged[rows], n_iter[rows] = found.converged, found.n_iter
            residual[rows], message[rows] = found.residual, ending_of(found)
            if longest:
                last = np.minimum(np.arange(longest), found.history.shape[1] - 1)
                history[rows] = found.history[:, last]
        if not exists:
            converged[rows] = False
            message[rows] = messages_of(np.array([DIVERGED]))[0]
    one = (lambda x: x[0]) if single else (lambda x: x)
    mean, var, b, a = (layout.split(one(part)) for part in state)
    return FixedPoint(
        mean=mean,
        var=var,
        b=b,
        a=a,
        log_partition=one(log_partition) if with_log_partition else None,
        converged=one(converged),
        n_iter=one(n_iter),
        residual=one(residual.astype(dtype)),
        message=one(message.astype(str)),
        history=None if history is None else one(history),
    )
