"""Queries to a prior: its values and bounds, variances, fits to data.

Every question is a function whose default suits a prior with nothing but the two required methods.
A prior gives an answer of its own by an optional member of the protocol (see `_protocol`).
"""

import numpy as np

from fastmf._common.rows import is_sparse
from fastmf.priors._groups import column_is_group, column_sizes, columns_by_parts, has_groups
from fastmf.priors._protocol import by_parts, is_concatenated, joined, n_units, parts_of, take
from fastmf.priors._registry import REGISTRY, built_in
from fastmf.priors.concatenated import concatenate

# Unbounded units keep a tilted precision of at least their own precision divided by this.
PRECISION_MARGIN = 2.0

# --- values -------------------------------------------------------------------------------------


def common_support(prior):
    """The values of units that all have the same: a tuple of floats, or None."""
    values = getattr(prior, "support", None)
    if type(values) is tuple and all(type(x) is float for x in values):
        return values
    if not isinstance(values, tuple | list | np.ndarray) or np.ndim(values) != 1:
        return None
    return tuple(float(x) for x in values)


def support(prior):
    """The values of each unit: float64 array (n_values, n_units) padded with NaN, or None.

    None for units that are not discrete, or whose values are not known.
    """
    columns = [_support(part) for part in parts_of(prior)]
    if any(values is None for values in columns):
        return None
    n_values = max(len(values) for values in columns)
    padding = [((0, n_values - len(values)), (0, 0)) for values in columns]
    padded = [np.pad(v, p, constant_values=np.nan) for v, p in zip(columns, padding, strict=True)]
    return np.hstack(padded)


def _support(part):
    """`support` of one part of a prior."""
    values = common_support(part)
    if values is None:
        return getattr(part, "support", None)
    return np.broadcast_to(np.array(values)[:, None], (len(values), n_units(part)))


def columns_of_values(prior):
    """The values of each group or unit: arrays (n_values, units of it), or None if not discrete."""
    columns = []
    for part in parts_of(prior):
        if has_groups(part):
            columns += [np.eye(size) for size in part.sizes]
        elif (values := support(part)) is not None:
            columns += [x[~np.isnan(x), None] for x in values.T]
        elif n_units(part):
            return None
    return columns


def state_counts(prior):
    """Number of states of each group or unit, int array (n_columns,); 0 if not discrete."""
    counts = []
    for part in parts_of(prior):
        if has_groups(part):
            counts.append(part.sizes)
        else:
            values = support(part)
            counts.append(np.zeros(n_units(part)) if values is None else np.isfinite(values).sum(0))
    return np.concatenate(counts).astype(np.int64)


def number_of_states(prior):
    """Number of states of all units together, a float; infinite unless all units are discrete."""
    counts = state_counts(prior).astype(np.float64)
    with np.errstate(over="ignore"):
        return float(np.prod(counts)) if counts.all() else np.inf


def two_values(prior):
    """The values (low, high) of two-valued units; None for all others."""
    values = common_support(prior)
    return (min(values), max(values)) if values is not None and len(values) == 2 else None


def binary_field(prior):
    """Field and constant with which log_prob(x) = field x + constant at the two values."""
    if getattr(prior, "log_prob_is_linear", False):
        return prior.field, np.zeros_like(prior.field)
    low, high = two_values(prior)
    at_low, at_high = (prior.log_prob(prior[0].dtype.type(x)) for x in (low, high))
    field = (at_high - at_low) / (high - low)
    return field, at_low - field * low


def mean_log_prob(prior, X):
    """`log_prob` of rows, averaged over states with the probabilities in the rows."""
    if is_concatenated(prior):
        return np.concatenate([mean_log_prob(*part) for part in by_parts(prior, X)], axis=1)
    if has_groups(prior):
        if not prior.admits(X).all():
            raise ValueError("X must have probabilities that sum to 1 in each group, or labels.")
        return prior.weighted(X)
    values = two_values(prior)
    if not values:
        return prior.log_prob(X)
    if X.min() < values[0] or X.max() > values[1]:
        raise ValueError(f"X must have values in [{values[0]:g}, {values[1]:g}].")
    low, high = (prior.log_prob(X.dtype.type(value)) for value in values)
    return low + (X - X.dtype.type(values[0])) / X.dtype.type(values[1] - values[0]) * (high - low)


def tilt_to_mean(prior, mean):
    """The tilt under which groups of states have these means."""
    possible = prior.field > -np.inf
    return np.log(np.where(possible, mean, 1)) - np.where(possible, prior.field, 0)


# --- bounds and variances -------------------------------------------------------------------------


def bounds(prior):
    """Least and largest value of each unit: float64 array (2, n_units), NaN where not known."""
    return np.hstack([_bounds(part) for part in parts_of(prior)])


def _bounds(part):
    """`bounds` of one part of a prior."""
    limits = np.full((2, n_units(part)), np.nan)
    if hasattr(part, "lower"):
        limits[:] = part.lower, part.upper
    elif has_groups(part):
        limits[:] = [[0.0], [1.0]]
    elif (common := common_support(part)) is not None:
        limits[:] = [[min(common)], [max(common)]]
    elif (values := support(part)) is not None:
        limits[:] = np.nanmin(values, axis=0), np.nanmax(values, axis=0)
    elif hasattr(part, "precision"):
        limits[:] = [[-np.inf], [np.inf]]
    return limits


def unbounded(prior):
    """Which units can take arbitrarily large values: bool array (n_units,)."""
    return np.isinf(bounds(prior)).any(axis=0)


def directions(prior):
    """Signs of the values of unbounded units, (n_units,): 0 for units unbounded on both sides."""
    lower, upper = np.isfinite(bounds(prior))
    return lower * 1.0 - upper


def largest_variance(prior):
    """Largest variance of each unit under any tilt, (n_units,).

    For bounded units a quarter of the squared range. Tilts of unbounded units are those that leave
    1 / PRECISION_MARGIN of their precision. For a user's own prior that says neither its values nor
    a precision, the variance without a tilt.
    """
    return np.concatenate([_largest_variance(part) for part in parts_of(prior)])


def _largest_variance(part):
    """`largest_variance` of one part of a prior."""
    lower, upper = bounds(part)
    if np.isnan(lower).any():
        return part.moments(0.0, 0.0)[1]
    # The spike at zero may lie outside the interval of the slab.
    spike = 0.0 if has_spike(part) else lower
    width = np.maximum(upper, spike) - np.minimum(lower, spike)
    precision = np.where(np.isinf(width), precisions(part), 1.0)
    return np.where(np.isinf(width), PRECISION_MARGIN / precision, width**2 / 4)


def gaussian_units(prior):
    """Which units are Gaussian ones, on the whole line: bool array (n_units,)."""
    parts = [np.full(n_units(p), built_in(p) and not has_spike(p)) for p in parts_of(prior)]
    return np.concatenate(parts) & np.isinf(bounds(prior)).all(axis=0)


def fields_of(prior):
    """Field of each unit, (n_units,), and NaN for units without one."""
    return _number_of_unit(prior, "field")


def precisions(prior):
    """Precision of each unit, (n_units,), and NaN for units without one."""
    return _number_of_unit(prior, "precision")


def _number_of_unit(prior, name):
    """A field of each unit in float64, and NaN for units without one."""
    parts = [getattr(part, name, np.full(n_units(part), np.nan)) for part in parts_of(prior)]
    return np.concatenate(parts, dtype=np.float64)


def without_units(layers, removed):
    """The prior of all units of several layers but some, which are given as a mask."""
    parts, first = [], 0
    for part in (part for layer in layers for part in parts_of(layer)):
        remain = ~removed[first : first + n_units(part)]
        first += len(remain)
        if remain.all():
            parts.append(part)
        elif remain.any():
            parts.append(take(part, np.flatnonzero(remain)))
    return concatenate(parts)


def field_is_tilt(prior):
    """Whether the prior has a parameter `field` that acts as the tilt b does."""
    # A user's own prior may have a moment_gradient, and another name for its field.
    return hasattr(prior, "moment_gradient") and "field" in prior._fields


def has_tilts(prior):
    """Whether all units have a field that `with_shifted_field` shifts."""
    return all(field_is_tilt(part) or hasattr(part, "tilted_log_odds") for part in parts_of(prior))


def with_shifted_field(prior, shift):
    """The prior times exp(shift x), for a shift of each unit."""

    def shifted(part, shift):
        new = {"field": (part.field + shift).astype(part.field.dtype)}
        if not field_is_tilt(part):  # a slab that is normalised
            log_odds = part.tilted_log_odds(shift, 0.0)
            new["log_odds"] = log_odds.astype(part.log_odds.dtype)
        return part._replace(**new)

    return joined(prior, [shifted(*part) for part in by_parts(prior, shift)])


# --- learning -------------------------------------------------------------------------------------


def has_spike(prior):
    """Whether some of the units have a spike at zero."""
    return any(hasattr(part, "mixture_gradient") for part in parts_of(prior))


def average_gradient(prior, averages):
    """Derivatives of an average of log_prob or log_partition by each parameter, from averages."""
    if is_concatenated(prior):
        return joined(prior, [average_gradient(*part) for part in by_parts(prior, averages)])
    mean, square, nonzero = averages
    var = square - mean * mean
    if has_spike(prior):
        return prior.mixture_gradient(mean, var, nonzero)
    return prior.moment_gradient(mean, var)


def hidden_unit(class_):
    """A prior of one hidden unit before learning, centred and of unit scale; None without one."""
    parameters = getattr(class_, "hidden_unit", None)
    return None if parameters is None else class_(*parameters)


def can_be_fitted(class_):
    """Whether a class of priors has `from_data`."""
    return hasattr(class_, "from_data")


def independent_units(prior, X):
    """The prior of independent units fitted to data."""
    if is_concatenated(prior):
        return joined(prior, [independent_units(*part) for part in columns_by_parts(prior, X)])
    if hasattr(prior, "refit"):
        return prior.refit(_columns_for(type(prior), X))
    return fitted(type(prior), X) if can_be_fitted(type(prior)) else prior


def fitted(class_, X):
    """The prior of a class fitted to data, an array or csr_array of shape (n_rows, n_units)."""
    return class_.from_data(_columns_for(class_, X))


def _columns_for(class_, X):
    """Data as a class of priors takes them: users' own are not asked to know every kind of rows."""
    if class_ in REGISTRY.values():
        return X
    X = X.toarray() if is_sparse(X) else X
    return X if X.dtype.kind == "f" else X.astype(np.float64)


def perturbed(prior, X, noise, rng):
    """Data with noise: flipped with probability `noise`, or moved by `noise` standard deviations.

    Groups of states are drawn anew, all states alike, with that probability.
    """
    return np.hstack([_perturbed(*part, noise, rng) for part in by_parts(prior, X)])


def _perturbed(prior, X, noise, rng):
    if has_groups(prior):
        zero = X.dtype.type(0)
        drawn = prior._replace(field=zero * prior.field).sample(zero * X, zero, rng)
        redrawn = rng.random((len(X), prior.n_groups), dtype=np.float32) < noise
        return np.where(np.repeat(redrawn, prior.sizes, axis=-1), drawn, X)
    values = two_values(prior)
    if values:
        flip = rng.random(X.shape, dtype=np.float32) < noise
        return np.where(flip, X.dtype.type(sum(values)) - X, X)
    steps = noise * X.std(0) * rng.standard_normal(X.shape, dtype=X.dtype)
    return np.clip(X + steps, X.min(0), X.max(0))


# States of a group that have a start of their own.
MAX_STARTING_STATES = 8


def has_many_values(priors):
    """Whether all units are discrete, and some have more than two values."""
    return all(map(is_discrete, priors)) and not all(map(two_values, priors))


def is_discrete(prior):
    """Whether all units are in groups of states, or have a `support`."""
    return bool(state_counts(prior).all())


def extreme_starts(prior):
    """Return states (n_starts, n_units) of all units at their lowest and highest values.

    Groups are in each of their first states.
    """
    columns = columns_of_values(prior)
    is_group = column_is_group(prior)
    largest = max((len(v) for v, group in zip(columns, is_group, strict=True) if group), default=2)
    starts = np.empty((min(largest, MAX_STARTING_STATES), n_units(prior)))
    ends = np.cumsum(column_sizes(prior))
    for values, group, end in zip(columns, is_group, ends, strict=True):
        for k, start in enumerate(starts):
            if group:
                start[end - len(values) : end] = values[min(k, len(values) - 1)]
            else:
                start[end - 1] = values.max() if k % 2 else values.min()
    return starts


def widths(prior):
    """Distance of the lowest and the highest value of each unit of a discrete prior, or 1."""
    low, high = bounds(prior)
    return np.where(high > low, high - low, 1.0)
