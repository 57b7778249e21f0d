"""Networks of couplings, and couplings and coefficients with their intervals."""

from importlib import import_module

import numpy as np
from scipy.special import ndtri

from fastmf._common.arguments import count, number, one_of, proper_fraction
from fastmf.plotting._axes import axes, bare, drawing, forest, names_of, tidy, with_attributes

LAYOUTS = ("auto", "spring", "circle")
# Of positive and negative couplings in R's qgraph.
QGRAPH = ("#0000D5", "#BF0000")


@drawing
def coupling_network(
    edges, *, names=None, groups=None, layout="auto", minimum=0.5, legend=True, ax=None,
    colours=("C3", "C0"),
):  # fmt: skip
    """Features as dots, and lines between those whose couplings differ from zero.

    Parameters
    ----------
    edges : fitted machine or EdgeInclusion
        A `FullyVisibleBoltzmannMachine`, `OrdinalMachine` or `PottsMachine`, or the result of
        `edge_inclusion`: the more probable a coupling, from `minimum` to 1, the less transparent
        its line. Lines are grey for pairs of positions of a Potts machine, and the wider the
        stronger.
    names : sequence of str of length n_features, optional
        Default: the machine's names, or numbers.
    groups : sequence of str of length n_features, optional
        Groups of the features, which have a colour each.
    layout : {"auto", "spring", "circle"}, default "auto"
        Coupled features are near each other in "spring", which needs networkx; "auto" is "spring"
        if networkx is installed.
    minimum : float, default 0.5
        Couplings with a smaller probability are not drawn.
    legend : bool, default True
        Whether to explain widths, colours and transparency.
    %(ax)s
    colours : pair of colours or "qgraph", default ("C3", "C0")
        Of positive and negative couplings: red and blue, or qgraph's, which are blue and red.

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
    else:  # pairs of positions: norms of couplings, or their evidence if sizes differ
        colour_of = np.full(len(first), "0.4", object)
        norms = np.sqrt(np.square(mean).sum((1, 3))) if mean.ndim == 4 else tests.log_bayes_factor
        coupling = np.asarray(norms)[pairs]
    # From the least probable coupling that may be drawn: above one half few alphas differ visibly.
    certainty = (p[pairs] - minimum) / (1 - minimum) if minimum < 1 else np.ones(len(first))
    alpha = 0.15 + 0.85 * certainty
    names = names_of(tests.names if names is None else names, len(p), "units")
    if groups is not None:
        groups = names_of(groups, len(p), "units")
    ax = axes(ax, (6.5, 6) if legend or groups else (6, 6))
    x, y = _positions(len(p), first, second, coupling, layout)
    strongest = abs(coupling).max(initial=0) or 1.0
    for k in np.argsort(abs(coupling), kind="stable"):
        pair = [first[k], second[k]]
        ax.plot(
            x[pair], y[pair], color=colour_of[k], zorder=1, alpha=alpha[k],
            linewidth=5 * abs(coupling[k] / strongest), solid_capstyle="round",
        )  # fmt: skip
    kinds = sorted(set(groups)) if groups is not None else []
    dots = [f"C{(2 + kinds.index(group)) % 10}" for group in groups] if kinds else "0.2"
    ax.scatter(x, y, s=80, c=dots, zorder=2)
    for name, right, up in zip(names, x, y, strict=True):
        side = "center" if abs(right) < 0.1 else ("left" if right > 0 else "right")
        ax.text(right + 0.06 * np.sign(right), up + 0.06, name, ha=side, va="center")
    n_pairs = len(p) * (len(p) - 1) // 2
    ax.set_title(f"{len(first)} of {n_pairs} couplings have a probability of {minimum:g} or more")
    ax.set_aspect("equal")
    ax.margins(0.2)
    bare(ax)
    if legend:
        signs = zip(("positive", "negative"), colours, strict=True)
        styles = [(n, {"color": c, "lw": 2.5}) for n, c in signs if (colour_of == c).any()]
        for share in (1.0, 0.5) if len(coupling) else ():
            styles.append((f"{strongest * share:.2g}", {"color": "0.4", "lw": 5 * share}))
        if (alpha < 1).any():
            styles.append(("uncertain", {"color": "0.2", "lw": 2.5, "alpha": alpha.min()}))
        markers = ((kind, f"C{(2 + k) % 10}") for k, kind in enumerate(kinds))
        styles += [(kind, {"color": c, "marker": "o", "ls": ""}) for kind, c in markers]
        _explain(ax, styles)
    return ax.figure


def _explain(ax, styles):
    """Draw a legend of lines by their names, beside the axes: lines and dots usually fill them."""
    from matplotlib.lines import Line2D

    lines = [Line2D([], [], label=name, **style) for name, style in styles]
    if lines:
        ax.legend(handles=lines, frameon=False, loc="center left", bbox_to_anchor=(1, 0.5))


def _positions(n, first, second, coupling, layout):
    """Places on a circle, or where springs between coupled features are at rest."""
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
    graph = networkx.Graph()
    graph.add_nodes_from(range(n))
    ends = zip(first.tolist(), second.tolist(), abs(coupling).tolist(), strict=True)
    graph.add_weighted_edges_from(ends)
    start = dict(enumerate(np.transpose(circle)))
    places = networkx.spring_layout(graph, pos=start, seed=0, iterations=200)
    return np.array([places[k] for k in range(n)]).T


@drawing
def edge_forest(machine, *, level=0.95, n_top=30, names=None, ax=None):
    """Couplings with their confidence intervals, the strongest on top.

    Parameters
    ----------
    machine : fitted FullyVisibleBoltzmannMachine or OrdinalMachine, or GroupComparison
        Couplings, or their differences, in {0, 1} coding: log-odds ratios of binary units.
    level : float
        Probability of the intervals, by the sandwich formula.
    n_top : int, default 30
        How many are drawn.
    names : sequence of str of length n_features, optional
        Default: the machine's names.
    %(ax)s

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
    top = np.argsort(-abs(values), kind="stable")[:n_top]
    values, width = values[top], ndtri((1 + level) / 2) * errors[top]
    labels = [f"{names[first[k]]} - {names[second[k]]}" for k in top]
    ax, _ = forest(ax, values, width, labels, c=np.where(values > 0, "C3", "C0"), s=25)
    return tidy(ax, f"{title}, with {level:.0%} intervals", "pair of items")


@drawing
def coefficient_forest(model, *, names=None, n_top=20, ax=None):
    """Posterior means of the most probable coefficients, with bars of two standard deviations.

    Parameters
    ----------
    model : fitted spike-and-slab estimator
        The darker a point, the more probable it is that the coefficient is not zero.
    names : sequence of str of length n_features, optional
        Default: names of the estimator's data frame, or numbers.
    n_top : int, default 20
        How many are drawn.
    %(ax)s

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
    top = np.lexsort((-abs(values), -probability))[:n_top]
    spread, labels = 2 * np.sqrt(variances[top]), [names[k] for k in top]
    colours = {"c": probability[top], "cmap": "viridis_r", "vmin": 0, "vmax": 1}
    ax, points = forest(ax, values[top], spread, labels, **colours)
    ax.figure.colorbar(points, ax=ax, label="inclusion probability")
    return tidy(ax, "coefficient (two standard deviations)", "feature")
