"""Parallel updates of the sites of blocks, with Anderson's extrapolation.

Sites of correlated blocks move in circles under parallel steps, which damping only slows down. A
step after which the differences between tilted and Gaussian moments are much larger is not made.
"""

import numpy as np

from fastmf._outcomes import CONVERGED, IMPROPER, OUT_OF_ITERATIONS
from fastmf.inference.ep.extrapolation import AndersonExtrapolation
from fastmf.inference.ep.parallel import GROWTH

# Part of a step that is made, at first, and how it shrinks.
FIRST_LENGTH, SHRINKING = 0.9, 0.4
# How many times larger than the largest of the last ones differences of moments may become.
MAX_INCREASE, N_RECENT = 2.0, 3
# Steps that were not made, one after another, and iterations without a new low of the differences,
# that end it.
MAX_REJECTED, MAX_BARREN_ITERATIONS = 12, 16


def block_sweeps(problem, state, damping, trace, *, patience=MAX_BARREN_ITERATIONS):
    """Update all sites at once until Gaussian and tilted units agree."""
    sweeps, n_done = _Sweeps(problem, damping, patience), 0
    while True:
        end = sweeps.run(state, trace, n_done)
        state, n_done = end[0], len(trace.residuals)
        deeper = sweeps.problem.deepened(state.tilted)
        # Where there is no progress larger patterns do not help, if blocks can be joined.
        if deeper is None or (end[1] != CONVERGED and patience < MAX_BARREN_ITERATIONS):
            return end
        state = deeper.retilted(state) or state
        sweeps = _Sweeps(state.problem, damping, patience)
        if state.problem is not deeper:
            return end


class _Sweeps:
    """Updates with the same patterns."""

    def __init__(self, problem, damping, patience):
        self.problem, self.adaptive, self.patience = problem, damping is None, patience
        self.length = FIRST_LENGTH if damping is None else 1 - damping
        self.extrapolation = Extrapolation(problem) if damping is None else None

    def run(self, state, trace, n_done):
        """The state where they end, and how: see `block_sweeps`."""
        closest, smallest, since, recent = state, np.inf, 0, []
        for k in range(n_done + 1, self.problem.max_iter + 1):
            residual = state.residual()
            trace.add(residual, lambda state=state: self.problem.energy(state))
            if residual <= self.problem.tol and state.agrees(self.problem.tol):
                return state, CONVERGED
            closest, since = (state, 0) if residual < smallest else (closest, since + 1)
            smallest = min(smallest, residual)
            if since > self.patience or k == self.problem.max_iter:
                break
            recent = [*recent[1 - N_RECENT :], residual]
            state = self._step(state, max(recent))
            if state is None:
                return closest, IMPROPER
        return closest, OUT_OF_ITERATIONS

    def _step(self, state, residual):
        """The next state, with differences that are not much larger; None if there is none."""
        limit = MAX_INCREASE * residual if self.adaptive else np.inf
        if self.adaptive:
            self.extrapolation.add(state)
        for _ in range(MAX_REJECTED):
            new = self.problem.state_of(self._next_sites(state))
            if new is not None and new.residual() <= limit:
                if self.adaptive:
                    self.length = min(FIRST_LENGTH, GROWTH * self.length)
                return new
            if not (self.adaptive and self.extrapolation.reset()):
                self.length *= SHRINKING
        return None

    def _next_sites(self, state):
        if self.adaptive:
            return self.extrapolation(self.length)
        return state.site + self.length * (state.proposal - state.site)


class Extrapolation(AndersonExtrapolation):
    """Anderson's extrapolation of the sites of blocks."""

    def __init__(self, problem):
        super().__init__()
        self.problem = problem
        # Units that stand for several count as often: so steps are those of repeated rows.
        self._root = np.ones(problem.blocks.n_units)
        if problem.single is not None and problem.single.weights is not None:
            self._root[problem.blocks.singles] = np.sqrt(problem.single.weights)

    def add(self, state):
        """Remember a state."""
        self.remember(state.site, state.proposal - state.site, self._difference(state))

    def _difference(self, state):
        """Tilted less Gaussian moments, in standard deviations of the Gaussian."""
        blocks = self.problem.blocks
        # Where rounding leaves a variance that is none, there is no extrapolation.
        variance = blocks.diagonal(state.gaussian)
        deviation = np.sqrt(np.where(variance > 0, variance, np.nan))
        mean, var, elements = blocks.parts(state.tilted.moments - state.gaussian)
        var = var / deviation[blocks.singles] ** 2 * self._root[blocks.singles]
        scaled = blocks.scaled(elements, deviation)
        return np.concatenate([mean / deviation * self._root, var, scaled])
