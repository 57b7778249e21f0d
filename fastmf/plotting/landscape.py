"""Free-energy landscapes: solutions by epoch, maps of them, and the data in their basins."""

import numpy as np

from fastmf._common.arguments import count, real_array
from fastmf.plotting._axes import (
    axes,
    bare,
    drawing,
    image_shape,
    mapping,
    strips,
    tidy,
    with_attributes,
)
from fastmf.plotting.images import mosaic


@drawing
def curves_by_epoch(epoch, curves, *, errors=None, label="nats per unit", ax=None):
    """Several measures by epoch or another number, such as likelihoods by TAP and by annealing.

    Parameters
    ----------
    epoch : array of shape (n_epochs,)
    curves : dict of str to array of shape (n_epochs,)
    errors : dict of str to array of shape (n_epochs,), optional
        Standard errors of some of them.
    label : str, default "nats per unit"
        Label of the vertical axis.
    %(axes)s

    Examples
    --------
    >>> import fastmf as mf
    >>> axes = mf.plotting.curves_by_epoch([1, 2], {"TAP": [-0.5, -0.4], "AIS": [-0.6, -0.5]})
    >>> axes.get_ylabel()
    'nats per unit'
    """
    ax, epoch = axes(ax, (6, 4)), real_array("epoch", epoch)
    errors = {} if errors is None else mapping("errors", errors)
    for name, values in mapping("curves", curves, "curve").items():
        values = real_array(f"curves[{name!r}]", values)
        if np.shape(values) != np.shape(epoch):
            raise ValueError(
                f"curves[{name!r}] must have one value an epoch, got shapes {np.shape(values)} "
                f"and {np.shape(epoch)}."
            )
        ax.errorbar(epoch, values, errors.get(name), label=name, marker=".", capsize=2)
    ax.xaxis.get_major_locator().set_params(integer=epoch.dtype.kind in "iu")
    ax.legend(frameon=False)
    tidy(ax, "epoch", label)
    return ax


@drawing
def free_energy_by_epoch(epoch, solutions, *, ax=None):
    """Free energies of the distinct solutions, epoch by epoch, and how many there are.

    Parameters
    ----------
    epoch : array of shape (n_epochs,)
    solutions : sequence of Solutions
        One for each epoch, from `fastmf.evaluation.solutions`.
    %(axes)s
        Its dots are solutions, larger if more starts led to them; on a second vertical axis their
        number.

    Notes
    -----
    As in the figures on landscapes of Tramel et al. (2018), section VII.3.

    Examples
    --------
    >>> import numpy as np, fastmf as mf
    >>> ferromagnet = mf.BoltzmannMachine(3 * (1 - np.eye(16)) / 16, mf.Ising(np.zeros(16)))
    >>> starts = np.where(np.random.default_rng(0).random((40, 16)) < 0.5, 1.0, -1.0)
    >>> found = mf.evaluation.solutions(ferromagnet, starts)
    >>> axes = mf.plotting.free_energy_by_epoch([1], [found])
    >>> axes.get_ylabel()
    'free energy per unit (nats)'
    """
    epoch = np.atleast_1d(real_array("epoch", epoch))
    for one in with_attributes("solutions", solutions, "sequence", "__len__", "__iter__"):
        with_attributes("solutions", one, "sequence of Solutions", "free_energy", "visible")
    if len(epoch) != len(solutions) or not len(epoch):
        raise ValueError(
            f"solutions must have one entry an epoch, got {len(solutions)} for {len(epoch)} epochs."
        )
    ax = axes(ax, (6, 4))
    for when, one in zip(epoch, solutions, strict=True):
        per_unit = one.free_energy / _n_units(one)
        ax.scatter(
            np.full(len(per_unit), when), per_unit, s=_area(one.counts), color="C0", alpha=0.35,
            linewidths=0,
        )  # fmt: skip
    ax.xaxis.get_major_locator().set_params(integer=True)
    tidy(ax, "epoch", "free energy per unit (nats)")
    second = ax.twinx()
    second.plot(epoch, [len(one.free_energy) for one in solutions], color="C1")
    second.set_ylabel("distinct solutions", color="C1")
    second.set_yscale("log")
    second.spines[["top"]].set_visible(False)
    return ax


@drawing
def solution_map(points, solutions, *, shape=None, n_images=12, ax=None):
    """Solutions on a map, coloured by free energy, and a few of them as images.

    Parameters
    ----------
    points : array of shape (n_solutions, 2)
        Where each solution is, for instance by `sklearn.manifold.Isomap`.
    solutions : Solutions
    shape : tuple of int, optional
        Height and width of the visible units as an image; without it there are no images.
    n_images : int, default 12
        Solutions shown as images, far from each other on the map.
    %(axes)s

    Examples
    --------
    >>> import numpy as np, fastmf as mf
    >>> ferromagnet = mf.BoltzmannMachine(3 * (1 - np.eye(16)) / 16, mf.Ising(np.zeros(16)))
    >>> starts = np.where(np.random.default_rng(0).random((40, 16)) < 0.5, 1.0, -1.0)
    >>> found = mf.evaluation.solutions(ferromagnet, starts)
    >>> points = np.arange(2.0 * len(found.free_energy)).reshape(-1, 2)
    >>> axes = mf.plotting.solution_map(points, found, shape=(4, 4))
    >>> len(axes.figure.axes)  # and the bar of colours
    2
    """
    with_attributes("solutions", solutions, "Solutions", "free_energy", "visible", "counts")
    points = real_array("points", points)
    if points.shape != (len(solutions.free_energy), 2):
        raise ValueError(
            f"points must have shape ({len(solutions.free_energy)}, 2), got {points.shape}."
        )
    ax = axes(ax, (7, 6))
    dots = ax.scatter(
        *points.T, s=_area(solutions.counts), c=solutions.free_energy / _n_units(solutions),
        cmap="viridis",
    )  # fmt: skip
    ax.figure.colorbar(dots, ax=ax, label="free energy per unit (nats)", shrink=0.8)
    n_images = count("n_images", n_images)
    if shape is not None:
        shape = image_shape(shape)
        from matplotlib.offsetbox import AnnotationBbox, OffsetImage

        zoom = max(1.0, 24 / max(shape))  # to 24 points at least
        for k in _farthest_points(points, n_images):
            pixels = solutions.visible[k].reshape(shape)
            image = OffsetImage(pixels, zoom=zoom, cmap="gray_r", interpolation="nearest")
            ax.add_artist(AnnotationBbox(image, points[k], pad=0.1))
    bare(ax)
    ax.set_xlabel("first coordinate")
    ax.set_ylabel("second coordinate")
    return ax


@drawing
def solutions_and_data(solutions, X, shape, *, n_solutions=10, n_data=12, ax=None):
    """The solutions most starts lead to, each followed by data that lead to it.

    Parameters
    ----------
    solutions : Solutions
    X : array of shape (n_starts, height * width)
        The starts.
    shape : tuple of int
        Height and width of the visible units as an image.
    n_solutions, n_data : int
        Rows, and data in each.
    %(axes)s

    Examples
    --------
    >>> import numpy as np, fastmf as mf
    >>> ferromagnet = mf.BoltzmannMachine(3 * (1 - np.eye(16)) / 16, mf.Ising(np.zeros(16)))
    >>> starts = np.where(np.random.default_rng(0).random((40, 16)) < 0.5, 1.0, -1.0)
    >>> found = mf.evaluation.solutions(ferromagnet, starts)
    >>> axes = mf.plotting.solutions_and_data(found, starts, (4, 4), n_data=5)
    >>> len(axes.get_yticklabels()) == len(found.free_energy)
    True
    """
    with_attributes("solutions", solutions, "Solutions", "members", "visible", "counts")
    X, shape = np.atleast_1d(real_array("X", X)), image_shape(shape)
    n_solutions, n_data = count("n_solutions", n_solutions), count("n_data", n_data)
    if len(X) != len(solutions.members):
        raise ValueError(f"X must have {len(solutions.members)} rows, got {len(X)}.")
    most = np.argsort(-solutions.counts, kind="stable")[:n_solutions]
    rows = []
    for k in most:
        data = X[solutions.members == k][:n_data]
        blank = np.full((n_data - len(data), X.shape[1]), np.nan)
        rows.append(np.vstack([solutions.visible[k], data, blank]))
    tiles = mosaic(np.concatenate(rows), shape, n_data + 1)
    ax = strips(ax, tiles, [f"{n} of {len(X)}" for n in solutions.counts[most]])
    ax.axvline(shape[1] + 0.25, color="C1")
    ax.set_xlabel("solution, and data that lead to it")
    ax.set_ylabel("number of data")
    return ax


def _n_units(solutions):
    hidden = 0 if solutions.hidden is None else solutions.hidden.shape[1]
    return solutions.visible.shape[1] + hidden


def _area(counts):
    """Area of a dot, in points, for a number of starts."""
    return 8 + 8 * np.sqrt(counts)


def _farthest_points(points, n):
    """Indices of points far from each other: each the farthest from those before it."""
    chosen = [0]
    distance = np.full(len(points), np.inf)
    while len(chosen) < min(n, len(points)):
        distance = np.minimum(distance, ((points - points[chosen[-1]]) ** 2).sum(1))
        chosen.append(int(distance.argmax()))
    return chosen
