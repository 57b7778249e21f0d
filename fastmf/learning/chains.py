"""Maximum likelihood of Potts machines by persistent Gibbs chains (Figliuzzi et al. 2018, bmDCA).

With z = x - f of one-hot rows x and the frequencies f of the data, and covariances C of the data,

    dl/dJ = C - <z z'> - l2 J + u f' + f u',    u = l2_field h      (blocks of pairs i != j)
    dl/dh = f - <x> - u

by J at constant h + J f. The stiff terms in u are taken at the end of a step, by h <- (1 + rate
l2_field M)^-1 h, M_ii = 1 / D_i + sum_j f_j^2 / D_ij, M_ij = f_i f_j / D_ij. Steps are divided by
the curvature at independent positions,

    D_ij(a, b) = v_i(a) v_j(b) + l2,    D_i(a) = v_i(a) + l2_field,    v = f (1 - f)

Let L be the largest eigenvalue of the covariance matrix of all zz' of the data on this scale. Rates
fall geometrically from L^-1/2 to 1 / L, at which steps in all directions converge, and parameters
are averaged over the second half of the steps (Polyak & Juditsky 1992).
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
    """Steps up the penalised log-likelihood of a Potts machine, in single precision."""

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
        # Power iteration on the matrix of products of rows, which has the same eigenvalues.
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
        """Draw all positions of all chains, and take a step."""
        model, f, options = state.model, self.f, self.options
        (chains,) = state.chains or (self.starts,)
        x = SequentialUnits(model).sample(chains, 1, rng, self.n_threads)
        state.chains, z = (x,), x - f
        self.of_chains = np.where(self.coupled, z.T @ z / np.float32(len(z)), 0)
        J, rate, l2_field = model.couplings, np.float32(rate), np.float32(options.l2_field)
        slope = self.covariances - self.of_chains - np.float32(options.l2) * J
        move = rate * self.weights * slope
        h = model.prior.field - rate * z.mean(0) / self.scales[1] - move @ f
        values, vectors = self.stiffness
        h = vectors @ ((h @ vectors) / (1 + rate * l2_field * values))
        pull = np.outer(l2_field * h, f)
        move += rate * self.weights * (pull + pull.T)
        state.model = BoltzmannMachine(J + move, model.prior._replace(field=h))

    def metrics(self, state, monitored, validation, weights=None):
        """Correlation of the covariances of all pairs in the chains and in the data."""
        x, y = self.covariances, self.of_chains
        sizes = np.linalg.norm(x) * np.linalg.norm(y)
        return {self.score: float(np.vdot(x, y) / sizes) if sizes else 0.0}


def fit(model, data, options, n_steps, edges=None, n_chains=1000):
    """Fit a machine by chains from rows of the data; also the memory of the chains.

    The memory is the share of equal positions of a chain at the end and half-way, beyond the share
    in different chains: 0 where chains have renewed, and 1 where they have not moved.
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
    equal = np.einsum("ij,ij->", x, before, dtype=float) / (len(x) * d)
    by_chance = x.mean(0, dtype=float) @ before.mean(0, dtype=float) / d
    model, history = average.model, np.array(state.history[steps.score])
    parameters = (x.astype(np.float64) for x in (model.couplings, model.prior.field))
    fit = PottsFit(*parameters, history, True)
    return fit, float((equal - by_chance) / (1 - by_chance))
