"""Values in the place of missing ones, drawn from the model given what was seen: data augmentation.

Before each epoch the missing values of all rows are drawn anew, by Gibbs sampling of the model from
the values of the epoch before (stochastic EM, Celeux & Diebolt 1985). An epoch then follows the
gradient of the likelihood of complete rows, whose average over draws is that of what was seen.
"""

import numpy as np

# Sweeps before an epoch, and where there were no values before.
SWEEPS, FIRST_SWEEPS = 5, 20


class Completion:
    """Rows of data, of which missing values are drawn before each epoch.

    Parameters
    ----------
    values : array of shape (n_rows, n_columns)
        With NaN for missing values; completed in place.
    draw : callable
        `draw(model, rows, before, missing, n_sweeps, rng, n_threads)` gives the rows of these
        numbers with values in the place of those that are `missing`, by so many sweeps from those
        of the array `before`, NaN where there are none.
    admits : callable
        `admits(model, x)`, whether rows hold values that units can take.
    others : tuple of arrays
        Other parts of the data, such as features.
    """

    def __init__(self, values, draw, admits, others=()):
        self._draw, self._admits = draw, admits
        self.missing = np.isnan(values)
        self.rows = np.flatnonzero(self.missing.any(1))
        self.values, self._others = values, others

    @property
    def data(self):
        """The data as they were completed last."""
        return (self.values, *self._others) if self._others else self.values

    def __call__(self, state, rng, n_threads):
        """Complete the rows: with new values, or without `rng` with those of the state."""
        if rng is not None:
            before, n_sweeps = self.values[self.rows], FIRST_SWEEPS
            if state.completed:
                before, n_sweeps = self._completed(state), SWEEPS
            missing = self.missing[self.rows]
            drawn = self._draw(state.model, self.rows, before, missing, n_sweeps, rng, n_threads)
            state.completed = (drawn[missing][None],)
        self.values[self.missing] = state.completed[0][0]

    def _completed(self, state):
        x = self.values[self.rows]
        x[self.missing[self.rows]] = state.completed[0][0]
        return x

    def check(self, state):
        """Raise a ValueError for a state from a file that holds no values of what is missing."""
        begun = state.epoch or state.batch
        expected = [(1, int(np.count_nonzero(self.missing)))] if begun else []
        found = [array.shape for array in state.completed]
        if found != expected:
            raise ValueError(f"members completed/... must have shapes {expected}, got {found}.")
        if begun and not self._admits(state.model, self._completed(state)):
            raise ValueError("members completed/... must hold values of the visible units.")
