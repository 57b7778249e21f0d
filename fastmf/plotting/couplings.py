"""The network of significant couplings."""

import numpy as np

from fastmf._common.arguments import number
from fastmf.plotting._axes import axes, bare, names_of, with_attributes

# Width of the line of the strongest coupling, in points.
MAX_WIDTH = 4.0


def coupling_network(tests, *, level=0.05, names=None, ax=None):
    """Units on a circle, and lines between those whose couplings differ from zero.

    Parameters
    ----------
    tests : CouplingTests
        Result of the method `test_couplings` of `FullyVisibleBoltzmannMachine`.
    level : float, default 0.05
        Couplings with an adjusted p-value below are drawn: red if positive, blue if negative, the
        wider the stronger.
    names : sequence of str of length n_units, optional
        Such as `feature_names_in_` of the machine. Default: numbers.
    ax : matplotlib.axes.Axes, optional
        Where to draw.

    Returns
    -------
    matplotlib.figure.Figure

    Raises
    ------
    ValueError
        If there is no coupling, `level` is not in (0, 1], or names are missing.
    ImportError
        If matplotlib is not installed.

    Examples
    --------
    >>> import numpy as np, fastmf as mf
    >>> rng = np.random.default_rng(0)
    >>> X = np.cumprod(np.where(rng.random((500, 4)) < 0.75, 1, -1), axis=1)  # a Markov chain
    >>> machine = mf.FullyVisibleBoltzmannMachine().fit(X)
    >>> figure = mf.plotting.coupling_network(machine.test_couplings(), names="abcd")
    >>> len(figure.axes[0].lines)  # of neighbours
    3
    """
    with_attributes("tests", tests, "CouplingTests", "first", "second", "coupling", "adjusted")
    first, second = (np.asarray(units, int) for units in (tests.first, tests.second))
    if not len(first):
        raise ValueError("tests must hold at least one coupling.")
    level = number("level", level, 0, 1)
    if level == 0:
        raise ValueError(f"level must be in (0, 1], got {level}.")
    n_units = int(max(first.max(), second.max())) + 1
    names = names_of(names, n_units, "units")
    angle = np.pi / 2 - 2 * np.pi * np.arange(n_units) / n_units
    x, y = np.cos(angle), np.sin(angle)
    coupling = np.asarray(tests.coupling)
    drawn = np.flatnonzero(np.asarray(tests.adjusted) < level)
    strongest = abs(coupling[drawn]).max(initial=0.0) or 1.0
    ax = axes(ax, (6, 6))
    for k in drawn[np.argsort(abs(coupling[drawn]), kind="stable")]:
        pair, fraction = [first[k], second[k]], abs(coupling[k]) / strongest
        ax.plot(
            x[pair], y[pair], color="C3" if coupling[k] > 0 else "C0", zorder=1,
            linewidth=MAX_WIDTH * fraction, alpha=0.4 + 0.6 * fraction, solid_capstyle="round",
        )  # fmt: skip
    ax.scatter(x, y, s=60, color="0.2", zorder=2)
    for name, right, up in zip(names, x, y, strict=True):
        side = "center" if abs(right) < 0.1 else ("left" if right > 0 else "right")
        ax.text(1.08 * right, 1.08 * up, name, ha=side, va="center")
    ax.set_title(f"{len(drawn)} of {len(first)} couplings differ from zero ($p$ < {level:g})")
    ax.set_aspect("equal")
    ax.margins(0.2)
    bare(ax)
    return ax.figure
