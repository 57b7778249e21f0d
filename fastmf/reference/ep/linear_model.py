"""NumPy twins of `fastmf.kernels.ep.linear_model`."""

import numpy as np


def data_covariance(address, X, scale, vector, queue, sums):
    """Products of all rows of X, its columns scaled, with each other and with a vector."""
    n_units = X.shape[1]
    for part, total in enumerate(sums):
        ends = (k * n_units // len(sums) for k in (part, part + 1))
        units = slice(*ends)
        scaled = X[:, units] * scale[units]
        np.copyto(total[:-1], np.tril(scaled @ scaled.T))
        total[-1] = scaled @ vector[units]


def whitened_columns(address, X, whiten, directions, z, offset, queue, out):
    """Sums of squares of the whitened columns of X and their products with a vector."""
    white = whiten @ X
    along = directions @ X
    out[0] = np.einsum("ij,ij->j", white, white) - np.einsum("ij,ij->j", along, along)
    out[1] = z @ white - offset @ along
