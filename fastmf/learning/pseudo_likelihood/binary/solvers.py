"""First-order solvers of maximum pseudo-likelihood: BSLM, gradient ascent and L-BFGS."""

from typing import NamedTuple

import numpy as np
import scipy

from fastmf._threads.workers import in_parallel, workers_for
from fastmf.kernels.pseudo_likelihood import binary as pl_kernels
from fastmf.kernels.pseudo_likelihood.bslm_arguments import BSLMData, BSLMSettings, bslm_workspaces
from fastmf.learning.pseudo_likelihood.binary.coordinates import Coordinates, SeparateCoordinates
from fastmf.learning.pseudo_likelihood.binary.objective import TOLERANCE_ROWS

MAX_ITER = {"bslm": 10_000, "gradient": 10_000, "lbfgs": 1000}


class Fit(NamedTuple):
    """Result of a solver.

    Parameters
    ----------
    parameters : array of shape (n_parameters,)
    history : list of float
        Penalised log-pseudo-likelihood of all rows together, after each iteration.
    stopped : bool
        Whether the stopping rule ended the solver, not the limit of iterations.
    """

    parameters: np.ndarray
    history: list
    stopped: bool


def bslm(objective, starts, *, l1=0.0, step=1.0, tol=1e-5, max_iter=MAX_ITER["bslm"]):
    """Maximum by Nguyen & Wood's coordinate updates, from each of several starts.

    Parameters
    ----------
    objective : PseudoLikelihood
    starts : list of arrays of shape (n_parameters,)
    l1 : float, default 0.0
        Penalty l1 sum_jk |J_jk| over pairs, per unit of weight.
    step : float, default 1.0
        In (0, 2).
    tol : float, default 1e-5
        Stop after a sweep that raises the value of `TOLERANCE_ROWS` rows by no more.
    max_iter : int, default 10,000

    Returns
    -------
    list of Fit
    """
    pairs = [objective.unpacked(start) for start in starts]
    couplings, field = (np.stack(arrays) for arrays in zip(*pairs, strict=True))
    history = np.empty((len(starts), max_iter + 1))
    n_iter = np.zeros(len(starts), np.int64)
    data = BSLMData(
        np.ascontiguousarray(objective.rows.states.T),
        np.ascontiguousarray(objective.rows.states.T.astype(np.int8)), objective.weights,
        objective.mean, objective.second, float(objective.total),
    )  # fmt: skip
    settings = BSLMSettings(
        float(step), float(l1), float(objective.l2),
        float(tol) * float(objective.total) / TOLERANCE_ROWS, int(max_iter),
        *pl_kernels.bslm_addresses(),
    )  # fmt: skip
    work = len(starts) * 100 * objective.rows.states.size * objective.n_units
    n_workers = workers_for(len(starts), work, objective.n_threads)
    workspaces = bslm_workspaces(n_workers, *data.states.shape)
    queue = np.zeros(2, np.int64)
    arguments = data, settings, workspaces, queue, couplings, field, history, n_iter
    in_parallel(pl_kernels.bslm, arguments, n_workers)
    return [
        Fit(objective.packed(J, h), list(values[1 : abs(n) + 1]), bool(n > 0))
        for J, h, values, n in zip(couplings, field, history, n_iter, strict=True)
    ]


def gradient_ascent(objective, start, *, step=1.0, tol=1e-5, max_iter=MAX_ITER["gradient"]):
    """Gradient ascent: all coordinates at once by step / n_units times the updates of BSLM.

    The curvature of all coordinates together is at most `n_units` times the bounds that BSLM uses
    for each, so that with `step` below two the value never decreases.

    Parameters
    ----------
    objective : PseudoLikelihood
    start : array of shape (n_parameters,)
    step, tol, max_iter
        As in `bslm`.

    Returns
    -------
    Fit
    """
    d, parameters, history = objective.n_units, np.array(start), []
    rates = np.full(len(parameters), step / (d * (2 + objective.l2)))
    rates[:d] = step / (d * (1 + objective.l2))
    value, gradient = objective.value_and_gradient(parameters)
    for _ in range(max_iter):
        parameters = parameters + rates * gradient
        new, gradient = objective.value_and_gradient(parameters)
        history.append(objective.total * new)
        rise, value = TOLERANCE_ROWS * (new - value), new
        if rise <= tol:
            return Fit(parameters, history, True)
    return Fit(parameters, history, False)


def lbfgs(objective, start, *, l1=0.0, tol=1e-5, max_iter=MAX_ITER["lbfgs"]):
    """Maximum by SciPy's L-BFGS-B, in coordinates where the Hessian is nearly the identity.

    These are `Coordinates`; with `l1`, or where a gradient of few rows takes less time than their
    rotation, `SeparateCoordinates`. With `l1` each coupling is the difference of two non-negative
    variables. The predicted rise of the value of a row is half the squared gradient.

    Parameters
    ----------
    objective : PseudoLikelihood
    start : array of shape (n_parameters,)
    l1 : float, default 0.0
    tol : float, default 1e-5
        Stop when the predicted rise of `TOLERANCE_ROWS` rows is below tol / 100, at once if it is
        so at the start. Where rounding ends the line search earlier, the result counts as stopped
        if the predicted rise is below `tol` or the rounding error of the value.
    max_iter : int, default 1,000

    Returns
    -------
    Fit
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
        value, gradient = objective.value_and_gradient(to_parameters(x))
        gradient = -coordinates.gradient(gradient)
        if l1:
            value -= penalty @ (x[d:n] + x[n:])
            of_pairs = gradient[d:]
            gradient = np.concatenate([gradient[:d], of_pairs + penalty, penalty - of_pairs])
        gradients["last"] = gradient
        return -value, gradient

    def predicted_rise(x, gradient):
        if l1:
            outward = (x[d:] <= 0) & (gradient[d:] > 0)
            gradient = np.concatenate([gradient[:d], np.where(outward, 0, gradient[d:])])
        return TOLERANCE_ROWS * (gradient @ gradient) / 2

    def callback(intermediate_result):
        history.append(-objective.total * float(intermediate_result.fun))
        if predicted_rise(intermediate_result.x, gradients["last"]) < tol / 100:
            raise StopIteration

    x = coordinates.from_parameters(start)
    if l1:
        x = np.concatenate([x[:d], np.maximum(x[d:], 0), np.maximum(-x[d:], 0)])
    value, gradient = loss(x)
    # SciPy makes no iteration where the gradient is zero or a rounding error.
    if predicted_rise(x, gradient) < tol / 100:
        return Fit(np.array(start), [-objective.total * value], True)
    bounds = [(None, None)] * d + [(0, None)] * (len(x) - d) if l1 else None
    result = scipy.optimize.minimize(
        loss, x, jac=True, method="L-BFGS-B", bounds=bounds, callback=callback,
        options={"maxiter": max_iter, "maxfun": 4 * max_iter, "ftol": 0, "gtol": 0, "maxcor": 20},
    )  # fmt: skip
    if not history:
        history.append(-objective.total * float(result.fun))
    # Status 99: ended by the callback; 0 and 2: the value or line search no longer improves.
    rounding = 1e-15 * TOLERANCE_ROWS * max(1, abs(result.fun))
    enough = max(rounding, tol if result.status in (0, 2) else 0)
    stopped = result.status == 99 or predicted_rise(result.x, result.jac) < enough
    return Fit(to_parameters(result.x), history, bool(stopped))
