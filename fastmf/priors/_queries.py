"""Queries to a prior: its values and bounds, variances, fits to data.

Every query is a function with a default for priors that have only the two required methods. A prior
overrides the default by an optional member of the protocol (see `_protocol`).
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
    """Return the values that all units have in common: a tuple of floats, or None."""
    values = getattr(prior, "support", None)
    if type(values) is tuple and all(type(x) is float for x in values):
        return values
    if not isinstance(values, tuple | list | np.ndarray) or np.ndim(values) != 1:
        return None
    return tuple(float(x) for x in values)


def support(prior):
    """Return the values of each unit: float64 array (n_values, n_units) padded with NaN, or None.

    It is None if a unit is not discrete, or if its values are not known.
    """
    columns = [_support(part) for part in parts_of(prior)]
    if any(values is None for values in columns):
        return None
    n_values = max(len(values) for values in columns)
    padding = [((0, n_values - len(values)), (0, 0)) for values in columns]
    padded = [np.pad(v, p, constant_values=np.nan) for v, p in zip(columns, padding, strict=True)]
    return np.hstack(padded)


def _support(part):
    """Return the `support` of one part of a prior."""
    values = common_support(part)
    if values is None:
        return getattr(part, "support", None)
    return np.broadcast_to(np.array(values)[:, None], (len(values), n_units(part)))


def columns_of_values(prior):
    """Return an array (n_values, its units) for each group or unit, or None if not discrete."""
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
    """Return the number of states of each group or unit, (n_columns,); 0 if not discrete."""
    counts = []
    for part in parts_of(prior):
        if has_groups(part):
            counts.append(part.sizes)
        else:
            values = support(part)
            counts.append(np.zeros(n_units(part)) if values is None else np.isfinite(values).sum(0))
    return np.concatenate(counts).astype(np.int64)


def number_of_states(prior):
    """Return the number of joint states of all units, infinite unless all units are discrete."""
    counts = state_counts(prior).astype(np.float64)
    with np.errstate(over="ignore"):
        return float(np.prod(counts)) if counts.all() else np.inf


def two_values(prior):
    """Return the values (low, high) of two-valued units, or None."""
    values = common_support(prior)
    return (min(values), max(values)) if values is not None and len(values) == 2 else None


def mean_limits(prior):
    """Return limits of the means of two-valued units in data, or None."""
    # Columns that were scaled to this interval leave it by rounding.
    rounding = np.finfo(np.float32).eps ** 0.5
    return (values := two_values(prior)) and (values[0] - rounding, values[1] + rounding)


def binary_field(prior):
    """Return field and constant of log_prob(x) = field x + constant at the two values."""
    if getattr(prior, "log_prob_is_linear", False):
        return prior.field, np.zeros_like(prior.field)
    low, high = two_values(prior)
    at_low, at_high = (prior.log_prob(prior[0].dtype.type(x)) for x in (low, high))
    field = (at_high - at_low) / (high - low)
    return field, at_low - field * low


def mean_log_prob(prior, X):
    """Average `log_prob` of rows over states, with the probabilities in the rows."""
    if is_concatenated(prior):
        return np.concatenate([mean_log_prob(*part) for part in by_parts(prior, X)], axis=1)
    if has_groups(prior):
        if not prior.admits(X).all():
            raise ValueError("X must have probabilities that sum to 1 in each group, or labels.")
        return prior.weighted(X)
    values = two_values(prior)
    if not values:
        return prior.log_prob(X)
    least, largest = mean_limits(prior)
    if X.min() < least or X.max() > largest:
        raise ValueError(f"X must have values in [{values[0]:g}, {values[1]:g}].")
    low, high = (prior.log_prob(X.dtype.type(value)) for value in values)
    return low + (X - X.dtype.type(values[0])) / X.dtype.type(values[1] - values[0]) * (high - low)


def tilt_to_mean(prior, mean):
    """Return the tilt under which groups of states have these means."""
    possible = prior.field > -np.inf
    return np.log(np.where(possible, mean, 1)) - np.where(possible, prior.field, 0)


# --- bounds and variances -------------------------------------------------------------------------


def bounds(prior):
    """Return least and largest value of each unit: float64 (2, n_units), NaN if not known."""
    return np.hstack([_bounds(part) for part in parts_of(prior)])


def _bounds(part):
    """Return the `bounds` of one part of a prior."""
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
    """Return whether units can take arbitrarily large values: bool array (n_units,)."""
    return np.isinf(bounds(prior)).any(axis=0)


def directions(prior):
    """Return the signs of large values, (n_units,): 0 for units unbounded on both sides."""
    lower, upper = np.isfinite(bounds(prior))
    return lower * 1.0 - upper


def largest_variance(prior):
    """Return the largest variance of each unit under any tilt, (n_units,).

    It is a quarter of the squared range for bounded units. Tilts must leave unbounded units at
    least 1 / PRECISION_MARGIN of their precision. For a user's prior without known values and
    without a precision, it is the variance without a tilt.
    """
    return np.concatenate([_largest_variance(part) for part in parts_of(prior)])


def _largest_variance(part):
    """Return the `largest_variance` of one part of a prior."""
    lower, upper = bounds(part)
    if np.isnan(lower).any():
        return part.moments(0.0, 0.0)[1]
    # The spike at zero may lie outside the interval of the slab.
    spike = 0.0 if has_spike(part) else lower
    width = np.maximum(upper, spike) - np.minimum(lower, spike)
    precision = np.where(np.isinf(width), precisions(part), 1.0)
    return np.where(np.isinf(width), PRECISION_MARGIN / precision, width**2 / 4)


def gaussian_units(prior):
    """Return whether units are Gaussian on the whole real line: bool array (n_units,)."""
    parts = [np.full(n_units(p), built_in(p) and not has_spike(p)) for p in parts_of(prior)]
    return np.concatenate(parts) & np.isinf(bounds(prior)).all(axis=0)


def fields_of(prior):
    """Return the field of each unit, (n_units,), NaN for units without a field."""
    return _number_of_unit(prior, "field")


def precisions(prior):
    """Return the precision of each unit, (n_units,), NaN for units without a precision."""
    return _number_of_unit(prior, "precision")


def _number_of_unit(prior, name):
    """Return a number of each unit in float64, NaN for units without a field of this name."""
    parts = [getattr(part, name, np.full(n_units(part), np.nan)) for part in parts_of(prior)]
    return np.concatenate(parts, dtype=np.float64)


def without_units(layers, removed):
    """Return the prior of the units of several layers, without the units in a mask."""
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
    """Return whether the parameter `field` of a prior acts like the tilt b."""
    # A user's own prior may have a moment_gradient, and another name for its field.
    return hasattr(prior, "moment_gradient") and "field" in prior._fields


def has_tilts(prior):
    """Return whether all units have a field that `with_shifted_field` shifts."""
    return all(field_is_tilt(part) or hasattr(part, "tilted_log_odds") for part in parts_of(prior))


def with_shifted_field(prior, shift):
    """Return the prior times exp(shift x), for a shift of each unit."""

    def shifted(part, shift):
        new = {"field": (part.field + shift).astype(part.field.dtype)}
        if not field_is_tilt(part):  # a slab that is normalised
            log_odds = part.tilted_log_odds(shift, 0.0)
            new["log_odds"] = log_odds.astype(part.log_odds.dtype)
        return part._replace(**new)

    return joined(prior, [shifted(*part) for part in by_parts(prior, shift)])


# --- learning -------------------------------------------------------------------------------------


def has_spike(prior):
    """Return whether some of the units have a spike at zero."""
    return any(hasattr(part, "mixture_gradient") for part in parts_of(prior))


def average_gradient(prior, averages):
    """Return derivatives of an average log_prob or log_partition, from averages of x and x^2."""
    if is_concatenated(prior):
        return joined(prior, [average_gradient(*part) for part in by_parts(prior, averages)])
    mean, square, nonzero = averages
    var = square - mean * mean
    if has_spike(prior):
        return prior.mixture_gradient(mean, var, nonzero)
    return prior.moment_gradient(mean, var)


def hidden_unit(class_):
    """Return the centred prior of one hidden unit before learning, or None without one."""
    parameters = getattr(class_, "hidden_unit", None)
    return None if parameters is None else class_(*parameters)


def can_be_fitted(class_):
    """Return whether a class of priors has `from_data`."""
    return hasattr(class_, "from_data")


def independent_units(prior, X):
    """Fit the prior of independent units to data."""
    if is_concatenated(prior):
        return joined(prior, [independent_units(*part) for part in columns_by_parts(prior, X)])
    if hasattr(prior, "refit"):
        return prior.refit(_columns_for(type(prior), X))
    return fitted(type(prior), X) if can_be_fitted(type(prior)) else prior


def fitted(class_, X):
    """Fit a class of priors to data, an array or csr_array of shape (n_rows, n_units)."""
    return class_.from_data(_columns_for(class_, X))


def _columns_for(class_, X):
    """Convert data for a class of priors: users' classes get dense floating-point arrays."""
    if class_ in REGISTRY.values():
        return X
    X = X.toarray() if is_sparse(X) else X
    return X if X.dtype.kind == "f" else X.astype(np.float64)


def perturbed(prior, X, noise, rng):
    """Add noise to data: flip values with probability `noise`, or add `noise` standard deviations.

    Groups are redrawn with this probability, from a uniform distribution over their states.
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


# Largest number of states of a group that `extreme_starts` includes.
MAX_STARTING_STATES = 8


def has_many_values(priors):
    """Return whether all units are discrete, and some have more than two values."""
    return all(map(is_discrete, priors)) and not all(map(two_values, priors))


def is_discrete(prior):
    """Return whether all units are in groups of states, or have a `support`."""
    return bool(state_counts(prior).all())


def extreme_starts(prior):
    """Return states (n_starts, n_units) with all units at their lowest or highest values.

    In start k, groups are in their state k.
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
    """Return the range of the values of each unit, or 1 where it is not positive."""
    low, high = bounds(prior)
    return np.where(high > low, high - low, 1.0)
