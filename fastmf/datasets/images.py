"""Images in the unit interval, one per row."""

import os
from pathlib import Path
from typing import NamedTuple

import numpy as np

from fastmf._common.arguments import one_of
from fastmf.datasets.files import read_array


class Images(NamedTuple):
    """Images, one per row.

    Parameters
    ----------
    X : array of shape (n_samples, height * width)
        Grey levels in [0, 1], or exactly 0 and 1 for binary data; each image row by row.
    shape : tuple of int
        Height and width: ``X[k].reshape(shape)`` is the k-th image.
    labels : array of shape (n_samples,) or None
        Class of each image, where there are classes.

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
        Whether grey levels above 1/2 become 1 and all others 0.
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
        text = "load_digits needs scikit-learn: pip install scikit-learn"
        raise ImportError(text) from error
    pixels, labels = load_digits(return_X_y=True)
    return Images(_scaled(pixels, 16, binary, dtype), (8, 8), labels)


def load_mnist(folder=None, *, split="train", binary=False, dtype=np.float32):
    """Load the MNIST handwritten digits of 28 x 28 pixels.

    Parameters
    ----------
    folder : str or path, optional
        Folder of the four files ``train-images-idx3-ubyte``, ``train-labels-idx1-ubyte``,
        ``t10k-images-idx3-ubyte`` and ``t10k-labels-idx1-ubyte`` (or ``.gz``), or the parent of
        their folder ``mnist``; by default the environment variable FASTMF_DATA.
    split : {"train", "test"}, default "train"
        The 60000 training or the 10000 test images, in their original order.
    binary : bool, default False
        Whether grey levels above 1/2 become 1 and all others 0.
    dtype : float32 or float64, default float32

    Returns
    -------
    images : Images
        Grey levels 0 to 255 divided by 255; labels 0 to 9.

    Raises
    ------
    FileNotFoundError, ValueError
        If a file is missing or damaged, or `split` is unknown.

    Notes
    -----
    Y. LeCun, L. Bottou, Y. Bengio, P. Haffner, Proc. IEEE 86 (1998) 2278-2324.

    Examples
    --------
    >>> import pathlib, struct, tempfile
    >>> folder = pathlib.Path(tempfile.mkdtemp())  # two images in the format of the files
    >>> images = struct.pack(">4B3i", 0, 0, 8, 3, 2, 28, 28) + bytes(2 * 28 * 28)
    >>> _ = (folder / "train-images-idx3-ubyte").write_bytes(images)
    >>> labels = struct.pack(">4Bi2B", 0, 0, 8, 1, 2, 5, 0)
    >>> _ = (folder / "train-labels-idx1-ubyte").write_bytes(labels)
    >>> import fastmf as mf
    >>> mf.datasets.load_mnist(folder).labels
    array([5, 0])
    """
    prefix = {"train": "train", "test": "t10k"}[one_of("split", split, ("train", "test"))]
    names = (f"{prefix}-{kind}-ubyte" for kind in ("images-idx3", "labels-idx1"))
    paths = [_find(name, folder) for name in names]
    pixels, labels = map(read_array, paths)
    if pixels.ndim != 3 or labels.shape != pixels.shape[:1]:
        raise ValueError(
            f"{paths[0]} has shape {pixels.shape} and {paths[1]} has shape {labels.shape}; "
            "expected (n, height, width) and (n,)."
        )
    return Images(_scaled(pixels, 255, binary, dtype), pixels.shape[1:], labels.astype(np.intp))


def _find(name, folder):
    """The path of a file of MNIST, compressed or not, or an error that says where to put it."""
    root = folder if folder is not None else os.environ.get("FASTMF_DATA")
    where = f"is not in {root}" if root else "was not looked for, as no folder was given"
    parents = (Path(root), Path(root) / "mnist") if root else ()
    for path in (parent / file for parent in parents for file in (name, f"{name}.gz")):
        if path.is_file():
            return path
    raise FileNotFoundError(
        f"load_mnist: {name} {where}. Pass folder=... or set the environment variable FASTMF_DATA "
        "to the folder that holds it."
    )


def _scaled(pixels, white, binary, dtype):
    """Images as rows of grey levels in [0, 1], or thresholded at 1/2."""
    dtype = np.dtype(dtype)
    if dtype not in (np.float32, np.float64):
        raise ValueError(f"dtype must be float32 or float64; got {dtype}.")
    X = pixels.reshape(len(pixels), -1)
    if binary:
        return (X > white / 2).astype(dtype)
    return X.astype(dtype) / dtype.type(white)
