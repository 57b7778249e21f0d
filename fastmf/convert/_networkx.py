"""Graphs of networkx, with fields at nodes and couplings at edges."""

import numpy as np

from fastmf._common.arguments import one_of, real_array
from fastmf.convert._converted import (
    Converted,
    check_machine,
    finite,
    imported,
    names_of_units,
    sparse_couplings,
)
from fastmf.models._graph import pairwise_graph
from fastmf.models._state_tables import Tables, machine_of_tables, state_tables
from fastmf.models.boltzmann import BoltzmannMachine
from fastmf.priors.binary import Bernoulli, Ising
from fastmf.priors.categorical import Categorical

_NETWORKX_UNITS = {"ising": (Ising, [-1, 1]), "bernoulli": (Bernoulli, [0, 1]), "categorical": None}


def from_networkx(graph, units="ising", *, weight="weight", field="field"):
    """A machine whose units are the nodes of a graph, and whose couplings are its edges.

    Parameters
    ----------
    graph : networkx.Graph
        Undirected, without loops; parallel edges of a MultiGraph add up.
    units : {"ising", "bernoulli", "categorical"}, default "ising"
    weight : str, default "weight"
        Attribute of edges: the coupling, 1 where it is missing. For categorical units a table
        (q_i, q_j), whose rows are states of the node that comes first in the graph, or a number for
        each pair of equal states.
    field : str, default "field"
        Attribute of nodes: the field, 0 where it is missing; of categorical units the log-weight of
        each state, which every node must have.

    Returns
    -------
    Converted

    Raises
    ------
    TypeError
        If the graph is directed or no graph of networkx, or an attribute is no number.
    ValueError
        If the graph has no nodes, a loop, or attributes that do not fit.

    Examples
    --------
    >>> import networkx as nx  # doctest: +SKIP
    >>> import fastmf as mf
    >>> grid = nx.grid_2d_graph(4, 4)  # doctest: +SKIP
    >>> model, nodes, _, _ = mf.convert.from_networkx(grid)  # doctest: +SKIP
    >>> model, nodes[:2]  # doctest: +SKIP
    (BoltzmannMachine(16 Ising, 24 sparse couplings, float64), [(0, 0), (0, 1)])
    """
    one_of("units", units, tuple(_NETWORKX_UNITS))
    try:
        nodes, edges = list(graph.nodes(data=True)), list(graph.edges(data=True))
        directed = graph.is_directed()
    except (AttributeError, TypeError) as error:
        raise TypeError(f"graph must be one of networkx, got {type(graph).__name__}.") from error
    if directed:
        raise TypeError("graph must be undirected: use graph.to_undirected().")
    if not nodes:
        raise ValueError("graph must have nodes, got none.")
    names = [name for name, _ in nodes]
    unit = {name: k for k, name in enumerate(names)}
    for a, b, _ in edges:
        if unit[a] == unit[b]:
            raise ValueError(f"graph must have no loops, got one at node {a!r:.60}.")
    if units == "categorical":
        return _categorical(nodes, edges, unit, weight, field)
    class_, states = _NETWORKX_UNITS[units]
    prior = class_(np.array([finite(field, at.get(field, 0.0), name) for name, at in nodes]))
    rows, columns = (np.array([unit[e[k]] for e in edges], np.int64) for k in (0, 1))
    values = np.array([finite(weight, at.get(weight, 1.0), (a, b)) for a, b, at in edges], float)
    couplings = sparse_couplings(rows, columns, values, len(names))
    return Converted(BoltzmannMachine(couplings, prior), names, [list(states) for _ in names])


def _categorical(nodes, edges, unit, weight, field):
    fields, pairs, couplings = [], [], []
    for name, attributes in nodes:
        if field not in attributes:
            raise ValueError(f"node {name!r:.60} must have the log-weights of its states, {field}.")
        logs = real_array(field, attributes[field]).astype(float)
        if logs.ndim != 1 or len(logs) == 0:
            raise ValueError(
                f"{field} of node {name!r:.60} must have shape (n_states,), got {logs.shape}."
            )
        fields.append(logs)
    for a, b, attributes in edges:
        i, j = sorted((unit[a], unit[b]))
        shape = len(fields[i]), len(fields[j])
        table = real_array(weight, attributes.get(weight, 1.0)).astype(float)
        table = table * np.eye(*shape) if table.ndim == 0 else table
        if table.shape != shape:
            raise ValueError(
                f"{weight} of edge {(a, b)!r:.60} must be a number or have shape {shape}, got "
                f"{table.shape}."
            )
        pairs.append((i, j))
        couplings.append(table)
    machine = machine_of_tables(Tables.of(fields, pairs, couplings))
    return Converted(machine, list(unit), [list(range(len(logs))) for logs in fields])


def to_networkx(model, names=None, *, weight="weight", field="field"):
    """The graph of a machine, with an edge for each pair of coupled units.

    Parameters
    ----------
    model : BoltzmannMachine
        Ising, Bernoulli or categorical units.
    names : sequence, optional
        Node of each unit; default 0, 1, ...
    weight : str, default "weight"
        Attribute of edges: the coupling, of categorical units a table (q_i, q_j) for nodes i < j in
        the order of units.
    field : str, default "field"
        Attribute of nodes: the field, of categorical units an array (q,).

    Returns
    -------
    networkx.Graph

    Raises
    ------
    ImportError
        If networkx is not installed.
    TypeError
        If the model is of another class.
    ValueError
        If the units are of another kind, or names are too few or not unique.

    Examples
    --------
    >>> import numpy as np, fastmf as mf
    >>> machine = mf.BoltzmannMachine([[0.0, 0.5], [0.5, 0.0]], mf.Ising(np.zeros(2)))
    >>> graph = mf.convert.to_networkx(machine, ["a", "b"])  # doctest: +SKIP
    >>> graph.edges["a", "b"]  # doctest: +SKIP
    {'weight': 0.5}
    """
    check_machine(model)
    if not isinstance(model.prior, Ising | Bernoulli | Categorical):
        raise ValueError(
            "model must have Ising, Bernoulli or categorical units, got "
            f"{type(model.prior).__name__}."
        )
    names = names_of_units(model, names)
    if isinstance(model.prior, Categorical):
        tables, _ = state_tables(model)
        edges, (fields, couplings) = tables.edges, tables.arrays()
    else:
        graph = pairwise_graph(model)
        fields, edges, couplings = model.prior.field.tolist(), graph.edges, graph.values.tolist()
    graph = imported("networkx", "to_networkx").Graph()
    graph.add_nodes_from((name, {field: value}) for name, value in zip(names, fields, strict=True))
    graph.add_edges_from(
        (names[i], names[j], {weight: value})
        for (i, j), value in zip(edges.tolist(), couplings, strict=True)
    )
    return graph
