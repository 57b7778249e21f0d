"""NumPy twin of `fastmf.kernels.sampling.gibbs`, with the same random numbers."""

from fastmf.reference.linear.product import unpacked
from fastmf.reference.sampling.random import uniforms
from fastmf.reference.units import draws


def gibbs(address, visible, hidden, seed, n_sweeps, v, h, work):
    """Sample hidden units given visible ones and back, `n_sweeps` times for each row."""
    for sweep in range(n_sweeps):
        for step, source, layer, out in (
            (2 * sweep + 1, v, hidden, h),
            (2 * sweep + 2, h, visible, v),
        ):
            fields = source @ unpacked(layer.couplings, out.shape[1])
            out[:] = draws(layer.units.prior, fields, uniforms(seed, step, out.shape))
