"""Chains that are annealed between independent units and a model, with resampling.

Log importance weights are added up along the path. Where the effective number of chains falls below
half of them, chains are drawn anew in proportion to their weights (sequential Monte Carlo; Del
Moral, Doucet & Jasra 2006). The weight of a start is the sum of those of its descendants, so that
the log of the mean over starts is the estimate, and their scatter its error (Chan & Lai 2013), with
or without resampling.
"""

from itertools import pairwise
from typing import NamedTuple

import numpy as np

from fastmf._threads.workers import one_blas_thread
from fastmf.inference.sampling.gibbs import check_finite, even_layers, sampled_layers, walk
from fastmf.inference.sampling.visible import sampled_units
from fastmf.models import RBM, BoltzmannMachine
from fastmf.priors import Bernoulli
from fastmf.priors._groups import has_groups
from fastmf.priors._protocol import by_parts, is_concatenated, n_units, sample
from fastmf.priors._queries import binary_field, tilt_to_mean, two_values

# Field at which one state of a unit has no weight in double precision.
DECIDED = float(-np.log(np.finfo(np.float64).smallest_subnormal))
# Parts of the path between which chains may be resampled.
N_SEGMENTS = 50
# Chains are resampled when their effective number falls below this fraction.
RESAMPLE_BELOW = 0.5
# Chains of annealed samples, at least: they are resampled in proportion to their weights.
MIN_ANNEALED = 100
# Smallest density of steps of any part of the path, in units of the mean density.
MIN_DENSITY = 0.1

# Place of the base between units without bias (0) and with the means of the samples (1). The second
# have the smallest error for the phases that they lead to, and lead to fewer of them.
MATCHING = 0.5


class Leg(NamedTuple):
    """Result of `Path.anneal`."""

    # (n_chains,): by start, the log of the total importance weight of its descendants; -inf without
    # any
    log_weights: np.ndarray
    ends: np.ndarray  # (n_chains, n_visible): states of equal weight
    betas: np.ndarray  # (n_steps + 1,)
    edges: np.ndarray  # int (n_segments + 1,): steps at the ends of the segments
    variances: np.ndarray  # (n_segments,): over chains, of the log-weight added in each segment


class Path(NamedTuple):
    """The path from independent units to a model."""

    model: RBM
    shift: float  # added to its log-partition
    n_chains: int
    rng: np.random.Generator  # numpy.random.Generator
    n_threads: int | None  # int or None
    # The layers as the kernel takes them, None if it does not draw such units; or the units of a
    # BoltzmannMachine, on whose path couplings are beta J and tilts (1 - beta) base.
    units: object

    @classmethod
    def of(cls, model, shift, n_chains, rng, n_threads):
        """The path to a model."""
        sampled = sampled_units if isinstance(model, BoltzmannMachine) else sampled_layers
        return cls(model, shift, n_chains, rng, n_threads, sampled(model))

    def walk(self, base, betas, v):
        """Log importance weights of the chains `v`, and their ends."""
        with np.errstate(over="ignore", invalid="ignore"):  # `check_finite` raises for these
            if isinstance(self.model, BoltzmannMachine):
                moved = self.units.anneal(v, betas, self.rng, base[0], self.n_threads)
                check_finite(moved[0])
                return moved
            arguments = self.model, base, betas, v, self.rng, self.n_threads, self.units
            return walk(*arguments)[:2]

    def start(self, base):
        """Log-partition of the independent units, which have the tilt `base`."""
        return self.shift + _log_partition(self.model, base)

    def forward(self, base, betas):
        """Anneal from independent units; log_weights are estimates of the log-partition."""
        leg = self.anneal(base, betas, draw_units(self.model, base, self.n_chains, self.rng))
        return leg._replace(log_weights=self.start(base) + leg.log_weights)

    def backward(self, base, betas, samples):
        """One estimate for each start of the reverse path, which are samples of the model."""
        leg = self.anneal(base, betas[::-1].copy(), samples)
        return self.start(base) - leg.log_weights

    def matched(self, neutral, samples):
        """By layer, the tilt under which uncoupled units have their means in the samples."""
        model, zero = self.model, self.model.dtype.type(0)
        if isinstance(model, BoltzmannMachine):
            fields = np.ascontiguousarray((model.couplings @ samples.T).T)
            means = [model.prior.moments(fields, zero)[0]]
        else:
            above = model.hidden.moments(samples @ model.weights, zero)[0]
            means = [model.visible.moments(above @ model.weights.T, zero)[0], above]
        means = [mean.mean(0, dtype=np.float64) for mean in means]
        return list(map(tilt_to_means, model.layers, means, neutral))

    def sample(self, base, v, n_sweeps):
        """Samples of the model: Gibbs sweeps from `v`."""
        return self.walk(base, np.ones(n_sweeps + 1), v)[1]

    @one_blas_thread()  # once for all walks
    def anneal(self, base, betas, v, log_weight_of_ends=None):
        """Take the chains `v` along the path, with resampling; ends may have further weights."""
        n_steps = len(betas) - 1
        edges = np.unique(np.linspace(0, n_steps, min(N_SEGMENTS, n_steps) + 1).astype(int))
        variances = np.empty(len(edges) - 1)
        population = Population(len(v))
        for segment, (first, last) in enumerate(pairwise(edges)):
            added, v = self.walk(base, betas[first : last + 1].copy(), v)
            check_finite(added)
            variances[segment] = added.var()
            population.add(added)
            if last < n_steps and effective_size(population.log_weights) < RESAMPLE_BELOW * len(v):
                v = v[population.resample(self.rng)]
        if log_weight_of_ends is not None:
            population.add(log_weight_of_ends(v))
        log_weights = population.by_start()
        return Leg(log_weights, v[population.resample(self.rng)], betas, edges, variances)


class Population:
    """Importance weights of chains, and from which of the `starts` each one descends.

    `log_mean` is the log of the mean weight up to the last resampling, `log_weights` count since.
    """

    def __init__(self, n_chains):
        self.log_mean = 0.0
        self.log_weights = np.zeros(n_chains)
        self.starts = np.arange(n_chains)

    def add(self, log_weights):
        """Multiply the importance weights by others, given by their logs."""
        self.log_weights += log_weights

    def weights(self):
        """The importance weights since the last resampling, of sum 1."""
        weights = np.exp(self.log_weights - self.log_weights.max())
        return weights / weights.sum()

    def resample(self, rng):
        """Positions of the chains that survive, with equal weights."""
        chosen = systematic(self.weights(), rng)
        self.log_mean += log_mean(self.log_weights)[0]
        self.log_weights = np.zeros(len(chosen))
        self.starts = self.starts[chosen]
        return chosen

    def by_start(self):
        """By start, the log of n_chains times the share of the mean weight of its descendants."""
        n = len(self.starts)
        shares = np.bincount(self.starts, self.weights(), n)
        with np.errstate(divide="ignore"):
            return self.log_mean + log_mean(self.log_weights)[0] + np.log(n * shares)


def systematic(weights, rng, n=None):
    """Draw `n` positions in proportion to weights by systematic resampling; all if None."""
    cumulated, n = np.cumsum(weights), n or len(weights)
    places = (np.arange(n) + rng.random()) / n
    drawn = np.searchsorted(cumulated / cumulated[-1], places, "right")
    return np.minimum(drawn, len(weights) - 1)


def refined(leg, n_steps):
    """Betas at which each step adds the same to the variance of the log-weights.

    The variance that n steps add to a segment is c / n; the sum over segments is smallest where
    their steps are in proportion to the root of c.
    """
    n_of_segment = np.diff(leg.edges)
    density = np.sqrt(leg.variances * n_of_segment)
    density += MIN_DENSITY * density.mean() + np.finfo(float).tiny
    reached = np.concatenate([[0], np.cumsum(density)])
    betas = np.interp(np.linspace(0, 1, n_steps + 1), reached / reached[-1], leg.betas[leg.edges])
    betas[[0, -1]] = leg.betas[[0, -1]]
    return betas


def effective_size(log_weights):
    """Effective number of starts: (sum of weights)^2 / sum of squares."""
    weights = np.exp(log_weights - log_weights.max())
    return float(weights.sum() ** 2 / (weights**2).sum())


def annealed_model(model, starts, rng):
    """The machine that is annealed: an RBM in units 0 and 1 if all units are two-valued."""
    if isinstance(model, BoltzmannMachine):
        return (model, 0.0), starts, None
    if model.deep:
        starts = None if starts is None else even_layers(model, starts, rng)
    model = model.bipartite()
    values = two_values(model.visible)
    if not (values and two_values(model.hidden)):
        return (model, 0.0), starts, None
    if starts is not None:
        starts = (2 * starts > sum(values)).astype(model.dtype)  # means, too
    return zeros_and_ones(model), starts, values


def annealed_samples(model, data, n_steps, rng, n_threads=None, share=MATCHING):
    """Chains that are annealed from independent units to a model, with resampling."""
    (machine, shift), starts, values = annealed_model(model, data, rng)
    path = Path.of(machine, shift, len(data), rng, n_threads)
    base = base_between(path, neutral_base(machine, bool(values)), starts, share)
    leg = path.forward(base, np.linspace(0, 1, n_steps + 1))
    ends = leg.ends[:, : data.shape[1]]
    if values:
        ends = np.where(ends == 1, *(model.dtype.type(x) for x in values[::-1]))
    return np.ascontiguousarray(ends), log_mean(leg.log_weights)[0]


def draw_units(model, base, n_rows, rng):
    """States of the first layer under its tilt in `base`."""
    b = np.broadcast_to(base[0], (n_rows, len(base[0])))
    return sample(model.layers[0], b, np.zeros_like(b), rng)


def _log_partition(model, base):
    """Log-partition of the uncoupled units under the tilt `base`."""
    tilted = zip(model.layers, base, strict=True)
    return sum(float(p.log_partition(c, 0 * c).sum(dtype=np.float64)) for p, c in tilted)


def neutral_base(model, two_valued):
    """By layer, the tilt of uncoupled units without bias: fair coins if they are two-valued."""
    if two_valued:
        return [-binary_field(prior)[0] for prior in model.layers]
    return [np.zeros(n_units(prior), model.dtype) for prior in model.layers]


def base_between(path, neutral, samples, share=MATCHING):
    """Tilts half-way between those with the means of the samples and units without bias."""
    tilts = path.matched(neutral, samples)
    return [c + c.dtype.type(share) * (b - c) for c, b in zip(neutral, tilts, strict=True)]


def tilt_to_means(prior, mean, b):
    """The field under which the units have these means, approximately; `b` is where to start.

    Newton's method, with bisection where a step would leave the bracket. The means are first moved
    slightly towards those at the start: a unit that is constant in the samples would need an
    infinite field.
    """
    if is_concatenated(prior):
        both = zip(by_parts(prior, mean), by_parts(prior, b), strict=True)
        return np.concatenate([tilt_to_means(part, m, c) for (part, m), (_, c) in both])
    zero = b.dtype.type(0)
    mean = (0.999 * mean + 0.001 * prior.moments(b, zero)[0]).astype(b.dtype)
    if has_groups(prior):
        return tilt_to_mean(prior, mean)
    low, high, max_step = np.full_like(b, -np.inf), np.full_like(b, np.inf), np.ones_like(b)
    for _ in range(60):
        m, var = prior.moments(b, zero)
        low, high = np.where(m < mean, b, low), np.where(m < mean, high, b)
        with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
            new = b + (mean - m) / var
            middle = (low + high) / 2
        # Without a bracket: steps of doubled length, in the direction of the solution.
        extrapolated = np.where(m < mean, b + max_step, b - max_step)
        bounded = np.isfinite(middle)
        fallback = np.where(bounded, middle, extrapolated)
        safe = (new > low) & (new < high) & (bounded | (abs(new - b) <= max_step))
        max_step = np.where(bounded | safe, max_step, 2 * max_step)
        b = np.where(safe, new, fallback)
    return b.astype(mean.dtype)


def log_mean(log_weights):
    """Log of the mean of exp(log_weights), and its standard error."""
    top = log_weights.max()
    weights = np.exp(log_weights - top)
    mean, n = weights.mean(), len(weights)
    error = weights.std(ddof=1) / mean / np.sqrt(n) if n > 1 else np.inf
    return float(top + np.log(mean)), float(error)


def zeros_and_ones(model):
    """The same machine in units 0 and 1, and the difference of the log-partitions."""
    weights = model.weights.astype(np.float64)
    (v_low, v_high), (h_low, h_high) = (two_values(prior) for prior in model.layers)
    logs = [
        [prior.log_prob(model.dtype.type(x)).astype(np.float64) for x in two_values(prior)]
        for prior in model.layers
    ]
    visible = logs[0][1] - logs[0][0] + (v_high - v_low) * h_low * weights.sum(1)
    hidden = logs[1][1] - logs[1][0] + (h_high - h_low) * v_low * weights.sum(0)
    shift = logs[0][0].sum() + logs[1][0].sum() + v_low * h_low * weights.sum()
    couplings = (v_high - v_low) * (h_high - h_low) * weights
    visible, v_constant = _bounded_fields(visible, abs(couplings).sum(1))
    hidden, h_constant = _bounded_fields(hidden, abs(couplings).sum(0))
    shift += v_constant + h_constant
    couplings, visible, hidden = (x.astype(model.dtype) for x in (couplings, visible, hidden))
    return RBM(couplings, Bernoulli(visible), Bernoulli(hidden)), float(shift)


def _bounded_fields(field, of_couplings):
    """Fields that decide a unit and no more, so that sums stay small, and the log-weight left out.

    A unit whose field exceeds those that all couplings can make, by `DECIDED`, has one state.
    """
    limit = of_couplings + DECIDED
    return np.clip(field, -limit, limit), np.maximum(field - limit, 0).sum()
