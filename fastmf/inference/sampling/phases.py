"""Annealing from several phases at once, as chains from one set of units may miss all but one.

With functions r_k(x) that sum to 1 at every state x,

    Z = sum_k E[w_k r_k(x_k)],

where w_k is the importance weight of a chain that was annealed from the independent units of phase
k, and x_k its end. So each set of chains has to be right where its r_k is large only. Here r_k is
the probability that the units of phase k, and of no other phase, made x.
"""

import numpy as np

from fastmf.inference.sampling.annealing import Leg, draw_units, systematic

# Share of the chains that are the same for all phases; the others go where the weight is.
EVEN_SHARE = 0.3
# Fewest chains of a phase.
MIN_PHASE_CHAINS = 4


class Phases:
    """Independent units of phases, with tilts `bases` by layer, that are annealed to a model.

    `shares` are the shares of the phases in the last forward estimate.
    """

    def __init__(self, path, bases):
        self.path, self.bases = path, bases
        self.shares = np.full(len(bases), 1 / len(bases))

    def log_shares(self, v):
        """Log of r_k by row and phase."""
        prior, zero = self.path.model.layers[0], np.float64(0)
        tilts = np.array([base[0] for base in self.bases], np.float64)
        alone = prior.log_partition(tilts, zero).sum(1, dtype=np.float64)
        logs = v.astype(np.float64) @ tilts.T - alone
        return logs - np.logaddexp.reduce(logs, axis=1, keepdims=True)

    def forward(self, betas):
        """As `Path.forward`."""
        path = self.path
        if len(self.bases) == 1:
            return path.forward(self.bases[0], betas)
        legs = []
        for k, n in enumerate(self._n_chains()):
            v = draw_units(path.model, self.bases[k], n, path.rng)
            leg = path.anneal(self.bases[k], betas, v, lambda x, k=k: self.log_shares(x)[:, k])
            shift = path.start(self.bases[k]) + np.log(path.n_chains / n)
            legs.append(leg._replace(log_weights=shift + leg.log_weights))
        totals = np.array([np.logaddexp.reduce(leg.log_weights) for leg in legs])
        self.shares = np.exp(totals - np.logaddexp.reduce(totals))
        sizes = np.array([len(leg.ends) for leg in legs])
        of_chain = np.repeat(self.shares / sizes, sizes)
        chosen = systematic(of_chain, path.rng, path.n_chains)
        return Leg(
            np.concatenate([leg.log_weights for leg in legs]),
            np.vstack([leg.ends for leg in legs])[chosen],
            betas,
            legs[0].edges,
            self.shares @ np.array([leg.variances for leg in legs]),
        )

    def backward(self, betas, samples):
        """As `Path.backward`."""
        path = self.path
        if len(self.bases) == 1:
            return path.backward(self.bases[0], betas, samples)
        logs = self.log_shares(samples)
        uniforms = path.rng.random((len(samples), 1))
        phase = np.minimum((np.cumsum(np.exp(logs), 1) < uniforms).sum(1), len(self.bases) - 1)
        out = np.empty(len(samples))
        shares = np.maximum(self.shares, 1e-3)
        shares /= shares.sum()
        for k in np.unique(phase):
            rows = phase == k
            values = path.backward(self.bases[k], betas, samples[rows])
            out[rows] = values + logs[rows, k] - np.log(shares[k])
        return out

    def _n_chains(self):
        """Number of chains of each phase."""
        n, n_phases = self.path.n_chains, len(self.bases)
        density = EVEN_SHARE / n_phases + (1 - EVEN_SHARE) * self.shares
        counts = np.maximum(MIN_PHASE_CHAINS, (density * n).astype(int))
        counts[counts.argmax()] += n - counts.sum()
        return counts
