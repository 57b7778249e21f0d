"""NumPy twin of `fastmf.kernels.product`."""

import numpy as np


def fill_panels(matrix, panels):
    """Set panels[p, k, c] to matrix[k, p * width + c]."""
    n_panels, n_rows, width = panels.shape
    padded = np.zeros((n_rows, n_panels * width), panels.dtype)
    padded[:, : matrix.shape[1]] = matrix
    panels[:] = padded.reshape(n_rows, n_panels, width).swapaxes(0, 1)


def unpacked(panels, n_columns):
    """The matrix of which `panels` are the packed columns."""
    n_panels, n_rows, width = panels.shape
    whole = panels.swapaxes(0, 1).reshape(n_rows, n_panels * width)
    return np.ascontiguousarray(whole[:, :n_columns])
