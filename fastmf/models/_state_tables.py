"""The graph of a fully visible machine, and log-weights of the states of its units and edges.

A group of states is one unit here. The states of all units are concatenated in flat arrays, and so
are the tables of all edges.
"""

import math
from typing import NamedTuple

import numpy as np
import scipy

from fastmf._common.arguments import rows as real_rows
from fastmf._common.rows import is_sparse
from fastmf.models._couplings import stored
from fastmf.models.boltzmann import BoltzmannMachine
from fastmf.priors._groups import as_states, column_sizes, has_groups
from fastmf.priors._protocol import has_log_prob, n_units, parts_of
from fastmf.priors._queries import state_counts, support
from fastmf.priors.categorical import Categorical

# Largest logarithm whose exponential is finite.
MAX_LOG = math.log(np.finfo(np.float64).max)


class Tables(NamedTuple):
    """Log-weights of a pairwise graph."""

    sizes: np.ndarray  # int (n_units,): numbers of states
    edges: np.ndarray  # int (n_edges, 2): every pair once
    fields: np.ndarray  # (n_states,): unit after unit
    # (n_entries,): edge after edge, each a table with the states of its first unit along the rows
    couplings: np.ndarray

    @classmethod
    def of(cls, fields, edges, couplings):
        """Make tables from an array for each unit and for each edge."""
        sizes = np.fromiter(map(len, fields), np.int64, len(fields))
        flat = (np.concatenate([np.zeros(0), *map(np.ravel, part)]) for part in (fields, couplings))
        return cls(sizes, np.asarray(edges, np.int64).reshape(-1, 2), *flat)

    @property
    def first(self):
        """First state of each unit."""
        return np.cumsum(self.sizes) - self.sizes

    @property
    def units(self):
        """Unit of each state."""
        return np.repeat(np.arange(len(self.sizes)), self.sizes)

    def pairs(self):
        """Return the edge of each entry of the couplings, and the states of both units."""
        rows, columns = self.sizes[self.edges].T
        n_entries = rows * columns
        edge = np.repeat(np.arange(len(self.edges)), n_entries)
        within = np.arange(len(edge)) - np.repeat(np.cumsum(n_entries) - n_entries, n_entries)
        row, column = np.divmod(within, columns[edge])
        first, second = self.first[self.edges].T
        return edge, row + first[edge], column + second[edge]

    def arrays(self):
        """Return lists of views: the field of each unit, and the coupling of each edge."""
        shapes = self.sizes[self.edges]
        couplings = np.split(self.couplings, np.cumsum(shapes.prod(1)[:-1]))
        tables = zip(couplings, shapes.tolist(), strict=False)
        fields = np.split(self.fields, self.first[1:])
        return fields[: len(self.sizes)], [table.reshape(shape) for table, shape in tables]


class Marginals(NamedTuple):
    """Log-partition, and probabilities of states and pairs of states, flat as in `Tables`."""

    log_partition: float
    units: np.ndarray | None
    pairs: np.ndarray | None


class States(NamedTuple):
    """States of the units of a model, unit after unit."""

    sizes: np.ndarray  # int (n_units,)
    # int (n_states,): column in the prior, of a unit or of a state of a group, that has the value
    columns: np.ndarray
    values: np.ndarray  # (n_states,): values in ascending order, or 1 for the states of a group
    weights: np.ndarray  # (n_states,): log-weights without couplings

    def possible(self, given, wanted):
        """Return whether each state agrees with values of the units of the prior under a mask."""
        unit = np.repeat(np.arange(len(self.sizes)), self.sizes)
        unit_of_column = np.empty(len(given), np.int64)
        unit_of_column[self.columns] = unit
        nonzero = given & (wanted != 0)
        # States of a group have the value 0 in its other columns.
        n_nonzero = np.bincount(unit_of_column, nonzero, len(self.sizes))
        elsewhere = n_nonzero[unit] - nonzero[self.columns]
        return ~(given[self.columns] & (self.values != wanted[self.columns])) & (elsewhere == 0)

    def couplings(self, graph):
        """Return the flat couplings of a `PairwiseGraph` over these states."""
        tables = Tables(self.sizes, graph.edges, self.weights, graph.values)
        edge, row, column = tables.pairs()
        # Units have one column in the table of the graph, groups one for each state.
        within = self.columns - self.columns[tables.first][tables.units]
        width = 1 + within[np.cumsum(self.sizes) - 1]
        source = graph.offsets[edge] + within[column]
        source += within[row] * width[graph.edges[edge, 1]]
        couplings = graph.values[source].astype(np.float64)
        couplings *= self.values[row]
        couplings *= self.values[column]
        return couplings

    def means(self, marginals):
        """Compute means of the values of the units of the prior, and of their squares."""
        n = self.columns.max(initial=-1) + 1
        return [
            np.bincount(self.columns, marginals.units * self.values**power, n) for power in (1, 2)
        ]


def states_of_units(prior):
    """Make the `States` of discrete units."""
    sizes, columns, values, weights, first = [], [], [], [], 0
    for part in parts_of(prior):
        n = n_units(part)
        table = None if has_groups(part) else support(part)
        if has_groups(part):
            sizes.append(part.sizes)
            columns.append(first + np.arange(n))
            values.append(np.ones(n))
            weights.append(part.field.astype(np.float64))
        elif table is None:
            got = type(part).__name__
            raise ValueError(f"model must have discrete units (with a `support`), got {got}.")
        elif not has_log_prob(part):
            raise TypeError(
                "exact sums need a prior with log_prob; the prior of the model has none."
            )
        else:
            table = np.sort(np.asarray(table, np.float64), axis=0)  # NaN last
            exists = ~np.isnan(table)
            logs = part.log_prob(np.where(exists, table, table[0]))
            sizes.append(exists.sum(0))
            columns.append(np.repeat(first + np.arange(n), sizes[-1]))
            values.append(table.T[exists.T])
            weights.append(logs.T[exists.T].astype(np.float64))
        first += n
    return States(*map(np.concatenate, (sizes, columns, values, weights)))


def state_tables(model):
    """Make the `Tables` and `States` of a BoltzmannMachine."""
    if not isinstance(model, BoltzmannMachine):
        raise TypeError(f"model must be a BoltzmannMachine, got {type(model).__name__}.")
    states, graph = states_of_units(model.prior), pairwise_graph(model)
    return Tables(states.sizes, graph.edges, states.weights, states.couplings(graph)), states


def one_row(name, value, model, missing=False):
    """Check values of the units of a machine, one row, or None."""
    value = real_rows(name, value, model.n_units, np.float64, missing=missing)
    if value is not None and value.ndim != 1:
        raise ValueError(f"{name} must have shape ({model.n_units},), got {value.shape}.")
    return value


def allowed_states(model, clamp, states):
    """Return which `States` are allowed if some units are clamped."""
    clamp = one_row("clamp", as_states("clamp", model.prior, clamp), model, missing=True)
    if clamp is None:
        return np.ones(len(states.values), bool)
    allowed = states.possible(~np.isnan(clamp), clamp)
    none = np.logical_or.reduceat(allowed, np.cumsum(states.sizes) - states.sizes) == 0
    if none.any():
        raise ValueError(
            f"clamp has values outside the support of its units, for unit {int(none.argmax())}."
        )
    return allowed


def with_all_pairs(tables):
    """Add tables of zeros for pairs without a coupling; edges are in order."""
    n = len(tables.sizes)
    first, second = np.triu_indices(n, 1)
    coupled = np.zeros((n, n), bool)
    coupled[tuple(tables.edges.T)] = True
    is_entry = np.repeat(coupled[first, second], tables.sizes[first] * tables.sizes[second])
    couplings = np.zeros(len(is_entry))
    couplings[is_entry] = tables.couplings
    return tables._replace(edges=np.stack([first, second], axis=1), couplings=couplings)


def tables_of_factors(sizes, factors, names=None):
    """Convert logarithms of factors to tables, and return the sum of constant ones.

    A factor of three or more variables becomes a unit after all variables, with a state for each
    possible entry of its table, tied to the variables by couplings of -inf.
    """
    fields, edges, couplings, log_factor = [np.zeros(q) for q in sizes], [], [], 0.0
    for scope, table in factors:
        if len(scope) == 0:
            log_factor += float(table)
        elif len(scope) == 1:
            fields[scope[0]] += table
        elif len(scope) == 2:
            edges.append(scope)
            couplings.append(table)
        else:
            states = np.nonzero(table > -np.inf)
            for variable, values in zip(scope, states, strict=True):
                edges.append((variable, len(fields)))
                is_value = np.arange(sizes[variable])[:, None] == values
                couplings.append(np.where(is_value, 0.0, -np.inf))
            fields.append(table[states])
    for k, field in enumerate(fields):
        if field.max() == -np.inf:
            name = names[k] if names else k
            raise ValueError(f"no state of variable {name!r:.60} is possible by its factors.")
    return Tables.of(fields, edges, couplings), log_factor


def machine_of_tables(tables):
    """Make a machine of categorical units with these log-weights, and sparse couplings."""
    _, rows, columns = tables.pairs()
    # Units with one state receive a second state, which is impossible.
    is_single = tables.sizes == 1
    moved = np.arange(len(tables.fields)) + (np.cumsum(is_single) - is_single)[tables.units]
    sizes = tables.sizes + is_single
    n = sizes.sum()
    fields = np.full(n, -np.inf)
    fields[moved] = tables.fields
    upper = scipy.sparse.coo_array(
        (tables.couplings, (moved[rows], moved[columns])), shape=(n, n)
    ).tocsr()
    return BoltzmannMachine(upper + upper.T, Categorical(np.split(fields, np.cumsum(sizes)[:-1])))


def factors_of(tables):
    """Return factors, as pairs (units, table), whose product has these logarithms."""
    fields, couplings = tables.arrays()
    scopes = [[k] for k in range(len(fields))] + tables.edges.tolist()
    return [
        (scope, factor)
        for scope, logs in zip(scopes, fields + couplings, strict=True)
        for factor in equal_factors(logs)
    ]


def equal_factors(logs):
    """Return equal tables whose product has these logarithms: several if one would overflow."""
    largest = abs(np.where(np.isinf(logs), 0, logs)).max()
    n_factors = max(1, math.ceil(largest / MAX_LOG))
    return [np.exp(np.asarray(logs) / n_factors)] * n_factors


class Restriction:
    """Tables restricted to possible states, of positive weight, and to units with several of them.

    `constant` is the log-weight of the units with one possible state.
    """

    def __init__(self, tables):
        self.constant, self.tables, self._given = 0.0, tables, None
        possible = tables.fields > -np.inf
        if possible.all() and tables.sizes.min(initial=2) > 1:
            return
        units, (_, row, column) = tables.units, tables.pairs()
        n_possible = np.bincount(units, possible, len(tables.sizes)).astype(np.int64)
        fixed = n_possible == 1
        fields, free = tables.fields.copy(), possible & ~fixed[units]
        entries = np.flatnonzero(possible[row] & possible[column])
        rows, columns, values = row[entries], column[entries], tables.couplings[entries]
        by_row, by_column = fixed[units[rows]], fixed[units[columns]]
        for chosen, states in ((by_row, columns), (by_column & ~by_row, rows)):
            np.add.at(fields, states[chosen], values[chosen])
        self.constant = float(fields[possible & fixed[units]].sum())
        entries = entries[~by_row & ~by_column]
        edges = (np.cumsum(~fixed) - 1)[tables.edges[~fixed[tables.edges].any(1)]]
        couplings = tables.couplings[entries]
        self.tables = Tables(n_possible[~fixed], edges, fields[free], couplings)
        self._given = possible, free, row, column, entries

    def marginals(self, marginals):
        """Extend the marginals of the restricted `tables` to all units and edges."""
        marginals = marginals._replace(log_partition=marginals.log_partition + self.constant)
        if marginals.units is None or self._given is None:
            return marginals
        possible, free, row, column, entries = self._given
        units = possible.astype(np.float64)
        units[free] = marginals.units
        pairs = units[row] * units[column]
        pairs[entries] = marginals.pairs
        return marginals._replace(units=units, pairs=pairs)


def average_products(tables, states, marginals, squares):
    """Compute means of products of the values of coupled units, and squares on the diagonal."""
    _, rows, columns = tables.pairs()
    products = marginals.pairs * states.values[rows] * states.values[columns]
    rows, columns, units = states.columns[rows], states.columns[columns], np.arange(len(squares))
    if len(products):  # sum consecutive entries of one pair
        changes = (rows[1:] != rows[:-1]) | (columns[1:] != columns[:-1])
        starts = np.append(0, 1 + np.flatnonzero(changes))
        products, rows, columns = np.add.reduceat(products, starts), rows[starts], columns[starts]
    entries = np.concatenate([products, products, squares])
    places = np.concatenate([rows, columns, units]), np.concatenate([columns, rows, units])
    return scipy.sparse.csr_array((entries, places), shape=(len(squares), len(squares)))


class PairwiseGraph(NamedTuple):
    """Edges between units, where a group of states is one unit."""

    # int64 (n_edges, 2): pairs with a coupling that is not zero, each once, the smaller number
    # first, in lexicographic order
    edges: np.ndarray
    # int64 (n_units,): number of states of each unit; 0 if its values are continuous or unknown
    n_states: np.ndarray
    # (offsets[-1],): the coupling of each edge. For categorical units i < j
    # ``values[offsets[e]:offsets[e + 1]].reshape(n_states[i], n_states[j])`` is the table of the
    # logarithms; a unit outside groups has one row or column, which its value multiplies
    values: np.ndarray
    offsets: np.ndarray  # int64 (n_edges + 1,)


def pairwise_graph(model):
    """Make the `PairwiseGraph` of a BoltzmannMachine with dense or sparse couplings."""
    rows, columns, values = _entries(model.couplings)
    n_states = state_counts(model.prior)
    upper = np.flatnonzero(rows < columns)
    rows, columns, values = (part[upper] for part in (rows, columns, values))
    if not has_groups(model.prior):
        edges = np.stack([rows, columns], 1, dtype=np.int64)
        return PairwiseGraph(edges, n_states, values, np.arange(len(edges) + 1))
    sizes = column_sizes(model.prior)
    unit, first = np.repeat(np.arange(len(sizes)), sizes), np.cumsum(sizes) - sizes
    i, j = unit[rows], unit[columns]
    pairs, edge = np.unique(i * len(sizes) + j, return_inverse=True)
    edges = np.stack(np.divmod(pairs, len(sizes)), 1).astype(np.int64)
    offsets = np.append(0, np.cumsum(sizes[edges].prod(1)))
    tables = np.zeros(offsets[-1], values.dtype)
    within = (rows - first[i]) * sizes[j] + columns - first[j]
    tables[offsets[edge.reshape(-1)] + within] = values
    return PairwiseGraph(edges, n_states, tables, offsets)


def _entries(couplings):
    """Return rows, columns and values of the couplings that are not zero, row by row."""
    if is_sparse(couplings):
        return stored(couplings)
    rows, columns = np.nonzero(couplings)
    return rows, columns, couplings[rows, columns]
