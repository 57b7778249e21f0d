"""Axes and their style."""


def axes(ax, size):
    """The caller's axes, or those of a new figure of this width and height in inches.

    Raises
    ------
    ImportError
        If matplotlib is not installed.
    """
    if ax is not None:
        return ax
    try:
        from matplotlib.figure import Figure
    except ModuleNotFoundError as error:
        raise ImportError("plotting needs matplotlib: pip install 'fastmf[plot]'") from error
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
    """As many names as needed, by default numbers.

    Raises
    ------
    ValueError
        If there are more names, or fewer.
    """
    if names is None:
        return [str(k) for k in range(n)]
    if len(names) != n:
        raise ValueError(f"names must name all {n} {what}, got {len(names)}.")
    return [str(name) for name in names]
