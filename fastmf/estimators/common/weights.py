"""Weights of rows, as estimators take them."""

import numpy as np

from fastmf._common.arguments import row_weights
from fastmf._common.warning import warn_user


def check_counts(total, n_rows, option=""):
    """Warn if weights that count rows add up to next to none, as those that add up to 1 do."""
    float64 = np.finfo(float)
    # Squares of sums over rows are not rounded to 0, and numbers of rows are told apart.
    low, high = np.sqrt(float64.tiny) / float64.eps, 2 / float64.eps
    if not low <= total <= high:
        raise ValueError(
            f"sample_weight counts rows, and must add up to between {low:.1g} and {high:.1g}, got "
            f"{total:.3g}: multiply by a common factor."
        )
    if total < 2 < n_rows:
        advice = f", or fit with {option}" if option else ""
        warn_user(
            f"sample_weight counts rows, and {n_rows} rows count as {total:.3g} together: multiply "
            f"it by {n_rows} over its sum{advice}."
        )


def present_rows(X, weights):
    """The rows of positive weight, and their weights, or None if these are all equal."""
    if weights is None:
        return X, None
    present = weights > 0
    if not present.all():
        X, weights = X[present], weights[present]
    return X, None if (weights == weights[0]).all() else weights


def class_factors(class_weight, y, weights):
    """Factors of the weights of rows, by their classes."""
    classes, which = np.unique(y, return_inverse=True)
    if isinstance(class_weight, str) and class_weight == "balanced":
        of_classes = np.bincount(which, weights)
        total = of_classes.sum() / np.count_nonzero(of_classes)
        return (total / np.where(of_classes > 0, of_classes, 1.0))[which]
    if not isinstance(class_weight, dict):
        raise ValueError(
            f"class_weight must be None, 'balanced' or a dict of factors by class, got "
            f"{class_weight!r:.60}."
        )
    names = classes.tolist()
    if unknown := [name for name in class_weight if name not in names]:
        raise ValueError(
            f"class_weight has {unknown[0]!r}, which is none of the classes {names} of y."
        )
    factors = row_weights(
        [class_weight.get(name, 1.0) for name in names], len(names), "class_weight"
    )
    return factors[which]
