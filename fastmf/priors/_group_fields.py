"""Fields of groups of states, as `Categorical` takes them, and their checks."""

import numpy as np

from fastmf._common.arguments import real_array


def fields_by_group(field):
    """The fields of each group, as arrays of one floating type."""
    several = isinstance(field, list | tuple | np.ndarray) and len(np.atleast_1d(field[:1])) > 0
    if not several or any(np.ndim(group) != 1 for group in field):
        raise ValueError(
            "Categorical: field must have shape (n_groups, q) or be a list of one array for each "
            f"group, got {_described(field)}."
        )
    return [field_array(group) for group in field]


def _described(field):
    return f"shape {field.shape}" if isinstance(field, np.ndarray) else repr(field)[:40]


def field_array(value):
    return real_array("Categorical: field", value)


def check_states(field, state):
    """Raise unless `state` numbers the states of groups of two and more."""
    if field.ndim != 1 or state.shape != field.shape or len(state) == 0:
        raise ValueError(
            "Categorical: a flat field and its states must have one shape (n_states,), got "
            f"{field.shape} and {state.shape}."
        )
    starts = np.flatnonzero(state == 0)
    if len(starts) == 0 or starts[0] != 0:
        raise ValueError("Categorical: state must begin with 0, the first state of a group.")
    sizes = np.diff(starts, append=len(state))
    if (sizes < 2).any():
        raise ValueError("Categorical: field must have two states at least in each group.")
    if (state != np.arange(len(state)) - np.repeat(starts, sizes)).any():
        raise ValueError("Categorical: state must count 0, 1, 2, ... in each group.")
    if np.isneginf(np.maximum.reduceat(field, starts)).any():
        raise ValueError("Categorical: field must be finite for one state at least of each group.")
