"""Images with grey levels in [0, 1], one per row."""

from typing import NamedTuple

import numpy as np


class Images(NamedTuple):
    """Images, one per row.

    Parameters
    ----------
    X : array of shape (n_samples, height * width)
        Grey levels in [0, 1], or 0 and 1 for binary data; pixels are in row-major order.
    shape : tuple of int
        Height and width: ``X[k].reshape(shape)`` is the k-th image.
    labels : array of shape (n_samples,) or None
        Class of each image, or None without classes.

    Examples
    --------
    >>> import fastmf as mf
    >>> digits = mf.datasets.load_digits()
    >>> digits.X[0].reshape(digits.shape).shape, int(digits.labels[0])
    ((8, 8), 0)
    """

    X: np.ndarray
    shape: tuple[int, int]
    labels: np.ndarray | None


def load_digits(*, binary=False, dtype=np.float32):
    """Load the 1797 handwritten digits of 8 x 8 pixels that come with scikit-learn.

    Parameters
    ----------
    binary : bool, default False
        Set grey levels above 1/2 to 1 and all other levels to 0.
    dtype : float32 or float64, default float32

    Returns
    -------
    images : Images
        Grey levels 0 to 16 divided by 16; labels 0 to 9.

    Raises
    ------
    ImportError
        If scikit-learn is not installed.

    Examples
    --------
    >>> import fastmf as mf
    >>> digits = mf.datasets.load_digits(binary=True)
    >>> digits.X.shape, digits.X.dtype, digits.shape
    ((1797, 64), dtype('float32'), (8, 8))
    """
    try:
        from sklearn.datasets import load_digits
    except ModuleNotFoundError as error:
        raise ImportError("load_digits needs scikit-learn: pip install scikit-learn") from error
    pixels, labels = load_digits(return_X_y=True)
    dtype = np.dtype(dtype)
    if dtype not in (np.float32, np.float64):
        raise ValueError(f"dtype must be float32 or float64; got {dtype}.")
    X = (pixels > 8).astype(dtype) if binary else pixels.astype(dtype) / dtype.type(16)
    return Images(X, (8, 8), labels)
