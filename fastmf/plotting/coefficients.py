"""Coefficients of sparse regressions: of one fit with their deviations, and along a parameter."""

import numpy as np

from fastmf._common.arguments import count, real_array
from fastmf.plotting._axes import axes, drawing, forest, names_of, tidy

# Area of a dot of probability 1, in square points.
MAX_AREA = 45.0


@drawing
def coefficient_forest(
    coefficients, deviations=None, inclusion_probability=None, *, names=None, n_top=20, ax=None
):
    """Posterior means of the largest coefficients, with bars of two standard deviations.

    Parameters
    ----------
    coefficients : fitted spike-and-slab estimator, or array of shape (n_features,)
        An estimator of one target brings deviations, inclusion probabilities and names; or
        estimates of any other.
    deviations : array of shape (n_features,)
        Standard errors of the estimates; not for an estimator.
    inclusion_probability : array of shape (n_features,), optional
        The darker a point, the more probable it is that the coefficient is not zero; the most
        probable are on top. Default: the largest in absolute value are on top.
    names : sequence of str of length n_features, optional
        Default: names of the estimator's data frame, or numbers.
    n_top : int, default 20
        How many are drawn.
    %(ax)s

    Raises
    ------
    ValueError
        If arrays or names are not one for each coefficient.

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
    if hasattr(coefficients, "coef_var_"):
        if deviations is not None or inclusion_probability is not None:
            raise ValueError(
                "deviations and inclusion_probability are those of the fitted estimator: leave "
                "them out."
            )
        model = coefficients
        coefficients, deviations = np.squeeze(model.coef_), np.sqrt(np.squeeze(model.coef_var_))
        inclusion_probability = np.squeeze(model.inclusion_probability_)
        names = getattr(model, "feature_names_in_", None) if names is None else names
    elif deviations is None:
        raise ValueError(
            "deviations are needed beside an array of coefficients; or give a fitted estimator "
            "in its place."
        )
    values = _one_axis("coefficients", coefficients)
    spread = _one_axis("deviations", deviations, values.shape)
    shown = inclusion_probability is not None
    weight = abs(values)
    if shown:
        weight = _one_axis("inclusion_probability", inclusion_probability, values.shape)
    n_top = count("n_top", n_top)
    names = names_of(names, len(values), "coefficients")
    top = np.lexsort((-abs(values), -weight))[:n_top]
    colours = dict(c=weight[top], cmap="viridis_r", vmin=0, vmax=1) if shown else dict(color="C0")
    labels = [names[k] for k in top]
    ax, points = forest(ax, values[top], 2 * spread[top], labels, **colours)
    if shown:
        ax.figure.colorbar(points, ax=ax, label="inclusion probability")
    return tidy(ax, "coefficient (two standard deviations)", "feature")


@drawing
def coefficient_paths(
    parameter,
    coefficients,
    inclusion_probability=None,
    *,
    names=None,
    n_named=8,
    label=None,
    ax=None,
):
    """Coefficients of several fits against the parameter in which these differ.

    Parameters
    ----------
    parameter : array of shape (n_fits,)
        Such as expected model sizes; the axis is logarithmic if all are positive.
    coefficients : sequence of fitted spike-and-slab estimators, or array (n_fits, n_features)
        Estimators of one target bring inclusion probabilities and names.
    inclusion_probability : array of shape (n_fits, n_features), optional
        The larger a dot, the more probable it is that the coefficient is not zero; the coloured
        are then the most probable. A dot of probability 1 is in the legend.
    names : sequence of str of length n_features, optional
        Default: names of the estimators' data frame, or numbers.
    n_named : int, default 8
        The largest in absolute value are coloured and named, all others are grey.
    label : str, optional
        Name of the parameter.
    %(ax)s

    Raises
    ------
    ValueError
        If there is not one row of coefficients for each value of the parameter, or probabilities
        are not in [0, 1], one for each coefficient.

    Examples
    --------
    >>> import numpy as np, fastmf as mf
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(40, 10))
    >>> y = 2 * X[:, 3] - X[:, 7] + 0.1 * rng.normal(size=40)
    >>> sizes = [0.1, 1, 5]
    >>> fits = [mf.SpikeSlabRegressor(expected_model_size=size).fit(X, y) for size in sizes]
    >>> figure = mf.plotting.coefficient_paths(sizes, fits, n_named=2, label="model size")
    >>> [text.get_text() for text in figure.axes[0].get_legend().get_texts()]
    ['3', '7', 'inclusion probability 1']
    """
    parameter = _one_axis("parameter", parameter)
    if len(coefficients) and all(hasattr(fit, "coef_var_") for fit in coefficients):
        if inclusion_probability is not None:
            raise ValueError("leave out inclusion_probability: fitted estimators have it.")
        fits = coefficients
        names = getattr(fits[0], "feature_names_in_", None) if names is None else names
        coefficients = [np.squeeze(fit.coef_) for fit in fits]
        inclusion_probability = [np.squeeze(fit.inclusion_probability_) for fit in fits]
    paths, n_named = real_array("coefficients", coefficients), count("n_named", n_named, 0)
    if paths.ndim != 2 or len(paths) != len(parameter) or not paths.size:
        raise ValueError(
            f"coefficients must have shape ({len(parameter)}, n_features), got {paths.shape}."
        )
    names = names_of(names, paths.shape[1], "coefficients")
    size, shown = abs(paths).max(0), inclusion_probability is not None
    order = np.argsort(-size, kind="stable")
    if shown:
        probability = real_array("inclusion_probability", inclusion_probability)
        if probability.shape != paths.shape or not ((probability >= 0) & (probability <= 1)).all():
            raise ValueError(
                f"inclusion_probability must have shape {paths.shape} and values in [0, 1], got "
                f"shape {probability.shape}."
            )
        order = np.lexsort((-size, -probability.max(0)))
    ax = axes(ax, (7, 4))
    if len(order) > n_named:
        ax.plot(parameter, paths[:, order[n_named:]], color="0.8", linewidth=0.8, zorder=1)
    for k in order[:n_named]:
        (line,) = ax.plot(parameter, paths[:, k], label=names[k], zorder=2)
        if shown:
            areas = MAX_AREA * probability[:, k]
            ax.scatter(parameter, paths[:, k], s=areas, color=line.get_color(), zorder=3)
    if shown and n_named > 0:
        ax.scatter([], [], s=MAX_AREA, color="0.5", label="inclusion probability 1")
    if (parameter > 0).all():
        ax.set_xscale("log")
    ax.axhline(0, color="0.3", linewidth=0.8, zorder=0)
    if n_named > 0:
        # Beside the axes: paths usually fill them.
        ax.legend(frameon=False, loc="center left", bbox_to_anchor=(1, 0.5))
    return tidy(ax, label or "parameter", "coefficient")


def _one_axis(name, values, shape=None):
    values = real_array(name, values)
    if values.ndim != 1 or not values.size or (shape is not None and values.shape != shape):
        raise ValueError(f"{name} must be one-dimensional, one entry each, got {values.shape}.")
    return values.astype(float)
