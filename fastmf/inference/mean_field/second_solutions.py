"""Second solutions of a machine of discrete units, from starts at its lowest and highest values.

Units of many values that are coupled strongly have two phases, as a ferromagnet has: scores are all
low or all high. Mean field finds one of them from the means of uncoupled units, or a solution
between both, and most random states lead to the same, as their sums are all alike.
"""

import numpy as np

from fastmf.inference.mean_field.naive_bound import (
    layout_of_checks,
    random_starts,
    solutions_from,
)
from fastmf.priors._groups import column_is_group, column_sizes
from fastmf.priors._protocol import n_units, parts_of
from fastmf.priors._queries import columns_of_values, support, two_values

# Random starts beside those at extremes, and states of a group that have a start of their own.
N_RANDOM_STARTS, MAX_STARTING_STATES = 8, 8
# Smallest difference of a mean, in the distance of a unit's lowest and highest value, and largest
# fall of the log-partition, in nats, of a solution that matters: its weight is e^-3 = 0.05.
MIN_DIFFERENCE, MAX_FALL = 0.1, 3.0
# Tolerance of second solutions, of which three digits are enough.
SECOND_TOL = 1e-5


def has_many_values(priors):
    """Whether all units are discrete, and some have more than two values.

    Parameters
    ----------
    priors : sequence of unit priors
    """
    return all(map(is_discrete, priors)) and not all(map(two_values, priors))


def is_discrete(prior):
    """Whether all units are in groups of states, or have a `support`.

    Parameters
    ----------
    prior : unit prior
    """
    return all(column_is_group(part).all() or support(part) is not None for part in parts_of(prior))


def extreme_starts(prior):
    """All units at their lowest values, and at their highest; groups at each of their first states.

    Parameters
    ----------
    prior : unit prior
        Prior of discrete units.

    Returns
    -------
    array of shape (n_starts, n_units)
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


def second_solutions(solve, model, mean, var, tilt):
    """Reason not to take one solution of one row for the whole machine, "" if none is found.

    Parameters
    ----------
    solve : callable
        `fastmf.tap`.
    model : RBM, DBM or BoltzmannMachine
        Machine for which `has_many_values` holds.
    mean, var : array of shape (1, n_units)
        The solution, in the order of `layout_of_checks`.
    tilt : Tilt
        With one row.

    Returns
    -------
    str
    """
    layout, first = layout_of_checks(model), model.layers[0]
    options = {"tol": SECOND_TOL}
    own = solutions_from(
        solve, model, layout, tuple(map(_parts, map(layout.split, (mean, var)))), tilt, mean,
        **options,
    )  # fmt: skip
    if not own.converged[0]:
        return ""
    starts = np.vstack([
        extreme_starts(first), _opposite(first, mean[:, : n_units(first)]),
        random_starts(model, N_RANDOM_STARTS, 0)[:-1],
    ])  # fmt: skip
    init = (starts,), (np.zeros_like(starts),)
    found = solutions_from(solve, model, layout, init, tilt, mean, **options)
    moved = [
        (abs(there - here) / widths(prior)).max(1, initial=0)
        for prior, there, here in zip(
            model.layers, _parts(found.mean), _parts(own.mean), strict=True
        )
    ]
    rise = np.where(found.converged, found.log_partition - own.log_partition[0], -np.inf)
    rise[np.max(moved, axis=0) < MIN_DIFFERENCE] = -np.inf
    if rise.max() < -MAX_FALL:
        return ""
    above = f"{abs(rise.max()):.3g} nats {'above' if rise.max() >= 0 else 'below'}"
    return (
        f"another solution has other means, and a log-partition {above} its own: `tap` with "
        "n_starts mixes them"
    )


def _parts(arrays):
    return arrays if isinstance(arrays, tuple) else (arrays,)


def _opposite(prior, mean):
    """Means on the other side of the middle; of groups, those of all but the likely states."""
    out, ends = np.empty_like(mean), np.cumsum(column_sizes(prior))
    columns = zip(columns_of_values(prior), column_is_group(prior), ends, strict=True)
    for values, group, end in columns:
        own = slice(end - (len(values) if group else 1), end)
        if group:
            out[:, own] = (1 - mean[:, own]) / max(len(values) - 1, 1)
        else:
            out[:, own] = values.min() + values.max() - mean[:, own]
    return out


def widths(prior):
    """Distance of the lowest and the highest value of each unit of a discrete prior, or 1."""
    found = [np.zeros(0)]
    for part in parts_of(prior):
        if column_is_group(part).all():
            found.append(np.ones(n_units(part)))
        else:
            values = support(part)
            width = np.nanmax(values, axis=0) - np.nanmin(values, axis=0)
            found.append(np.where(width > 0, width, 1.0))
    return np.concatenate(found)
