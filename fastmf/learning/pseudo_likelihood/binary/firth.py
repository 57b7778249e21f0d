"""Firth's penalty: half the log-determinant of the negative Hessian H (Firth 1993).

The penalised objective, per unit of weight, is P + ln det H / (2 n) with the weight n of all rows.
With s = sech^2 eta, whose derivative is -2 s tanh eta, and the leverages z' H^-1 z of the features
z = [1, x] of eta_ij, the gradient of the penalty by eta_ij is -w_ij s tanh(eta) z' H^-1 z / n.
"""

from typing import NamedTuple

import numpy as np

from fastmf._common.linalg import LinAlgError, ScaledCholesky, scaled_cholesky
from fastmf.learning.pseudo_likelihood.existence import MAX_CONDITION, Existence
from fastmf.learning.pseudo_likelihood.fit import TOLERANCE_ROWS, Fit
from fastmf.learning.pseudo_likelihood.newton import (
    MAX_NEWTON_ITER,
    MIN_STEP_SIZE,
    only_rounding,
    sufficient_rise,
)

# Steps of which the changes of the gradient are kept.
MAX_CORRECTIONS = 30


def penalty(objective, parameters):
    """Firth's penalty per unit of weight, its gradient, and the factorised Hessian."""
    factor = scaled_cholesky(objective.hessian(parameters))
    value = factor.half_log_determinant / objective.total
    couplings, field = objective.unpacked(parameters)
    states = objective.rows.states
    terms = objective.weighted_sech2(parameters) * np.tanh(states @ couplings + field)
    terms *= -objective.leverages(factor.inverse()) / objective.total
    coupling_gradient = states.T @ terms
    gradient = objective.packed(coupling_gradient + coupling_gradient.T, terms.sum(0))
    return value, gradient, factor


class _Corrections:
    """Scoring steps H^-1 g, corrected by the changes of the gradient along the last steps (L-BFGS).

    Parameters
    ----------
    curvature : float
        Mean curvature of the objective, in units of H.
    """

    def __init__(self, curvature):
        self._curvature, self._pairs = curvature, []

    def step(self, factor, gradient):
        """Step for a gradient with the factorised H; the scoring step if another would not rise."""
        out = self._solution(factor, gradient, len(self._pairs))
        if not out @ gradient > 0:
            self.clear()
            out = self._solution(factor, gradient, 0)
        return out

    def _solution(self, factor, gradient, n_pairs):
        if not n_pairs:
            return factor.solve(gradient) / self._curvature
        step, change = self._pairs[n_pairs - 1]
        fraction = step @ gradient / (step @ change)
        out = self._solution(factor, gradient - fraction * change, n_pairs - 1)
        return out + (fraction - change @ out / (step @ change)) * step

    def keep(self, step, change):
        """Keep a step with the fall of the gradient along it, if the objective is concave there."""
        if step @ change > 1e-12 * np.sqrt((step @ step) * (change @ change)):
            self._pairs = [*self._pairs[1 - MAX_CORRECTIONS :], (step, change)]

    def clear(self):
        """Forget all; whether there was anything."""
        had_some, self._pairs = bool(self._pairs), []
        return had_some


class _Point(NamedTuple):
    """Parameters, the penalised value and gradient, and the factorised H, None if singular."""

    parameters: np.ndarray
    value: float
    gradient: np.ndarray
    factor: ScaledCholesky | None


def _evaluated(objective, parameters):
    value, gradient = objective.value_and_gradient(parameters)
    try:
        # Far out, where units are certain, the inverse overflows.
        with np.errstate(over="ignore", invalid="ignore"):
            added, added_gradient, factor = penalty(objective, parameters)
    except LinAlgError:
        return _Point(parameters, -np.inf, gradient, None)
    if not np.isfinite(added_gradient).all():
        return _Point(parameters, -np.inf, gradient, None)
    return _Point(parameters, value + added, gradient + added_gradient, factor)


def _line_search(objective, point, step):
    """The end of the step, halved until the value rises; None if no step is long enough."""
    derivative, step_size = step @ point.gradient, 1.0
    while step_size >= MIN_STEP_SIZE:
        trial = _evaluated(objective, point.parameters + step_size * step)
        if sufficient_rise(trial.value, point.value, step_size * derivative):
            return trial
        step_size /= 2
    return None


def firth_scoring(objective, start, *, tol=1e-5, max_iter=MAX_NEWTON_ITER):
    """Maximum with Firth's penalty by scoring steps H^-1 g, corrected by those before.

    The second derivatives of the determinant are left out of H. Where data are separated they are
    as large as H, and scoring alone crawls; L-BFGS learns them from the changes of the gradient.
    Steps are halved until the value rises. Stops when the predicted rise of the value of all rows
    together, or of `TOLERANCE_ROWS` if their weight is more, is below tol^2.
    """
    point, history = _evaluated(objective, np.array(start)), []
    if point.factor is None:
        value = objective.value_and_gradient(point.parameters)[0]
        return Fit(point.parameters, [objective.total * value], False)
    # The determinant's curvature is, where units are uncertain, H times the mean leverage.
    n_fields = objective.total * objective.n_units
    corrections = _Corrections(1 + objective.n_parameters / n_fields)
    # The determinant is all there is where rows have little weight.
    n = min(objective.total, TOLERANCE_ROWS)
    for _ in range(max_iter):
        step = corrections.step(point.factor, point.gradient)
        predicted_rise = n * (step @ point.gradient) / 2
        trial = _line_search(objective, point, step)
        if trial is None and corrections.clear():
            trial = _line_search(objective, point, corrections.step(point.factor, point.gradient))
        if trial is None:
            history.append(objective.total * point.value)
            return Fit(point.parameters, history, bool(predicted_rise <= tol))
        corrections.keep(trial.parameters - point.parameters, point.gradient - trial.gradient)
        rounded = only_rounding(point.gradient, trial.gradient)
        point = trial
        history.append(objective.total * point.value)
        if rounded or predicted_rise <= tol**2:
            return Fit(point.parameters, history, True)
    return Fit(point.parameters, history, False)


def unique_with_firth(objective):
    """Decide whether the maximum is unique: the Hessian must not be singular."""
    # sech^2 is positive everywhere: its values make no difference to the rank.
    values = np.linalg.eigvalsh(objective.hessian(np.zeros(objective.n_parameters)))
    return Existence(True) if values[0] > values[-1] / MAX_CONDITION else Existence(
        False, (), "the maximum is not unique: units depend on each other linearly; leave some out "
        "or give a ridge penalty l2",
    )  # fmt: skip
