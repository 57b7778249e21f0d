"""Common parts of conversions: models with names, and checks of these."""

from importlib import import_module
from typing import Any, NamedTuple

import numpy as np
from scipy.sparse import coo_array

from fastmf.models.boltzmann import BoltzmannMachine
from fastmf.priors._queries import columns_of_values


class Converted(NamedTuple):
    """Result of the functions named ``from_...``.

    Parameters
    ----------
    model : BoltzmannMachine
        Sparse couplings.
    names : list
        Names of the units in the other package, in the order of units.
    states : list of lists
        Names of the values of each unit there; of categorical units in the order of states.
    log_factor : float, default 0
        Logarithm of a constant factor that is not part of the model.

    Examples
    --------
    See `from_networkx`.
    """

    model: BoltzmannMachine
    names: list[Any]
    states: list[list[Any]]
    log_factor: float = 0.0


def sparse_couplings(rows, columns, values, n):
    """Symmetric couplings, (n, n), from one triangle; pairs that occur twice add up."""
    half = coo_array((values, (rows, columns)), shape=(n, n)).tocsr()
    return half + half.T


def check_machine(model):
    """Raise a TypeError unless the model is a BoltzmannMachine."""
    if not isinstance(model, BoltzmannMachine):
        raise TypeError(f"model must be a BoltzmannMachine, got {type(model).__name__}.")


def names_of_units(model, names):
    """A name for each unit or group of states, by default numbers."""
    n = len(columns_of_values(model.prior) or model.prior[0])
    names = list(range(n)) if names is None else list(names)
    if len(names) != n or len(set(names)) != n:
        raise ValueError(f"names must be {n} different ones, one for each unit, got {len(names)}.")
    return names


def finite(name, value, of):
    """A number from another package as a float."""
    try:
        value = float(value)
    except (TypeError, ValueError):
        raise TypeError(f"{name} of {of!r:.60} must be a number, got {value!r:.40}.") from None
    if not np.isfinite(value):
        raise ValueError(f"{name} of {of!r:.60} must be finite, got {value}.")
    return value


def imported(module, caller):
    """A module of an optional package."""
    package = module.partition(".")[0]
    try:
        return import_module(module)
    except ImportError as error:
        raise ImportError(
            f"{caller} needs {package}: pip install {package}", name=package
        ) from error
