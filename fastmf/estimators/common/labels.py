"""Labels of categorical positions as data of estimators."""

import numpy as np

from fastmf._common.arguments import real_array
from fastmf.estimators.common.categories import codes, is_numeric, learned_categories

# States of a position that fit into a byte, beside the code of absent ones.
MAX_BYTE_STATES = 254


def position_categories(estimator, X, n_states, declared):
    """The values that the states of each position stand for."""
    n_groups = X.shape[1]
    if n_states is not None:
        if not is_numeric(X):
            raise TypeError(
                "n_states is the number of labels 0, 1, ...: give None for strings, whose states "
                "are found in the data, or declared by a pandas categorical."
            )
        return [np.arange(size) for size in checked_sizes(n_states, n_groups)]
    if is_numeric(X) and not declared:
        X = whole_labels(X)
        present = X[X >= 0]
        first, last = (int(present.min()), int(present.max())) if present.size else (0, 1)
        if first == last and present.size < X.size:
            raise ValueError(
                f"X must have two labels at least, got {first} alone beside missing ones: negative "
                "labels are missing, so that -1 and 1 must be recoded, as by 0 and 1."
            )
        if first in (0, 1):
            if last - first >= MAX_BYTE_STATES:
                raise ValueError(
                    f"labels must be at most {MAX_BYTE_STATES - 1 + first}, got {last}: number "
                    "those that occur from 0, as by sklearn.preprocessing.OrdinalEncoder, or bin "
                    "values first."
                )
            return [np.arange(first, max(last, first + 1) + 1)] * n_groups
        X = np.where(X < 0, np.nan, X)
    categories = learned_categories(estimator, X, declared)
    for position, known in enumerate(categories):
        if len(known) < 2:
            raise ValueError(
                f"position {position} has the single value {known.tolist()[0]!r}: leave it out, or "
                "declare its categories by a pandas categorical."
            )
        if len(known) > MAX_BYTE_STATES:
            raise ValueError(
                f"positions must have at most {MAX_BYTE_STATES} states, got {len(known)} at "
                f"position {position}: merge rare ones, or bin values first."
            )
    return [whole_labels(known) if known.dtype.kind == "f" else known for known in categories]


def whole_labels(X):
    """Numbers as int64 labels, -1 where missing: negative, or NaN."""
    if X.dtype.kind == "f":
        X = np.where(np.isnan(X), -1, X)
        if (X != np.rint(X)).any():
            wrong = X[np.rint(X) != X][0]
            raise ValueError(
                f"X must hold integer labels (negative or NaN: missing) or strings, got {wrong:g}: "
                "encode values first, as by sklearn.preprocessing.KBinsDiscretizer."
            )
    # Beyond, integers are not told apart by every type.
    return np.clip(X, -1, 2**53).astype(np.int64)


def coded_labels(estimator, X, categories):
    """Numbers of the states of a table of `checked_table`, int64, -1 where missing."""
    first = [known[0] for known in categories]
    sizes = np.array([len(known) for known in categories])
    ranges = all(is_numeric(known) and np.ptp(known) == len(known) - 1 for known in categories)
    if not is_numeric(X) or not ranges:
        X = np.where(X < 0, np.nan, X) if is_numeric(X) else X
        return codes(estimator, X, categories)
    X = whole_labels(X)
    labels = np.where(X < 0, -1, X - np.array(first))
    wrong = (X >= 0) & ((labels < 0) | (labels >= sizes))
    if wrong.any():
        i = int(np.argmax(wrong.any(0)))
        limits = f"from {first[i]} to {first[i] + sizes[i] - 1}"
        if first[i] == 0:
            limits = f"below its number of states, {sizes[i]}"
        value = X[wrong[:, i], i][0]
        raise ValueError(f"labels of position {i} must be {limits}, got {value}.")
    return labels


def checked_sizes(n_states, n_groups):
    """States of each position, from the option `n_states`."""
    sizes = real_array("n_states", n_states)
    if sizes.dtype.kind not in "iu" or sizes.ndim > 1:
        raise TypeError(
            f"n_states must be None, an integer or one per position, got {n_states!r:.40}."
        )
    if sizes.ndim and len(sizes) != n_groups:
        raise ValueError(
            f"n_states must have one entry per position, {n_groups}, got {len(sizes)}."
        )
    sizes = np.broadcast_to(sizes, n_groups).astype(np.int64)
    if sizes.min() < 2 or sizes.max() > MAX_BYTE_STATES:
        raise ValueError(f"n_states must be in [2, {MAX_BYTE_STATES}], got {n_states!r:.40}.")
    return sizes


def checked_pairs(pairs, n_groups):
    """Pairs of different positions, (n_pairs, 2); all of them for None."""
    if pairs is None:
        pairs = np.stack(np.triu_indices(n_groups, 1), 1)
    pairs = real_array("pairs", pairs)
    if pairs.dtype.kind not in "iu" or pairs.ndim != 2 or pairs.shape[1] != 2 or not len(pairs):
        raise ValueError(f"pairs must have shape (n_pairs, 2), got {pairs.shape}.")
    if pairs.min() < 0 or pairs.max() >= n_groups or (pairs[:, 0] == pairs[:, 1]).any():
        raise ValueError(f"pairs must be of different positions, numbers below {n_groups}.")
    return pairs


def labels_from(name, arrays, sizes):
    """Rows of labels in an archive, each a state of its position or -1."""
    labels = arrays.member(name, "iu", (None, len(sizes)), low=-1)
    if (labels >= sizes).any():
        raise ValueError(f"member {name!r} must hold states of its positions, got larger labels.")
    return labels


def check_sizes(categories, sizes):
    """Raise unless there are as many categories of each position as it has states."""
    if [len(known) for known in categories] != sizes.tolist():
        raise ValueError("categories_ must have as many values as positions have states.")
