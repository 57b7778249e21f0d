"""Names of features, results as pandas data frames, and credible intervals."""

import numpy as np
from scipy.special import ndtri

from fastmf._common.names import pandas
from fastmf._common.warning import warn_user


def feature_names(estimator):
    """Return the names of features, array of str: column names of the frame, or x0, x1, ..."""
    names = getattr(estimator, "feature_names_in_", None)
    if names is None:
        names = [f"x{j}" for j in range(estimator.n_features_in_)]
    return np.asarray(names, object)


def features_frame(estimator, columns):
    """Return a NamedTuple of arrays over features as a data frame."""
    return pandas().DataFrame(columns._asdict(), index=feature_names(estimator))


def pairs_frame(estimator, tests):
    """Return a NamedTuple of arrays over pairs (`first`, `second`, ...) as a data frame."""
    names, columns = feature_names(estimator), tests._asdict()
    columns |= {which: names[columns[which]] for which in ("first", "second")}
    return pandas().DataFrame(columns)


def like_frame(X, values):
    """Return values with the index and columns of `X` if it is a data frame; else unchanged."""
    if not is_frame(X):
        return values
    return pandas().DataFrame(values, index=X.index, columns=X.columns).infer_objects()


def is_frame(X):
    """Whether `X` is a pandas data frame."""
    return hasattr(X, "iloc") and hasattr(X, "columns")


def coded_frame(X, categories=None):
    """Encode categories by numbers; return the data frame and the categories of each column.

    Categories are the given ones, pandas categories, or the sorted values of a column of strings;
    they are None for numeric columns.
    """
    listed, columns = [], {}
    for j in range(X.shape[1]):
        column = X.iloc[:, j]
        values = categories[j] if categories else getattr(column.dtype, "categories", None)
        inferred = categories is None and values is None
        if inferred and any(isinstance(value, str) for value in column):
            values = pandas().Categorical(column.astype(object)).categories
            if len(values) == column.count() > 2:
                warn_user(
                    f"column {j} ({X.columns[j]!r}) has a different text in each row: leave it out "
                    "if it names the rows, and convert numbers by astype(float)."
                )
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
    """Return values as a data frame; columns with categories are decoded."""
    columns = {
        j: values[:, j] if listed is None
        else pandas().Categorical.from_codes(values[:, j].astype(int), listed)
        for j, listed in enumerate(categories)
    }  # fmt: skip
    return pandas().DataFrame(columns, index).set_axis(names, axis=1)


# --- mixtures of a point mass at zero and a Gaussian ----------------------------------------------


def slab_moments(mean, variance, included):
    """Return mean and variance given a non-zero value, from those including the mass at zero."""
    positive = np.maximum(included, 1e-300)
    slab_mean = mean / positive
    return slab_mean, np.maximum((variance + mean**2) / positive - slab_mean**2, 0.0)


def slab_interval(level, included, mean, variance):
    """Compute the limits of equal-tailed intervals, given moments including the mass at zero."""
    moments = slab_moments(mean, variance, included)
    return [_quantile((1 + side * level) / 2, included, *moments) for side in (-1, 1)]


def _quantile(tail, included, mean, variance):
    """Compute quantiles of a mixture of a point mass at zero and a Gaussian."""
    deviation = np.sqrt(variance)
    with np.errstate(divide="ignore", invalid="ignore"):
        safe = np.where(included > 0, included, 1.0)
        negative = mean + deviation * ndtri(np.clip(tail / safe, 0, 1))
        positive = mean + deviation * ndtri(np.clip((tail - (1 - included)) / safe, 0, 1))
    return np.where(negative < 0, negative, np.where(positive > 0, positive, 0.0))
