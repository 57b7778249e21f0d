"""Chains of an RBM: block Gibbs sampling, and annealing between independent units and the model."""

from itertools import pairwise

import numpy as np

from fastmf._threads.workers import in_parallel, one_blas_thread, workers_for
from fastmf.inference.mean_field._layouts import layout_of
from fastmf.kernels.linear.product import TASK_ROWS, pack, product_address
from fastmf.kernels.sampling.annealing import (
    LayersPath,
    SampledLayer,
    anneal_layers,
    layers_work,
)
from fastmf.priors._compiled import units_of
from fastmf.priors._groups import has_groups
from fastmf.priors._protocol import can_draw, sample


def gibbs(model, visible, n_sweeps, rng, n_threads=None):
    """Samples of visible and hidden units by block Gibbs sampling."""
    base = [np.zeros(n, model.dtype) for n in model.sizes]
    try:
        return walk(model, base, np.ones(n_sweeps + 1), visible, rng, n_threads)[1:]
    except FloatingPointError:
        raise ValueError(
            "Gibbs sampling: the distribution of some units given the others does not exist, as "
            "its precision is not positive or its mean is too large; take smaller couplings."
        ) from None


def walk(model, base, betas, v, rng, n_threads, layers=None):
    """Log importance weights of chains that are moved along a path, and their states.

    Units have the tilts (1 - beta) base + beta W x.
    """
    v = np.array(v, model.dtype, order="C")
    layers = layers or sampled_layers(model)
    if layers is None:
        return _walk_in_numpy(model, base, betas, v, rng)
    h, log_weights = np.zeros((len(v), model.n_hidden), model.dtype), np.zeros(len(v))
    seed, address = rng.integers(2**64, dtype=np.uint64), product_address(v.dtype)
    work = 2 * len(betas) * len(v) * model.weights.size
    n_workers = workers_for(-(-len(v) // TASK_ROWS), work, n_threads)
    path = LayersPath(*(np.ascontiguousarray(c, v.dtype) for c in base), betas)
    memory = layers_work(*layers, v.dtype, n_workers)
    arguments = address, *layers, path, seed, (v, h), log_weights, memory
    in_parallel(anneal_layers, arguments, n_workers)
    check_finite(log_weights, v, h)
    return log_weights, v, h


@one_blas_thread()
def _walk_in_numpy(model, base, betas, v, rng):
    """The same for units that kernels cannot sample."""
    h, log_weights = np.zeros((len(v), model.n_hidden), model.dtype), np.zeros(len(v))
    zero, (visible_base, hidden_base) = model.dtype.type(0), base
    for old, new in pairwise(betas.astype(v.dtype)):
        fields = v @ model.weights
        tilts = [(1 - beta) * hidden_base + beta * fields for beta in (old, new)]
        if old != new:
            at_old, at_new = (model.hidden.log_partition(b, zero) for b in tilts)
            log_weights += (at_new - at_old).sum(1, dtype=np.float64)
            log_weights -= (new - old) * (v @ visible_base)
        # What has diverged could not be sampled.
        check_finite(log_weights)
        h = sample(model.hidden, tilts[1], zero, rng).astype(v.dtype, copy=False)
        fields = (1 - new) * visible_base + new * (h @ model.weights.T)
        check_finite(model.visible.log_partition(fields, zero))
        v = sample(model.visible, fields, zero, rng).astype(v.dtype, copy=False)
    return log_weights, v, h


def sampled_layers(model):
    """The layers as the kernel takes them; None for units that it cannot sample."""
    layout = layout_of(model, 1, "blocked")
    if layout.sampled:
        return layout.sampled
    if not all(map(can_draw, model.layers)):
        return None
    layers = []
    for k, layer in enumerate(layout.layers.of_model):
        couplings = layer.couplings
        if has_groups(model.layers[k]):
            # Couplings of the layout have the columns of each group apart.
            couplings = pack(np.ascontiguousarray(model.weights.T if k == 0 else model.weights))
        units = units_of(layer.prior, model.dtype, ("draws", "log_partition"))
        layers.append(SampledLayer(units, couplings))
    if not layout.grouped:
        layout.sampled = layers
    return layers


def check_finite(*values):
    """Raise FloatingPointError where log-weights or states have diverged."""
    # Without a normalisable model they grow from sweep to sweep, and rounding hides whole nats long
    # before anything overflows. Written so that NaN counts as diverged.
    if not all(np.sqrt(np.vdot(x, x)) * np.finfo(np.float64).eps < 1 for x in values):
        raise FloatingPointError(
            "annealed importance sampling diverged: a unit's distribution cannot be normalised "
            "somewhere on the path; check the precisions of the priors against the weights."
        )


def even_layers(model, visible, rng):
    """Starts of the visible units of `model.bipartite()`: deeper even layers drawn uncoupled."""
    zeros = [np.zeros((len(visible), n), model.dtype) for n in model.sizes[2::2]]
    deeper = zip(model.layers[2::2], zeros, strict=True)
    states = [sample(layer, zero, zero, rng) for layer, zero in deeper]
    return np.hstack([visible, *states]).astype(model.dtype)
