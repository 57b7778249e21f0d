"""Packed matrices of `fastmf.kernels.linear.product` as matrices."""

import numpy as np


def unpacked(panels, n_columns):
    """The matrix whose packed columns are `panels`."""
    n_panels, n_rows, width = panels.shape
    matrix = panels.swapaxes(0, 1).reshape(n_rows, n_panels * width)
    return np.ascontiguousarray(matrix[:, :n_columns])
