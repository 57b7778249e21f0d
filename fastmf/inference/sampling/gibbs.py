"""Gibbs sampling of machines, and annealing between independent units and a machine.

Chains alternate between the layers of an RBM, or visit the units of a fully visible machine one by
one or colour by colour. Log importance weights are summed along the path. If the effective number
of chains falls below one half, chains are resampled in proportion to their weights (sequential
Monte Carlo; Del Moral, Doucet & Jasra 2006). The weight of a start is the sum of the weights of its
descendants, so that the log of the mean over starts is the estimate, and their scatter its error
(Chan & Lai 2013), with or without resampling.

Chains from one set of independent units may miss all phases but one. With functions r_k(x) that sum
to 1 at each state x,

    Z = sum_k E[w_k r_k(x_k)],

where w_k is the importance weight of a chain annealed from the independent units of phase k, and
x_k its last state. So each set of chains must be accurate only where its r_k is large. Here r_k is
the posterior probability of phase k, if x was drawn from the independent units of one phase.
"""

from itertools import pairwise
from typing import NamedTuple

import numpy as np
from scipy.sparse import csr_array, issparse
from scipy.special import softmax

from fastmf._threads.workers import VECTOR_SPEED, in_parallel, one_blas_thread, workers_for
from fastmf.inference.mean_field._layouts import layout_of, rows_per_worker
from fastmf.inference.mean_field._sparse_layout import colours_of, columns_graph, with_units
from fastmf.kernels.linear.product import TASK_ROWS, TILE_ROWS, pack, product_address
from fastmf.kernels.sampling.annealing import (
    LayersPath,
    SampledLayer,
    TiltedBetas,
    VisibleUnits,
    anneal_layers,
    anneal_visible,
    layers_work,
    visible_work,
)
from fastmf.models import RBM, BoltzmannMachine
from fastmf.models.boltzmann import check_machine
from fastmf.priors import Bernoulli
from fastmf.priors._compiled import units_of
from fastmf.priors._groups import column_is_group, column_sizes, has_groups
from fastmf.priors._protocol import by_parts, can_draw, is_concatenated, n_units, parts_of, sample
from fastmf.priors._queries import binary_field, tilt_to_mean, two_values, unbounded


def gibbs(model, visible, n_sweeps, rng, n_threads=None):
    """Draw samples of visible and hidden units by block Gibbs sampling."""
    return Walks(np.ones(n_sweeps + 1), n_threads).sample(model, visible, rng)


class Walks:
    """Move chains of an RBM along a path; a call overwrites what the last call has returned.

    Units have the tilts (1 - beta) base + beta W x.
    """

    def __init__(self, betas, n_threads=None, base=None, layers=None):
        self._betas, self._n_threads, self._base, self._given = betas, n_threads, base, layers
        self._layers = self._states = None

    def __call__(self, model, v, rng):
        """Return log importance weights, and visible and hidden states, of chains from v."""
        layers = self._given or sampled_layers(model)
        if layers is None or layers is not self._layers or v.shape != self._states[0].shape:
            base = self._base or [np.zeros(n, model.dtype) for n in model.sizes]
            if layers is None:
                return _walk_in_numpy(model, *base, self._betas, v.astype(model.dtype), rng)
            n_rows, self._layers = len(v), layers
            self._unbounded = any(unbounded(prior).any() for prior in model.layers)
            self._states = tuple(np.zeros((n_rows, n), model.dtype) for n in model.sizes)
            work = 2 * len(self._betas) * n_rows * model.weights.size // VECTOR_SPEED
            self._n_workers = workers_for(-(-n_rows // TILE_ROWS), work, self._n_threads)
            task_rows = rows_per_worker(n_rows, self._n_workers, TASK_ROWS)
            self._work = layers_work(*layers, model.dtype, task_rows, self._n_workers)
            self._path = LayersPath(*(c.astype(model.dtype) for c in base), self._betas)
            self._log_weights = np.zeros(n_rows)
        self._log_weights[:] = self._work.queue[:] = 0
        if v is not self._states[0]:
            self._states[0][:] = v
        seed, address = np.uint64(rng.bit_generator.random_raw()), product_address(model.dtype)
        arguments = self._path, seed, self._states, self._log_weights, self._work
        in_parallel(anneal_layers, (address, *layers, *arguments), self._n_workers)
        if self._unbounded:
            check_finite(self._log_weights, *self._states)
        return self._log_weights, *self._states

    def sample(self, model, visible, rng):
        """Return visible and hidden states of chains that stay at the model."""
        try:
            return self(model, visible, rng)[1:]
        except FloatingPointError:
            raise ValueError(
                "Gibbs sampling: the distribution of some units given the others does not exist, "
                "as its precision is not positive or its mean is too large; take smaller couplings."
            ) from None


@one_blas_thread()
def _walk_in_numpy(model, visible_base, hidden_base, betas, v, rng):
    """Do the same as `Walks`, for units that kernels cannot sample."""
    h, log_weights = np.zeros((len(v), model.n_hidden), model.dtype), np.zeros(len(v))
    zero = model.dtype.type(0)
    for old, new in pairwise(betas.astype(v.dtype)):
        fields = v @ model.weights
        tilts = [(1 - beta) * hidden_base + beta * fields for beta in (old, new)]
        if old != new:
            at_old, at_new = (model.hidden.log_partition(b, zero) for b in tilts)
            log_weights += (at_new - at_old).sum(1, dtype=np.float64)
            log_weights -= (new - old) * (v @ visible_base)
        # Diverged chains could not be sampled.
        check_finite(log_weights)
        h = sample(model.hidden, tilts[1], zero, rng).astype(v.dtype, copy=False)
        fields = (1 - new) * visible_base + new * (h @ model.weights.T)
        check_finite(model.visible.log_partition(fields, zero))
        v = sample(model.visible, fields, zero, rng).astype(v.dtype, copy=False)
    return log_weights, v, h


def sampled_layers(model):
    """Return the layers as arrays of the kernel; None for units that it cannot sample."""
    layout = layout_of(model, 1, "blocked")
    if layout.sampled:
        return layout.sampled
    if not all(map(can_draw, model.layers)):
        return None
    layers = []
    for k, layer in enumerate(layout.layers.of_model):
        couplings = layer.couplings
        if has_groups(model.layers[k]):
            # The layout packs the couplings to each group separately.
            couplings = pack(np.ascontiguousarray(model.weights.T if k == 0 else model.weights))
        units = units_of(layer.prior, model.dtype, ("draws", "log_partition"))
        layers.append(SampledLayer(units, couplings))
    if not layout.grouped:
        layout.sampled = layers
    return layers


def check_finite(*values):
    """Raise FloatingPointError where log-weights or states have diverged."""
    # If the model cannot be normalised, they grow from sweep to sweep, and rounding errors exceed
    # nats long before anything overflows. Written so that NaN counts as diverged.
    largest_square = 2.0**104  # the inverse square of the resolution of float64
    if not all(np.vdot(x, x) < largest_square for x in values):
        raise FloatingPointError(
            "annealed importance sampling diverged: a unit's distribution cannot be normalised "
            "somewhere on the path; check the precisions of the priors against the weights."
        )


def even_layers(model, visible, rng):
    """Return starts for the visible units of `model.bipartite()`; draw deeper even layers."""
    zeros = [np.zeros((len(visible), n), model.dtype) for n in model.sizes[2::2]]
    deeper = zip(model.layers[2::2], zeros, strict=True)
    states = [sample(layer, zero, zero, rng) for layer, zero in deeper]
    return np.hstack([visible, *states]).astype(model.dtype)


def sampled_units(model):
    """Return the sampler of the units of a machine; sparse machines are sampled by colours.

    Raise a ValueError if a coupling is -inf.
    """
    check_machine(model, "Gibbs sampling")
    parts = parts_of(model.prior)
    one_by_one = all(column_is_group(part).all() or two_values(part) for part in parts)
    if one_by_one and not issparse(model.couplings):
        return SequentialUnits(model)
    return ColouredUnits(model)


class SequentialUnits:
    """Two-valued units and groups of states with dense couplings, drawn one after the other."""

    def __init__(self, model):
        self.model = model
        self.couplings = np.array(model.couplings, order="C")
        self.units = units_of_columns(model.prior)

    def anneal(self, x, betas, rng, tilt, n_threads=None):
        """Anneal chains from uncoupled units; return log importance weights and last states."""
        x = np.asarray(x, self.model.dtype)
        return anneal_chains(self.couplings, self.units, x, betas, rng, tilt, n_threads)

    def sample(self, x, n_sweeps, rng, n_threads=None):
        """Return chains, (n_chains, n_units), after more sweeps."""
        return self.anneal(x, np.ones(n_sweeps + 1), rng, np.zeros(x.shape[1]), n_threads)[1]


class ColouredUnits:
    """Units of any kind that can be sampled, grouped by colours, with their couplings."""

    def __init__(self, model):
        self.model = model
        sizes = column_sizes(model.prior)
        colour = np.repeat(colours_of(columns_graph(csr_array(model.couplings), sizes)), sizes)
        self.blocks, first = [], 0
        for part in parts_of(model.prior):
            of_part = slice(first, first + n_units(part))
            for k in np.unique(colour[of_part]):
                units = first + np.flatnonzero(colour[of_part] == k)
                couplings = model.couplings[units]
                self.blocks.append((k, units, with_units(part, units - first), couplings))
            first = of_part.stop
        self.blocks.sort(key=lambda block: block[0])

    def sweep(self, x, rng, beta, tilt):
        """Draw all units of x, (n_units, n_chains), in place, with couplings beta J."""
        zero, dtype = x.dtype.type(0), x.dtype.type
        for _, units, prior, couplings in self.blocks:
            b = (dtype(beta) * (couplings @ x)).T + dtype(1 - beta) * tilt[units]
            x[units] = sample(prior, np.ascontiguousarray(b), zero, rng).T

    def anneal(self, x, betas, rng, tilt, n_threads=None):
        """Anneal chains as `SequentialUnits.anneal` does; `n_threads` is not used."""
        x, log_weights = np.array(x.T, self.model.dtype, order="C"), np.zeros(len(x))
        tilt = np.asarray(tilt, x.dtype)
        for old, new in pairwise(betas):
            if new != old:
                fields = self.model.couplings @ x
                pairs = np.einsum("ij,ij->j", x, fields, dtype=np.float64) / 2
                log_weights += (new - old) * (pairs - tilt.astype(float) @ x)
            # Diverged chains could not be sampled.
            check_finite(log_weights)
            self.sweep(x, rng, new, tilt)
            check_finite(x)
        return log_weights, np.ascontiguousarray(x.T)

    sample = SequentialUnits.sample


def anneal_chains(couplings, units, x, betas, rng, tilt, n_threads=None):
    """Move chains along a path; return log importance weights and last states."""
    x, (n_chains, n) = np.array(x, order="C"), x.shape
    path = TiltedBetas(np.array(tilt, np.float64), np.array(betas, np.float64))
    log_weights, work = np.zeros(n_chains), len(betas) * n_chains * n * n
    n_workers = workers_for(n_chains, work, n_threads)
    seeds = rng.integers(2**64, size=len(betas) - 1, dtype=np.uint64)
    arguments = couplings, units, path, seeds, x, log_weights, visible_work(n, n_workers)
    in_parallel(anneal_visible, arguments, n_workers)
    return log_weights, x


def units_of_columns(prior):
    """Return two-valued units and groups of states as arrays of the kernel."""
    first, values = np.append(0, np.cumsum(column_sizes(prior))), []
    for part in parts_of(prior):
        is_group = column_is_group(part).all()
        field = part.field if is_group else binary_field(part)[0]
        low, high = (0.0, 1.0) if is_group else two_values(part)
        values.append([np.full(len(field), low), np.full(len(field), high), field])
    return VisibleUnits(first, *np.concatenate(values, axis=1).astype(np.float64))


# Field at which the weight of one state of a unit underflows in double precision.
DECIDED = float(-np.log(np.finfo(np.float64).smallest_subnormal))
# Number of segments of the path between which chains may be resampled, for speed: with 25 or 100,
# the median error of 80 random machines is the same.
N_SEGMENTS = 50
# Chains are resampled when their effective number falls below this fraction, the usual one (Del
# Moral, Doucet & Jasra 2006): estimates of the partition function are unbiased with any.
RESAMPLE_BELOW = 0.5
# Minimum number of chains of annealed samples, which are resampled in proportion to their weights.
MIN_ANNEALED = 100
# Smallest density of steps in any segment of the path, relative to the mean density.
MIN_DENSITY = 0.1

# Position of the base between units without bias (0) and units with the means of the samples (1):
# the latter have the smallest error for the phases that they reach, but reach fewer of them.
MATCHING = 0.5


class Leg(NamedTuple):
    """Result of `Path.anneal`."""

    # (n_chains,): for each start, the log of the total importance weight of its descendants, -inf
    # without any
    log_weights: np.ndarray
    ends: np.ndarray  # (n_chains, n_visible): states of equal weight
    betas: np.ndarray  # (n_steps + 1,)
    edges: np.ndarray  # int (n_segments + 1,): steps at the ends of the segments
    variances: np.ndarray  # (n_segments,): over chains, of the log-weight added in each segment


class Path(NamedTuple):
    """A path from independent units to a model."""

    model: RBM
    shift: float  # added to its log-partition
    n_chains: int
    rng: np.random.Generator  # numpy.random.Generator
    n_threads: int | None  # int or None
    # `sampled_layers`, or `sampled_units` of a BoltzmannMachine, on whose path couplings are beta J
    # and tilts (1 - beta) base.
    units: object

    @classmethod
    def of(cls, model, shift, n_chains, rng, n_threads):
        """Make the path to a model."""
        sampled = sampled_units if isinstance(model, BoltzmannMachine) else sampled_layers
        return cls(model, shift, n_chains, rng, n_threads, sampled(model))

    def walk(self, base, betas, v):
        """Move the chains `v` along the path; return log importance weights and last states."""
        with np.errstate(over="ignore", invalid="ignore"):  # `check_finite` raises instead
            if isinstance(self.model, BoltzmannMachine):
                moved = self.units.anneal(v, betas, self.rng, base[0], self.n_threads)
                check_finite(moved[0])
                return moved
            walks = Walks(betas, self.n_threads, base, self.units)
            return walks(self.model, v, self.rng)[:2]

    def start(self, base):
        """Compute the log-partition of independent units with the tilt `base`."""
        return self.shift + _log_partition(self.model, base)

    def forward(self, base, betas):
        """Anneal from independent units; `log_weights` are estimates of the log-partition."""
        leg = self.anneal(base, betas, draw_units(self.model, base, self.n_chains, self.rng))
        return leg._replace(log_weights=self.start(base) + leg.log_weights)

    def backward(self, base, betas, samples):
        """Anneal samples of the model back; return an estimate of the log-partition for each."""
        leg = self.anneal(base, betas[::-1].copy(), samples)
        return self.start(base) - leg.log_weights

    def matched(self, neutral, samples):
        """Return, by layer, tilts that give uncoupled units their means in the samples."""
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
        """Sample the model by Gibbs sweeps from `v`."""
        return self.walk(base, np.ones(n_sweeps + 1), v)[1]

    @one_blas_thread()  # once for all walks
    def anneal(self, base, betas, v, log_weight_of_ends=None):
        """Anneal the chains `v`, with resampling; optionally weight their last states."""
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
    """Importance weights of chains, and the start of which each chain is a descendant.

    `log_mean` is the log of the mean weight at the last resampling; `log_weights` are since then.
    """

    def __init__(self, n_chains):
        self.log_mean = 0.0
        self.log_weights = np.zeros(n_chains)
        self.starts = np.arange(n_chains)

    def add(self, log_weights):
        """Multiply the importance weights by exp(log_weights)."""
        self.log_weights += log_weights

    def weights(self):
        """Return the normalised importance weights since the last resampling."""
        return softmax(self.log_weights)

    def resample(self, rng):
        """Resample to equal weights; return the positions of the surviving chains."""
        chosen = systematic(self.weights(), rng)
        self.log_mean += log_mean(self.log_weights)[0]
        self.log_weights = np.zeros(len(chosen))
        self.starts = self.starts[chosen]
        return chosen

    def by_start(self):
        """Return the log-weight of each start: the sum of the weights of its descendants."""
        n = len(self.starts)
        shares = np.bincount(self.starts, self.weights(), n)
        with np.errstate(divide="ignore"):
            return self.log_mean + log_mean(self.log_weights)[0] + np.log(n * shares)


def systematic(weights, rng, n=None):
    """Draw `n` positions by systematic resampling; len(weights) if None."""
    cumulated, n = np.cumsum(weights), n or len(weights)
    places = (np.arange(n) + rng.random()) / n
    drawn = np.searchsorted(cumulated / cumulated[-1], places, "right")
    return np.minimum(drawn, len(weights) - 1)


def refined(leg, n_steps):
    """Return betas that minimise the variance of the log-weights for a number of steps.

    The variance that n steps add in a segment is c / n; the sum over segments is smallest if their
    numbers of steps are proportional to the root of c.
    """
    n_of_segment = np.diff(leg.edges)
    density = np.sqrt(leg.variances * n_of_segment)
    density += MIN_DENSITY * density.mean() + np.finfo(float).tiny
    reached = np.concatenate([[0], np.cumsum(density)])
    betas = np.interp(np.linspace(0, 1, n_steps + 1), reached / reached[-1], leg.betas[leg.edges])
    betas[[0, -1]] = leg.betas[[0, -1]]
    return betas


def effective_size(log_weights):
    """Return the effective number of samples: (sum of weights)^2 / sum of squares."""
    weights = np.exp(log_weights - log_weights.max())
    return float(weights.sum() ** 2 / (weights**2).sum())


def annealed_model(model, starts, rng):
    """Return the annealed machine, in units 0 and 1 if all are two-valued, starts and values."""
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


def annealed_samples(model, data, rng, n_steps=N_SEGMENTS, n_threads=None, share=MATCHING):
    """Anneal chains from independent units to a model; return samples and the log-partition."""
    (machine, shift), starts, values = annealed_model(model, data, rng)
    path = Path.of(machine, shift, len(data), rng, n_threads)
    base = base_between(path, neutral_base(machine, bool(values)), starts, share)
    leg = path.forward(base, np.linspace(0, 1, n_steps + 1))
    ends = leg.ends[:, : data.shape[1]]
    if values:
        ends = np.where(ends == 1, *(model.dtype.type(x) for x in values[::-1]))
    return np.ascontiguousarray(ends), log_mean(leg.log_weights)[0]


def draw_units(model, base, n_rows, rng):
    """Draw states of the first layer under its tilt in `base`."""
    b = np.broadcast_to(base[0], (n_rows, len(base[0])))
    return sample(model.layers[0], b, np.zeros_like(b), rng)


def _log_partition(model, base):
    """Compute the log-partition of uncoupled units with the tilt `base`."""
    tilted = zip(model.layers, base, strict=True)
    return sum(float(p.log_partition(c, 0 * c).sum(dtype=np.float64)) for p, c in tilted)


def neutral_base(model, two_valued):
    """Return, by layer, tilts of uncoupled units without bias: fair coins if two-valued."""
    if two_valued:
        return [-binary_field(prior)[0] for prior in model.layers]
    return [np.zeros(n_units(prior), model.dtype) for prior in model.layers]


def base_between(path, neutral, samples, share=MATCHING):
    """Interpolate tilts between units without bias and units with the means of the samples."""
    tilts = path.matched(neutral, samples)
    return [c + c.dtype.type(share) * (b - c) for c, b in zip(neutral, tilts, strict=True)]


def tilt_to_means(prior, mean, b):
    """Find fields that give the units these means, approximately, starting from `b`.

    Newton's method to rounding, with bisection if a step would leave the bracket. The means are
    first moved slightly towards the means at `b`: a unit that is constant in the samples would need
    an infinite field.
    """
    if is_concatenated(prior):
        both = zip(by_parts(prior, mean), by_parts(prior, b), strict=True)
        return np.concatenate([tilt_to_means(part, m, c) for (part, m), (_, c) in both])
    zero = b.dtype.type(0)
    mean = (0.999 * mean + 0.001 * prior.moments(b, zero)[0]).astype(b.dtype)
    if has_groups(prior):
        return tilt_to_mean(prior, mean)
    rounding = 4 * np.finfo(b.dtype).eps * np.maximum(abs(mean), 1)
    low, high, max_step = np.full_like(b, -np.inf), np.full_like(b, np.inf), np.ones_like(b)
    for _ in range(60):
        m, var = prior.moments(b, zero)
        if (abs(m - mean) <= rounding).all():
            break
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
    """Return the log of the mean of exp(log_weights), and its standard error."""
    top = log_weights.max()
    weights = np.exp(log_weights - top)
    mean, n = weights.mean(), len(weights)
    error = weights.std(ddof=1) / mean / np.sqrt(n) if n > 1 else np.inf
    return float(top + np.log(mean)), float(error)


def zeros_and_ones(model):
    """Convert a machine to units 0 and 1; return it and the difference of the log-partitions."""
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
    """Clip fields, so that sums stay small; return them and the log-weight that is left out.

    A unit whose field exceeds the sum of all its |couplings| by `DECIDED` has only one state.
    """
    limit = of_couplings + DECIDED
    return np.clip(field, -limit, limit), np.maximum(field - limit, 0).sum()


# Share of the chains that is divided equally among phases; all other chains are divided by weight.
EVEN_SHARE = 0.3
# Minimum number of chains of a phase.
MIN_PHASE_CHAINS = 4


class Phases:
    """Annealing from independent units of several phases, with tilts `bases` by layer.

    `shares` are the weights of the phases in the last forward estimate.
    """

    def __init__(self, path, bases):
        self.path, self.bases = path, bases
        self.shares = np.full(len(bases), 1 / len(bases))

    def log_shares(self, v):
        """Compute log r_k for each row and phase."""
        prior, zero = self.path.model.layers[0], np.float64(0)
        tilts = np.array([base[0] for base in self.bases], np.float64)
        log_partitions = prior.log_partition(tilts, zero).sum(1, dtype=np.float64)
        logs = v.astype(np.float64) @ tilts.T - log_partitions
        return logs - np.logaddexp.reduce(logs, axis=1, keepdims=True)

    def forward(self, betas):
        """Anneal chains of all phases, as `Path.forward` does for one."""
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
        """Anneal samples back to drawn phases, as `Path.backward` does for one."""
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
        """Return the number of chains of each phase."""
        n, n_phases = self.path.n_chains, len(self.bases)
        density = EVEN_SHARE / n_phases + (1 - EVEN_SHARE) * self.shares
        counts = np.maximum(MIN_PHASE_CHAINS, (density * n).astype(int))
        counts[counts.argmax()] += n - counts.sum()
        return counts
