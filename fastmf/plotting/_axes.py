"""Axes and their style, and checks of what is drawn."""

from collections.abc import Mapping

from fastmf._common.arguments import count


def axes(ax, size):
    """The caller's axes, or those of a new figure of this width and height in inches."""
    try:
        from matplotlib.axes import Axes
        from matplotlib.figure import Figure
    except ModuleNotFoundError as error:
        raise ImportError("plotting needs matplotlib: pip install 'fastmf[plot]'") from error
    if isinstance(ax, Axes):
        return ax
    if ax is not None:
        raise TypeError(f"ax must be matplotlib's Axes or None, got {type(ax).__name__}.")
    return Figure(figsize=size, layout="constrained").add_subplot()


def tidy(ax):
    """Remove the upper and right spines and add a light grid."""
    ax.spines[["top", "right"]].set_visible(False)
    ax.grid(alpha=0.3)


def bare(ax):
    """Remove spines and ticks, for images."""
    ax.set_xticks([])
    ax.set_yticks([])
    ax.spines[:].set_visible(False)


def names_of(names, n, what):
    """As many names as needed, by default numbers."""
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
