"""The sites of expectation propagation along a search for hyper-parameters.

Sites change smoothly with the hyper-parameters: those at the next point are nearly those at the
last one plus what the last steps say of their derivatives along the step (a secant predictor, as in
the continuation of solutions).
"""

import numpy as np

from fastmf.learning.evidence.screening import moved

# Points before the best one that are kept; how far they may be from it, as sites are not linear in
# the hyper-parameters; the longest steps of which they tell, in units of theirs; and the smallest
# part of the largest of their principal steps along which they tell of any.
KEPT_POINTS, MAX_DISTANCE, MAX_RATIO, SMALLEST_STEP = 2, 0.15, 1.25, 0.2


class SitePath:
    """Fixed points at the last points of a search."""

    def __init__(self):
        self._points = []

    def add(self, x, results):
        """Remember the fixed points of the parts of a task at a point."""
        self._points = [*self._points[-KEPT_POINTS:], (x, results)]

    def start(self, x, best):
        """Where the fixed points at x are sought: the best results, moved if that is of use.

        Parameters
        ----------
        x : array of shape (n_variables,)
        best : tuple of ExpectationPropagation, or None
        """
        here = [own for own, results in self._points if results is best]
        if best is None or not here:
            return best
        others = [
            (own, results)
            for own, results in self._points
            if results is not best and abs(own - here[0]).max() < MAX_DISTANCE
        ]
        if not others:
            return best
        steps = np.array([here[0] - own for own, _ in others])
        ratios = np.linalg.lstsq(steps.T, x - here[0], SMALLEST_STEP)[0]
        ratios = np.clip(ratios, -MAX_RATIO, MAX_RATIO)
        starts = list(best)
        for ratio, (_, results) in zip(ratios, others, strict=True):
            for k, (last, first) in enumerate(zip(best, results, strict=True)):
                starts[k] = starts[k] and moved(starts[k], last, first, ratio)
        if not all(starts):
            return best
        for start, last in zip(starts, best, strict=True):
            # Sites stay where they were whose precisions would no longer be positive.
            lost = (start.sites[1] <= 0) & (last.sites[1] > 0)
            start.sites[:, lost] = last.sites[:, lost]
        return tuple(starts)
