"""Maximisation of composite likelihoods by Newton's method and by L-BFGS.

The step of Newton's method is H^-1 g with the gradient g and the negative Hessian H. To second
order it raises the objective by g' H^-1 g / 2; the stopping rule uses this predicted rise.

L-BFGS is for up to millions of variables, with and without an l1 penalty, and computes in the
precision of the variables, whereas SciPy's L-BFGS-B always computes in double precision.

With an l1 penalty, the gradient of the penalised function is taken in the orthant into which the
function decreases, and variables that would change their sign become zero (Andrew & Gao 2007).
Variables that are zero move along the gradient, and all others along the L-BFGS direction in their
subspace (Schmidt 2010).
"""

from typing import NamedTuple

import numpy as np

from fastmf._common.linalg import cholesky_with_ridge
from fastmf._threads.workers import one_blas_thread
from fastmf.kernels.pseudo_likelihood.potts import aligned
from fastmf.learning.quasi_newton import direction_of, is_convex

# Number of rows to which the tolerances of solvers refer, whatever the number of rows and the sum
# of their weights: the maximum does not depend on a common factor of the weights.
TOLERANCE_ROWS = 100_000
# Largest number of parameters for which a Hessian is computed: with 6,000 it takes 290 MB.
MAX_HESSIAN_PARAMETERS = 6000
# Largest number of parameters for which "auto" uses Newton's method; with more, L-BFGS is faster.
MAX_NEWTON_PARAMETERS = 1300
# Smallest decrease of the function, relative to the linear prediction, for accepting a step.
MIN_DECREASE = 1e-4
# Numbers in a block of rows that fits in the cache.
BLOCK_NUMBERS = 1 << 17
# Default limit of iterations of L-BFGS; for Newton's method, with costlier iterations, a tenth.
MAX_ITER = 1000


class Fit(NamedTuple):
    """Result of a solver."""

    parameters: np.ndarray  # (n_parameters,)
    # list of float: penalised log-pseudo-likelihood of all rows together, or the minimised
    # function, after each iteration
    history: list
    stopped: bool  # whether the stopping rule ended the solver, not the limit of iterations


def few_blas_threads(n_parameters=0):
    """Return a context with one BLAS thread, unless Hessians are large.

    With 1,200 parameters, on cores shared with other processes, Newton's method took ten times as
    long with several threads.
    """
    return one_blas_thread(n_parameters if n_parameters >= MAX_HESSIAN_PARAMETERS // 2 else 0)


def gradient_rounding():
    """Return the rounding error of a mean derivative, whose terms are at most 2."""
    return 4 * np.finfo(float).eps


# --- Newton's method ------------------------------------------------------------------------------


# Smallest ridge of a Hessian for steps that are too long; also the ridge along changes of gauge,
# relative to the largest curvature, for which rounding errors are below the tolerance.
_MIN_RIDGE = 1e-6


class _NewtonPoint(NamedTuple):
    """Value and gradient at some parameters."""

    parameters: np.ndarray
    value: float
    gradient: np.ndarray

    @classmethod
    def at(cls, objective, parameters):
        return cls(parameters, *objective.value_and_gradient(parameters))


def factorised(objective, hessian, ridge=0.0):
    """Factorise a Hessian with a ridge, and an additional small one if it is singular."""
    if objective.singular:
        ridge += _MIN_RIDGE * hessian.diagonal().max()
    # The transpose of a symmetric matrix is itself, in LAPACK's order.
    return cholesky_with_ridge(hessian.T, ridge)


def _rises(point, trial, rise):
    """Whether the value rises by at least `rise`, up to rounding errors."""
    return trial.value >= point.value + rise - 2 * np.finfo(float).eps * max(1, abs(point.value))


def _repeated(objective, point, factor, last_rise):
    """Return a step with the factors of an earlier Hessian, and its end; None if unsuccessful.

    The predicted rise must decrease by a factor of four, because a new Hessian costs as much as
    several gradients.
    """
    step = factor.solve(point.gradient)
    derivative = step @ point.gradient
    if 4 * derivative > last_rise:
        return None
    trial = _NewtonPoint.at(objective, point.parameters + step)
    return (step, trial) if _rises(point, trial, MIN_DECREASE * derivative) else None


def _backtracked(objective, point, ridge):
    """Halve a step until the value rises; return step, size, end or None, ridge and factors.

    The curvature sech^2 of saturated units is so small that their part of the step is far too long;
    a ridge shortens this part only.
    """
    hessian = objective.hessian(point.parameters)
    rounding = 2 * np.finfo(float).eps * max(1, abs(point.value))
    while True:
        factor = factorised(objective, hessian, ridge)
        step, size = factor.solve(point.gradient), 1.0
        derivative = step @ point.gradient
        while size >= 0.1 or ridge >= 1:
            trial = _NewtonPoint.at(objective, point.parameters + size * step)
            if _rises(point, trial, MIN_DECREASE * size * derivative):
                return step, size, trial, ridge, factor
            size /= 2
            if not size * derivative > rounding:
                return step, size, None, ridge, factor
        ridge = max(30 * ridge, _MIN_RIDGE)


def _extended(objective, point, step, size, trial):
    """Double a step while a quarter of the derivative along it remains; return size and end.

    The curvature of saturating units decreases as exp(-2 |eta|) along the step, so that Newton's
    step increases |2 eta| by about one only.
    """
    while size >= 1 and trial.gradient @ step > step @ point.gradient / 4:
        longer = _NewtonPoint.at(objective, point.parameters + 2 * size * step)
        if longer.value <= trial.value:
            break
        size, trial = 2 * size, longer
    return size, trial


def newton(objective, start, *, factor=None, tol=1e-5, max_iter=MAX_ITER // 10):
    """Maximise by Newton's method with a line search, using each Hessian for several steps.

    `factor` are factors of the Hessian at a nearby maximum. Stop when the predicted rise of the
    next step, for `TOLERANCE_ROWS` rows, is below tol^2, or derivatives are rounding errors. The
    predicted rise is extrapolated from the ratio of the last two, or its square for a new Hessian.
    """
    point, ridge, history, stopped = _NewtonPoint.at(objective, np.array(start)), 0.0, [], False
    last_rise = np.inf  # rise of the last step; infinite if it is no basis for extrapolation
    while len(history) < max_iter and not stopped:
        repeated = _repeated(objective, point, factor, last_rise) if factor else None
        if repeated:
            (step, trial), size, order = repeated, 1.0, 1
        else:
            step, size, trial, ridge, factor = _backtracked(objective, point, ridge)
            order = 2
        rise = step @ point.gradient
        if trial is None:
            history.append(objective.total * point.value)
            return Fit(point.parameters, history, bool(TOLERANCE_ROWS * rise / 2 <= tol))
        if not repeated:
            size, trial = _extended(objective, point, step, size, trial)
        largest_slope = max(abs(end.gradient).max() for end in (point, trial))
        next_rise = rise * min(1.0, rise / last_rise) ** order if last_rise < np.inf else rise
        is_small = TOLERANCE_ROWS * next_rise / 2 <= tol**2 or largest_slope <= gradient_rounding()
        stopped = not ridge and bool(is_small)
        last_rise, factor = (rise, factor) if size == 1 and not ridge else (np.inf, None)
        # Reduce the ridge, and finally remove it.
        ridge = ridge / 10 if ridge > 1e-5 * _MIN_RIDGE else 0.0
        point = trial
        history.append(objective.total * point.value)
    return Fit(point.parameters, history, stopped)


# --- L-BFGS ---------------------------------------------------------------------------------------


# Predicted decrease, in units of machine epsilon times the value, below which it is not resolved.
_ROUNDING = 10.0
# Number of initial iterations in which steps are taken even if their gain is below the tolerance.
# If a penalty outweighs the data, no step gains more, and couplings would stay at zero.
_FEW_ITERATIONS = 5


class _Descent:
    """Descent steps for a function plus l1 @ |z|, if l1 is not None."""

    def __init__(self, objective, z, l1, n_pairs):
        self.objective, self.z, self.l1, self.before = objective, z, l1, z.copy()
        # The last steps and changes of the gradient, in turn, and products for `direction_of`.
        self.pairs = np.empty((2, n_pairs, len(z)), z.dtype)
        self.products, self.n_pairs = np.zeros((2, n_pairs, n_pairs)), 0
        self.gradient, self.trial_gradient = (aligned(z.shape, z.dtype) for _ in range(2))
        self.value = self._evaluate(self.gradient)
        self.uphill = self._in_orthant(self.gradient)

    def _evaluate(self, gradient):
        value = self.objective(self.z, gradient)
        return value if self.l1 is None else value + self.l1 @ abs(self.z)

    def _in_orthant(self, g):
        """Return the gradient with the penalty, in the orthant into which the function falls."""
        if self.l1 is None:
            return g
        at_zero = np.sign(g) * np.maximum(abs(g) - self.l1, 0)
        return np.where(self.z == 0, at_zero, g + self.l1 * np.sign(self.z))

    def direction(self):
        """Return the descent direction, and the derivative along it."""
        uphill, n, last = self.uphill, self.n_pairs, (self.n_pairs - 1) % self.pairs.shape[1]
        pairs, products = self.pairs[:, :n], self.products[:, :n, :n]
        if self.l1 is None:
            direction = direction_of(uphill, *pairs, products, last)
        else:
            # Variables that leave zero use the inverse curvature of the last step.
            direction = uphill * (products[0, last, last] / products[1, last, last] if n else 1.0)
            free = (self.z != 0) | (self.l1 == 0)
            direction[free] = direction_of(uphill[free], *np.roll(pairs, -n, axis=1)[..., free])
        np.negative(direction, out=direction)
        return direction, float(direction @ uphill)

    def step(self, direction, derivative, slack):
        """Shorten the step until the value decreases; return whether it decreases."""
        z, before, uphill, length = self.z, self.before, self.uphill, 1.0
        before[:] = z
        orthant = None if self.l1 is None else np.where(before == 0, -uphill, before)
        rounding = np.finfo(z.dtype).eps * abs(self.value)
        while True:
            np.multiply(direction, length, out=z)
            z += before
            change = length * derivative
            if orthant is not None:
                z[(self.l1 > 0) & (z * orthant <= 0)] = 0
                change = uphill @ (z - before)
            new, enough = self._evaluate(self.trial_gradient), MIN_DECREASE * change
            # By convexity the decrease is at least minus the slope at the end, which is more exact.
            if new <= self.value + enough + slack * rounding or (
                new < np.inf and self._in_orthant(self.trial_gradient) @ (z - before) <= enough
            ):
                self._accept(new)
                return True
            # Minimise the parabola through both values, limited to 0.1 to 0.5 of the length.
            curvature = 2 * (new - self.value - length * derivative) / length**2
            shorter = -derivative / curvature if 0 < curvature < np.inf else 0.0
            length = min(max(shorter, 0.1 * length), 0.5 * length)
            if not -length * derivative > rounding:
                z[:] = before
                return False

    def _accept(self, new):
        """Accept the step; store it, and the change of the gradient."""
        step = np.subtract(self.z, self.before, out=self.before)
        change = np.subtract(self.trial_gradient, self.gradient, out=self.gradient)
        if is_convex(step @ change, change @ change):
            k, n = self.n_pairs % self.pairs.shape[1], self.n_pairs + 1
            self.pairs[0, k], self.pairs[1, k], self.n_pairs = step, change, n
            (steps, changes), (of_steps, of_changes) = self.pairs[:, :n], self.products[:, :n, :n]
            of_steps[k], of_steps[:, k] = 0, steps @ change
            of_changes[k] = of_changes[:, k] = changes @ change
        self.gradient, self.trial_gradient = self.trial_gradient, self.gradient
        self.value, self.uphill = min(new, self.value), self._in_orthant(self.gradient)


def minimise(objective, z, *, tol, max_iter, l1=None, n_pairs=20, callback=None):
    """Minimise a convex function plus l1 @ |z| by L-BFGS, changing z in place.

    `n_pairs` is the number of stored steps and changes of the gradient.
    """
    with one_blas_thread():
        descent = _Descent(objective, z, l1, n_pairs)
        eps, history, smallest, converged = np.finfo(z.dtype).eps, [], np.inf, False
        for iteration in range(max_iter):
            direction, derivative = descent.direction()
            rounding = eps * abs(descent.value)
            # A smaller decrease would be within rounding errors.
            converged = not -derivative / 2 > max(tol, rounding / 2)
            # Continue while the gradient shrinks, unless there is an l1 penalty.
            shrinks = iteration < _FEW_ITERATIONS and 0 < -derivative < smallest
            # Slopes are rounding errors, too, if no step of all pairs lowers the value.
            stagnates = history[-n_pairs - 1 : -n_pairs] == history[-1:] != []
            if stagnates or (converged and (l1 is not None or not shrinks)):
                break
            smallest = -derivative if converged else np.inf
            if not descent.step(direction, derivative, _ROUNDING if converged else 0.0):
                # At the minimum, rounding errors are larger than any decrease.
                converged |= abs(derivative) < _ROUNDING * rounding
                break
            history.append(descent.value)
            if callback is not None:
                callback(iteration, descent.value)
    return Fit(z, history or [descent.value], converged)


def lbfgs(objective, start, *, l1=0.0, tol=1e-5, max_iter=MAX_ITER):
    """Maximise a composite likelihood by L-BFGS in the objective's well-scaled coordinates."""
    coordinates = objective.coordinates(separate=l1 > 0)

    def function(z, gradient):
        value, by_parameters = objective.value_and_gradient(coordinates.to_parameters(z))
        gradient[:] = coordinates.gradient(by_parameters)
        np.negative(gradient, out=gradient)
        return -value

    penalty, z = None, coordinates.from_parameters(start)
    if l1:
        penalty = np.zeros(len(z))
        penalty[objective.n_fields :] = l1 / coordinates.scale[objective.n_fields :]
    options = {"tol": tol / 100 / TOLERANCE_ROWS, "max_iter": max_iter}
    result = minimise(function, z, l1=penalty, **options)
    history = [-objective.total * value for value in result.history]
    return Fit(coordinates.to_parameters(result.parameters), history, result.stopped)


def maximum(objective, start, tol):
    """Maximise without l1, by Newton's method or, for many parameters, by L-BFGS."""
    # Objectives with a gauge have no coordinates for L-BFGS.
    newtonian = objective.n_parameters <= MAX_NEWTON_PARAMETERS or objective.singular
    return (newton if newtonian else lbfgs)(objective, start, tol=tol)
