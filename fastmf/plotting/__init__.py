"""Plots of training, images, couplings, coefficients, sequences and log-partitions.

matplotlib is imported when a figure is drawn; pyplot is not used, so that no display is needed.
Functions return the `matplotlib.figure.Figure` of the argument `ax`, by default a new one, which
can be saved by `figure.savefig(path)`. `curves_by_epoch` and `free_energy_by_epoch` return the axes
instead.
"""

import math
from collections.abc import Mapping
from importlib import import_module

import numpy as np
from scipy.special import ndtri

from fastmf._common.arguments import count, number, one_of, proper_fraction, real_array
from fastmf.evaluation.contacts import ranked_pairs

__all__ = [
    "coefficient_forest",
    "contact_map",
    "coupling_network",
    "curves_by_epoch",
    "edge_forest",
    "free_energy_by_epoch",
    "image_rows",
    "learning_curve",
    "log_partitions",
    "mutation_matrix",
    "receptive_fields",
]


def axes(ax, size):
    """Return the given axes, or new ones in a figure of this width and height in inches."""
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
    ax.set(xlabel=xlabel, ylabel=ylabel)
    ax.spines[["top", "right"]].set_visible(False)
    ax.grid(alpha=0.3)
    return ax.figure


def bare(ax):
    """Remove spines and ticks, for images."""
    ax.set(xticks=[], yticks=[])
    ax.spines[:].set_visible(False)


def coloured(ax, values, label, quantile, shrink=1.0, **options):
    """Draw an image with a red-blue colour map that is symmetric about 0, and a colour bar."""
    # Scale by a quantile: scaled by the maximum, most values would be pale.
    sizes = abs(values[~np.isnan(values)])
    scale = (np.quantile(sizes, quantile) if len(sizes) else 0) or 1.0
    colours = {"cmap": "RdBu_r", "vmin": -scale, "vmax": scale, "interpolation": "nearest"}
    image = ax.imshow(values, **colours, **options)
    bar = ax.figure.colorbar(image, ax=ax, shrink=shrink, pad=0.02, extend="both", label=label)
    bar.outline.set_visible(False)


def forest(ax, values, spread, labels, **points):
    """Draw values with error bars, from top to bottom; return the axes and the points."""
    rows = range(len(values))
    ax = axes(ax, (6, 1.2 + 0.25 * len(values)))
    ax.errorbar(values, rows, xerr=spread, fmt="none", ecolor="0.6", zorder=1)
    dots = ax.scatter(values, rows, zorder=2, **points)
    ax.axvline(0, color="0.3", linewidth=0.8, zorder=0)
    ax.set_yticks(rows, labels)
    ax.invert_yaxis()
    return ax, dots


def names_of(names, n, what, argument="names"):
    """Return `n` names, by default numbers."""
    if names is None:
        return [str(k) for k in range(n)]
    if not hasattr(names, "__len__"):
        raise TypeError(f"{argument} must be a sequence of str, got {names!r:.60}.")
    if len(names) != n:
        raise ValueError(f"{argument} must name all {n} {what}, got {len(names)}.")
    return [str(name) for name in names]


def with_attributes(name, value, class_name, *attributes):
    """Return `value`; raise unless it has the attributes of a class."""
    if isinstance(value, type) or not all(hasattr(value, attribute) for attribute in attributes):
        raise TypeError(f"{name} must be a {class_name}, got {type(value).__name__}.")
    return value


def mapping(name, value, what=None):
    """Return `value`; raise unless it is a dict, or with `what`, a dict that is not empty."""
    if not isinstance(value, Mapping):
        raise TypeError(f"{name} must be a dict, got {type(value).__name__}.")
    if what and not value:
        raise ValueError(f"{name} must hold at least one {what}.")
    return value


# --- curves ---------------------------------------------------------------------------------------

# Keys of a history, and labels of the vertical axis.
_METRICS = {
    "log_likelihood": "log-likelihood per unit (nats)",
    "accuracy": "fraction of correct labels",
    "objective": "log-pseudo-likelihood less penalties",
}


def learning_curve(history, *, label=None, ax=None):
    """Plot log-likelihood or accuracy by epoch or iteration; dashed for validation data.

    Parameters
    ----------
    history : fitted estimator, dict of lists, or array of shape (n_iter,)
        An estimator with the attribute `history_`, or its value: a dict with "epoch" and
        "log_likelihood" (per unit) or "accuracy" (of labels), and optionally
        "validation_log_likelihood" or "validation_accuracy"; for machines without hidden units, the
        objective after each iteration.
    label : str, optional
        Name of the machine in the legend, for comparing several on the same `ax`.
    ax : matplotlib.axes.Axes, optional
        Axes to draw on; by default in a new figure.

    Returns
    -------
    matplotlib.figure.Figure

    Examples
    --------
    >>> import fastmf as mf
    >>> history = {"epoch": [1, 2, 3], "log_likelihood": [-0.6, -0.4, -0.3]}
    >>> figure = mf.plotting.learning_curve(history, label="TAP")
    >>> figure.axes[0].get_xlabel()
    'epoch'
    >>> X = mf.datasets.load_digits(binary=True).X
    >>> rbm = mf.GeneralizedRBM(8, n_epochs=2, random_state=0).fit(X)
    >>> figure = mf.plotting.learning_curve(rbm)
    """
    history, by = getattr(history, "history_", history), "epoch"
    if isinstance(history, list | np.ndarray):
        by, history = "iteration", {"objective": history}
        history["iteration"] = np.arange(1, len(history["objective"]) + 1)
    if not isinstance(history, Mapping):
        raise TypeError(
            "history must be a fitted estimator with history_, a dict or an array, got "
            f"{type(history).__name__}."
        )
    metric = next((name for name in _METRICS if name in history), None)
    if metric is None or by not in history:
        raise ValueError(
            f"history must have 'epoch' and 'log_likelihood' or 'accuracy', got {sorted(history)}."
        )
    steps, validation = real_array(by, history[by]), f"validation_{metric}"
    dashed = history.get(validation) is not None
    curves = [(metric, "-", label or ("training data" if by == "epoch" else None))]
    if dashed:
        curves.append((validation, "--", None if label else "validation data"))
    ax, colour = axes(ax, (6, 4)), None
    for name, style, text in curves:
        values = real_array(name, history[name])
        if values.shape != steps.shape or values.ndim != 1:
            raise ValueError(
                f"{name} must be one-dimensional and as long as {by}, got shapes {values.shape} "
                f"and {steps.shape}."
            )
        colour = ax.plot(steps, values, style, color=colour, label=text)[0].get_color()
    if by == "epoch" or label:
        ax.legend(frameon=False, title="dashed: validation data" if label and dashed else None)
    return tidy(ax, by, _METRICS[metric])


def curves_by_epoch(epoch, curves, *, errors=None, label="nats per unit", ax=None):
    """Plot several quantities by epoch, such as likelihoods by TAP and by annealing.

    Parameters
    ----------
    epoch : array of shape (n_epochs,)
    curves : dict of str to array of shape (n_epochs,)
    errors : dict of str to array of shape (n_epochs,), optional
        Standard errors, for any of the curves.
    label : str, default "nats per unit"
        Label of the vertical axis.
    ax : matplotlib.axes.Axes, optional
        Axes to draw on; by default in a new figure.

    Returns
    -------
    matplotlib.axes.Axes

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


def free_energy_by_epoch(epoch, solutions, *, ax=None):
    """Plot the free energies of the distinct solutions, and their number, by epoch.

    Parameters
    ----------
    epoch : array of shape (n_epochs,)
    solutions : sequence of Solutions
        One for each epoch, from `fastmf.evaluation.solutions`.
    ax : matplotlib.axes.Axes, optional
        Axes to draw on; by default in a new figure.

    Returns
    -------
    matplotlib.axes.Axes
        Dots are solutions, whose size grows with the number of starts that reach them; a second
        vertical axis shows their number.

    Notes
    -----
    See the figures on landscapes in Tramel et al. (2018), section VII.3.

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
    for result in with_attributes("solutions", solutions, "sequence", "__len__", "__iter__"):
        with_attributes("solutions", result, "sequence of Solutions", "free_energy", "visible")
    if len(epoch) != len(solutions) or not len(epoch):
        raise ValueError(
            f"solutions must have one entry an epoch, got {len(solutions)} for {len(epoch)} epochs."
        )
    ax = axes(ax, (6, 4))
    for x, result in zip(epoch, solutions, strict=True):
        n_hidden = 0 if result.hidden is None else result.hidden.shape[1]
        per_unit = result.free_energy / (result.visible.shape[1] + n_hidden)
        style = {"s": 8 + 8 * np.sqrt(result.counts), "color": "C0", "alpha": 0.35, "linewidths": 0}
        ax.scatter(np.full(len(per_unit), x), per_unit, **style)
    ax.xaxis.get_major_locator().set_params(integer=True)
    tidy(ax, "epoch", "free energy per unit (nats)")
    second = ax.twinx()
    second.plot(epoch, [len(result.free_energy) for result in solutions], color="C1")
    second.set(ylabel="distinct solutions", yscale="log")
    second.yaxis.label.set_color("C1")
    second.spines[["top"]].set_visible(False)
    return ax


def log_partitions(report, *, ax=None):
    """Plot log-partitions of a model by several methods, with bars of two standard errors.

    Parameters
    ----------
    report : LogPartitionReport
        Report of `fastmf.evaluation.log_partition_report`. The vertical line is its first entry,
        the exact value if there is one.
    ax : matplotlib.axes.Axes, optional
        Axes to draw on; by default in a new figure.

    Returns
    -------
    matplotlib.figure.Figure

    Examples
    --------
    >>> import numpy as np, fastmf as mf
    >>> model = mf.RBM(np.zeros((3, 2)), mf.Ising(np.zeros(3)), mf.Ising(np.zeros(2)))
    >>> report = mf.evaluation.log_partition_report(model, n_chains=10, n_steps=10)
    >>> figure = mf.plotting.log_partitions(report)
    >>> figure.axes[0].get_yticklabels()[0].get_text()
    'exact'
    """
    with_attributes("report", report, "LogPartitionReport", "__len__", "__getitem__")
    for entry in report:
        with_attributes("report", entry, "LogPartitionReport", "log_partition", "error", "name")
    if not len(report):
        raise ValueError("the report is empty.")
    rows = np.arange(len(report))
    values = np.array([entry.log_partition for entry in report], float)
    errors = np.array([entry.error or 0.0 for entry in report], float)
    finite = np.isfinite(values) & np.isfinite(errors)
    ax = axes(ax, (6, 1 + 0.3 * len(report)))
    if finite[0]:
        ax.axvline(values[0], color="0.6", linestyle=":", zorder=0)
    ax.errorbar(values[finite], rows[finite], xerr=2 * errors[finite], fmt="o", ecolor="0.5")
    ax.set_yticks(rows, [entry.name for entry in report])
    ax.set_ylim(len(report) - 0.5, -0.5)
    return tidy(ax, "log-partition (nats)", "estimate")


# --- images ---------------------------------------------------------------------------------------


def _mosaic(images, shape, columns):
    """Arrange images in a grid, as one image with one pixel of NaN between them."""
    if not isinstance(shape, tuple | list) or len(shape) != 2:
        raise TypeError(f"shape must be (height, width), got {shape!r:.60}.")
    images, (height, width) = real_array("images", images), (count("shape", n) for n in shape)
    if images.ndim != 2 or images.shape[1] != height * width or len(images) == 0:
        raise ValueError(
            f"images must have shape (n_images, {height * width}) for images of {height} x {width} "
            f"pixels, got {images.shape}."
        )
    rows = math.ceil(len(images) / columns)
    tiles = np.full((rows * columns, height + 1, width + 1), np.nan)
    tiles[: len(images), :height, :width] = images.reshape(-1, height, width)
    tiles = tiles.reshape(rows, columns, height + 1, width + 1).swapaxes(1, 2)
    return tiles.reshape(rows * (height + 1), columns * (width + 1))[:-1, :-1]


def receptive_fields(weights, shape, *, n_fields=100, columns=None, order=None, ax=None):
    """Plot the weights of hidden units as images with a common colour scale.

    Parameters
    ----------
    weights : fitted machine with hidden units, model, or array of shape (n_visible, n_hidden)
        Units of the first hidden layer are shown.
    shape : tuple of int
        Height and width of the visible units as an image.
    n_fields : int, default 100
        Largest number of units shown.
    columns : int, optional
        Number of images in a row; by default the grid is square.
    order : int array of shape (n_hidden,), optional
        Indices of hidden units in the order shown; by default by decreasing norm.
    ax : matplotlib.axes.Axes, optional
        Axes to draw on; by default in a new figure.

    Returns
    -------
    matplotlib.figure.Figure

    Examples
    --------
    >>> import numpy as np, fastmf as mf
    >>> weights = np.random.default_rng(0).normal(size=(64, 12))
    >>> figure = mf.plotting.receptive_fields(weights, (8, 8), n_fields=9)
    >>> figure.axes[0].images[0].get_array().shape
    (26, 26)
    """
    for name in ("weights_", "weights"):
        weights = getattr(weights, name, weights)
    weights = real_array("weights", weights[0] if isinstance(weights, tuple) else weights)
    n_fields = count("n_fields", n_fields)
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


def image_rows(rows, shape, *, ax=None):
    """Plot named rows of images, for example clean, noisy and denoised images.

    Parameters
    ----------
    rows : dict of str to array of shape (n_images, height * width)
        Rows with equal numbers of images; 0 is black, 1 white, and NaN blank.
    shape : tuple of int
        Height and width of each image.
    ax : matplotlib.axes.Axes, optional
        Axes to draw on; by default in a new figure.

    Returns
    -------
    matplotlib.figure.Figure

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
    # Rows are separated by a line of one pixel.
    height = (len(tiles) + 1) / len(rows)
    ax.set_yticks(height * np.arange(len(rows)) + height / 2 - 1, list(rows))
    ax.tick_params(length=0)
    return ax.figure


# --- couplings and coefficients -------------------------------------------------------------------

LAYOUTS = ("auto", "spring", "circle")
# Colours of positive and negative couplings in R's qgraph.
QGRAPH = ("#0000D5", "#BF0000")


def coupling_network(
    edges, *, names=None, groups=None, layout="auto", minimum=0.5, legend=True, ax=None,
    colours=("C3", "C0"),
):  # fmt: skip
    """Plot the network of features, with a line for each pair that is probably coupled.

    Parameters
    ----------
    edges : fitted machine or EdgeInclusion
        A `FullyVisibleBoltzmannMachine`, `OrdinalMachine` or `PottsMachine`, or the result of
        `edge_inclusion`. The width of a line shows the strength of the coupling, its opacity the
        probability from `minimum` to 1. Lines of Potts machines are grey.
    names : sequence of str of length n_features, optional
        Default: the machine's names, or numbers.
    groups : sequence of str of length n_features, optional
        Group of each feature; features of a group have the same colour.
    layout : {"auto", "spring", "circle"}, default "auto"
        "spring" places coupled features near each other, and needs networkx; "auto" is "spring" if
        networkx is installed.
    minimum : float, default 0.5
        Couplings with a smaller probability are not drawn.
    legend : bool, default True
        Add a legend of widths, colours and transparency.
    ax : matplotlib.axes.Axes, optional
        Axes to draw on; by default in a new figure.
    colours : pair of colours or "qgraph", default ("C3", "C0")
        Colours of positive and negative couplings: red and blue; with "qgraph", blue and red.

    Returns
    -------
    matplotlib.figure.Figure

    Examples
    --------
    >>> import numpy as np, fastmf as mf
    >>> rng = np.random.default_rng(0)
    >>> X = np.cumprod(np.where(rng.random((500, 4)) < 0.75, 1, -1), axis=1)  # a Markov chain
    >>> machine = mf.FullyVisibleBoltzmannMachine().fit(X)
    >>> figure = mf.plotting.coupling_network(machine, names="abcd")
    >>> len(figure.axes[0].lines)  # of neighbours
    3
    """
    one_of("layout", layout, LAYOUTS)
    colours = QGRAPH if isinstance(colours, str) and colours == "qgraph" else tuple(colours)
    if len(colours) != 2:
        raise ValueError(f'colours must be "qgraph" or two colours, got {colours!r:.60}.')
    minimum = number("minimum", minimum, 0, 1)
    tests = edges.edge_inclusion() if hasattr(edges, "edge_inclusion") else edges
    with_attributes("edges", tests, "machine or EdgeInclusion", "probability", "mean", "names")
    p, mean = np.asarray(tests.probability), np.asarray(tests.mean)
    first, second = pairs = np.nonzero(np.triu(p >= max(minimum, np.finfo(float).tiny), 1))
    if mean.shape == p.shape and hasattr(tests, "std"):
        coupling, colour_of = mean[pairs], np.where(mean[pairs] > 0, *colours)
    else:  # Potts machines: norms of couplings, or log Bayes factors if sizes differ
        colour_of = np.full(len(first), "0.4", object)
        norms = np.sqrt(np.square(mean).sum((1, 3))) if mean.ndim == 4 else tests.log_bayes_factor
        coupling = np.asarray(norms)[pairs]
    # Scale from `minimum`, as differences of opacity are hardly visible above one half.
    certainty = (p[pairs] - minimum) / (1 - minimum) if minimum < 1 else np.ones(len(first))
    alpha = 0.15 + 0.85 * certainty
    names = names_of(tests.names if names is None else names, len(p), "units")
    groups = [] if groups is None else names_of(groups, len(p), "units", "groups")
    ax = axes(ax, (6.5, 6) if legend or groups else (6, 6))
    x, y = _positions(len(p), first, second, coupling, layout)
    strongest = abs(coupling).max(initial=0) or 1.0
    for k in np.argsort(abs(coupling), kind="stable"):
        pair = [first[k], second[k]]
        ax.plot(
            x[pair], y[pair], color=colour_of[k], zorder=1, alpha=alpha[k],
            linewidth=5 * abs(coupling[k] / strongest), solid_capstyle="round",
        )  # fmt: skip
    colour_of_group = {name: f"C{(2 + k) % 10}" for k, name in enumerate(sorted(set(groups)))}
    ax.scatter(x, y, s=80, c=[colour_of_group[name] for name in groups] or "0.2", zorder=2)
    for name, right, up in zip(names, x, y, strict=True):
        side = "center" if abs(right) < 0.1 else "left" if right > 0 else "right"
        ax.text(right + 0.06 * np.sign(right), up + 0.06, name, ha=side, va="center")
    n_pairs = len(p) * (len(p) - 1) // 2
    title = f"{len(first)} of {n_pairs} couplings have a probability of {minimum:g} or more"
    ax.set(title=title, aspect="equal")
    ax.margins(0.2)
    bare(ax)
    if legend:
        signs = zip(("positive", "negative"), colours, strict=True)
        styles = [(n, {"color": c, "lw": 2.5}) for n, c in signs if (colour_of == c).any()]
        shares = (1.0, 0.5) if len(coupling) else ()
        for share in shares:
            styles.append((f"{strongest * share:.2g}", {"color": "0.4", "lw": 5 * share}))
        if (alpha < 1).any():
            styles.append(("uncertain", {"color": "0.2", "lw": 2.5, "alpha": alpha.min()}))
        for name, colour in colour_of_group.items():
            styles.append((name, {"color": colour, "marker": "o", "ls": ""}))
        _explain(ax, styles)
    return ax.figure


def _explain(ax, styles):
    """Draw a legend of lines beside the axes, which are usually full of lines and dots."""
    from matplotlib.lines import Line2D

    lines = [Line2D([], [], label=name, **style) for name, style in styles]
    if lines:
        ax.legend(handles=lines, frameon=False, loc="center left", bbox_to_anchor=(1, 0.5))


def _positions(n, first, second, coupling, layout):
    """Return positions on a circle, or of the spring layout of coupled features."""
    angle = np.pi / 2 - 2 * np.pi * np.arange(n) / n
    circle = np.cos(angle), np.sin(angle)
    if layout == "circle":
        return circle
    try:
        networkx = import_module("networkx")
    except ModuleNotFoundError as error:
        if layout == "auto":
            return circle
        raise ImportError("layout='spring' needs networkx: pip install networkx") from error
    graph = networkx.empty_graph(n)
    ends = zip(first.tolist(), second.tolist(), abs(coupling).tolist(), strict=True)
    graph.add_weighted_edges_from(ends)
    start = dict(enumerate(np.transpose(circle)))
    places = networkx.spring_layout(graph, pos=start, seed=0, iterations=200)
    return np.array([places[k] for k in range(n)]).T


def edge_forest(machine, *, level=0.95, n_top=30, names=None, ax=None):
    """Plot the strongest couplings with their confidence intervals.

    Parameters
    ----------
    machine : fitted FullyVisibleBoltzmannMachine or OrdinalMachine, or GroupComparison
        Couplings, or their differences, in {0, 1} coding; for binary units log-odds ratios.
    level : float
        Confidence level of the intervals, from sandwich standard errors.
    n_top : int, default 30
        Number of couplings drawn.
    names : sequence of str of length n_features, optional
        Default: the machine's names.
    ax : matplotlib.axes.Axes, optional
        Axes to draw on; by default in a new figure.

    Returns
    -------
    matplotlib.figure.Figure

    Examples
    --------
    >>> import numpy as np, fastmf as mf
    >>> rng = np.random.default_rng(0)
    >>> X = np.cumprod(np.where(rng.random((500, 4)) < 0.75, 1, -1), axis=1)  # a Markov chain
    >>> machine = mf.FullyVisibleBoltzmannMachine().fit(X)
    >>> figure = mf.plotting.edge_forest(machine, n_top=3)
    >>> len(figure.axes[0].get_yticklabels())
    3
    """
    level, n_top = proper_fraction("level", level), count("n_top", n_top)
    if np.ndim(getattr(machine, "difference", None)) == 2:
        title, given, n = "difference of couplings", machine.names, len(machine.names)
        first, second = np.nonzero(np.triu(machine.std) > 0)
        values, errors = machine.difference[first, second], machine.std[first, second]
    else:
        with_attributes("machine", machine, "machine of items", "edge_inclusion", "confint")
        given, n = getattr(machine, "feature_names_in_", None), machine.n_features_in_
        title, (first, second, values, errors) = "coupling", machine.test_couplings("holm")[:4]
        factor = machine._coupling_factor
        values, errors = factor * values, factor * errors
    names = names_of(given if names is None else names, n, "features")
    strongest = np.argsort(-abs(values), kind="stable")[:n_top]
    values, width = values[strongest], ndtri((1 + level) / 2) * errors[strongest]
    labels = [f"{names[first[k]]} - {names[second[k]]}" for k in strongest]
    ax, _ = forest(ax, values, width, labels, c=np.where(values > 0, "C3", "C0"), s=25)
    return tidy(ax, f"{title}, with {level:.0%} intervals", "pair of items")


def coefficient_forest(model, *, names=None, n_top=20, ax=None):
    """Plot posterior means of the most probable coefficients, with two standard deviations.

    Parameters
    ----------
    model : fitted spike-and-slab estimator
        The colour of a point shows the probability that the coefficient is not zero.
    names : sequence of str of length n_features, optional
        Default: names of the estimator's data frame, or numbers.
    n_top : int, default 20
        Number of coefficients drawn.
    ax : matplotlib.axes.Axes, optional
        Axes to draw on; by default in a new figure.

    Returns
    -------
    matplotlib.figure.Figure

    Examples
    --------
    >>> import numpy as np, fastmf as mf
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(40, 60))
    >>> y = 2 * X[:, 3] - X[:, 7] + 0.1 * rng.normal(size=40)
    >>> model = mf.SpikeSlabRegressor().fit(X, y)
    >>> figure = mf.plotting.coefficient_forest(model, n_top=5)
    >>> sorted(label.get_text() for label in figure.axes[0].get_yticklabels()[:2])
    ['3', '7']
    """
    with_attributes("model", model, "spike-and-slab estimator", "coef_var_")
    values, variances = np.ravel(model.coef_), np.ravel(model.coef_var_)
    probability, n_top = model.inclusion_probability_, count("n_top", n_top)
    names = getattr(model, "feature_names_in_", None) if names is None else names
    names = names_of(names, len(values), "coefficients")
    shown = np.lexsort((-abs(values), -probability))[:n_top]
    spread, labels = 2 * np.sqrt(variances[shown]), [names[k] for k in shown]
    colours = {"c": probability[shown], "cmap": "viridis_r", "vmin": 0, "vmax": 1}
    ax, points = forest(ax, values[shown], spread, labels, **colours)
    ax.figure.colorbar(points, ax=ax, label="inclusion probability")
    return tidy(ax, "coefficient (two standard deviations)", "feature")


# --- sequences ------------------------------------------------------------------------------------


def contact_map(scores, distances=None, *, n_top=None, separation=5, cutoff=8.0, ax=None):
    """Plot the pairs with the largest scores, and the true contacts.

    Parameters
    ----------
    scores : fitted PottsMachine, or array of shape (n_columns, n_columns)
        Symmetric; for example the result of `PottsMachine.contact_scores`, whose argument `ignore`
        is the state of gaps.
    distances : array of shape (n_columns, n_columns), optional
        If given, contacts are drawn in grey, and predicted pairs without a contact in another
        colour; pairs whose distance is unknown (NaN) are not drawn.
    n_top : int, optional
        Number of predicted pairs; by default the number of columns.
    separation : int, default 5
        Smallest ``|i - j|`` of these pairs.
    cutoff : float, default 8.0
        Pairs at a smaller distance are contacts.
    ax : matplotlib.axes.Axes, optional
        Axes to draw on; by default in a new figure.

    Returns
    -------
    matplotlib.figure.Figure

    Examples
    --------
    >>> import numpy as np, fastmf as mf
    >>> scores = np.exp(-0.1 * abs(np.arange(12)[:, None] - np.arange(12)))
    >>> figure = mf.plotting.contact_map(scores, n_top=3)
    >>> figure.axes[0].get_xlabel()
    'column'
    """
    if hasattr(scores, "contact_scores"):
        scores = scores.contact_scores()
    scores = real_array("scores", scores, missing=True)
    cutoff = number("cutoff", cutoff, -np.inf, np.inf)
    with_distance, n_top = None, count("n_top", n_top, optional=True)
    if distances is not None:
        distances = real_array("distances", distances, missing=True)
        if distances.shape != scores.shape:
            raise ValueError(
                f"distances must have the shape of scores, {scores.shape}, got {distances.shape}."
            )
        with_distance = ~np.isnan(distances)
    pairs = np.stack(ranked_pairs(scores, separation, with_distance))
    pairs = pairs[:, : len(scores) if n_top is None else n_top]
    ax = axes(ax, (5.5, 5.5))
    hit = np.ones(pairs.shape[1], bool)
    if distances is not None:
        contacts = np.argwhere(distances < cutoff)
        contacts = contacts[abs(contacts[:, 0] - contacts[:, 1]) >= separation] + 1
        ax.plot(*contacts.T, "s", color="0.8", markersize=3, label=f"distance < {cutoff:g}")
        hit = distances[tuple(pairs)] < cutoff
    kinds = (("C0", hit, "predicted"), ("C3", ~hit, "predicted, no contact"))
    for colour, which, label in kinds:
        if which.any():
            first, second = pairs[:, which] + 1
            both = np.r_[first, second], np.r_[second, first]
            ax.plot(*both, ".", color=colour, markersize=4, label=label)
    ends = 0.5, len(scores) + 0.5
    ax.set(xlim=ends, ylim=ends[::-1], aspect="equal", xlabel="column", ylabel="column")
    # Pairs far from the diagonal may fill the corners: place the legend outside.
    outside = {"loc": "lower center", "bbox_to_anchor": (0.5, 1), "ncols": 3, "fontsize": "small"}
    if ax.get_legend_handles_labels()[0]:  # there may be no pairs if columns are few
        ax.legend(frameon=False, **outside)
    return ax.figure


def mutation_matrix(effects, alphabet=None, *, sequence=None, ax=None):
    """Plot the effects of all single mutations of a sequence, with colours symmetric about 0.

    Parameters
    ----------
    effects : fitted PottsMachine, or array of shape (n_columns, n_states)
        Effects, for example changes of the log-probability; NaN is white. For a machine, they are
        computed for the mutations of `sequence`.
    alphabet : str, optional
        Letters of the states; needed unless the machine has an alphabet (``fastmf dca``).
    sequence : int array of shape (n_columns,), optional
        States of the sequence that is mutated, marked by dots; -1 for unknown states, which are not
        allowed for a machine.
    ax : matplotlib.axes.Axes, optional
        Axes to draw on; by default in a new figure.

    Returns
    -------
    matplotlib.figure.Figure

    Examples
    --------
    >>> import numpy as np, fastmf as mf
    >>> effects = np.array([[0.0, -1.0, 0.5, -2.0], [-0.3, 0.0, 0.1, 0.2]])
    >>> figure = mf.plotting.mutation_matrix(effects, "ACGU", sequence=[0, 1])
    >>> [label.get_text() for label in figure.axes[0].get_yticklabels()]
    ['A', 'C', 'G', 'U']
    >>> X = np.random.default_rng(0).integers(0, 4, (200, 6))
    >>> machine = mf.PottsMachine(l2=0.01).fit(X)
    >>> figure = mf.plotting.mutation_matrix(machine, "ACGU", sequence=X[0])
    """
    if hasattr(effects, "mutants"):
        if sequence is None:
            raise ValueError("sequence is needed beside a machine: the states that are mutated.")
        alphabet = getattr(effects, "alphabet_", None) if alphabet is None else alphabet
        effects = effects.mutants(sequence)
    if not isinstance(alphabet, str):
        error = ValueError if alphabet is None else TypeError
        raise error(f"alphabet is needed, the letters of the states, got {alphabet!r:.40}.")
    effects = real_array("effects", effects, missing=True)
    if effects.ndim != 2 or effects.size == 0 or np.isinf(effects).any():
        raise ValueError(
            f"effects must have shape (n_columns, n_states), and be finite, got {effects.shape}."
        )
    if len(alphabet) != effects.shape[1]:
        raise ValueError(
            f"effects has {effects.shape[1]} states, but the alphabet {alphabet} {len(alphabet)} "
            "letters."
        )
    n_columns, n_states = effects.shape
    ax = axes(ax, (max(4, min(16, 0.1 * n_columns + 2)), max(2, 0.17 * n_states + 0.8)))
    extent = (0.5, n_columns + 0.5, n_states - 0.5, -0.5)
    label = "change of log-probability (nats)"
    coloured(ax, effects.T, label, quantile=0.99, extent=extent, aspect="auto")
    if sequence is not None:
        states = real_array("sequence", sequence)
        if states.shape != (n_columns,) or states.dtype.kind not in "iu":
            raise ValueError(f"sequence must be {n_columns} integer states, got {states!r:.60}.")
        if states.max(initial=-1) >= n_states:
            raise ValueError(f"sequence has the state {states.max()}, of {n_states} from 0.")
        sites = np.flatnonzero(states >= 0)
        ax.plot(sites + 1, states[sites], "o", color="k", markersize=1.5, label="sequence")
    ax.set(xlabel="column", ylabel="mutated to")
    ax.set_yticks(np.arange(n_states), list(alphabet), fontsize="x-small")
    ax.tick_params(axis="y", length=0)
    ax.xaxis.get_major_locator().set_params(integer=True)
    ax.spines[:].set_visible(False)
    return ax.figure
