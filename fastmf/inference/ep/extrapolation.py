"""Anderson's extrapolation of the sites of expectation propagation.

The extrapolated sites are those combinations of the last ones, and of what they led to, of which
the differences between tilted and Gaussian moments, in standard deviations, are smallest.
"""

import numpy as np

# Steps that are kept.
KEPT_STEPS = 8
# What is added to the diagonal of the scaled normal equations: results would else depend on
# rounding.
EXTRAPOLATION_RIDGE = 1e-8


class AndersonExtrapolation:
    """Sites, the steps from them, and the differences of moments with them: the last ones."""

    def __init__(self):
        self.sites, self.steps, self.differences = [], [], []

    def remember(self, site, step, difference):
        """Add sites, the step to their proposals, and the differences, vectors."""
        kept = slice(1 - KEPT_STEPS, None)
        self.sites = [*self.sites[kept], site]
        self.steps = [*self.steps[kept], step]
        self.differences = [*self.differences[kept], difference]

    def reset(self, n_kept=1):
        """Forget all but the last sites; False if there were no others."""
        n = len(self.sites)
        for kept in (self.sites, self.steps, self.differences):
            del kept[: n - n_kept]
        return n > n_kept

    def __call__(self, length):
        """The next sites, by this part of the extrapolated step."""
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
