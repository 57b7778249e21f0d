"""The next term of the loop series of rows of sum-product in an RBM of binary units."""

from typing import NamedTuple

import numpy as np
from scipy.special import logsumexp

from fastmf.inference.bp.loop_series import log_weights_of, loop_correction, spin_correlations
from fastmf.priors._queries import two_values


class LayerLoops(NamedTuple):
    """The model with which `Beliefs.loop_correction` is computed when it is read."""

    model: object

    def _probabilities(self, means):
        """Probabilities of the values of both layers' units, (2, n_units), from their means."""
        parts = []
        for mean, prior in zip(means, self.model.layers, strict=True):
            low, high = two_values(prior)
            mean = mean.astype(np.float64)
            parts.append(np.stack([(mean - low), (high - mean)]) / (high - low))
        p = np.concatenate(parts, axis=1)
        # Smaller ones are the rounding errors of means.
        return np.where(p < 4 * np.finfo(self.model.dtype).eps, 0, p)

    def __call__(self, result):
        """Next term of the loop series for the log-partition of each row, or None."""
        if None in map(two_values, self.model.layers):
            return None
        out = np.full(np.size(result.converged), np.nan)
        for row in np.flatnonzero(np.atleast_1d(result.converged)):
            terms = []
            for spins in self._spins(result, row):
                correlations, edges = spin_correlations(*spins), spins[-1]
                sizes = np.ones(len(spins[0]), int)
                terms.append(loop_correction(sizes, edges, correlations))
            if None in terms:
                return None
            out[row] = logsumexp(log_weights_of(result, row) + np.array(terms))
        return out

    def _spins(self, result, row):
        """Arguments of `spin_correlations` at each fixed point of a row."""
        model = self.model
        edges = np.stack(np.nonzero(model.weights), 1)
        scales = [high - low for low, high in map(two_values, model.layers)]
        exponents = model.weights[tuple(edges.T)].astype(np.float64) * scales[0] * scales[1]
        edges[:, 1] += len(model.weights)
        points = [[np.atleast_2d(mean)[row] for mean in result.mean]]
        if result.solutions is not None:
            several = result.solutions[row] if np.ndim(result.converged) else result.solutions
            points = zip(several.visible, several.hidden, strict=True)
        return [(*self._probabilities(point), exponents, edges) for point in points]
