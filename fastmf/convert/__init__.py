"""Conversion of models from and to networks of pgmpy.

Networks are read through their attributes, without importing pgmpy; `to_pgmpy` needs pgmpy.
"""

from importlib import import_module
from typing import Any, NamedTuple

import numpy as np

from fastmf.models._state_tables import (
    factors_of,
    machine_of_tables,
    state_tables,
    tables_of_factors,
)
from fastmf.models.boltzmann import BoltzmannMachine

__all__ = ["from_pgmpy", "to_pgmpy"]


class Converted(NamedTuple):
    """Result of `from_pgmpy`.

    Parameters
    ----------
    model : BoltzmannMachine
        Sparse couplings.
    names : list
        Names of the network's variables, in the order of the units. Further units represent factors
        of more than two variables, as in `datasets.load_uai`.
    states : list of lists
        Names of the values of each variable, in the order of states.
    log_factor : float, default 0
        Logarithm of a constant factor that is not part of the model.

    Examples
    --------
    See `from_pgmpy`.
    """

    model: BoltzmannMachine
    names: list[Any]
    states: list[list[Any]]
    log_factor: float = 0.0


def from_pgmpy(network):
    """Convert a network of pgmpy to a machine of categorical units.

    Parameters
    ----------
    network : pgmpy.models.DiscreteMarkovNetwork, MarkovNetwork or DiscreteBayesianNetwork
        Or any object with a method get_factors, or get_cpds, whose factors have the attributes
        variables, values and optionally state_names.

    Returns
    -------
    Converted
        Factors without variables are in `log_factor`. If factors list the states of a variable in
        different orders, they are matched by name.

    Raises
    ------
    TypeError
        If the object has neither method.
    ValueError
        If there are no factors, a factor has negative or only zero entries, a variable has no
        factor, or states do not match.

    Notes
    -----
    Zeros become couplings or fields of -inf. A variable with one state gets a second state named
    None, which has probability zero.

    Examples
    --------
    >>> import types
    >>> import numpy as np, fastmf as mf
    >>> factor = types.SimpleNamespace(
    ...     variables=["rain", "wet"], values=np.array([[3.0, 1.0], [0.0, 4.0]]),
    ...     state_names={"rain": ["no", "yes"], "wet": ["no", "yes"]},
    ... )
    >>> network = types.SimpleNamespace(get_factors=lambda: [factor])
    >>> model, names, states, _ = mf.convert.from_pgmpy(network)
    >>> names, states[0], mf.exact(model).mean.round(3).tolist()
    (['rain', 'wet'], ['no', 'yes'], [0.5, 0.5, 0.375, 0.625])
    """
    factors = _factors(network)
    states = {}
    for factor in factors:
        for variable, n in zip(factor.variables, np.shape(factor.values), strict=True):
            states.setdefault(variable, _state_names(factor, variable, n))
    missing = [name for name in getattr(network, "nodes", list)() if name not in states]
    missing = [name for name in missing if not hasattr(name, "variables")]  # nodes of factors
    if missing or not states:
        raise ValueError(
            f"network must have a factor for each variable, got none of {missing!r:.80}."
        )
    unit = {name: k for k, name in enumerate(states)}
    scopes = ([unit[variable] for variable in factor.variables] for factor in factors)
    tables = (_logarithms(factor, states) for factor in factors)
    sizes = list(map(len, states.values()))
    tables, log_factor = tables_of_factors(sizes, zip(scopes, tables, strict=True), list(states))
    named = [of_unit + [None] * (len(of_unit) == 1) for of_unit in states.values()]
    return Converted(machine_of_tables(tables), list(states), named, log_factor)


def _factors(network):
    if hasattr(network, "get_factors"):
        return list(network.get_factors())
    if hasattr(network, "get_cpds"):
        return [table.to_factor() for table in network.get_cpds()]
    raise TypeError(
        "network must be one of pgmpy, with a method get_factors or get_cpds, got "
        f"{type(network).__name__}."
    )


def _state_names(factor, variable, n):
    return list((getattr(factor, "state_names", None) or {}).get(variable, range(n)))


def _logarithms(factor, states):
    """Return the logarithm of a factor, with the states of its variables in this order."""
    variables, values = list(factor.variables), np.asarray(factor.values, float)
    if not (np.isfinite(values) & (values >= 0)).all() or not values.any():
        raise ValueError(
            f"the factor of {variables!r:.80} must have entries at least 0, one of them positive."
        )
    for axis, variable in enumerate(variables):
        state_names = _state_names(factor, variable, values.shape[axis])
        names = set(state_names)  # as for pgmpy, names are the same if they are equal
        if names != set(states[variable]) or len(names) != values.shape[axis]:
            raise ValueError(
                f"the states of {variable!r:.60} must differ, and be the same in all factors, got "
                f"{state_names!r:.60} and {states[variable]!r:.60}."
            )
        values = values.take([state_names.index(name) for name in states[variable]], axis=axis)
    with np.errstate(divide="ignore"):
        return np.log(values)


def to_pgmpy(model, names=None, states=None):
    """Convert a machine to a Markov network of pgmpy with the same distribution.

    Parameters
    ----------
    model : BoltzmannMachine
        Units must be discrete.
    names : sequence, optional
        Variable of each unit; default 0, 1, ...
    states : sequence of sequences, optional
        Names of the values of each unit, in ascending order; default 0, 1, ...

    Returns
    -------
    pgmpy.models.DiscreteMarkovNetwork
        Or MarkovNetwork, in older versions. There is a factor for each unit and each coupled pair;
        it is split into several equal factors if its exponentials would overflow.

    Raises
    ------
    ImportError
        If pgmpy is not installed.
    TypeError
        If the model is of another class.
    ValueError
        If units are not discrete, or names or states do not fit.

    Examples
    --------
    >>> import numpy as np, fastmf as mf
    >>> machine = mf.BoltzmannMachine([[0.0, 0.5], [0.5, 0.0]], mf.Ising(np.zeros(2)))
    >>> network = mf.convert.to_pgmpy(machine, ["a", "b"])  # doctest: +SKIP
    >>> float(network.get_partition_function())  # doctest: +SKIP
    4.510503...
    """
    tables, _ = state_tables(model)
    sizes = tables.sizes.tolist()
    n, names = len(sizes), list(range(len(sizes)) if names is None else names)
    if len(names) != n or len(set(names)) != n:
        raise ValueError(f"names must be {n} different ones, one for each unit, got {len(names)}.")
    states = [list(range(q)) for q in sizes] if states is None else list(map(list, states))
    if list(map(len, states)) != sizes or any(len(set(s)) != len(s) for s in states):
        raise ValueError(f"states must be different names of {sizes!s:.60} states, unit by unit.")
    try:
        models = import_module("pgmpy.models")
        factor_class = import_module("pgmpy.factors.discrete").DiscreteFactor
    except ImportError as error:
        raise ImportError("to_pgmpy needs pgmpy: pip install pgmpy", name="pgmpy") from error
    network = (getattr(models, "DiscreteMarkovNetwork", None) or models.MarkovNetwork)()
    network.add_nodes_from(names)
    network.add_edges_from((names[i], names[j]) for i, j in tables.edges.tolist())
    for scope, table in factors_of(tables):
        factor = factor_class(
            [names[k] for k in scope],
            [sizes[k] for k in scope],
            table.ravel(),
            state_names={names[k]: states[k] for k in scope},
        )
        network.add_factors(factor)
    return network
