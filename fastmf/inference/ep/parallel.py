"""The parallel schedule of expectation propagation, for one problem or many in step.

An iteration computes the moments of the Gaussian with sites t, the cavities, and from the tilted
moments the sites t' that would match them; the next sites are t + (1 - damping) (t' - t), near the
end extrapolated by Anderson's method if the damping is adaptive.

The schedule is a generator that yields sites and is sent the state with these sites, or None where
they leave no proper Gaussian. `run_one` runs one; `run_batch` runs many in step, so that the
Gaussians of all rows are computed together.
"""

import numpy as np

from fastmf._outcomes import CONVERGED, IMPROPER, OUT_OF_ITERATIONS
from fastmf.inference.ep.extrapolation import AndersonExtrapolation
from fastmf.inference.ep.sites import state_with_moments
from fastmf.inference.gaussian.bipartite import Bipartite

# Adaptive damping: the first, which is the smallest, and the strongest, and the iterations within
# which the residual must have reached a new low.
FIRST_DAMPING, STRONGEST_DAMPING, DAMPING_PATIENCE = 0.1, 0.95, 8
# A residual is a new low below this fraction of the last one.
NEW_LOW = 0.95
MAX_HALVINGS = 30
# How much longer a step may be than the last one, if that was not halved.
GROWTH = 1.5
# Largest difference of a mean, in standard deviations, or relative difference of a variance, from
# which sites are extrapolated: which fixed point is found is decided before.
NEAR = 0.1
# How often site precisions are doubled in search of a proper Gaussian, and from where on.
MAX_DOUBLINGS, MIN_START_PRECISION = 60, 1e-3


def run_one(problem, schedule):
    """Run the schedule of one problem; its return value."""
    state = None
    try:
        while True:
            state = problem.state_of(schedule.send(state))
    except StopIteration as end:
        return end.value


def run_batch(problems, schedules):
    """Run the schedules of many problems in step; their return values."""
    ended, active = [None] * len(problems), list(range(len(problems)))
    states = dict.fromkeys(active)
    while active:
        sites = {}
        for row in active:
            try:
                sites[row] = schedules[row].send(states[row])
            except StopIteration as end:
                ended[row] = end.value
        active = list(sites)
        if active:
            moments = _moments([problems[row].side for row in active], list(sites.values()))
            states = {
                row: state_with_moments(problems[row], sites[row], of_row)
                for row, of_row in zip(active, moments, strict=True)
            }
    return ended


def _moments(sides, sites):
    """Moments of the Gaussian of every row."""
    if isinstance(sides[0], Bipartite):
        tilted = [site + side.tilt for side, site in zip(sides, sites, strict=True)]
        return sides[0].moments_of_rows(np.stack(tilted))
    return [side.moments(site) for side, site in zip(sides, sites, strict=True)]


def parallel_sweeps(problem, state, damping, trace, max_raises=None):
    """Generator: update all sites at once until Gaussian and tilted units agree."""
    adaptive = damping is None
    damping = FIRST_DAMPING if adaptive else damping
    extrapolation = AndersonExtrapolation() if adaptive else None
    # Units that stand for several count as often: so steps are those of repeated rows.
    root = 1.0 if problem.weights is None else np.sqrt(problem.weights)
    low, since_low, n_raises = np.inf, 0, 0
    last, n_falls, enough = np.inf, 0, DAMPING_PATIENCE
    closest, smallest = state, np.inf
    longest = np.inf
    for k in range(1, problem.max_iter + 1):
        residual = state.residual()
        trace.add(residual, lambda state=state: problem.energy(state))
        if residual <= problem.tol and state.agrees(problem.tol):
            return state, CONVERGED, "parallel"
        if residual < smallest:
            closest, smallest = state, residual
        if residual < NEW_LOW * low:
            low, since_low = residual, 0
        else:
            since_low += 1
        if since_low >= DAMPING_PATIENCE and adaptive and damping < STRONGEST_DAMPING:
            damping, since_low, low = min((1 + damping) / 2, STRONGEST_DAMPING), 0, residual
            n_raises += 1
        n_falls = n_falls + 1 if residual < last else 0
        if n_falls >= enough and adaptive and damping > FIRST_DAMPING:
            # If it has to be raised again, it will not be lowered as soon again.
            damping, n_falls, enough = max(2 * damping - 1, FIRST_DAMPING), 0, 2 * enough
        last = residual
        stuck = max_raises is not None and (
            n_raises > max_raises or since_low >= 4 * DAMPING_PATIENCE
        )
        if stuck or k == problem.max_iter:
            break
        # Where a step had to be halved, the next one most often has to be, too.
        length = min(1 - damping, longest)
        new = (yield from _extrapolated(extrapolation, state, length, root)) if adaptive else None
        if new is None:
            new, longest = yield from _step(state, length)
            longest *= GROWTH if longest == length else 1
        if new is None:
            return closest, IMPROPER, "parallel"
        state = new
    return closest, OUT_OF_ITERATIONS, "parallel"


def _extrapolated(extrapolation, state, length, root):
    """Generator: the state with extrapolated sites; None where it is too early, or no nearer."""
    mean, var = state.tilted - state.gaussian
    with np.errstate(over="ignore", invalid="ignore"):
        difference = np.stack([mean / np.sqrt(state.gaussian[1]), var / state.gaussian[1]])
    if not abs(difference).max() < NEAR:
        extrapolation.reset(0)
        return None
    step = state.proposal - state.site
    extrapolation.remember(state.site.ravel(), step.ravel(), (difference * root).ravel())
    if len(extrapolation.sites) == 1:
        return None
    new = yield extrapolation(length).reshape(step.shape)
    if new is not None and new.residual() < state.residual():
        return new
    extrapolation.reset()
    return None


def _step(state, length):
    """Generator: a step, halved until it leaves a proper Gaussian, and its length.

    The state is None if none does.
    """
    change = state.proposal - state.site
    for _ in range(MAX_HALVINGS):
        new = yield state.site + length * change
        if new is not None:
            return new, length
        length /= 2
    return None, length


def proper_start(site, mean):
    """Generator: the state with these sites, precisions raised until A is positive definite."""
    for _ in range(MAX_DOUBLINGS):
        state = yield site
        if state is not None:
            return state
        precision = np.maximum(2 * site[1], MIN_START_PRECISION)
        site = np.stack([site[0] + (precision - site[1]) * mean, precision])
    raise ValueError(
        "the model has no proper Gaussian side with any site precisions: make couplings smaller, "
        "or values of X and y."
    )
