"""Log-partitions by annealed importance sampling, from both ends of the path."""

from itertools import pairwise
from typing import NamedTuple

import numpy as np

from fastmf._common.arguments import count, rows
from fastmf._threads import in_parallel, workers_for
from fastmf.inference.sampling.gibbs import even_layers, two_values
from fastmf.kernels import annealed as kernels
from fastmf.kernels.product import pack
from fastmf.models import RBM
from fastmf.models._layered import check_layered
from fastmf.priors import Bernoulli
from fastmf.priors._protocol import contains, n_units, sample

# Relative error of a mean beyond which it is made by fewer than about ten chains.
_FEW = 0.3
# Log-weights beyond which rounding hides whole nats: samples of a model that cannot be normalised
# grow from sweep to sweep, and do so long before anything overflows.
_LARGEST_LOG_WEIGHT = 1e15


class AnnealedEstimate(NamedTuple):
    """What `annealed_importance_sampling` returns.

    Parameters
    ----------
    log_partition, error : float
        Forward estimate, from independent units to the model, and its standard error in nats. The
        exponential of the estimate is unbiased, so that it is low on average, and too low with
        probability: it exceeds the truth by x nats with probability below exp(-x).
    reverse, reverse_error : float
        Estimate from the model's own samples back to independent units. Were they perfect samples,
        it would be high in the same sense. If the two differ by more than their errors, more steps
        are needed.
    log_weights, reverse_log_weights : array of shape (n_chains,)
        Estimate of each chain; the estimates are their (harmonic) log-means.
    samples : array of shape (n_chains, n_visible)
        The samples of the model that the reverse chains started from.
    """

    log_partition: float
    error: float
    reverse: float
    reverse_error: float
    log_weights: np.ndarray
    reverse_log_weights: np.ndarray
    samples: np.ndarray


def annealed_importance_sampling(
    model, n_chains=100, n_steps=1000, *, data=None, n_threads=None, rng=None
):
    """Estimate the log-partition of an RBM or DBM, with error bars, from both sides.

    Parameters
    ----------
    model : RBM or DBM
        Of any unit priors that can be sampled. A DBM is annealed as `bipartite()`.
    n_chains : int
    n_steps : int
        Gibbs sweeps on the path between independent units and the model, each way; the samples of
        the model are made by as many. Four times `n_steps` are done in all, or five.
    data : array of shape (n_rows, n_visible), optional
        Where the chains that sample the model start, for instance training data. Without it they
        are brought there by a first annealing.
    n_threads : int, optional
        Results do not depend on it.
    rng : numpy.random.Generator or int, optional

    Returns
    -------
    AnnealedEstimate

    Raises
    ------
    ValueError, TypeError
        For a model or arguments of another kind.
    FloatingPointError
        If the samples diverge (units whose distribution cannot be normalised).

    Notes
    -----
    Neal (2001); Salakhutdinov & Murray (2008); in reverse Burda, Grosse & Salakhutdinov (2015).
    A first annealing starts from neutral units (fair coins, or the model's own uncoupled units if
    they are not two-valued) and leads, resampled, to samples of the model. The estimate is from a
    second one that starts from independent units with the means of these samples. On machines of
    784 visible units this is worth a factor of ten or more in steps; but with a few phases of equal
    weight, it leans to the one that has more of the samples. The first estimate stands in place of
    the second where it exceeds it by three standard errors, and is not the work of a few chains:
    one alone is above the truth now and then, by nats, and is what would be selected. Chains from
    data stay in the phases of the data, which need not have the weights that the data give them. So
    where many chains of the first annealing arrive and the two estimates agree, the reverse chains
    start from samples that the first one led to.
    """
    check_layered(model)
    n_chains, n_steps = count("n_chains", n_chains, 2), count("n_steps", n_steps)
    if n_threads is not None:
        n_threads = count("n_threads", n_threads)
    rng = np.random.default_rng(rng)
    first_layer = model.layers[0]
    n_visible = n_units(first_layer)
    if data is not None:
        data = rows("data", data, n_visible, model.dtype)
        samples = np.resize(np.atleast_2d(data), (n_chains, n_visible))
        if not contains(first_layer, samples).all():
            raise ValueError("data must be in the support of the visible units.")
    if model.deep:
        samples = None if data is None else even_layers(model, samples, rng)
    model = model.bipartite()
    values, shift = two_values(model.visible), 0.0
    if values and two_values(model.hidden):
        if data is not None:
            samples = (samples == values[1]).astype(model.dtype)
        model, shift = _zeros_and_ones(model)
    else:
        values = None

    def walk(base, betas, v):
        with np.errstate(over="ignore", invalid="ignore"):  # looked for at the end
            return _walk(model, base, betas, v, rng, n_threads)

    rising = np.linspace(0, 1, n_steps + 1)
    neutral = [
        -prior.field if values else np.zeros(n, model.dtype)
        for prior, n in zip(model.layers, model.weights.shape, strict=True)
    ]
    first, arrived = walk(neutral, rising, _draw(model, neutral, n_chains, rng))
    first += shift + _log_partition(model, neutral)
    _check(first)
    stay = np.ones(n_steps + 1)

    def resampled():
        shares = np.exp(first - first.max())
        chosen = arrived[rng.choice(n_chains, n_chains, p=shares / shares.sum())]
        return walk(neutral, stay, chosen)[1]

    samples = resampled() if data is None else walk(neutral, stay, samples)[1]
    base = _matched(model, neutral, samples)
    start = shift + _log_partition(model, base)
    forward = start + walk(base, rising, _draw(model, base, n_chains, rng))[0]
    if data is not None and _agree(forward, first):
        samples = resampled()
        base = _matched(model, neutral, samples)
        start = shift + _log_partition(model, base)
    backward = start - walk(base, rising[::-1].copy(), samples)[0]
    _check(forward, backward)
    if values:
        samples = np.where(samples == 1, *(model.dtype.type(x) for x in values[::-1]))
    forward = _higher(forward, first)
    log_partition, error = _log_mean(forward)
    reverse, reverse_error = _log_mean(-backward)
    return AnnealedEstimate(
        log_partition, error, -reverse, reverse_error, forward, backward, samples[:, :n_visible]
    )


def _walk(model, base, betas, v, rng, n_threads):
    """Log importance weights of rows taken along the path, and where they arrive."""
    v = np.array(v, model.dtype, order="C")
    log_weights = np.zeros(len(v))
    if all(type(prior) is Bernoulli for prior in model.layers):
        h = np.empty((len(v), model.n_hidden), model.dtype)
        path = kernels.AnnealedPath(
            *(-c for c in base),
            *(prior.field + c for prior, c in zip(model.layers, base, strict=True)),
            betas=betas,
        )
        arguments = (
            *(pack(model.weights), pack(model.transposed), path),
            *(rng.integers(2**64, dtype=np.uint64), v, h, log_weights, np.zeros(1, np.int64)),
        )
        work = 2 * len(betas) * len(v) * model.weights.size
        n_workers = workers_for(-(-len(v) // kernels.TASK_ROWS), work, n_threads)
        in_parallel(kernels.annealed, arguments, n_workers)
        return log_weights, v

    zero, (visible_base, hidden_base) = model.dtype.type(0), base
    for old, new in pairwise(betas.astype(v.dtype)):
        fields = v @ model.weights
        tilts = [(1 - beta) * hidden_base + beta * fields for beta in (old, new)]
        at_old, at_new = (model.hidden.log_partition(b, zero) for b in tilts)
        log_weights += (at_new - at_old).sum(1, dtype=np.float64)
        log_weights -= (new - old) * (v @ visible_base)
        # What has diverged could not be sampled.
        _check(log_weights)
        h = sample(model.hidden, tilts[1], zero, rng)
        fields = (1 - new) * visible_base + new * (h @ model.weights.T)
        _check(model.visible.log_partition(fields, zero))
        v = sample(model.visible, fields, zero, rng).astype(v.dtype, copy=False)
    return log_weights, v


def _draw(model, base, n_rows, rng):
    b = np.broadcast_to(base[0], (n_rows, model.n_visible))
    return sample(model.visible, b, np.zeros_like(b), rng)


def _log_partition(model, base):
    """Of the uncoupled units under the tilt `base`."""
    tilted = zip(model.layers, base, strict=True)
    return sum(float(p.log_partition(c, 0 * c).sum(dtype=np.float64)) for p, c in tilted)


def _check(*log_weights):
    # Written so that NaN counts as diverged.
    if not all((abs(w) < _LARGEST_LOG_WEIGHT).all() for w in log_weights):
        raise FloatingPointError(
            "annealed importance sampling diverged: a unit's distribution cannot be normalised "
            "somewhere on the way; check the precisions of the priors against the weights."
        )


def _matched(model, neutral, samples):
    """By layer, the tilt that gives uncoupled units the means that they have in the samples."""
    zero = model.dtype.type(0)
    hidden = model.hidden.moments(samples @ model.weights, zero)[0]
    visible = model.visible.moments(hidden @ model.weights.T, zero)[0]
    return [
        _tilt_to_mean(prior, layer.mean(0, dtype=np.float64), c)
        for prior, layer, c in zip(model.layers, (visible, hidden), neutral, strict=True)
    ]


def _tilt_to_mean(prior, mean, b):
    """The field b under which the units have these means, or nearly, from the start `b` on.

    Newton steps, halving where they would leave the bracket. Means are first moved a little towards
    those at the start, lest a unit that never changed in the samples be held for ever.
    """
    zero = b.dtype.type(0)
    mean = (0.999 * mean + 0.001 * prior.moments(b, zero)[0]).astype(b.dtype)
    low, high, stride = np.full_like(b, -np.inf), np.full_like(b, np.inf), np.ones_like(b)
    for _ in range(60):
        m, var = prior.moments(b, zero)
        low, high = np.where(m < mean, b, low), np.where(m < mean, high, b)
        with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
            new = b + (mean - m) / var
            middle = (low + high) / 2
        # Without a bracket: strides that double, in the right direction.
        beyond = np.where(m < mean, b + stride, b - stride)
        bounded = np.isfinite(middle)
        fallback = np.where(bounded, middle, beyond)
        safe = (new > low) & (new < high) & (bounded | (abs(new - b) <= stride))
        stride = np.where(bounded | safe, stride, 2 * stride)
        b = np.where(safe, new, fallback)
    return b.astype(mean.dtype)


def _higher(usual, other):
    """The log-weights of the usual estimate, or those of the other where it is clearly higher."""
    (value, error), (other_value, other_error) = _log_mean(usual), _log_mean(other)
    clearly = other_value - value > 3 * np.hypot(error, other_error)
    return other if clearly and other_error < _FEW else usual


def _agree(usual, other):
    """Whether the other estimate is the work of many chains, and no lower than the usual one."""
    (value, error), (other_value, other_error) = _log_mean(usual), _log_mean(other)
    return other_error < _FEW and value - other_value < 3 * np.hypot(error, other_error)


def _log_mean(log_weights):
    """Log of the mean of exp(log_weights), and its standard error."""
    top = log_weights.max()
    weights = np.exp(log_weights - top)
    mean, n = weights.mean(), len(weights)
    return float(top + np.log(mean)), float(weights.std(ddof=1) / mean / np.sqrt(n))


def _zeros_and_ones(model):
    """The same machine in units of values 0 and 1, and what its log-partition lacks."""
    weights = model.weights.astype(np.float64)
    (v_low, v_high), (h_low, h_high) = (prior.support for prior in model.layers)
    logs = [
        [prior.log_prob(model.dtype.type(x)).astype(np.float64) for x in prior.support]
        for prior in model.layers
    ]
    visible = logs[0][1] - logs[0][0] + (v_high - v_low) * h_low * weights.sum(1)
    hidden = logs[1][1] - logs[1][0] + (h_high - h_low) * v_low * weights.sum(0)
    shift = logs[0][0].sum() + logs[1][0].sum() + v_low * h_low * weights.sum()
    couplings = (v_high - v_low) * (h_high - h_low) * weights
    couplings, visible, hidden = (x.astype(model.dtype) for x in (couplings, visible, hidden))
    return RBM(couplings, Bernoulli(visible), Bernoulli(hidden)), float(shift)
