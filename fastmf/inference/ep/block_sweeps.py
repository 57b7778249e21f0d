"""Parallel updates of the sites of blocks, with Anderson's extrapolation.

Sites of correlated blocks move in circles under parallel steps, which damping only slows down. The
extrapolated sites are those combinations of the last ones, and of what they led to, of which the
differences between tilted and Gaussian moments, in standard deviations, are smallest. A step after
which these are much larger is not made.
"""

import numpy as np

from fastmf._outcomes import CONVERGED, IMPROPER, OUT_OF_ITERATIONS

# Steps that are kept.
MEMORY = 8
# Part of a step that is made, at first and at least, and how it shrinks and grows.
FIRST_LENGTH, SHORTEST, SHRINKING, GROWTH = 0.9, 1e-3, 0.4, 1.5
# How many times larger differences of moments may become in a step.
MAX_INCREASE = 2.0
# Steps that were not made, and iterations without a new low of the differences, that end it.
MAX_REJECTED, PATIENCE = 12, 24
# Relative size of what is added to the diagonal of the normal equations of the extrapolation.
RIDGE = 1e-10


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
    extrapolation = Extrapolation(problem) if damping is None else None
    length = FIRST_LENGTH if damping is None else 1 - damping
    closest, smallest, since, n_rejected = state, np.inf, 0, 0
    for k in range(1, problem.max_iter + 1):
        residual = state.residual()
        trace.add(residual, lambda state=state: problem.energy(state))
        if state.agrees(problem.tol):
            return state, CONVERGED, "parallel"
        closest, since = (state, 0) if residual < smallest else (closest, since + 1)
        smallest = min(smallest, residual)
        if since > PATIENCE or k == problem.max_iter:
            break
        if extrapolation is not None:
            extrapolation.add(state)
        while True:
            new = problem.state_of(_next_sites(extrapolation, state, length))
            limit = np.inf if damping is not None else MAX_INCREASE * residual
            if new is not None and new.residual() <= limit:
                break
            n_rejected += 1
            if n_rejected > MAX_REJECTED or length < SHORTEST:
                return closest, IMPROPER, "parallel"
            if extrapolation is None or not extrapolation.reset(state):
                length *= SHRINKING
        if damping is None:
            length = min(FIRST_LENGTH, GROWTH * length)
        state = new
    return closest, OUT_OF_ITERATIONS, "parallel"


def _next_sites(extrapolation, state, length):
    if extrapolation is not None:
        return extrapolation(length)
    return state.site + length * (state.proposal - state.site)


class Extrapolation:
    """Anderson's extrapolation of the sites."""

    def __init__(self, problem):
        self.problem, self.sites, self.steps, self.differences = problem, [], [], []

    def add(self, state):
        """Remember a state."""
        kept = slice(1 - MEMORY, None)
        self.sites = [*self.sites[kept], state.site]
        self.steps = [*self.steps[kept], state.proposal - state.site]
        self.differences = [*self.differences[kept], self._difference(state)]

    def reset(self, state):
        """Forget all but the last state; False if there were no others."""
        n = len(self.sites)
        self.sites, self.steps = self.sites[-1:], self.steps[-1:]
        self.differences = self.differences[-1:]
        return n > 1

    def _difference(self, state):
        """Tilted less Gaussian moments, in standard deviations of the Gaussian."""
        blocks = self.problem.blocks
        deviation = np.sqrt(blocks.diagonal(state.gaussian))
        mean, var, elements = blocks.parts(state.tilted.moments - state.gaussian)
        var = var / deviation[blocks.singles] ** 2
        scaled = [
            (D / deviation[units][:, :, None] / deviation[units][:, None]).ravel()
            for D, units in zip(blocks.matrices(elements), blocks.groups, strict=True)
        ]
        return np.concatenate([mean / deviation, var, *scaled])

    def __call__(self, length):
        """The next sites, of this part of the extrapolated step."""
        site, step = self.sites[-1], self.steps[-1]
        if len(self.sites) == 1:
            return site + length * step
        last = np.array(self.differences)
        changes = last[1:] - last[:-1]
        gram = changes @ changes.T
        gram.flat[:: len(gram) + 1] *= 1 + RIDGE
        weights = np.linalg.lstsq(gram, changes @ last[-1], rcond=1e-12)[0]
        sites, steps = np.array(self.sites), np.array(self.steps)
        moved = site - weights @ (sites[1:] - sites[:-1])
        return moved + length * (step - weights @ (steps[1:] - steps[:-1]))
