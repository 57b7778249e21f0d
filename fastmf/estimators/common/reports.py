"""Names of features, data frames of pandas and polars, and credible intervals."""

import numpy as np
from scipy.special import ndtri

from fastmf._common.names import pandas
from fastmf._common.warning import warn_user
from fastmf.estimators.common.categories import declared_categories
from fastmf.estimators.common.data import missing_entries


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


def is_frame(X):
    """Whether `X` is a data frame of pandas or polars."""
    return hasattr(type(X), "columns") and hasattr(type(X), "dtypes")


def frame_like(X, columns):
    """Return columns as a data frame of the library of `X`, with its names."""
    if hasattr(X, "iloc"):
        frame = pandas().DataFrame(dict(enumerate(columns)), X.index)
        return frame.set_axis(X.columns, axis=1).infer_objects()
    columns = [x.tolist() if x.dtype == object else x for x in columns]
    return type(X)(dict(zip(X.columns, columns, strict=True)))


def coded_frame(X, categories=None):
    """Encode categories by numbers; return the data frame and the categories of each column.

    Categories are the given ones, declared ones, or the sorted values of a column of strings; they
    are None for numeric columns.
    """
    declared, listed, columns = declared_categories(X), [], []
    for j, name in enumerate(X.columns):
        values = categories[j] if categories else getattr(declared.get(j), "categories", None)
        column = X.iloc[:, j] if hasattr(X, "iloc") else X[name]
        column = np.asarray(column, None if values is None else object)
        present = column[~missing_entries(column)].tolist()
        inferred = categories is None and values is None and column.dtype.kind in "OU"
        if inferred and any(isinstance(value, str) for value in present):
            values = sorted(set(present), key=lambda value: (isinstance(value, str), value))
            if len(values) == len(present) > 2:
                warn_user(
                    f"column {j} ({name!r}) has a different text in each row: leave it out if it "
                    "names the rows, and convert numbers by astype(float)."
                )
        if values is not None:
            values = list(values)
            codes = {value: float(k) for k, value in enumerate(values)}
            if unknown := [value for value in present if value not in codes]:
                raise ValueError(
                    f"X must hold the values of fit, got {unknown[0]!r:.40} in column {j} "
                    f"({name!r})."
                )
            column = np.array([codes.get(value, np.nan) for value in column.tolist()])
        listed.append(values)
        columns.append(column)
    return frame_like(X, columns), listed


def decoded_frame(X, values, categories):
    """Return values as a data frame like `X`; columns with categories are decoded."""
    columns = [*values.T]
    for j, listed in enumerate(categories):
        if listed is not None:
            columns[j] = np.array([listed[int(code)] for code in values[:, j]], object)
            if hasattr(X, "iloc"):
                columns[j] = pandas().Categorical(columns[j], listed)
    return frame_like(X, columns)


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
