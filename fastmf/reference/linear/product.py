"""Conversion of packed matrices of `fastmf.kernels.linear.product` to matrices."""

import numpy as np


def unpacked(panels, n_columns):
    """Return the matrix whose packed columns are `panels`."""
    n_panels, n_rows, width = panels.shape
    matrix = panels.swapaxes(0, 1).reshape(n_rows, n_panels * width)
    return np.ascontiguousarray(matrix[:, :n_columns])
