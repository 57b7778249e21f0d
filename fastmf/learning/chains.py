"""Maximum likelihood of Potts machines by persistent Gibbs chains (Figliuzzi et al. 2018, bmDCA).

With frequencies f and covariances C of one-hot data, z = x - f, and J varied at constant h + J f,

    dl/dJ = C - <z z'> - l2 J + u f' + f u',    u = l2_field h      (blocks of pairs i != j)
    dl/dh = f - <x> - u

The stiff terms in u are treated implicitly at the end of a step, by h <- (1 + rate l2_field M)^-1
h, M_ii = 1 / D_i + sum_j f_j^2 / D_ij, M_ij = f_i f_j / D_ij. Steps are divided by the curvature at
independent positions,

    D_ij(a, b) = v_i(a) v_j(b) + l2,    D_i(a) = v_i(a) + l2_field,    v = f (1 - f)

Let L be the largest eigenvalue of the covariance matrix of all scaled zz' of the data. Rates fall
geometrically from L^-1/2 to 1 / L, at which steps converge in all directions, and parameters are
averaged over the second half of the steps (Polyak & Juditsky 1992).
"""

import numpy as np

from fastmf._threads.workers import one_blas_thread
from fastmf.inference.sampling.gibbs import SequentialUnits
from fastmf.learning.pseudo_likelihood.graph import coupled_units
from fastmf.learning.pseudo_likelihood.potts.couplings import one_hot, pair_frequencies
from fastmf.learning.pseudo_likelihood.potts.fitting import PottsFit
from fastmf.learning.training.ascent import AscentSettings
from fastmf.learning.training.trainer import IterateAverage, Steps, resampled_rows, train
from fastmf.models import BoltzmannMachine
from fastmf.models._gauge import PositionStates


class ChainSteps(Steps):
    """Gradient steps on the penalised log-likelihood of a Potts machine, in single precision."""

    score, label = "correlation", "correlation of covariances"

    def __init__(self, data, options, edges, n_chains, n_steps):
        data, position = data.of_mean_weight_one(), PositionStates(data.sizes).position
        coupled = coupled_units(edges, len(data.sizes))
        self.coupled, self.options = coupled[np.ix_(position, position)], options
        f, pairs = pair_frequencies(data.labels, data.weights, data.sizes, 0.0)
        variance = data.frequencies() * (1 - data.frequencies())
        self.scales = np.outer(variance, variance) + options.l2, variance + options.l2_field
        covariances = np.where(self.coupled, pairs - np.outer(f, f), 0)
        arrays = f, covariances, *self.scales
        self.f, self.covariances, *self.scales = (x.astype(np.float32) for x in arrays)
        rows = resampled_rows(data.weights, n_chains, 0.5)
        self.starts = one_hot(data.labels[rows], data.sizes, np.float32).toarray()
        self.weights = self.coupled / self.scales[0]
        diagonal = 1 / self.scales[1] + self.weights @ self.f**2
        self.stiffness = np.linalg.eigh(np.outer(self.f, self.f) * self.weights + np.diag(diagonal))
        largest = self.largest_curvature()
        rates, n_rows = (largest**-0.5, 1 / largest), len(data.labels)
        settings = AscentSettings(learning_rate=rates, n_epochs=n_steps, batch_size=n_rows)
        super().__init__(settings, data.n_threads)

    def largest_curvature(self, n_products=10):
        """Return the largest eigenvalue of the covariances of scaled zz' of the starts, or 1."""
        # Power iteration on the Gram matrix of the rows, which has the same non-zero eigenvalues.
        z, largest = self.starts - self.f, 0.0
        vector = np.random.default_rng(0).normal(size=len(z))
        for _ in range(n_products):
            vector -= vector.mean()
            largest = np.linalg.norm(vector)
            vector = (vector / max(largest, np.finfo(float).tiny)).astype(np.float32)
            sums = self.weights / 2 * (z.T @ (vector[:, None] * z))
            vector = np.einsum("ij,ij->i", z @ sums, z, dtype=float) / len(z)
        return max(1.0, float(largest))

    def __call__(self, state, batch, rate, rng):
        """Advance all chains by a Gibbs sweep, and take a gradient step."""
        model, f, options = state.model, self.f, self.options
        (chains,) = state.chains or (self.starts,)
        x = SequentialUnits(model).sample(chains, 1, rng, self.n_threads)
        state.chains, z = (x,), x - f
        self.of_chains = np.where(self.coupled, z.T @ z / np.float32(len(z)), 0)
        J, rate, l2_field = model.couplings, np.float32(rate), np.float32(options.l2_field)
        slope = self.covariances - self.of_chains - np.float32(options.l2) * J
        direction = rate * self.weights * slope
        h = model.prior.field - rate * z.mean(0) / self.scales[1] - direction @ f
        values, vectors = self.stiffness
        h = vectors @ ((h @ vectors) / (1 + rate * l2_field * values))
        pull = np.outer(l2_field * h, f)
        direction += rate * self.weights * (pull + pull.T)
        state.model = BoltzmannMachine(J + direction, model.prior._replace(field=h))

    def metrics(self, state, monitored, validation, weights=None):
        """Compute the correlation between the covariances of the chains and of the data."""
        x, y = self.covariances, self.of_chains
        sizes = np.linalg.norm(x) * np.linalg.norm(y)
        return {self.score: float(np.vdot(x, y) / sizes) if sizes else 0.0}


def fit(model, data, options, n_steps, edges=None, n_chains=1000):
    """Fit a machine by chains that start at rows of the data; return the fit and their memory.

    The memory is the fraction of positions at which a chain is the same half-way and at the end,
    in excess of different chains: 0 for decorrelated chains, 1 for chains that have not moved.
    """
    steps = ChainSteps(data, options, edges, n_chains, n_steps)
    average, middle = IterateAverage(first_epoch=n_steps // 2 + 1), [steps.starts]

    def follow(state):
        if state.epoch == n_steps // 2:
            middle.append(state.chains[0])
        if options.report:
            options.report(state.epoch - 1, -state.history[steps.score][-1])

    model = BoltzmannMachine(model.couplings.astype(np.float32), model.prior)
    with one_blas_thread():
        state = train(model, data.labels, steps, seed=0, callbacks=[average, follow])
    x, before, d = state.chains[0], middle[-1], len(data.sizes)
    overlap = np.einsum("ij,ij->", x, before, dtype=float) / (len(x) * d)
    expected_overlap = x.mean(0, dtype=float) @ before.mean(0, dtype=float) / d
    model, history = average.model, np.array(state.history[steps.score])
    parameters = (x.astype(np.float64) for x in (model.couplings, model.prior.field))
    fit = PottsFit(*parameters, history, True)
    return fit, float((overlap - expected_overlap) / (1 - expected_overlap))
