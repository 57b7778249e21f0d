"""Results with names of features, as data frames of pandas."""

import numpy as np

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
    if not (hasattr(X, "iloc") and hasattr(X, "columns")):
        return values
    return pandas().DataFrame(values, index=X.index, columns=X.columns).infer_objects()
