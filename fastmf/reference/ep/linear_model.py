"""NumPy twin of `fastmf.kernels.ep.linear_model`."""

import numpy as np


def whitened_columns(address, X, whiten, directions, z, offset, queue, out):
    """Compute sums of squares of the whitened columns of X, and their products with a vector."""
    white = whiten @ X
    along = directions @ X
    out[0] = np.einsum("ij,ij->j", white, white) - np.einsum("ij,ij->j", along, along)
    out[1] = z @ white - offset @ along
