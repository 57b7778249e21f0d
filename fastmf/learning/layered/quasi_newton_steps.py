"""Maximum likelihood of small machines by L-BFGS with exact gradients.

Each step uses all rows, and the L-BFGS direction, with a step length that satisfies the weak Wolfe
conditions and is found by bisection (Lewis & Overton 2013). Variables are the couplings and the
parameters of the units, with the logarithm of the precisions of unbounded units. Previous steps and
changes of the gradient are stored in `state.chains`, from which a run resumes.
"""

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from fastmf._common.rows import is_incomplete, row_blocks
from fastmf.inference.missing.layered import incomplete_rows
from fastmf.learning.layered.domain import exists
from fastmf.learning.layered.exact_averages import added, exact_averages, of_complete, of_incomplete
from fastmf.learning.layered.gradients import free_units, with_held_precisions
from fastmf.learning.layered.step import LayeredSteps
from fastmf.learning.quasi_newton import direction_of
from fastmf.learning.training.ascent import ModelParameters, initial_state
from fastmf.models.layered import RBM
from fastmf.priors import Bernoulli
from fastmf.priors._protocol import map_parameters, n_units
from fastmf.priors._scaling import by_log_precision, from_log_precisions, with_log_precisions
from fastmf.priors._values import states

# Number of quasi-Newton steps in an epoch.
STEPS_PER_EPOCH = 2


class Point(NamedTuple):
    """A model, its variables, the penalised log-likelihood, and its gradient."""

    model: object
    variables: np.ndarray
    value: float
    gradient: np.ndarray


class Objective:
    """The log-likelihood of weighted rows minus l2 / 2 times the sum of squared couplings.

    Missing values are summed over. At the model `highest` the search along the gradient failed.
    """

    def __init__(self, X, weights, l2):
        n_rows = X.shape[0]
        weights = np.ones(n_rows) if weights is None else np.asarray(weights, np.float64)
        self.X, self.weights, self.l2 = X, weights / weights.sum(), l2
        self.incomplete = None
        if is_incomplete(X):
            incomplete = incomplete_rows(X)
            self.incomplete = X[incomplete], self.weights[incomplete]
            self.X, self.weights = X[~incomplete], self.weights[~incomplete]
        self._last, self.highest = None, None

    def at(self, model):
        """Return the `Point` of a model; the last one is cached."""
        if self._last is None or self._last.model is not model:
            self._last = self._at(model)
        return self._last

    def _at(self, model):
        averages, variables = exact_averages(model), variables_of(model)
        value, pairs, layers = self._of_data(model)
        couplings = [
            np.float64(pairs) - averages.pairwise[0] - self.l2 * np.float64(model.couplings[0])
        ]
        value -= averages.log_partition + self.l2 * np.sum(np.square(model.couplings[0])) / 2
        layers = [
            by_log_precision(prior, map_parameters(np.subtract, *both))
            for prior, *both in zip(model.layers, layers, averages.layers, strict=True)
        ]
        # As only couplings decay, precisions with free scale would go to 0.
        layers = with_held_precisions(model.layers, layers, free_units(model.layers))
        gradient = _joined(ModelParameters(couplings=tuple(couplings), layers=layers))
        return Point(model, variables, float(value), gradient)

    def near(self, model, variables):
        """Return the `Point` with these variables, for a model like `model`; None if invalid."""
        with np.errstate(over="ignore", invalid="ignore"):
            new = _model_of(model, variables)
            if new is None or not exists(new.couplings, new.layers):
                return None
            point = self.at(new)
        return point if np.isfinite(point.value) and np.isfinite(point.gradient).all() else None

    def _of_data(self, model):
        """Compute the average over rows of log sum_h exp(-energy(x, h)), and its derivatives."""
        value, sums = 0.0, None
        for rows in row_blocks(self.X, dense=True):
            x = states(model.layers[0], self.X[rows], model.dtype)
            values, new = of_complete(model, x, self.weights[rows])
            value, sums = value + values[0] + values[1], added(sums, new)
        if self.incomplete is not None:
            incomplete_value, new = of_incomplete(model, *self.incomplete)
            value, sums = value + incomplete_value, added(sums, new)
        return value, sums[0], sums[1:]


def _joined(parameters):
    """Concatenate all arrays of parameters."""
    return np.concatenate([np.ravel(x) for x in parameters.arrays()]).astype(np.float64)


def variables_of(model):
    """Return the variables of the optimisation, (n_variables,); 0 for fixed log-weights of -inf."""
    layers = tuple(map(with_log_precisions, model.layers))
    variables = _joined(ModelParameters(couplings=model.couplings, layers=layers))
    return np.where(np.isneginf(variables), 0, variables)


def _model_of(model, variables):
    """Return the model with these variables, like `model`; None if they are out of range."""
    if not np.isfinite(variables).all():
        return None
    old = ModelParameters.of(model)
    parts = np.split(variables.astype(model.dtype), np.cumsum([x.size for x in old.arrays()])[:-1])
    arrays = (
        np.where(np.isneginf(x), x, part.reshape(x.shape))
        for x, part in zip(old.arrays(), parts, strict=True)
    )
    new = old.replaced(arrays)
    pairs = zip(model.layers, new.layers, strict=True)
    layers = tuple(from_log_precisions(*pair) for pair in pairs)
    try:
        return model.rebuilt(new.couplings, layers)
    except ValueError:  # a parameter outside its domain
        return None


def take_step(state, objective, memory=20):
    """Take a step from the model of a state; keep the model if no step increases the value."""
    start = objective.at(state.model)
    if state.model is objective.highest:
        return
    pairs = state.chains or (np.zeros((0, len(start.variables))),) * 2
    direction = direction_of(start.gradient, *pairs)
    if not direction @ start.gradient > 0:
        pairs, direction = tuple(p[:0] for p in pairs), start.gradient
    length = 1.0 if len(pairs[0]) else min(1.0, 1 / max(np.linalg.norm(direction), 1e-300))
    new = _search(objective, start, direction, length)
    if new is None:
        # Restart along the gradient in the next step.
        objective.highest = None if len(pairs[0]) else state.model
        state.chains = tuple(p[:0] for p in pairs)
        return
    step, change = new.variables - start.variables, start.gradient - new.gradient
    if step @ change > 1e-10 * np.linalg.norm(step) * np.linalg.norm(change):
        pairs = [np.vstack([p, [x]])[-memory:] for p, x in zip(pairs, (step, change), strict=True)]
    state.model, state.chains = new.model, tuple(pairs)


class QuasiNewtonSteps(LayeredSteps):
    """Training steps that use all rows of data; an epoch has a single batch."""

    def __init__(self, settings, X, weights=None, scaling=None, n_threads=None):
        settings = replace(settings, batch_size=X.shape[0])
        super().__init__(settings, n_threads, scaling)
        self._objective = Objective(X, weights, settings.l2)

    def __call__(self, state, batch, rate, rng):
        """Take `STEPS_PER_EPOCH` steps; the batch is ignored."""
        for _ in range(STEPS_PER_EPOCH):
            take_step(state, self._objective)


def gain_of_one_unit(visible, X, weights, l2, n_steps=40):
    """Compute the log-likelihood gain of one binary hidden unit minus the BIC penalty."""
    objective, hidden = Objective(X, weights, l2), Bernoulli(np.zeros(1))
    n, n_rows, dtype = n_units(visible), X.shape[0], visible.moments(0.0, 0.0)[0].dtype
    uncoupled = RBM(np.zeros((n, 1), dtype), visible, hidden)
    couplings = np.random.default_rng(0).normal(scale=0.3 / np.sqrt(n), size=(n, 1))
    state = initial_state(RBM(couplings.astype(dtype), visible, hidden))
    for _ in range(n_steps):
        take_step(state, objective)
    gain = objective.at(state.model).value - objective.at(uncoupled).value
    return gain - n * np.log(n_rows) / (2 * n_rows)


def _search(objective, start, direction, length, decrease=1e-4, curvature=0.9):
    """Find a point on a line that satisfies the weak Wolfe conditions, or the highest trial."""
    derivative, low, high, best = direction @ start.gradient, 0.0, np.inf, None
    float64 = np.finfo(np.float64)
    # Predicted increases of less than a few thousand machine epsilons are not significant.
    resolution = 2**12 * float64.eps * max(1.0, abs(start.value))
    for _ in range(float64.nmant):
        if length * derivative < resolution:
            break
        trial = objective.near(start.model, start.variables + length * direction)
        if trial is None or trial.value < start.value + decrease * length * derivative:
            high = length
        else:
            best = trial if best is None or trial.value > best.value else best
            if trial.gradient @ direction <= curvature * derivative:
                return trial
            low = length
        length = 2 * low if high == np.inf else (low + high) / 2
        if best is not None and high - low < 1e-3 * high:
            break
    return best
