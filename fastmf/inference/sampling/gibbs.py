"""Block Gibbs sampling of an RBM."""

import numpy as np

from fastmf._threads.workers import in_parallel, one_blas_thread, workers_for
from fastmf.inference.mean_field._layouts import layout_of
from fastmf.kernels.linear.product import pack, product_address
from fastmf.kernels.sampling.gibbs import CHAIN_ROWS, SampledLayer, gibbs_work
from fastmf.kernels.sampling.gibbs import gibbs as gibbs_kernel
from fastmf.priors._compiled import units_of
from fastmf.priors._groups import has_groups
from fastmf.priors._protocol import can_draw, sample


@one_blas_thread()
def gibbs(model, visible, n_sweeps, rng, n_threads=None):
    """Samples of visible and hidden units by block Gibbs sampling."""
    v = np.array(visible, dtype=model.dtype, order="C")
    h = np.zeros((len(v), model.n_hidden), model.dtype)
    if all(map(can_draw, model.layers)):
        seed = rng.integers(2**64, dtype=np.uint64)
        work = 2 * n_sweeps * len(v) * model.weights.size
        n_workers = workers_for(-(-len(v) // CHAIN_ROWS), work, n_threads)
        layers = _sampled_layers(model)
        address, work_of = product_address(model.dtype), gibbs_work(*layers, v.dtype, n_workers)
        in_parallel(gibbs_kernel, (address, *layers, seed, n_sweeps, v, h, work_of), n_workers)
        if not (np.isfinite(v).all() and np.isfinite(h).all()):
            raise ValueError(
                "Gibbs sampling: the distribution of some units given the others does not exist, "
                "as its precision is not positive or its mean is too large; take smaller couplings."
            )
        return v, h
    zero = model.dtype.type(0)
    for _ in range(n_sweeps):
        h = sample(model.hidden, v @ model.weights, zero, rng)
        v = sample(model.visible, h @ model.weights.T, zero, rng)
    return v, h


def _sampled_layers(model):
    """The layers as the kernel takes them."""
    layout = layout_of(model, 1, "blocked")
    if layout.sampled:
        return layout.sampled
    layers = []
    for k, layer in enumerate(layout.layers.of_model):
        couplings = layer.couplings
        if has_groups(model.layers[k]):
            # Couplings of the layout have the columns of each group apart.
            couplings = pack(np.ascontiguousarray(model.weights.T if k == 0 else model.weights))
        units = units_of(layer.prior, model.dtype, ("draws",))
        layers.append(SampledLayer(units, couplings))
    if not layout.grouped:
        layout.sampled = layers
    return layers


def even_layers(model, visible, rng):
    """Starts of the visible units of `model.bipartite()`: deeper even layers drawn uncoupled."""
    zeros = [np.zeros((len(visible), n), model.dtype) for n in model.sizes[2::2]]
    deeper = zip(model.layers[2::2], zeros, strict=True)
    others = [sample(layer, zero, zero, rng) for layer, zero in deeper]
    return np.hstack([visible, *others]).astype(model.dtype)
