"""Results with names of features, as data frames of pandas, and credible intervals."""

import numpy as np
from scipy.special import ndtri

from fastmf._common.names import pandas


def feature_names(estimator):
    """Names of the features, array of str: of the data frame `fit` was given, or x0, x1, ..."""
    names = getattr(estimator, "feature_names_in_", None)
    if names is None:
        names = [f"x{j}" for j in range(estimator.n_features_in_)]
    return np.asarray(names, object)


def features_frame(estimator, columns):
    """Columns over features, a NamedTuple, as a data frame."""
    return pandas().DataFrame(columns._asdict(), index=feature_names(estimator))


def pairs_frame(estimator, tests):
    """Columns over pairs of features, whose numbers are the first two, as a data frame."""
    names, columns = feature_names(estimator), tests._asdict()
    columns |= {which: names[columns[which]] for which in ("first", "second")}
    return pandas().DataFrame(columns)


def like_frame(X, values):
    """Values as a data frame with the names of one, or as they are if `X` is no data frame."""
    if not is_frame(X):
        return values
    return pandas().DataFrame(values, index=X.index, columns=X.columns).infer_objects()


def is_frame(X):
    """Whether rows are a data frame of pandas."""
    return hasattr(X, "iloc") and hasattr(X, "columns")


def coded_frame(X, categories=None):
    """A data frame with numbers in the place of categories, and the categories by column.

    Categories are those given, or pandas', or the sorted values of a column of strings; None of
    columns of numbers.
    """
    listed, columns = [], {}
    for j in range(X.shape[1]):
        column = X.iloc[:, j]
        values = categories[j] if categories else getattr(column.dtype, "categories", None)
        inferred = categories is None and values is None
        if inferred and any(isinstance(value, str) for value in column):
            values = pandas().Categorical(column.astype(object)).categories
        if values is not None:
            values = list(values)
            codes = pandas().Index(values).get_indexer(column.astype(object))
            if unknown := column[codes < 0].dropna().tolist():
                raise ValueError(
                    f"X must hold the values of fit, got {unknown[0]!r:.40} in column {j} "
                    f"({X.columns[j]!r})."
                )
            column = np.where(codes < 0, np.nan, codes)
        listed.append(values)
        columns[j] = np.asarray(column)
    return pandas().DataFrame(columns).set_axis(X.columns, axis=1).set_axis(X.index), listed


def decoded_frame(names, values, categories, index=None):
    """Values of columns of numbers and numbers of categories, as a data frame."""
    columns = {
        j: values[:, j] if listed is None
        else pandas().Categorical.from_codes(values[:, j].astype(int), listed)
        for j, listed in enumerate(categories)
    }  # fmt: skip
    return pandas().DataFrame(columns, index).set_axis(names, axis=1)


# --- quantities that are zero with some probability, and else Gaussian ----------------------------


def slab_moments(mean, variance, included):
    """Mean and variance where a quantity is not zero, from those with the mass at zero."""
    positive = np.maximum(included, 1e-300)
    slab_mean = mean / positive
    return slab_mean, np.maximum((variance + mean**2) / positive - slab_mean**2, 0.0)


def slab_interval(level, included, mean, variance):
    """Ends of equal-tailed intervals of this probability, of quantities with these moments."""
    moments = slab_moments(mean, variance, included)
    return [_quantile((1 + side * level) / 2, included, *moments) for side in (-1, 1)]


def _quantile(tail, included, mean, variance):
    """Quantiles of a mass at zero and a Gaussian."""
    deviation = np.sqrt(variance)
    with np.errstate(divide="ignore", invalid="ignore"):
        safe = np.where(included > 0, included, 1.0)
        below = mean + deviation * ndtri(np.clip(tail / safe, 0, 1))
        above = mean + deviation * ndtri(np.clip((tail - (1 - included)) / safe, 0, 1))
    return np.where(below < 0, below, np.where(above > 0, above, 0.0))
