"""Groups of states in a layer: their positions, and the conversion of labels to flat states.

A prior with an attribute `sizes` (see `Categorical`) has groups of states; all other priors have
single units. A column of data belongs to a group or to a single unit.
"""

import numpy as np

from fastmf._common.arguments import real_array, unmasked
from fastmf.priors._protocol import by_parts, n_units, parts_of

# Why solvers whose messages have one variance for each unit take no groups.
NO_COVARIANCE = (
    "its messages have a variance for each unit, but the states of a group are correlated; use "
    "tap, or belief_propagation of an RBM."
)


def _is_grouped(part):
    """Return whether a prior describes groups of states, by its class: `sizes` takes time."""
    return has_groups_of_states(type(part))


def has_groups(prior):
    """Return whether a layer has groups of states."""
    return hasattr(prior, "_fields") and any(map(_is_grouped, parts_of(prior)))


def only_groups(prior):
    """Return whether all units of a layer are in groups of states."""
    return all(map(_is_grouped, parts_of(prior)))


def has_groups_of_states(class_):
    """Return whether a class of priors describes groups of states."""
    return hasattr(class_, "sizes")


def refuse_groups(name, priors, reason):
    """Raise a ValueError with a reason if a layer has groups of states."""
    if any(has_groups(prior) for prior in priors):
        raise ValueError(f"{name} takes no categorical units: {reason}")


def column_sizes(prior):
    """Return the number of units of each column of data, int array of shape (n_columns,)."""
    return np.concatenate(
        [getattr(part, "sizes", np.ones(n_units(part), int)) for part in parts_of(prior)]
    )


def column_is_group(prior):
    """Return whether each column of data is a group, bool array of shape (n_columns,)."""
    flags = [
        np.ones(len(part.sizes), bool) if _is_grouped(part) else np.zeros(n_units(part), bool)
        for part in parts_of(prior)
    ]
    return np.concatenate(flags)


def groups(prior):
    """Return the slices of the units of each group, in order."""
    sizes, is_group = column_sizes(prior), column_is_group(prior)
    ends = np.cumsum(sizes)[is_group]
    return [slice(end - size, end) for end, size in zip(ends, sizes[is_group], strict=True)]


def as_states(name, prior, X):
    """Convert rows of data to values of all units; labels of groups become one-hot."""
    if np.ma.isMaskedArray(X):
        X = unmasked(name, X, missing=True)
    if X is None or not has_groups(prior):
        return X
    X, n_columns = real_array(name, X), len(column_sizes(prior))
    if X.ndim == 0 or X.shape[-1] not in (n_columns, n_units(prior)):
        raise ValueError(
            f"{name} must have one column for each group or unit, shape (n_rows, {n_columns}), or "
            f"one for each state, shape (n_rows, {n_units(prior)}); got {X.shape}."
        )
    if X.shape[-1] == n_units(prior) or X.dtype.kind not in "iuf":
        return X
    columns = columns_by_parts(prior, X)
    flat = [part.one_hot(x) if _is_grouped(part) else x for part, x in columns]
    return np.concatenate(flat, axis=-1)


def columns_by_parts(prior, X):
    """Return pairs (part, X): the parts of a prior with their columns of labels or flat values."""
    parts, flat = parts_of(prior), X.shape[-1] == n_units(prior)
    if len(parts) == 1:
        return [(parts[0], X)]
    counts = [n_units(p) if flat else getattr(p, "n_groups", n_units(p)) for p in parts]
    ends = np.cumsum(counts).tolist()
    starts = [0, *ends[:-1]]
    return [(part, X[..., a:b]) for part, a, b in zip(parts, starts, ends, strict=True)]


def as_labels(prior, x, means=False):
    """Convert values of all units to rows of data: groups get labels, single units keep values."""
    if not has_groups(prior):
        return x
    parts = [
        columns
        if not _is_grouped(part)
        else _mean_labels(part, columns)
        if means
        else part.labels(columns)
        for part, columns in by_parts(prior, x)
    ]
    return np.concatenate(parts, axis=-1)


def _mean_labels(part, x):
    """Return the mean label of each group, (..., n_groups), for state probabilities `x`."""
    labels = np.arange(x.shape[-1]) - np.repeat(part.starts, part.sizes)
    return np.add.reduceat(x * labels, part.starts, axis=-1)


def check_clamped_groups(prior, mean, mask):
    """Raise a ValueError unless groups are clamped as a whole, and to a state."""
    for (part, x), (_, clamped) in zip(by_parts(prior, mean), by_parts(prior, mask), strict=True):
        if not _is_grouped(part):
            continue
        if (clamped != np.repeat(clamped[..., part.starts], part.sizes, axis=-1)).any():
            raise ValueError("clamp must hold either all states of a group or none.")
        if not (part.contains(x) | ~clamped).all():
            raise ValueError(
                "clamp holds categorical units whose start is no state: pass their values."
            )
