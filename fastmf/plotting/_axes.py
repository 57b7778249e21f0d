"""Axes and their style, and checks of data."""

from collections.abc import Mapping

import numpy as np

from fastmf._common.arguments import count

# Last parameter and result.
_AX = """ax : matplotlib.axes.Axes, optional
        Where to draw; by default in a new figure.

    Returns
    -------
    matplotlib."""
_SHARED = {"ax": _AX + "figure.Figure", "axes": _AX + "axes.Axes"}


def drawing(function):
    """Complete the docstring of a function by its parameter `ax` and its result."""
    if function.__doc__:  # None if Python leaves docstrings out
        function.__doc__ %= _SHARED
    return function


def axes(ax, size):
    """The caller's axes, or new ones in a figure of this width and height in inches."""
    try:
        from matplotlib.axes import Axes
        from matplotlib.figure import Figure
    except ModuleNotFoundError as error:
        raise ImportError("plotting needs matplotlib: pip install matplotlib") from error
    if isinstance(ax, Axes):
        return ax
    if ax is not None:
        raise TypeError(f"ax must be matplotlib's Axes or None, got {type(ax).__name__}.")
    return Figure(figsize=size, layout="constrained").add_subplot()


def tidy(ax, xlabel, ylabel):
    """Name the axes, remove the upper and right spines, add a light grid; return the figure."""
    ax.set_xlabel(xlabel)
    ax.set_ylabel(ylabel)
    ax.spines[["top", "right"]].set_visible(False)
    ax.grid(alpha=0.3)
    return ax.figure


def bare(ax):
    """Remove spines and ticks, for images."""
    ax.set_xticks([])
    ax.set_yticks([])
    ax.spines[:].set_visible(False)


def coloured(ax, values, label, quantile, shrink=1.0, **options):
    """Draw an image in red and blue, symmetric about 0, with a bar of its colours."""
    # A quantile: scaled by a single large value all others would be pale.
    sizes = abs(values[~np.isnan(values)])
    scale = (np.quantile(sizes, quantile) if len(sizes) else 0) or 1.0
    colours = {"cmap": "RdBu_r", "vmin": -scale, "vmax": scale, "interpolation": "nearest"}
    image = ax.imshow(values, **colours, **options)
    bar = ax.figure.colorbar(image, ax=ax, shrink=shrink, pad=0.02, extend="both", label=label)
    bar.outline.set_visible(False)


def forest(ax, values, spread, labels, **points):
    """Draw values with bars below each other, the first on top; return the axes and the points."""
    rows = range(len(values))
    ax = axes(ax, (6, 1.2 + 0.25 * len(values)))
    ax.errorbar(values, rows, xerr=spread, fmt="none", ecolor="0.6", zorder=1)
    dots = ax.scatter(values, rows, zorder=2, **points)
    ax.axvline(0, color="0.3", linewidth=0.8, zorder=0)
    ax.set_yticks(rows, labels)
    ax.invert_yaxis()
    return ax, dots


def names_of(names, n, what):
    """Names for all, by default numbers."""
    if names is None:
        return [str(k) for k in range(n)]
    if not hasattr(names, "__len__"):
        raise TypeError(f"names must be a sequence of str, got {names!r:.60}.")
    if len(names) != n:
        raise ValueError(f"names must name all {n} {what}, got {len(names)}.")
    return [str(name) for name in names]


def with_attributes(name, value, class_name, *attributes):
    """`value`, provided that it has what an object of a class has."""
    if isinstance(value, type) or not all(hasattr(value, attribute) for attribute in attributes):
        raise TypeError(f"{name} must be a {class_name}, got {type(value).__name__}.")
    return value


def mapping(name, value, what=None):
    """`value`, provided that it is a dict, and if `what` it holds is said, not an empty one."""
    if not isinstance(value, Mapping):
        raise TypeError(f"{name} must be a dict, got {type(value).__name__}.")
    if what and not value:
        raise ValueError(f"{name} must hold at least one {what}.")
    return value


def image_shape(shape):
    """Height and width of images, two integers of at least 1."""
    if not isinstance(shape, tuple | list) or len(shape) != 2:
        raise TypeError(f"shape must be (height, width), got {shape!r:.60}.")
    return tuple(count("shape", size) for size in shape)
