"""Markov networks of pgmpy."""

import numpy as np

from fastmf.convert._converted import Converted, check_machine, imported, names_of_units
from fastmf.models._state_tables import Tables, factors_of, machine_of_tables, state_tables


def from_pgmpy(network):
    """A machine of categorical units from a network of pgmpy.

    Parameters
    ----------
    network : pgmpy.models.DiscreteMarkovNetwork, MarkovNetwork or DiscreteBayesianNetwork
        Or any object with a method get_factors, or get_cpds, whose factors have the attributes
        variables, values and perhaps state_names. Factors have two variables at most.

    Returns
    -------
    Converted
        Factors of no variable are in `log_factor`. States of a variable that factors list in
        different orders are matched by their names.

    Raises
    ------
    TypeError
        If the object has none of these methods.
    ValueError
        If there is no factor, one has more than two variables, negative entries or none that is
        positive, or if variables have no factor, or states that do not match.

    Notes
    -----
    Zeros become couplings or fields of -inf. A variable with one state gets a second one that never
    occurs, and has the name None.

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
    missing = [name for name in missing if not hasattr(name, "variables")]  # of factor graphs
    if missing or not states:
        raise ValueError(
            f"network must have a factor for each variable, got none of {missing!r:.80}."
        )
    unit = {name: k for k, name in enumerate(states)}
    fields = [np.zeros(len(of_unit)) for of_unit in states.values()]
    edges, couplings, log_factor = [], [], 0.0
    for factor in factors:
        table = _logarithms(factor, states)
        scope = [unit[variable] for variable in factor.variables]
        if not scope:
            log_factor += float(table)
        elif len(scope) == 1:
            fields[scope[0]] += table
        else:
            edges.append(scope)
            couplings.append(table)
    for name, logs in zip(states, fields, strict=True):
        if logs.max() == -np.inf:
            raise ValueError(f"no state of variable {name!r:.60} is possible by its factors.")
    tables = Tables.of(fields, edges, couplings)
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
    names = (getattr(factor, "state_names", None) or {}).get(variable, range(n))
    return list(names)


def _logarithms(factor, states):
    """The logarithms of a factor, with the states of its variables in this order."""
    variables, values = list(factor.variables), np.asarray(factor.values, float)
    if len(variables) > 2:
        raise ValueError(
            "factors must have two variables at most, as models are pairwise, got "
            f"{variables!r:.80}."
        )
    if not (np.isfinite(values) & (values >= 0)).all() or not values.any():
        raise ValueError(
            f"the factor of {variables!r:.80} must have entries at least 0, one of them positive."
        )
    for axis, variable in enumerate(variables):
        state_names = _state_names(factor, variable, values.shape[axis])
        if sorted(map(repr, state_names)) != sorted(map(repr, states[variable])):
            raise ValueError(
                f"the states of {variable!r:.60} must be the same in all factors, got "
                f"{state_names!r:.60} and {states[variable]!r:.60}."
            )
        values = values.take([state_names.index(name) for name in states[variable]], axis=axis)
    with np.errstate(divide="ignore"):
        return np.log(values)


def to_pgmpy(model, names=None, states=None):
    """A Markov network of pgmpy with the distribution of a machine.

    Parameters
    ----------
    model : BoltzmannMachine
        Discrete units.
    names : sequence, optional
        Variable of each unit; default 0, 1, ...
    states : sequence of sequences, optional
        Names of the values of each unit, from the lowest up; default 0, 1, ...

    Returns
    -------
    pgmpy.models.DiscreteMarkovNetwork
        Or MarkovNetwork, in older versions. A factor for each unit and each pair of coupled ones,
        or several equal ones where the exponentials of one would overflow.

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
    check_machine(model)
    tables, _ = state_tables(model)
    names = names_of_units(model, names)
    sizes = tables.sizes.tolist()
    states = [list(range(q)) for q in sizes] if states is None else list(map(list, states))
    if list(map(len, states)) != sizes or any(len(set(s)) != len(s) for s in states):
        raise ValueError(f"states must be different names of {sizes!s:.60} states, unit by unit.")
    models = imported("pgmpy.models", "to_pgmpy")
    factor_class = imported("pgmpy.factors.discrete", "to_pgmpy").DiscreteFactor
    network = getattr(models, "DiscreteMarkovNetwork", None) or models.MarkovNetwork
    network = network()
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
