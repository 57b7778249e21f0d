"""Images: receptive fields, and rows of data beside their estimates."""

import math

import numpy as np

from fastmf._common.arguments import count, real_array
from fastmf.plotting._axes import axes, bare, coloured, drawing, image_shape, mapping


def _mosaic(images, shape, columns):
    """Images side by side in one, with a pixel of NaN between them."""
    images, (height, width) = real_array("images", images), image_shape(shape)
    if images.ndim != 2 or images.shape[1] != height * width or len(images) == 0:
        raise ValueError(
            f"images must have shape (n_images, {height * width}) for images of {height} x {width} "
            f"pixels, got {images.shape}."
        )
    rows = math.ceil(len(images) / columns)
    tiles = np.full((rows, columns, height + 1, width + 1), np.nan)
    for k, image in enumerate(images):
        tiles[k // columns, k % columns, :height, :width] = image.reshape(shape)
    return tiles.swapaxes(1, 2).reshape(rows * (height + 1), columns * (width + 1))[:-1, :-1]


@drawing
def receptive_fields(weights, shape, *, n_fields=100, columns=None, order=None, ax=None):
    """Weights of hidden units as images, on one scale of colours.

    Parameters
    ----------
    weights : fitted machine with hidden units, model, or array of shape (n_visible, n_hidden)
        Units of the first hidden layer are shown.
    shape : tuple of int
        Height and width of the visible units as an image.
    n_fields : int, default 100
        Largest number of units shown.
    columns : int, optional
        Images in a row; by default a square.
    order : int array of shape (n_hidden,), optional
        Hidden units in the order in which they are shown; by default by norm, the largest first.
    %(ax)s

    Examples
    --------
    >>> import numpy as np, fastmf as mf
    >>> weights = np.random.default_rng(0).normal(size=(64, 12))
    >>> figure = mf.plotting.receptive_fields(weights, (8, 8), n_fields=9)
    >>> figure.axes[0].images[0].get_array().shape
    (26, 26)
    """
    weights, n_fields = _weights_of(weights), count("n_fields", n_fields)
    if weights.ndim != 2 or weights.size == 0:
        raise ValueError(f"weights must have shape (n_visible, n_hidden), got {weights.shape}.")
    columns = count("columns", columns, optional=True)
    if order is None:
        order = np.argsort(-np.linalg.norm(weights, axis=0), kind="stable")
    order = real_array("order", order)
    if order.ndim != 1 or not order.size or not np.isin(order, np.arange(weights.shape[1])).all():
        raise ValueError(f"order must be of hidden units, from 0 to {weights.shape[1] - 1}.")
    shown = order[:n_fields].astype(int)
    columns = columns or math.ceil(math.sqrt(len(shown)))
    tiles = _mosaic(weights.T[shown], shape, columns)
    ax = axes(ax, (6, 5 * tiles.shape[0] / tiles.shape[1]))
    coloured(ax, tiles, "weight", quantile=0.998, shrink=0.8)
    bare(ax)
    return ax.figure


def _weights_of(machine):
    """The weights of the first hidden layer of an estimator or model, or an array as it is."""
    for name in ("weights_", "weights"):
        machine = getattr(machine, name, machine)
    return real_array("weights", machine[0] if isinstance(machine, tuple) else machine)


@drawing
def image_rows(rows, shape, *, ax=None):
    """Named rows of images under each other, such as clean, noisy and denoised.

    Parameters
    ----------
    rows : dict of str to array of shape (n_images, height * width)
        All of the same number of images; 0 is black, 1 white, and NaN blank.
    shape : tuple of int
        Height and width of each image.
    %(ax)s

    Examples
    --------
    >>> import fastmf as mf
    >>> digits = mf.datasets.load_digits(binary=True)
    >>> noisy = mf.evaluation.flip(digits.X[:8], 0.1, rng=0)
    >>> figure = mf.plotting.image_rows({"clean": digits.X[:8], "noisy": noisy}, digits.shape)
    >>> [label.get_text() for label in figure.axes[0].get_yticklabels()]
    ['clean', 'noisy']
    """
    rows = {
        name: real_array("rows", images) for name, images in mapping("rows", rows, "row").items()
    }
    lengths = {len(images) for images in rows.values() if images.ndim == 2}
    if len(lengths) != 1:
        raise ValueError(f"rows must be of one length, got lengths {sorted(lengths)}.")
    (n,) = lengths
    tiles = _mosaic(np.concatenate(list(rows.values())), shape, n)
    ax = axes(ax, (9, 9 * tiles.shape[0] / tiles.shape[1]))
    ax.imshow(tiles, cmap="gray", vmin=0, vmax=1, interpolation="nearest")
    bare(ax)
    # Between rows there is a line of one pixel.
    height = (len(tiles) + 1) / len(rows)
    ax.set_yticks(height * np.arange(len(rows)) + height / 2 - 1, list(rows))
    ax.tick_params(length=0)
    return ax.figure
