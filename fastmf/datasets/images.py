"""Images in the unit interval, one per row."""

import math
import os
from pathlib import Path
from typing import NamedTuple

import numpy as np

from fastmf._common.arguments import one_of
from fastmf.datasets.files import read_array
from fastmf.models._archive import reason


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
    _sklearn("load_digits")
    from sklearn.datasets import load_digits

    pixels, labels = load_digits(return_X_y=True)
    return Images(_scaled(pixels, 16, binary, dtype), (8, 8), labels)


def load_mnist(folder=None, *, split="train", binary=False, dtype=np.float32, download=False):
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
    download : bool, default False
        Whether to fetch the data from openml.org (by scikit-learn, which keeps a copy) if a file
        is missing.

    Returns
    -------
    images : Images
        Grey levels 0 to 255 divided by 255; labels 0 to 9.

    Raises
    ------
    FileNotFoundError
        If a file is missing and `download` is False.
    ValueError
        If a file is damaged, or `split` is unknown.

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
    try:
        paths = [
            _find(
                f"{prefix}-{kind}-ubyte", folder, "mnist", "load_mnist", ", or pass download=True"
            )
            for kind in ("images-idx3", "labels-idx1")
        ]
    except FileNotFoundError:
        if not download:
            raise
        pixels, labels = _fetch_mnist(split)
    else:
        pixels, labels = map(read_array, paths)
        if pixels.ndim != 3 or labels.shape != pixels.shape[:1]:
            raise ValueError(
                f"{paths[0]} has shape {pixels.shape} and {paths[1]} has shape {labels.shape}; "
                "expected (n, height, width) and (n,)."
            )
    return Images(_scaled(pixels, 255, binary, dtype), pixels.shape[1:], labels.astype(np.intp))


def load_caltech_silhouettes(folder=None, *, split="train", dtype=np.float32):
    """Load the Caltech 101 Silhouettes of 28 x 28 pixels, object 1 and background 0.

    Parameters
    ----------
    folder : str or path, optional
        Folder of ``caltech101_silhouettes_28_split1.mat``; by default the environment variable
        FASTMF_DATA.
    split : {"train", "validation", "test"}, default "train"
        The 4100, 2264 or 2307 images of the original split.
    dtype : float32 or float64, default float32

    Returns
    -------
    images : Images
        Pixels 0 and 1; labels 1 to 101. (In the file the background is 1, and images are stored
        column by column.)

    Raises
    ------
    FileNotFoundError, ValueError
        If the file is missing or damaged, or `split` is unknown.

    Notes
    -----
    B. M. Marlin, K. Swersky, B. Chen, N. de Freitas, AISTATS 2010.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> import numpy as np, fastmf as mf
    >>> from scipy.io import savemat
    >>> folder = pathlib.Path(tempfile.mkdtemp())  # three images in the format of the file
    >>> arrays = {"train_data": np.ones((3, 784)), "train_labels": np.array([1, 2, 2])}
    >>> savemat(folder / "caltech101_silhouettes_28_split1.mat", arrays)
    >>> mf.datasets.load_caltech_silhouettes(folder).X.shape
    (3, 784)
    """
    from scipy.io import loadmat, whosmat

    splits = {"train": "train", "validation": "val", "test": "test"}
    name = splits[one_of("split", split, tuple(splits))]
    path = _find("caltech101_silhouettes_28_split1.mat", folder, "", "load_caltech_silhouettes")
    try:
        shapes = {key: shape for key, shape, _ in whosmat(path)}
        shape, of_labels = shapes[f"{name}_data"], shapes[f"{name}_labels"]
        if shape[1:] != (784,) or math.prod(of_labels) != shape[0]:
            raise ValueError(f"images have the shape {shape}, and labels {of_labels}")
        arrays = loadmat(path, variable_names=[f"{name}_data", f"{name}_labels"])
        pixels, labels = arrays[f"{name}_data"], arrays[f"{name}_labels"].ravel()
        objects = pixels.reshape(-1, 28, 28).transpose(0, 2, 1) == 0
    except Exception as error:  # on damaged files loadmat raises errors of many types
        raise ValueError(
            f"{path} is not the Caltech 101 Silhouettes file: {reason(error)}"
        ) from error
    return Images(_scaled(objects, 1, True, dtype), (28, 28), labels.astype(np.intp))


def load_cbcl_faces(folder=None, *, split="train", dtype=np.float32):
    """Load the faces of the CBCL face database 1, of 19 x 19 pixels.

    Parameters
    ----------
    folder : str or path, optional
        Folder of ``cbcl_faces_19x19.npz``, with arrays ``faces_train`` and ``faces_test`` of grey
        levels 0 to 255, (n, 361); by default the environment variable FASTMF_DATA.
    split : {"train", "test"}, default "train"
        The 2429 training or the 472 test faces.
    dtype : float32 or float64, default float32

    Returns
    -------
    images : Images
        Grey levels divided by 255; no labels.

    Raises
    ------
    FileNotFoundError, ValueError
        If the file is missing or damaged, or `split` is unknown.

    Notes
    -----
    MIT Center For Biological and Computation Learning; offered for research use only.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> import numpy as np, fastmf as mf
    >>> folder = pathlib.Path(tempfile.mkdtemp())  # three images in the format of the file
    >>> np.savez(folder / "cbcl_faces_19x19.npz", faces_train=np.full((3, 361), 255))
    >>> faces = mf.datasets.load_cbcl_faces(folder)
    >>> faces.X.shape, float(faces.X.max())
    ((3, 361), 1.0)
    """
    one_of("split", split, ("train", "test"))
    path = _find("cbcl_faces_19x19.npz", folder, "", "load_cbcl_faces")
    pixels = read_array(f"{path}:faces_{split}")
    if pixels.ndim != 2 or pixels.shape[1] != 19 * 19:
        raise ValueError(f"{path}: faces_{split} has shape {pixels.shape}, expected (n, 361).")
    return Images(_scaled(pixels, 255, False, dtype), (19, 19), None)


def _find(name, folder, subfolder, loader, otherwise=""):
    """The path of a data file, compressed or not, or an error that says where to put it."""
    root = folder if folder is not None else os.environ.get("FASTMF_DATA")
    where = f"is not in {root}" if root else "was not looked for, as no folder was given"
    parents = (Path(root), Path(root) / subfolder) if root else ()
    for path in (parent / file for parent in parents for file in (name, f"{name}.gz")):
        if path.is_file():
            return path
    raise FileNotFoundError(
        f"{loader}: {name} {where}. Pass folder=... or set the environment variable FASTMF_DATA to "
        f"the folder that holds it{otherwise}."
    )


def _fetch_mnist(split):
    _sklearn("load_mnist(download=True)")
    from sklearn.datasets import fetch_openml

    pixels, labels = fetch_openml("mnist_784", version=1, return_X_y=True, as_frame=False)
    rows = slice(None, 60000) if split == "train" else slice(60000, None)
    return pixels[rows].reshape(-1, 28, 28), labels[rows]


def _sklearn(name):
    try:
        import sklearn  # noqa: F401
    except ModuleNotFoundError as error:
        raise ImportError(f"{name} needs scikit-learn: pip install scikit-learn") from error


def _scaled(pixels, white, binary, dtype):
    """Images as rows of grey levels in [0, 1], or thresholded at 1/2."""
    dtype = np.dtype(dtype)
    if dtype not in (np.float32, np.float64):
        raise ValueError(f"dtype must be float32 or float64; got {dtype}.")
    X = pixels.reshape(len(pixels), -1)
    if binary:
        return (X > white / 2).astype(dtype)
    return X.astype(dtype) / dtype.type(white)
