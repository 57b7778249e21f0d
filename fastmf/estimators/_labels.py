"""Integer labels as data of estimators."""

import numpy as np
from sklearn.utils.validation import validate_data

# States of a site that fit into a byte, beside the code of absent ones.
MAX_STATES = 254


def checked_labels(estimator, X, reset):
    """Labels as int64, -1 where missing: negative, or NaN.

    Raises
    ------
    ValueError
        If `X` holds numbers that are not integers, or infinity.
    """
    X = validate_data(estimator, X, reset=reset, ensure_all_finite="allow-nan")
    if X.dtype.kind not in "iufb":
        raise TypeError(f"X must be an array of integer labels, got dtype {X.dtype}.")
    if X.dtype.kind == "f":
        missing = np.isnan(X)
        if np.isinf(X).any():
            raise ValueError("X must hold integer labels, got infinity.")
        X = np.where(missing, -1, X)
        if (X != np.rint(X)).any():
            wrong = X[np.rint(X) != X][0]
            raise ValueError(
                f"X must hold integer labels (negative or NaN: missing), got {wrong:g}; encode "
                "values first, as by sklearn.preprocessing.OrdinalEncoder."
            )
    elif X.dtype.kind == "u" and X.size and X.max() > MAX_STATES:
        raise ValueError(f"labels must be at most {MAX_STATES - 1}, got {X.max()}.")
    return np.clip(X, -1, MAX_STATES + 1).astype(np.int64)


def checked_sizes(n_states, labels):
    """States of each site, from the option `n_states` and the labels.

    Raises
    ------
    ValueError, TypeError
        If there are labels beyond, or sites with fewer than two states or too many.
    """
    n_groups, largest = labels.shape[1], labels.max(0)
    if n_states is None:
        sizes = np.full(n_groups, max(2, int(largest.max()) + 1))
        if sizes[0] > MAX_STATES:
            raise ValueError(f"labels must be at most {MAX_STATES - 1}, got larger ones.")
        return sizes
    sizes = np.asarray(n_states)
    if sizes.dtype.kind not in "iu" or sizes.ndim > 1:
        raise TypeError(f"n_states must be None, an integer or one per site, got {n_states!r:.40}.")
    if sizes.ndim and len(sizes) != n_groups:
        raise ValueError(f"n_states must have one entry per site, {n_groups}, got {len(sizes)}.")
    sizes = np.broadcast_to(sizes, n_groups).astype(np.int64)
    if sizes.min() < 2 or sizes.max() > MAX_STATES:
        raise ValueError(f"n_states must be in [2, {MAX_STATES}], got {n_states!r:.40}.")
    check_range(labels, sizes)
    return sizes


def check_range(labels, sizes):
    """Raise for labels that a site does not have."""
    wrong = np.flatnonzero((labels >= sizes).any(0))
    if len(wrong):
        i = int(wrong[0])
        raise ValueError(
            f"labels of site {i} must be below its number of states, {sizes[i]}, got "
            f"{labels[:, i].max()}."
        )
