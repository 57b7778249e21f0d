"""The parallel schedule of expectation propagation.

An iteration computes the moments of the Gaussian with sites t, the cavities, and the sites t' that
would match the tilted moments; the next sites are t + length (t' - t). If no damping is given,
steps near a fixed point are extrapolated by Anderson's method, and a step is rejected and shortened
if the residual would become much larger: parallel steps make sites of correlated units cycle, and
damping alone only slows this down.

Sites, proposals and differences are arrays of any shape, so that states of single units and of
blocks share the schedule.
"""

import numpy as np

from fastmf._outcomes import CONVERGED, CYCLING, IMPROPER, OUT_OF_ITERATIONS

# Largest ratio of a residual to the largest of the last three.
MAX_INCREASE = 2.0
# Consecutive rejected steps that end the schedule; iterations without halving of the residual after
# which another schedule, or other blocks, are tried.
MAX_REJECTED, BARREN_SWEEPS = 12, 8
# Sites are extrapolated once differences of means, in standard deviations, and relative differences
# of variances are below this: extrapolation should not decide which fixed point is reached.
NEAR = 1.0
# Number of steps that are stored for extrapolation.
STORED_STEPS = 8


def parallel_sweeps(problem, state, damping, trace, patience=np.inf, max_rejected=MAX_REJECTED):
    """Update all sites at once until Gaussian and tilted moments agree."""
    adaptive = damping is None
    length = 0.9 if adaptive else 1 - damping
    step = _Step(adaptive, length, max_rejected)
    closest, lowest, halved, since, recent = state, np.inf, np.inf, 0, []
    for _ in range(len(trace.residuals), problem.max_iter):
        residual, trace.last_state = state.residual, state
        trace.add(residual, lambda state=state: problem.energy(state))
        if residual <= problem.tol and state.agrees(problem.tol):
            return state, CONVERGED, "parallel"
        closest = state if residual < lowest else closest
        lowest = min(lowest, residual)
        halved, since = (residual, 0) if residual < halved / 2 else (halved, since + 1)
        if since > patience:
            return closest, CYCLING, "parallel"
        if len(trace.residuals) == problem.max_iter:
            break
        recent = [*recent[-2:], residual]
        state = step(problem, state, max(recent))
        if state is None:
            return closest, IMPROPER, "parallel"
    return closest, OUT_OF_ITERATIONS, "parallel"


class _Step:
    """Steps of the parallel schedule: their length, and the points of extrapolation."""

    def __init__(self, adaptive, length, max_rejected):
        self.adaptive, self.length, self.longest = adaptive, length, length
        self.max_rejected = max_rejected
        self.extrapolation = AndersonExtrapolation()

    def __call__(self, problem, state, residual):
        """Return the next state, with a residual that is not much larger; None if that fails."""
        limit, extrapolation = MAX_INCREASE * residual if self.adaptive else np.inf, None
        if self.adaptive:
            extrapolation = self._extrapolation_from(problem, state)
        for _ in range(self.max_rejected):
            if extrapolation is None:
                site = state.site + self.length * (state.proposal - state.site)
            else:
                site = extrapolation(self.length).reshape(state.site.shape)
            new = problem.state_of(site)
            if new is not None and new.residual <= limit:
                self.length = min(self.longest, 1.5 * self.length)
                return new
            if extrapolation is None or not extrapolation.reset():
                self.length *= 0.4
        return None

    def _extrapolation_from(self, problem, state):
        """Add a state to the extrapolation, and return it."""
        difference = problem.difference(state)
        if not abs(difference).max() < NEAR:
            self.extrapolation.reset(0)
        step = state.proposal - state.site
        # Multiplicities of units count, so that steps are the same as with repeated rows.
        weighted = problem.roots() * difference
        self.extrapolation.remember(state.site.ravel(), step.ravel(), weighted)
        return self.extrapolation


class AndersonExtrapolation:
    """Anderson's extrapolation of sites, from the last sites, their steps and differences.

    It combines the last sites, and their proposals, such that the combined differences of tilted
    and Gaussian moments, in standard deviations, are smallest.
    """

    def __init__(self):
        self.sites, self.steps, self.differences = [], [], []

    def remember(self, site, step, difference):
        """Add sites, the step to their proposals, and the differences, vectors."""
        new = (self.sites, site), (self.steps, step), (self.differences, difference)
        for stored, value in new:
            stored.append(value)
            del stored[:-STORED_STEPS]

    def reset(self, n_stored=1):
        """Forget all but the last sites; return False if there were no earlier ones."""
        n = len(self.sites)
        for stored in (self.sites, self.steps, self.differences):
            del stored[: n - n_stored]
        return n > n_stored

    def __call__(self, length):
        """Return the next sites, a fraction `length` along the extrapolated step."""
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
        gram = gram / scale / scale[:, None] + 1e-8 * np.eye(len(gram))  # against rounding
        weights = np.linalg.solve(gram, right / scale) / scale
        sites, steps = np.array(self.sites), np.array(self.steps)
        moved = site - weights @ (sites[1:] - sites[:-1])
        return moved + length * (step - weights @ (steps[1:] - steps[:-1]))


def proper_start(problem, site, mean):
    """Return the state with these sites, raising precisions until A is positive definite."""
    for _ in range(60):
        state = problem.state_of(site)
        if state is not None:
            return state
        precision = np.maximum(2 * site[1], 1e-3)
        site = np.stack([site[0] + (precision - site[1]) * mean, precision])
    raise ValueError(
        "the model has no proper Gaussian side with any site precisions: make couplings smaller, "
        "or values of X and y."
    )
