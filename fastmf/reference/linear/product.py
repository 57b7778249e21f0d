"""Product of the twins in the place of `fastmf.kernels.linear.product`."""

import numpy as np


def unpacked(panels, n_columns):
    """The matrix whose packed columns are `panels`."""
    n_panels, n_rows, width = panels.shape
    matrix = panels.swapaxes(0, 1).reshape(n_rows, n_panels * width)
    return np.ascontiguousarray(matrix[:, :n_columns])


def multiply(address, states, source, packed, n_columns, queue, out):
    """Rows of states times packed couplings."""
    couplings = unpacked(packed, n_columns)
    out[:, :n_columns] = states[:, source : source + len(couplings)] @ couplings
