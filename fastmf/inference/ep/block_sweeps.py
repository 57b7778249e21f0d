"""Parallel updates of the sites of blocks, with Anderson's extrapolation.

Sites of correlated blocks move in circles under parallel steps, which damping only slows down. The
extrapolated sites are those combinations of the last ones, and of what they led to, of which the
differences between tilted and Gaussian moments, in standard deviations, are smallest. A step after
which these are much larger is not made.
"""

import numpy as np

from fastmf._outcomes import CONVERGED, IMPROPER, OUT_OF_ITERATIONS

# Steps that are kept.
SWEEP_MEMORY = 8
# Part of a step that is made, at first, and how it shrinks and grows.
FIRST_LENGTH, SHRINKING, GROWTH = 0.9, 0.4, 1.5
# How many times larger than the largest of the last ones differences of moments may become.
MAX_INCREASE, N_RECENT = 2.0, 3
# Steps that were not made, one after another, and iterations without a new low of the differences,
# that end it.
MAX_REJECTED, MAX_BARREN_ITERATIONS = 12, 16
# What is added to the diagonal of the scaled normal equations of the extrapolation: results
# would else depend on rounding.
EXTRAPOLATION_RIDGE = 1e-8


def block_sweeps(problem, state, damping, trace):
    """Update all sites at once until Gaussian and tilted units agree.

    Parameters
    ----------
    problem : BlockProblem
    state : BlockState
    damping : float or None
        Without extrapolation, if it is given.
    trace : EPTrace

    Returns
    -------
    tuple
        The fixed point, or the state of the smallest residual; outcome code; "parallel".
    """
    sweeps, n_done = _Sweeps(problem, damping), 0
    while True:
        end = sweeps.run(state, trace, n_done)
        state, n_done = end[0], len(trace.residuals)
        deeper = sweeps.problem.deepened(state.tilted)
        if deeper is None:
            return end
        state = deeper.state_of(state.site) or state
        sweeps = _Sweeps(state.problem, damping)
        if state.problem is not deeper:
            return end


class _Sweeps:
    """Updates with the same patterns."""

    def __init__(self, problem, damping):
        self.problem, self.adaptive = problem, damping is None
        self.length = FIRST_LENGTH if damping is None else 1 - damping
        self.extrapolation = Extrapolation(problem) if damping is None else None

    def run(self, state, trace, n_done):
        """The state where they end, and how: see `block_sweeps`."""
        closest, smallest, since, recent = state, np.inf, 0, []
        for k in range(n_done + 1, self.problem.max_iter + 1):
            residual = state.residual()
            trace.add(residual, lambda state=state: self.problem.energy(state))
            if state.agrees(self.problem.tol):
                return state, CONVERGED, "parallel"
            closest, since = (state, 0) if residual < smallest else (closest, since + 1)
            smallest = min(smallest, residual)
            if since > MAX_BARREN_ITERATIONS or k == self.problem.max_iter:
                break
            recent = [*recent[1 - N_RECENT :], residual]
            state = self._step(state, max(recent))
            if state is None:
                return closest, IMPROPER, "parallel"
        return closest, OUT_OF_ITERATIONS, "parallel"

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


class Extrapolation:
    """Anderson's extrapolation of the sites."""

    def __init__(self, problem):
        self.problem, self.sites, self.steps, self.differences = problem, [], [], []
        # Units that stand for several count as often: so steps are those of repeated rows.
        self._root = np.ones(problem.blocks.n_units)
        if problem.single is not None and problem.single.weights is not None:
            self._root[problem.blocks.singles] = np.sqrt(problem.single.weights)

    def add(self, state):
        """Remember a state."""
        kept = slice(1 - SWEEP_MEMORY, None)
        self.sites = [*self.sites[kept], state.site]
        self.steps = [*self.steps[kept], state.proposal - state.site]
        self.differences = [*self.differences[kept], self._difference(state)]

    def reset(self):
        """Forget all but the last state; False if there were no others."""
        n = len(self.sites)
        self.sites, self.steps = self.sites[-1:], self.steps[-1:]
        self.differences = self.differences[-1:]
        return n > 1

    def _difference(self, state):
        """Tilted less Gaussian moments, in standard deviations of the Gaussian."""
        blocks = self.problem.blocks
        # Where rounding leaves a variance that is none, there is no extrapolation.
        variance = blocks.diagonal(state.gaussian)
        deviation = np.sqrt(np.where(variance > 0, variance, np.nan))
        mean, var, elements = blocks.parts(state.tilted.moments - state.gaussian)
        var = var / deviation[blocks.singles] ** 2 * self._root[blocks.singles]
        scaled = [
            (D / deviation[units][:, :, None] / deviation[units][:, None]).ravel()
            for D, units in zip(blocks.matrices(elements), blocks.groups, strict=True)
        ]
        return np.concatenate([mean / deviation * self._root, var, *scaled])

    def __call__(self, length):
        """The next sites, of this part of the extrapolated step."""
        site, step = self.sites[-1], self.steps[-1]
        if len(self.sites) == 1:
            return site + length * step
        last = np.array(self.differences)
        with np.errstate(over="ignore", invalid="ignore"):
            changes = last[1:] - last[:-1]
            gram, right = changes @ changes.T, changes @ last[-1]
            scale = np.sqrt(gram.diagonal())
        if not ((scale > 0) & (scale < np.inf)).all():
            return site + length * step
        gram = gram / scale / scale[:, None] + EXTRAPOLATION_RIDGE * np.eye(len(gram))
        weights = np.linalg.solve(gram, right / scale) / scale
        sites, steps = np.array(self.sites), np.array(self.steps)
        moved = site - weights @ (sites[1:] - sites[:-1])
        return moved + length * (step - weights @ (steps[1:] - steps[:-1]))
