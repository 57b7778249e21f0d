"""Values and extreme states of discrete units.

Units of many values that are coupled strongly have two phases, as a ferromagnet has: scores are all
low or all high. Most random states lead to the same solution, as their sums are all alike; states
with all units at their lowest or highest values lead to both.
"""

import numpy as np

from fastmf.priors._groups import column_is_group, column_sizes
from fastmf.priors._protocol import n_units
from fastmf.priors._queries import bounds, columns_of_values, state_counts, two_values

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
