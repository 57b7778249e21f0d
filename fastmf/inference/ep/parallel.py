"""The parallel schedule of expectation propagation, for one problem or many in step.

What decides on damping, retreat and the end is written once, as generators that ask for the state
at some sites and are sent it, or None where the sites leave no proper Gaussian. `alone` answers one
of them; `together` answers many at once, so that what their Gaussians share is computed once.
"""

import numpy as np

from fastmf._outcomes import CONVERGED, IMPROPER, OUT_OF_ITERATIONS
from fastmf.inference.ep.sites import energy, state_from, state_of

# Adaptive damping: where it starts, where it ends, and the iterations in which the residual must
# have fallen to a new low.
FIRST_DAMPING, STRONGEST_DAMPING, PATIENCE = 0.1, 0.95, 8
HALVINGS = 30


def alone(problem, course):
    """What a course of one problem returns."""
    answer = None
    try:
        while True:
            answer = state_of(problem, course.send(answer))
    except StopIteration as end:
        return end.value


def together(problems, courses):
    """What the courses of many problems return; their sides are of one kind.

    Parameters
    ----------
    problems : list of Problem
        Whose sides share everything but their tilts.
    courses : list of generators
    """
    ended, active = [None] * len(problems), list(range(len(problems)))
    answers = dict.fromkeys(active)
    while active:
        sites = {}
        for row in active:
            try:
                sites[row] = courses[row].send(answers[row])
            except StopIteration as end:
                ended[row] = end.value
        active = list(sites)
        if active:
            moments = _moments([problems[row].side for row in active], list(sites.values()))
            answers = {
                row: state_from(problems[row], sites[row], of_row)
                for row, of_row in zip(active, moments, strict=True)
            }
    return ended


def _moments(sides, sites):
    if hasattr(sides[0], "moments_of_rows"):
        tilted = [site + side.tilt for side, site in zip(sides, sites, strict=True)]
        return sides[0].moments_of_rows(np.stack(tilted))
    return [side.moments(site) for side, site in zip(sides, sites, strict=True)]


def sweeps(problem, state, damping, trace, patience=None):
    """All sites at once: the fixed point, or the best state on the way.

    Gives up after so many dampings without progress if `patience` is set.
    """
    adaptive = damping is None
    share = FIRST_DAMPING if adaptive else damping
    best, since, raised = np.inf, 0, 0
    closest, least = state, np.inf
    for k in range(1, problem.max_iter + 1):
        residual = state.residual()
        trace.add(residual, lambda state=state: energy(problem, state))
        if residual <= problem.tol:
            return state, CONVERGED, "parallel"
        if residual < least:
            closest, least = state, residual
        if residual < 0.95 * best:
            best, since = residual, 0
        else:
            since += 1
        if since >= PATIENCE and adaptive and share < STRONGEST_DAMPING:
            share, since, best = min((1 + share) / 2, STRONGEST_DAMPING), 0, residual
            raised += 1
        given_up = patience is not None and (raised > patience or since >= 4 * PATIENCE)
        if given_up or k == problem.max_iter:
            break
        new = yield from _step(state, share)
        if new is None:
            return closest, IMPROPER, "parallel"
        state = new
    return closest, OUT_OF_ITERATIONS, "parallel"


def _step(state, share):
    """A damped step, halved until it leaves a proper Gaussian; None if none does."""
    length = 1 - share
    for _ in range(HALVINGS):
        new = yield state.site + length * (state.proposal - state.site)
        if new is not None:
            return new
        length /= 2
    return None


def proper_start(site, mean):
    """The state of these sites, made precise enough for a proper Gaussian if need be.

    Parameters
    ----------
    site : array of shape (2, n_units)
    mean : array of shape (n_units,)
        What added precision holds the units to.
    """
    for _ in range(60):
        state = yield site
        if state is not None:
            return state
        precision = np.maximum(2 * site[1], 1e-3)
        site = np.stack([site[0] + (precision - site[1]) * mean, precision])
    raise ValueError("the model has no Gaussian side that any sites make proper.")
