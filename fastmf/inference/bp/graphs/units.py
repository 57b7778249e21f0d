"""Units of a pairwise graph as the kernels see them: in breadth-first order, with their states.

In this order, the parent of a unit of a tree comes before it and its children after it, so that two
sweeps, from the last unit to the first and back, are exact. Neighbours are also close in memory.

Two-valued units x = middle + scale s / 2 have the exponents K s s' with K = J scale^2 / 4, and the
odds exp(scale (field + middle sum_j J_ij)) of s = 1. All other discrete units have a table of
exponents for each edge; so do two-valued units for algorithms other than sum-product, or if
products of their messages may overflow.
"""

from copy import copy
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import scipy

from fastmf._common import arguments as check
from fastmf._outcomes import LOG_EPSILON
from fastmf._threads.workers import computed_once
from fastmf.inference.bp._options import MAX_LOG_OF_PRODUCT
from fastmf.kernels.bp.graphs import BinaryProblem, StatesProblem
from fastmf.models._graph_sums import MAX_ENTRIES, eliminated, is_small
from fastmf.models._state_tables import Tables, pairwise_graph, states_of_units
from fastmf.priors._groups import (
    as_states,
    check_clamped_groups,
    column_is_group,
    has_groups,
    only_groups,
)
from fastmf.priors._protocol import contains, has_log_prob, n_units, parts_of
from fastmf.priors._queries import binary_field, support, two_values
from fastmf.priors._values import refuse_clamped

# Largest sum of the exponents of a unit; beyond it rounding errors dominate.
MAX_EXPONENT = 1e12


class GraphUnits:
    """A BoltzmannMachine of discrete units with fields and clamps, as a graph.

    `field` and `clamp` have shape (1 or n_rows, n_units), with NaN in `clamp` for free units; tilts
    exp(-precision x^2 / 2) need tables of states. `n_rows` is None without rows.
    """

    def __init__(self, model, field=None, clamp=None):
        self.model, n, self.precision = model, model.n_units, None
        for part in parts_of(model.prior):
            if not has_log_prob(part) or (support(part) is None and not has_groups(part)):
                raise TypeError(
                    "belief propagation needs discrete units, got "
                    f"{type(part).__name__}; fastmf.tap takes units of all kinds."
                )
        field = check.rows("field", field, n, np.float64)
        clamp = checked_clamp(model.prior, clamp)
        self.n_rows = check.common_rows([("field", field), ("clamp", clamp)])
        self.field = np.atleast_2d(np.zeros(n) if field is None else field)
        self.clamp = None if clamp is None else np.atleast_2d(clamp)
        self.graph, self.layout = _graph_of(model)

    def row(self, k):
        """Select the field and the clamps of one row."""
        single = copy(self)
        single.__dict__.pop("binary", None)
        single.n_rows = None
        single.field = self.field[[min(k, len(self.field) - 1)]]
        for name in ("clamp", "precision"):
            rows = getattr(self, name)
            setattr(single, name, None if rows is None else rows[[min(k, len(rows) - 1)]])
        return single

    # --- two-valued units -------------------------------------------------------------------------

    @computed_once
    def binary(self):
        """`BinaryProblem`, constants of the rows, and the largest sum of exponents of a unit.

        None unless units are two-valued, and no product of messages overflows.
        """
        pair = two_values(self.model.prior)
        if pair is None:
            return None
        layout, (low, high) = self.layout, pair
        middle, scale = (low + high) / 2, high - low
        prior_field, constant = (x.astype(np.float64) for x in binary_field(self.model.prior))
        field, values = prior_field + self.field, self.graph.values
        sums = sums_at_ends(self.graph.edges, values, len(prior_field)) if middle else 0.0
        sizes = sums_at_ends(self.graph.edges, abs(values), len(prior_field)) * scale**2 / 2
        with np.errstate(over="ignore", invalid="ignore"):  # such sums are too large
            log_odds = scale * (field + middle * sums)
        constant = constant.sum() + middle * field.sum(1) + middle**2 * values.sum()
        constant = constant - log_odds.sum(1) / 2
        if self.clamp is not None:
            # Fields of clamped units are replaced by fields that no neighbours outweigh.
            is_high, certain = self.clamp > middle, sizes - 2 * LOG_EPSILON
            constant = constant + np.where(is_high, log_odds - certain, 0).sum(1)
            certain = np.where(is_high, certain, -certain)
            log_odds = np.where(np.isnan(self.clamp), log_odds, certain)
        largest = float((abs(log_odds) + sizes).max())
        limit = MAX_LOG_OF_PRODUCT[self.field.dtype]
        if not (max(largest, 2 * sizes.max()) < limit and np.isfinite(constant).all()):
            return None
        problem = BinaryProblem(
            starts=layout.starts,
            neighbours=layout.neighbours,
            reverse=layout.reverse,
            edges=layout.edges,
            exponentials=np.exp(values * (scale**2 / 2)).take(layout.edges),
            odds=np.ascontiguousarray(np.exp(log_odds)[:, layout.order]),
        )
        return problem, constant, largest

    # --- units of any number of states ------------------------------------------------------------

    @computed_once
    def _states(self):
        return states_of_units(self.model.prior)

    @property
    def states(self):
        """Unit of the model, value and log-weight of each state of each vertex."""
        return self._states[1:]

    @computed_once
    def first_state(self):
        """First state of each vertex, in the given order, and the number of all states."""
        return np.append(0, np.cumsum(self.graph.n_states))

    @computed_once
    def state_order(self):
        """Index, in the given order, of each state in breadth-first order."""
        sizes = self.graph.n_states[self.layout.order]
        starts = self.first_state[self.layout.order] - (np.cumsum(sizes) - sizes)
        return np.repeat(starts, sizes) + np.arange(sizes.sum())

    @computed_once
    def tables(self):
        """First value of each table, and the tables of all edges, as exponents of their states."""
        sizes = self.graph.n_states[self.graph.edges]
        return np.append(0, np.cumsum(sizes.prod(1))), self._states.couplings(self.graph)

    @computed_once
    def pairs(self):
        """Edge, and states of both units in the given order, of each value of the tables."""
        return Tables(self.graph.n_states, self.graph.edges, None, None).pairs()

    def log_weights(self):
        """Return log-weights of all states, (1 or n_rows, n_states); -inf for excluded states."""
        unit, value, weight = self.states
        field = weight + value * self.field[:, unit]
        if self.precision is not None:
            field = field - value**2 / 2 * self.precision[:, unit]
        if self.clamp is not None:
            given = self.clamp[:, unit]
            field = np.where(np.isnan(given) | (given == value), field, -np.inf)
        return field

    def problem(self, probability=None):
        """Make the `StatesProblem` for edge probabilities; return it and the largest exponents."""
        layout, sizes = self.layout, self.graph.n_states
        first_value, tables = self.tables
        n_edges, counts = len(sizes[self.graph.edges]), np.diff(first_value)
        probability = np.ones(n_edges) if probability is None else probability
        with np.errstate(over="ignore"):  # refused below
            divided = tables / np.repeat(probability, counts)
        largest = np.maximum.reduceat(divided, first_value[:-1]) if n_edges else np.zeros(0)
        shift = np.repeat(np.where(np.isfinite(largest), largest, 0), counts)
        field = self.log_weights()
        sizes_of_tables = np.where(np.isfinite(divided), abs(divided), 0)
        spread = np.maximum.reduceat(sizes_of_tables, first_value[:-1]) if n_edges else largest
        scale = sums_at_ends(self.graph.edges, spread, len(sizes)).max(initial=0.0)
        scale += abs(field[np.isfinite(field)]).max(initial=0.0)
        if not scale <= MAX_EXPONENT:
            raise ValueError(
                f"couplings and fields of a unit must add up to {MAX_EXPONENT:g} at most, got "
                f"{scale:g}: divide all by a number, or forbid states by -inf."
            )
        ends = np.cumsum(sizes[layout.order][layout.neighbours])
        is_second_side = np.zeros(len(layout.edges), bool)
        is_second_side[layout.slots[:, 1]] = True
        problem = StatesProblem(
            starts=layout.starts,
            neighbours=layout.neighbours,
            reverse=layout.reverse,
            edges=layout.edges,
            first_state=np.append(0, np.cumsum(sizes[layout.order])),
            first_entry=np.append(0, ends),
            first_value=first_value,
            transposed=is_second_side,
            tables=divided,
            exponentials=np.exp(divided - shift),
            largest=largest,
            probability=probability,
            field=np.ascontiguousarray(field[:, self.state_order]),
            maximum=False,
        )
        return problem, scale

    def beliefs(self, log_beliefs):
        """Return probabilities of all states, from logarithms in the order of the layout."""
        out = np.zeros_like(log_beliefs)
        out[:, self.state_order] = log_beliefs
        return self.normalised(out)

    def normalised(self, logs):
        """Normalise probabilities of states, given as logarithms; NaN for units without a state."""
        starts, sizes = self.first_state[:-1], self.graph.n_states
        top = np.maximum.reduceat(logs, starts, axis=1)
        x = np.exp(logs - np.repeat(np.where(np.isfinite(top), top, 0), sizes, axis=1))
        with np.errstate(invalid="ignore", divide="ignore"):
            return x / np.repeat(np.add.reduceat(x, starts, axis=1), sizes, axis=1)

    def moments(self, beliefs):
        """Compute means and variances of the model's units from probabilities of states."""
        unit, value, _ = self.states
        starts = np.flatnonzero(np.diff(unit, prepend=-1))
        mean = np.add.reduceat(beliefs * value, starts, axis=1)
        deviation = (value - mean[:, unit]) ** 2
        # The other value of a group's state is 0.
        one = np.diff(np.append(starts, len(unit))) == 1
        var = np.add.reduceat(beliefs * deviation, starts, axis=1)
        return mean, np.where(one, mean * (1 - mean), var)

    def labels(self, beliefs):
        """Return the most probable state of each unit."""
        return first_largest(beliefs, self.first_state)

    def values_of(self, labels):
        """Convert labels of states to rows of data: labels of groups, values of other units."""
        if only_groups(self.model.prior):
            return labels
        pair = two_values(self.model.prior)
        if pair is not None:
            return np.where(labels, *pair[::-1])
        values = self.states[1][self.first_state[:-1] + labels]
        return np.where(column_is_group(self.model.prior), labels, values)

    # --- sums over all states ---------------------------------------------------------------------

    def marginals(self, rows, max_entries, mode=False):
        """Compute the `Marginals` of some rows by elimination; None if their tables are large.

        With `mode`, the most probable state has all the weight.
        """
        graph, fields, plans, out = self.graph, self.log_weights(), {}, []
        for k in rows:
            field = fields[min(k, len(fields) - 1)]
            tables = Tables(graph.n_states, graph.edges, field, self.tables[1])
            out.append(eliminated(tables, max_entries, plans, mode))
            if out[-1] is None:
                return None
        return out

    def best_states(self, rows):
        """Return most probable labels of rows, and their exponents; None if tables are large."""
        if not is_small(self.graph, len(rows)):
            return None
        marginals = self.marginals(rows, MAX_ENTRIES / len(rows), mode=True)
        if marginals is None:
            return None
        labels = self.labels(np.array([m.units for m in marginals]))
        return labels, np.array([m.log_partition for m in marginals])


def checked_clamp(prior, clamp, name="clamp"):
    """Check values of clamped units; return one entry per unit, NaN where free, or None."""
    clamp = as_states(name, prior, clamp)
    clamp = check.rows(name, clamp, n_units(prior), np.float64, missing=True)
    if clamp is None or np.isnan(clamp).all():
        return clamp
    held = ~np.isnan(clamp)
    x = np.where(held, clamp, 0).astype(prior[0].dtype if len(parts_of(prior)) == 1 else float)
    check_clamped_groups(prior, x, held)
    wrong = held & np.logical_not(contains(prior, x))
    if wrong.any():
        refuse_clamped(prior, x, wrong)
    return clamp


def first_largest(values, first):
    """Return the argmax of each unit i, whose values are first[i] to first[i + 1], ties first."""
    n_values, starts = values.shape[-1], first[:-1]
    top = np.repeat(np.maximum.reduceat(values, starts, axis=-1), np.diff(first), axis=-1)
    numbers = np.where(values == top, np.arange(n_values), n_values)
    return np.minimum.reduceat(numbers, starts, axis=-1) - starts


def sums_at_ends(edges, values, n):
    """Sum the values of the edges at each of n vertices."""
    return sum(np.bincount(side, values, n) for side in edges.T)


@lru_cache(1)
def _graph_of(model):
    """Return the graph of a model and its layout; the latest is cached, as models do not change."""
    graph = pairwise_graph(model)
    graph = graph._replace(values=graph.values.astype(np.float64))
    return graph, graph_layout(graph.edges, len(graph.n_states))


class GraphLayout(NamedTuple):
    """Order of the units of a graph, and slots of its messages as in `BinaryProblem`."""

    order: np.ndarray  # index of each unit, in breadth-first order, in the given order
    slots: np.ndarray  # (n_edges, 2): where the first and the second unit of an edge send
    starts: np.ndarray
    neighbours: np.ndarray
    reverse: np.ndarray
    edges: np.ndarray
    is_forest: bool


def graph_layout(edges, n_vertices):
    """Order vertices breadth first, from a root of each component, and lay out their slots."""
    if len(edges) >= 2**30:
        raise ValueError(f"a graph must have fewer than 2^30 edges, got {len(edges)}.")
    graph = adjacency(edges, n_vertices)
    roots = np.zeros(min(n_vertices, 1), np.int64)
    order = breadth_first(graph, roots)
    if len(order) < n_vertices:  # a search is faster than `components`
        roots = components(graph)[1]
        order = breadth_first(graph, roots)
    place = np.empty(n_vertices, np.int32)
    place[order] = np.arange(n_vertices)
    # A slot for each end of an edge, in the order of the units that send.
    ordered = graph[order]
    ends = ordered.data.astype(np.int32)
    slots = np.empty(2 * len(edges), np.int32)
    slots[ends] = np.arange(2 * len(edges))
    return GraphLayout(
        order=order.astype(np.int64),
        slots=slots.reshape(-1, 2),
        starts=ordered.indptr.astype(np.int64),
        neighbours=place.take(ordered.indices),
        reverse=slots.take(ends ^ 1),
        edges=ends >> 1,
        is_forest=len(edges) == n_vertices - len(roots),
    )


def adjacency(edges, n_vertices):
    """Make the adjacency matrix, with entries 2 e and 2 e + 1 for the directions of edge e."""
    n, units = 2 * len(edges), edges.astype(np.int32).ravel()
    columns = np.ones(n, np.int8), units, np.arange(n + 1, dtype=np.int32)
    # SciPy's conversion is a counting sort; its graph searches need float64.
    by_unit = scipy.sparse.csc_array(columns, shape=(n_vertices, n)).tocsr()
    parts = by_unit.indices.astype(np.float64), units.take(by_unit.indices ^ 1), by_unit.indptr
    return scipy.sparse.csr_array(parts, shape=(n_vertices, n_vertices))


def components(graph):
    """Return the component of each vertex, and the first vertex of each component."""
    _, component = scipy.sparse.csgraph.connected_components(graph, directed=False)
    # Numbers of components ascend with their first vertices.
    return component, np.flatnonzero(np.diff(np.maximum.accumulate(component), prepend=-1))


def breadth_first(graph, roots):
    """Order vertices by a breadth-first search from one root in each component."""
    # The search starts from an additional vertex whose neighbours are the roots.
    n, indices = graph.shape[0], np.append(graph.indices, roots).astype(np.int32)
    starts = np.append(graph.indptr, len(indices)).astype(np.int32)
    searched = scipy.sparse.csr_array(
        (np.ones(len(indices)), indices, starts), shape=(n + 1, n + 1)
    )
    return scipy.sparse.csgraph.breadth_first_order(searched, n, return_predecessors=False)[1:]
