"""Coefficients of sparse regressions with their deviations."""

import numpy as np

from fastmf._common.arguments import count
from fastmf.plotting._axes import drawing, forest, names_of, tidy, with_attributes


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
