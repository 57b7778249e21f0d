"""The next term of the loop series of rows of sum-product on a graph."""

from typing import NamedTuple

import numpy as np
from scipy.special import logsumexp

from fastmf.inference.bp.loop_series import (
    log_weights_of,
    loop_correction,
    spin_correlations,
    state_covariances,
)
from fastmf.priors._queries import two_values


class LoopTerms(NamedTuple):
    """What `Beliefs.loop_correction` is computed from when it is read.

    Parameters
    ----------
    units : GraphUnits
    beliefs : list of arrays of shape (n_solutions, n_states)
        Probabilities of states at the fixed points of each row, largest weight first.
    pairs : list of arrays of shape (n_solutions, n_values), or None
        Probabilities of pairs of states; None if they are many, or units two-valued.
    """

    units: object
    beliefs: list
    pairs: list | None

    def __call__(self, result):
        """Next term of the loop series for the log-partition of each row."""
        if self.units.is_forest:
            return np.zeros(np.size(result.converged))
        out = np.full(np.size(result.converged), np.nan)
        for row in np.flatnonzero(np.atleast_1d(result.converged)):
            n = len(self.beliefs[row])
            terms = [self._correction(row, k) for k in range(n)]
            if None in terms:
                return None
            out[row] = logsumexp(log_weights_of(result, row) + terms)
        return out

    def _correction(self, row, k):
        """The correction of one fixed point of a row."""
        sizes, edges = self.units.graph.n_states, self.units.graph.edges
        if self.units.binary is not None:
            correlations = spin_correlations(*self._spins(row)[k])
            return loop_correction(np.ones_like(sizes), edges, correlations)
        if self.pairs is None:
            return None
        covariances = state_covariances(self.beliefs[row][k], self.pairs[row][k], edges, sizes)
        return loop_correction(sizes, edges, covariances)

    def _spins(self, row):
        """Arguments of `spin_correlations` at each fixed point; none of units of more values."""
        if self.units.binary is None:
            return []
        graph, (low, high) = self.units.graph, two_values(self.units.model.prior)
        exponents = graph.values * (high - low) ** 2
        return [(b[1::2], b[::2], exponents, graph.edges) for b in self.beliefs[row]]
