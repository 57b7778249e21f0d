"""Solvers of maximum pseudo-likelihood: coordinate-wise, gradient, Newton and L-BFGS."""

from typing import NamedTuple

import numpy as np
from scipy import linalg, optimize
from scipy.sparse.linalg import LinearOperator, cg

from fastmf._threads import in_parallel, workers_for
from fastmf.kernels import pseudo_likelihood as kernels
from fastmf.learning.pseudo_likelihood import inverse_ising
from fastmf.learning.pseudo_likelihood.coordinates import Coordinates, SeparateCoordinates
from fastmf.special import log_2_cosh

# Newton's method keeps a Hessian whose last step shrank the rise to expect by such a factor, and
# doubles a step at whose end such a share of the slope is left.
_KEEP, _LEFT = 1e-5, 0.25
# Rounding error of a derivative, of at most 2 in each row: what Newton's method cannot better.
_ROUNDING = 1e-15
# Parameters up to which the minorant's maximum is found by a factorisation.
_DIRECT = 300
MAX_ITER = {"bslm": 10_000, "gradient": 10_000, "newton": 100, "lbfgs": 1000}


class Fit(NamedTuple):
    """Where a solver stopped.

    Parameters
    ----------
    parameters : array of shape (n_parameters,)
    history : list of float
        Penalised log-pseudo-likelihood of all rows together, after each iteration.
    stopped : bool
        Whether by its own rule, not for having run out of iterations.
    """

    parameters: np.ndarray
    history: list
    stopped: bool


def starting_point(objective, how):
    """Parameters to start from.

    Parameters
    ----------
    objective : PseudoLikelihood
    how : {"independent", "minorant", "naive_mean_field", "tap", "auto"}
        Uncoupled units; the maximum of a quadratic minorant that touches there; or a mean-field
        inversion, shrunk a little towards independence so that it always exists; "auto" is the
        better of "independent" and "tap".
    """
    # Half a row of each value keeps the field finite.
    n = objective.total
    mean = objective.mean * n / (n + 1)
    independent = np.zeros(objective.n_parameters)
    independent[: objective.n_units] = np.arctanh(mean)
    if how == "independent":
        return independent
    if how == "minorant":
        return independent + _first_step(objective, independent, mean)
    covariance = objective.second - np.outer(objective.mean, objective.mean)
    covariance *= n / (n + 1)
    np.fill_diagonal(covariance, 1 - mean**2)
    # Units that nearly determine each other would give couplings without measure.
    covariance[np.diag_indices_from(covariance)] += 0.01
    invert = inverse_ising.naive_mean_field if how == "naive_mean_field" else (
        inverse_ising.tap_inversion)  # fmt: skip
    found = objective.packed(*invert(mean, covariance))
    if how == "auto":
        # Uncoupled units have the same field in every row.
        field = independent[: objective.n_units]
        value = (
            objective.mean * field - log_2_cosh(field)
        ).sum() - objective.l2 / 2 * field @ field
        return independent if value > objective.value_and_gradient(found)[0] else found
    return found


def _first_step(objective, independent, tanh):
    """From uncoupled units to the maximum of a quadratic function that is nowhere above.

    -ln cosh falls below its tangent by no more than with curvature tanh(h) / h (Jaakkola & Jordan
    2000). As the fields are those of all rows, means and second moments are enough; and where units
    are strongly coupled Newton's own first step would saturate them.
    """
    field = independent[: objective.n_units]
    curvature = np.ones_like(field)
    np.divide(tanh, field, out=curvature, where=field != 0)
    of_couplings = objective.second - np.outer(objective.mean, tanh)
    slope = objective.packed(of_couplings + of_couplings.T, objective.mean - tanh)
    slope -= objective.l2 * independent
    if objective.n_parameters <= _DIRECT:
        return solved(factorised(objective.common_hessian(curvature)), slope)
    return _by_conjugate_gradients(objective, curvature, slope)


def _by_conjugate_gradients(objective, curvature, slope, tol=1e-3, max_iter=200):
    """Solution of the equations with `common_hessian(curvature)`, without making that matrix.

    A product with it takes n_units^3 operations. The Hessian is nearly the identity in
    `Coordinates`, which precondition. Each iteration raises the quadratic function.
    """
    coordinates, size = Coordinates(objective), len(slope)

    def times(vector):
        couplings, field = objective.unpacked(vector)
        of_field = curvature * (field + couplings @ objective.mean)
        of_couplings = np.outer(field, objective.mean) + couplings @ objective.second
        of_couplings *= curvature[:, None]
        return objective.packed(of_couplings + of_couplings.T, of_field) + objective.l2 * vector

    def preconditioned(vector):
        return coordinates.to_parameters(coordinates.gradient(vector))

    matrix, inverse = (
        LinearOperator((size, size), matvec=function, dtype=float)
        for function in (times, preconditioned)
    )
    return cg(matrix, slope, rtol=tol, maxiter=max_iter, M=inverse)[0]


def bslm(objective, starts, *, l1=0.0, step=1.0, tol=1e-5, max_iter=MAX_ITER["bslm"]):
    """Nguyen & Wood's coordinate updates from each of several starts; a list of `Fit`."""
    pairs = [objective.unpacked(start) for start in starts]
    couplings, field = (np.stack(arrays) for arrays in zip(*pairs, strict=True))
    history = np.empty((len(starts), max_iter + 1))
    n_iter = np.zeros(len(starts), np.int64)
    data = kernels.BSLMData(
        np.ascontiguousarray(objective.rows.states.T), objective.weights, objective.mean,
        objective.second, float(objective.total),
    )  # fmt: skip
    settings = kernels.BSLMSettings(
        float(step), float(l1), float(objective.l2), float(tol), int(max_iter)
    )
    arguments = data, settings, np.zeros(1, np.int64), couplings, field, history, n_iter
    work = len(starts) * 100 * objective.rows.states.size * objective.n_units
    in_parallel(kernels.bslm, arguments, workers_for(len(starts), work, objective.n_threads))
    return [
        Fit(objective.packed(J, h), list(values[1 : abs(n) + 1]), bool(n > 0))
        for J, h, values, n in zip(couplings, field, history, n_iter, strict=True)
    ]


def gradient(objective, start, *, step=1.0, tol=1e-5, max_iter=MAX_ITER["gradient"]):
    """Simultaneous ascent, by step / n_units times what BSLM would do coordinate by coordinate.

    The curvature of all coordinates together is at most `n_units` times BSLM's of each: so no step
    up to one, in fact below two, ever descends.
    """
    d, parameters, history = objective.n_units, np.array(start), []
    rates = np.full(len(parameters), step / (d * (2 + objective.l2)))
    rates[:d] = step / (d * (1 + objective.l2))
    value, slope = objective.value_and_gradient(parameters)
    for _ in range(max_iter):
        parameters = parameters + rates * slope
        new, slope = objective.value_and_gradient(parameters)
        history.append(objective.total * new)
        rise, value = objective.total * (new - value), new
        if rise <= tol:
            return Fit(parameters, history, True)
    return Fit(parameters, history, False)


def factorised(hessian, ridge=0.0):
    """Lower Cholesky factor of the matrix plus a ridge, made larger until it is positive."""
    while True:
        shifted = hessian if ridge == 0 else hessian + ridge * np.eye(len(hessian))
        # Its transpose is itself, in LAPACK's order.
        factor, failed = linalg.lapack.dpotrf(shifted.T, lower=1, clean=0)
        if not failed:
            return factor
        ridge = max(10 * ridge, 1e-14 * hessian.diagonal().max(), 1e-300)


def solved(factor, right):
    """Solution of the equations whose matrix has this Cholesky factor."""
    # SciPy's own `cho_solve` takes longer to check its arguments than a small system takes.
    return linalg.lapack.dpotrs(factor, right, lower=1)[0]


def _firth(objective, parameters):
    """Half the log-determinant of the Hessian per unit of weight, its gradient, and the factor."""
    factor = factorised(objective.hessian(parameters))
    value = np.log(factor.diagonal()).sum() / objective.total
    couplings, field = objective.unpacked(parameters)
    inverse = solved(factor, np.eye(len(parameters)))
    states = objective.rows.states
    terms = objective.slopes(parameters) * np.tanh(states @ couplings + field)
    terms *= -objective.leverages(inverse) / objective.total
    of_couplings = states.T @ terms
    return value, objective.packed(of_couplings + of_couplings.T, terms.sum(0)), factor


def newton(objective, start, *, firth=False, tol=1e-5, max_iter=MAX_ITER["newton"]):
    """Newton's method with step halving: quadratic convergence to machine precision.

    The Hessian is kept while steps by the last one still shrink the gradient fast. Where units
    saturate it fades along the step, as exp(-2 |eta|), so that a step only takes one off every |2
    eta| that is missing: it is doubled while much of the slope is left. Stops when the quadratic
    model promises a rise below tol^2, after a last step, or when derivatives are rounding errors.
    With `firth` the objective has half the log-determinant of its Hessian added (Firth 1993), and
    the steps are those of scoring, without the second derivatives of the determinant.
    """
    parameters, history = np.array(start), []
    value, slope = objective.value_and_gradient(parameters)
    factor, hessian, ridge = None, None, 0.0
    if firth:
        extra, more, factor = _firth(objective, parameters)
        value, slope = value + extra, slope + more
    fresh, last_promise = firth, 0.0

    def stepped():
        step = solved(factor, slope)
        return step, step @ slope

    def renewed():
        hessian = objective.hessian(parameters)
        return hessian, factorised(hessian, ridge)

    for _ in range(max_iter):
        if factor is not None:
            step, promise = stepped()
        if not firth and (factor is None or ridge or promise > _KEEP * last_promise):
            hessian, factor = renewed()
            fresh = True
            step, promise = stepped()
        share, before, last_promise = 1.0, value, promise
        while True:
            candidate = parameters + share * step
            value, new_slope = objective.value_and_gradient(candidate)
            if firth:
                extra, more, new_factor = _firth(objective, candidate)
                value, new_slope = value + extra, new_slope + more
            # Near the top rises drown in rounding.
            if value >= before + 1e-4 * share * promise - 4e-16 * max(1, abs(before)):
                break
            if not fresh:
                hessian, factor = renewed()
                fresh = True
                step, promise = stepped()
                continue
            share /= 2
            if share < 0.1 and not firth and ridge < 1:
                # Saturated units bend so little that their step is far too long: shorten it alone.
                ridge, share = max(30 * ridge, 1e-5), 1.0
                factor = factorised(hessian, ridge)
                step, promise = stepped()
            elif share < 1e-10:
                history.append(objective.total * before)
                return Fit(parameters, history, objective.total * promise / 2 <= tol)
        while not firth and fresh and share >= 1 and new_slope @ step > _LEFT * promise:
            longer = parameters + 2 * share * step
            further, slope = objective.value_and_gradient(longer)
            if further <= value:
                break
            candidate, value, new_slope, share = longer, further, slope, 2 * share
        # A kept Hessian leaves more behind.
        enough = tol**2 if fresh else (_KEEP * tol) ** 2
        rounded = fresh and max(abs(slope).max(), abs(new_slope).max()) <= _ROUNDING
        parameters, slope, fresh = candidate, new_slope, firth
        shifted, ridge = ridge > 1e-10, ridge / 10 if ridge > 1e-12 else 0.0
        if firth:
            factor = new_factor
        elif share < 1:
            factor = None
        history.append(objective.total * value)
        if not shifted and (rounded or objective.total * promise / 2 <= enough):
            return Fit(parameters, history, True)
    return Fit(parameters, history, False)


def lbfgs(objective, start, *, l1=0.0, tol=1e-5, max_iter=MAX_ITER["lbfgs"]):
    """L-BFGS of SciPy in the coordinates of `Coordinates`.

    In those of `SeparateCoordinates` with `l1`, couplings being differences of two non-negative
    parts, for L-BFGS-B; and if rows are so few that a gradient takes less than the turn to
    eigenvectors. Stops when half the squared gradient, the rise to expect, is below tol / 100; if
    it is at the start, that is the result of a single iteration. Where rounding ends the search
    earlier, it counts as stopped if the rise to expect is below tol or the value's rounding error.
    """
    separate = l1 or len(objective.weights) < 2 * objective.n_units
    coordinates = (SeparateCoordinates if separate else Coordinates)(objective)
    d, n, penalty = objective.n_units, len(start), l1 / coordinates.scale[objective.n_units :]
    history, gradients = [], {}

    def to_parameters(x):
        if l1:
            x = np.concatenate([x[:d], x[d:n] - x[n:]])
        return coordinates.to_parameters(x)

    def loss(x):
        value, slope = objective.value_and_gradient(to_parameters(x))
        slope = -coordinates.gradient(slope)
        if l1:
            value -= penalty @ (x[d:n] + x[n:])
            slope = np.concatenate([slope[:d], slope[d:] + penalty, penalty - slope[d:]])
        gradients["last"] = slope
        return -value, slope

    def expected_rise(x, slope):
        if l1:
            outward = (x[d:] <= 0) & (slope[d:] > 0)
            slope = np.concatenate([slope[:d], np.where(outward, 0, slope[d:])])
        return objective.total * (slope @ slope) / 2

    def callback(intermediate_result):
        history.append(-objective.total * float(intermediate_result.fun))
        if expected_rise(intermediate_result.x, gradients["last"]) < tol / 100:
            raise StopIteration

    x = coordinates.from_parameters(start)
    if l1:
        x = np.concatenate([x[:d], np.maximum(x[d:], 0), np.maximum(-x[d:], 0)])
    value, slope = loss(x)
    # SciPy makes no iteration where the gradient is zero, and none succeeds where it is rounding.
    if expected_rise(x, slope) < tol / 100:
        return Fit(np.array(start), [-objective.total * value], True)
    bounds = [(None, None)] * d + [(0, None)] * (len(x) - d) if l1 else None
    result = optimize.minimize(
        loss, x, jac=True, method="L-BFGS-B", bounds=bounds, callback=callback,
        options={"maxiter": max_iter, "maxfun": 4 * max_iter, "ftol": 0, "gtol": 0, "maxcor": 20},
    )  # fmt: skip
    if not history:
        history.append(-objective.total * float(result.fun))
    # Status 99 is the callback's; 0 and 2 are values, or a line search, that rounding has ended.
    rounding = 1e-15 * objective.total * max(1, abs(result.fun))
    enough = max(rounding, tol if result.status in (0, 2) else 0)
    stopped = result.status == 99 or expected_rise(result.x, result.jac) < enough
    return Fit(to_parameters(result.x), history, bool(stopped))
