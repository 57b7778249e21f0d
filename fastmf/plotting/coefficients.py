"""Coefficients of sparse regressions: of one fit with their deviations, and along a parameter."""

import numpy as np

from fastmf._common.arguments import count, real_array
from fastmf.plotting._axes import drawing, forest, names_of, tidy


@drawing
def coefficient_forest(
    coefficients, deviations=None, inclusion_probability=None, *, names=None, n_top=20, ax=None
):
    """Posterior means of the largest coefficients, with bars of two standard deviations.

    Parameters
    ----------
    coefficients : fitted spike-and-slab estimator, or array of shape (n_features,)
        An estimator brings deviations, inclusion probabilities and names; or other estimates.
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
                "deviations and inclusion_probability come from the fitted estimator: leave "
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


def _one_axis(name, values, shape=None):
    values = real_array(name, values)
    if values.ndim != 1 or not values.size or (shape is not None and values.shape != shape):
        raise ValueError(f"{name} must be one-dimensional, one entry each, got {values.shape}.")
    return values.astype(float)
