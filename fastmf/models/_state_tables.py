"""Tables of the log-weights of a machine's states: by unit, and by pair of coupled units.

A group of states is one unit here, whose values are the rows of an identity matrix; the values of
any other unit are the numbers of its support.
"""

import math
from typing import NamedTuple

import numpy as np
import scipy

from fastmf._common.arguments import rows as real_rows
from fastmf.models._elimination import Marginals, Tables
from fastmf.models._graph import pairwise_graph
from fastmf.models.boltzmann import BoltzmannMachine
from fastmf.priors._groups import as_states, has_groups
from fastmf.priors._protocol import by_parts, has_log_prob, parts_of
from fastmf.priors._queries import columns_of_values, support
from fastmf.priors.categorical import Categorical

# The exponential of a larger logarithm is infinite.
MAX_LOG = math.log(np.finfo(np.float64).max)


def state_tables(model, field=None):
    """Log-weights of the states of a BoltzmannMachine."""
    fields, values = unit_tables(model, field)
    graph = pairwise_graph(model)
    return Tables(fields, graph.edges, coupling_tables(graph, values)), values


def unit_tables(model, field=None):
    """The fields of `state_tables`, and the values.

    Arrays of shapes (n_units, n_values) and (n_units, n_values, 1) where all units are alone, and
    have equal numbers of values; as sequences they are the same as the lists.
    """
    values = _equal_columns(model.prior)
    if values is None:
        values = columns_of_values(model.prior)
    if values is None:
        raise ValueError(f"model must have discrete units (with a `support`), got {model}.")
    if not all(map(has_log_prob, parts_of(model.prior))):
        raise TypeError("exact sums need a prior with log_prob; that of the model has none.")
    shift = _one_row("field", field, model)
    if shift is None:
        shift = np.zeros(model.n_units)
    if isinstance(values, np.ndarray):
        pairs = by_parts(model.prior, values[:, :, 0].T), by_parts(model.prior, shift)
        weights = [part.log_prob(x) + b * x for (part, x), (_, b) in zip(*pairs, strict=True)]
        return np.concatenate(weights, axis=1).T.astype(np.float64), values
    return [logs for pair in by_parts(model.prior, shift) for logs in _fields(*pair)], values


def _equal_columns(prior):
    """Values of all units, (n_units, n_values, 1); None for groups, or unequal numbers of them."""
    parts = parts_of(prior)
    if any(map(has_groups, parts)):
        return None
    found = [support(part) for part in parts]
    if any(x is None or np.isnan(x).any() or len(x) != len(found[0]) for x in found):
        return None
    return np.concatenate(found, axis=1).T[:, :, None].astype(np.float64)


def coupling_tables(graph, values):
    """The tables of the edges of a `PairwiseGraph` over these values of its units."""
    raw, edges = graph.values.astype(np.float64), graph.edges
    if isinstance(values, np.ndarray):
        first, second = (values[edges[:, k], :, 0] for k in (0, 1))
        return raw[:, None, None] * first[:, :, None] * second[:, None, :]
    return [
        _by_values(table, values[i], values[j])
        for (i, j), table in zip(edges.tolist(), np.split(raw, graph.offsets[1:-1]), strict=False)
    ]


def _one_row(name, value, model, missing=False):
    value = real_rows(name, value, model.n_units, np.float64, missing=missing)
    if value is not None and value.ndim != 1:
        raise ValueError(f"{name} must have shape ({model.n_units},), got {value.shape}.")
    return value


def allowed_states(model, clamp, values):
    """For each unit, which of its values it may take when some are clamped."""
    clamp = _one_row("clamp", as_states("clamp", model.prior, clamp), model, missing=True)
    if clamp is None and isinstance(values, np.ndarray):
        return np.ones(values.shape[:2], bool)
    if clamp is None:
        return [np.ones(len(of_unit), bool) for of_unit in values]
    allowed, first = [], 0
    for of_unit in values:
        wanted = clamp[first : first + of_unit.shape[1]]
        allowed.append(((of_unit == wanted) | np.isnan(wanted)).all(1))
        first += of_unit.shape[1]
        if not allowed[-1].any():
            raise ValueError(
                f"clamp has values outside the support of its units, for unit {len(allowed) - 1}."
            )
    return allowed


def _fields(part, shift):
    """The log-weights of each group or unit of a prior without parts."""
    if has_groups(part):
        return np.split((part.field + shift).astype(np.float64), part.starts[1:])
    values = np.asarray(support(part), np.float64)
    there = ~np.isnan(values)
    values = np.where(there, values, values[0])
    weights = part.log_prob(values) + shift * values
    return [
        column[rows].astype(np.float64) for column, rows in zip(weights.T, there.T, strict=True)
    ]


def _by_values(table, first, second):
    """A flat coupling as a table over the values of two units, those of groups being its states."""
    table = table.reshape(first.shape[1], second.shape[1])
    if first.shape[1] == 1:
        table = _product(first, table)
    if second.shape[1] == 1:
        table = _product(second, table.T).T
    return table


def _product(values, row):
    """Outer product in which 0 times -inf is 0."""
    with np.errstate(invalid="ignore"):
        return np.where(values == 0, 0.0, values * row)


def with_all_pairs(tables):
    """The same with tables of zeros for pairs without a coupling."""
    n = len(tables.fields)
    known = dict(zip(map(tuple, tables.edges.tolist()), tables.couplings, strict=True))
    pairs = np.stack(np.triu_indices(n, 1), axis=1)
    sizes = list(map(len, tables.fields))
    couplings = [known.get((i, j), np.zeros((sizes[i], sizes[j]))) for i, j in pairs.tolist()]
    return Tables(tables.fields, pairs, couplings)


def machine_of_tables(tables):
    """The machine of categorical units with these log-weights, and sparse couplings."""
    fields = [np.append(f, -np.inf) if len(f) == 1 else f for f in tables.fields]
    sizes = np.array(list(map(len, fields)))
    first = np.cumsum(sizes) - sizes
    rows, columns, entries = [np.empty(0, int)], [np.empty(0, int)], [np.empty(0)]
    for (i, j), table in zip(tables.edges.tolist(), tables.couplings, strict=True):
        n, m = table.shape
        rows.append(np.repeat(first[i] + np.arange(n), m))
        columns.append(np.tile(first[j] + np.arange(m), n))
        entries.append(np.ravel(table))
    rows, columns, entries = map(np.concatenate, (rows, columns, entries))
    upper = scipy.sparse.coo_array(
        (entries, (rows, columns)), shape=(sizes.sum(), sizes.sum())
    ).tocsr()
    return BoltzmannMachine(upper + upper.T, Categorical(fields))


def factors_of(tables):
    """Pairs of a list of units and a table of factors, whose product has these logarithms."""
    scopes = [[k] for k in range(len(tables.fields))] + tables.edges.tolist()
    logarithms = [*tables.fields, *tables.couplings]
    return [
        (scope, factor)
        for scope, logs in zip(scopes, logarithms, strict=True)
        for factor in equal_factors(logs)
    ]


def equal_factors(logs):
    """Equal tables whose product has these logarithms; several where one would overflow."""
    largest = abs(np.where(np.isinf(logs), 0, logs)).max()
    n_factors = max(1, math.ceil(largest / MAX_LOG))
    return [np.exp(np.asarray(logs) / n_factors)] * n_factors


class Restriction(NamedTuple):
    """Tables over the states that can occur, of units with a choice among several of them.

    Parameters
    ----------
    tables : Tables
    constant : float
        Log-weight of the units that have one state left.
    allowed : list of bool arrays of shape (n_states_i,)
        States left of each unit.
    units : int array of shape (n_units,)
        Number of each unit in `tables`; -1 for those that have one state.
    edges : int array of shape (n_edges,)
        The same of edges.
    is_whole : bool
        Whether nothing is left out.
    """

    tables: Tables
    constant: float
    allowed: list
    units: np.ndarray
    edges: np.ndarray
    is_whole: bool = False


def restricted(tables, allowed):
    """Leave out states that are not allowed, and units with one state."""
    if isinstance(allowed, np.ndarray) and allowed.all() and allowed.shape[1] > 1:
        units, edges = np.arange(len(allowed)), np.arange(len(tables.edges))
        return Restriction(tables, 0.0, allowed, units, edges, True)
    n_left = np.array([np.count_nonzero(a) for a in allowed])
    n_states = np.array(list(map(len, allowed)))
    fields = [f[a] for f, a in zip(tables.fields, allowed, strict=True)]
    fixed = n_left == 1
    constant = float(sum(fields[i][0] for i in np.nonzero(fixed)[0]))
    couplings, kept = [], np.full(len(tables.edges), -1)
    touched = (n_left < n_states)[tables.edges].any(1) if len(tables.edges) else kept
    for e, (i, j) in enumerate(tables.edges.tolist()):
        table = tables.couplings[e]
        if touched[e]:
            table = table[np.ix_(allowed[i], allowed[j])]
        if not (fixed[i] or fixed[j]):
            kept[e] = len(couplings)
            couplings.append(table)
        elif fixed[i] and fixed[j]:
            constant += float(table[0, 0])
        else:
            free, row = (j, table[0]) if fixed[i] else (i, table[:, 0])
            fields[free] = fields[free] + row
    units = np.where(fixed, -1, np.cumsum(~fixed) - 1)
    left = [field for field, one in zip(fields, fixed, strict=True) if not one]
    edges = units[tables.edges[kept >= 0]].reshape(-1, 2)
    return Restriction(Tables(left, edges, couplings), constant, allowed, units, kept)


def marginals_of_all(restriction, edges, found):
    """The marginals of all units and edges, from those of a restriction."""
    log_partition = found.log_partition + restriction.constant
    if found.units is None or restriction.is_whole:
        return found._replace(log_partition=log_partition)
    allowed, units = restriction.allowed, []
    for a, k in zip(allowed, restriction.units.tolist(), strict=True):
        unit = np.zeros(len(a))
        unit[a] = found.units[k] if k >= 0 else 1.0
        units.append(unit)
    whole = [bool(a.all()) for a in allowed]
    pairs = []
    for (i, j), k in zip(edges.tolist(), restriction.edges.tolist(), strict=True):
        if k >= 0 and whole[i] and whole[j]:
            pairs.append(found.pairs[k])
            continue
        pair = np.outer(units[i], units[j])
        if k >= 0:
            pair[np.ix_(allowed[i], allowed[j])] = found.pairs[k]
        pairs.append(pair)
    return Marginals(log_partition, units, pairs)


def states_of_all(restriction, states):
    """The states of all units, from those of a restriction, int array of shape (n_units,)."""
    if restriction.is_whole:
        return states
    found = np.array([a.argmax() for a in restriction.allowed])
    for i in np.nonzero(restriction.units >= 0)[0]:
        found[i] = np.nonzero(restriction.allowed[i])[0][states[restriction.units[i]]]
    return found


def averages_of_units(marginals, edges, values):
    """Means of values, of their squares, and of products of coupled units."""
    if isinstance(values, np.ndarray) and isinstance(marginals.pairs, np.ndarray):
        numbers = values[:, :, 0]
        mean, square = ((marginals.units * numbers**power).sum(1) for power in (1, 2))
        by_first = np.einsum("es,est->et", numbers[edges[:, 0]], marginals.pairs)
        products = (by_first * numbers[edges[:, 1]]).sum(1)
        return mean, square, _symmetric(*edges.T, products, square)
    mean, square = (
        np.concatenate([p @ v**power for p, v in zip(marginals.units, values, strict=True)])
        for power in (1, 2)
    )
    widths = np.array([v.shape[1] for v in values])
    first = np.cumsum(widths) - widths
    rows, columns, products = [], [], []
    for (i, j), pair in zip(edges.tolist(), marginals.pairs, strict=True):
        product = pair if widths[i] == len(pair) else values[i].T @ pair
        product = product if widths[j] == pair.shape[1] else product @ values[j]
        products.append(product.ravel())
        rows.append(np.repeat(first[i] + np.arange(widths[i]), widths[j]))
        columns.append(np.tile(first[j] + np.arange(widths[j]), widths[i]))
    rows, columns = (np.concatenate([np.empty(0, int), *parts]) for parts in (rows, columns))
    products = np.concatenate([np.empty(0), *products])
    return mean, square, _symmetric(rows, columns, products, square)


def _symmetric(rows, columns, products, square):
    """Products of pairs in both orders, and squares on the diagonal, as a sparse array."""
    units = np.arange(len(square))
    entries = np.concatenate([products, products, square])
    places = np.concatenate([rows, columns, units]), np.concatenate([columns, rows, units])
    return scipy.sparse.csr_array((entries, places), shape=(len(square), len(square)))
