"""Parallel updates of the sites of blocks, with Anderson's extrapolation.

Sites of correlated blocks move in circles under parallel steps, which damping only slows down. A
step after which the differences between tilted and Gaussian moments are much larger is not made.
Where a few blocks differ more than all others, they are brought to their fixed point given the
sites of the others first (`some_blocks`); if they have none, neither have all, and they have to be
joined.
"""

from functools import partial

import numpy as np
from numpy.linalg import LinAlgError

from fastmf._outcomes import CONVERGED, IMPROPER, OUT_OF_ITERATIONS
from fastmf.inference.ep.extrapolation import AndersonExtrapolation
from fastmf.inference.ep.parallel import GROWTH
from fastmf.inference.ep.sites import EPTrace
from fastmf.inference.ep.some_blocks import SomeBlocks, moving_blocks
from fastmf.inference.gaussian.latent import Latent

# Part of a step that is made, at first, and how it shrinks.
FIRST_LENGTH, SHRINKING = 0.9, 0.4
# How many times larger than the largest of the last ones differences of moments may become.
MAX_INCREASE, N_RECENT = 2.0, 3
# Steps that were not made, one after another, and iterations without a new low of the differences,
# that end it.
MAX_REJECTED, MAX_BARREN_ITERATIONS = 12, 16
# Tolerance of some blocks alone, in units of the differences of all, and of that of all; and part
# of the differences that a step is to leave if they are brought there again where latent variables
# follow them: classifiers took as many iterations without.
SETTLED_AT_FIRST, SETTLED_AT_END, SETTLED_PART = 0.03, 0.25, 0.3


def block_sweeps(problem, state, damping, trace, *, patience=MAX_BARREN_ITERATIONS, deepens=True):
    """Update all sites at once until Gaussian and tilted units agree.

    Parameters
    ----------
    problem : BlockProblem
    state : BlockState
    damping : float or None
        Without extrapolation, if it is given.
    trace : EPTrace
    patience : int, default 16
        Iterations without a new low of the differences, that end it.
    deepens : bool, default True
        Whether patterns include more features where they need to.

    Returns
    -------
    tuple
        The fixed point, or the state of the smallest residual; outcome code; "parallel".
    """
    sweeps, n_done = _Sweeps(problem, damping, patience), 0
    while True:
        end = sweeps.run(state, trace, n_done)
        state, n_done = end[0], len(trace.residuals)
        deeper = sweeps.problem.deepened(state.tilted) if deepens else None
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
        # Whether some blocks are brought to their fixed point alone, and whether that has failed.
        self.settles, self.unsettled = damping is None, False

    def run(self, state, trace, n_done):
        """The state where they end, and how: see `block_sweeps`."""
        closest, smallest, since, recent = state, np.inf, 0, []
        for k in range(n_done + 1, self.problem.max_iter + 1):
            residual = state.residual()
            trace.add(residual, lambda state=state: self.problem.energy(state))
            if residual <= self.problem.tol and state.agrees(self.problem.tol):
                return state, CONVERGED, "parallel"
            closest, since = (state, 0) if residual < smallest else (closest, since + 1)
            smallest = min(smallest, residual)
            if since > self.patience or k == self.problem.max_iter:
                break
            recent = [*recent[1 - N_RECENT :], residual]
            put = self._settled(state, residual) if self.settles else None
            if self.unsettled and self.patience < MAX_BARREN_ITERATIONS:
                break
            state = self._step(state, max(recent), put)
            if state is None:
                return closest, IMPROPER, "parallel"
            if put is not None and isinstance(self.problem.side.side, Latent):
                self.settles = state.residual() < SETTLED_PART * residual
        return closest, OUT_OF_ITERATIONS, "parallel"

    def _settled(self, state, residual):
        """A function that puts the sites of some blocks at their fixed point; None if none does."""
        moving = None if state.covariance is None else moving_blocks(state)
        if moving is None:
            return None
        tol = max(SETTLED_AT_FIRST * residual, SETTLED_AT_END * self.problem.tol)
        try:
            some = SomeBlocks(state, moving, tol)
        except LinAlgError:
            return None
        start = some.problem.state_of(some.site)
        if start is None:
            return None
        sweeps = _Sweeps(some.problem, None, self.patience)
        sweeps.settles = False
        end, outcome, _ = sweeps.run(start, EPTrace(False), 0)
        self.settles = outcome == CONVERGED
        self.unsettled = not self.settles
        return partial(some.with_sites, own=end.site) if self.settles else None

    def _step(self, state, residual, put=None):
        """The next state, with differences that are not much larger; None if there is none."""
        limit = MAX_INCREASE * residual if self.adaptive else np.inf
        if self.adaptive:
            self.extrapolation.add(state)
        for _ in range(MAX_REJECTED):
            site = self._next_sites(state)
            new = self.problem.state_of(site if put is None else put(site))
            if new is not None and new.residual() <= limit:
                if self.adaptive:
                    self.length = min(FIRST_LENGTH, GROWTH * self.length)
                return new
            if put is not None:
                put = None
            elif not (self.adaptive and self.extrapolation.reset()):
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
