"""Spanning trees of the couplings between the missing columns of a row, and their marginals.

A column is a unit or a group with some states. The states that a row lacks have, given the others,
the log-weights f'x + x'Jx / 2. With the couplings of a spanning tree alone
they are summed exactly, from the leaves to the root and back.
"""

from typing import NamedTuple

import numpy as np

from fastmf._jit.intrinsics import larger, smaller
from fastmf._jit.kernel import kernel
from fastmf.special import exp, log

# Largest differences of the fields of a column, and of the couplings of two, in a weakened tree.
MAX_FIELD_RANGE, MAX_COUPLING_RANGE = 6.0, 3.0
# Rows of `TreeMemory.vectors`, and of `TreeMemory.numbers`.
MODEL_FIELD, BASE_FIELD, MIXED_FIELD, BELIEF, MARGINAL, LOG_WEIGHT, PROBABILITY, BEST = range(8)
STATE, FIRST_EDGE, ORDER, PARENT, COLUMN = range(5)


class TreeProblem(NamedTuple):
    """A machine of columns with states.

    Parameters
    ----------
    couplings : float64 array of shape (n_states, n_states)
        Symmetric; zero between states of one column.
    strength : float64 array of shape (n_columns, n_columns)
        By which the spanning tree is chosen, not negative.
    offsets : int64 array of shape (n_columns + 1,)
        First state of each column, and the number of all.
    """

    couplings: np.ndarray
    strength: np.ndarray
    offsets: np.ndarray


class TreeMemory(NamedTuple):
    """Scratch memory of each thread, on the first axis.

    Parameters
    ----------
    couplings, base, mixed : arrays of shape (n_workers, n_states, n_states)
        Couplings of the missing columns: those of the model, of the tree, and between.
    vectors : array of shape (n_workers, 8, n_states)
    given : array of shape (n_workers, n_states, largest number of states)
        Probabilities of states given those of the parent in the tree.
    numbers : int64 array of shape (n_workers, 5, n_states + 1)
    labels : int64 array of shape (n_workers, 2, n_particles, n_columns)
        Particles, and room for resampled ones.
    weights : array of shape (n_workers, 2, n_particles)
        Residual log-weights and weights.
    replicates : array of shape (n_workers, n_replicates, n_states + 2)
        Probabilities of the states; log-partition and weight.
    """

    couplings: np.ndarray
    base: np.ndarray
    mixed: np.ndarray
    vectors: np.ndarray
    given: np.ndarray
    numbers: np.ndarray
    labels: np.ndarray
    weights: np.ndarray
    replicates: np.ndarray


@kernel(mode="inner")
def set_probabilities(logs, out, start, end):
    """Write normalised exp(logs) of states; return the largest and the sum relative to it."""
    if end - start == 2:
        top, rest = larger(logs[start], logs[start + 1]), exp(-abs(logs[start] - logs[start + 1]))
        more = 1 / (1 + rest)
        first_is_larger = logs[start] >= logs[start + 1]
        out[start] = more if first_is_larger else rest * more
        out[start + 1] = rest * more if first_is_larger else more
        return top, 1 + rest
    top, total = logs[start], 0.0
    for a in range(start + 1, end):
        top = larger(top, logs[a])
    for a in range(start, end):
        out[a] = exp(logs[a] - top)
        total += out[a]
    for a in range(start, end):
        out[a] /= total
    return top, total


@kernel(mode="inner")
def normalised(logs, out, start, end):
    """Write exp(logs), normalised, for some states; returns the log of the sum."""
    top, total = set_probabilities(logs, out, start, end)
    return top + log(total)


@kernel(mode="inner")
def drawn(p, start, end, u):
    """The label whose cumulative probability is the first above a uniform number."""
    label, below = np.int64(0), p[start]
    while start + label + 1 < end and below <= u:
        label += 1
        below += p[start + label]
    return label


@kernel(mode="inner")
def _factor(low, high, max_range):
    """Factor that reduces a difference to a limit."""
    return max_range / larger(high - low, max_range)


@kernel(mode="inner")
def load_columns(problem, fields, missing, m):
    """Copy fields and couplings of the missing columns; returns how many columns and states."""
    states, first, columns = m.numbers[STATE], m.numbers[FIRST_EDGE], m.numbers[COLUMN]
    k = n = np.int64(0)
    for c in range(missing.shape[0]):
        if missing[c]:
            first[k], columns[k] = n, c
            k += 1
            for a in range(problem.offsets[c], problem.offsets[c + 1]):
                states[n] = a
                n += 1
    first[k] = n
    for a in range(n):
        m.vectors[MODEL_FIELD, a] = fields[states[a]]
        for b in range(n):
            m.couplings[a, b] = problem.couplings[states[a], states[b]]
    return k, n


@kernel(mode="inner")
def span(strength, m, k):
    """Order of the columns, and the parent of each in the maximum spanning tree (Prim)."""
    columns, order, parent = m.numbers[COLUMN], m.numbers[ORDER], m.numbers[PARENT]
    best, newest = m.vectors[BEST], np.int64(0)
    for j in range(k):
        best[j], parent[j] = strength[columns[0], columns[j]], 0
    order[0] = 0
    best[0] = -1.0
    for i in range(1, k):
        newest = np.int64(0)
        for j in range(k):
            if best[j] > best[newest]:
                newest = j
        order[i] = newest
        best[newest] = -1.0
        for j in range(k):
            s = strength[columns[newest], columns[j]]
            if best[j] >= 0 and s > best[j]:
                best[j], parent[j] = s, newest


@kernel(mode="inner")
def _is_coupled(m, rows, columns):
    """Whether any couplings between two columns differ from zero."""
    for a in range(rows[0], rows[1]):
        for b in range(columns[0], columns[1]):
            if m.couplings[a, b] != 0:
                return True
    return False


@kernel(mode="inner")
def is_tree(m, k):
    """Whether no couplings but those of the tree differ from zero."""
    first, parent = m.numbers[FIRST_EDGE], m.numbers[PARENT]
    for i in range(k):
        for j in range(i):
            edge = parent[i] == j or parent[j] == i
            if not edge and _is_coupled(m, (first[i], first[i + 1]), (first[j], first[j + 1])):
                return False
    return True


@kernel(mode="inner")
def set_base(m, k, weakened):
    """Fields and couplings of the tree, limited in range if it is not the whole model."""
    first, order, parent = m.numbers[FIRST_EDGE], m.numbers[ORDER], m.numbers[PARENT]
    field, base_field, n = m.vectors[MODEL_FIELD], m.vectors[BASE_FIELD], first[k]
    for a in range(n):
        for b in range(n):
            m.base[a, b] = 0.0
    for place in range(k):
        i, factor = order[place], 1.0
        start, end = first[i], first[i + 1]
        low = high = field[start]
        for a in range(start, end):
            low, high = smaller(low, field[a]), larger(high, field[a])
        if weakened:
            factor = _factor(low, high, MAX_FIELD_RANGE)
        for a in range(start, end):
            base_field[a] = factor * field[a]
        if place > 0:
            _set_edge(m, (start, end), (first[parent[i]], first[parent[i] + 1]), weakened)


@kernel(mode="inner")
def _set_edge(m, child, parent, weakened):
    """The couplings of one edge of the tree."""
    (start, end), (begin, stop), factor = child, parent, 1.0
    low = high = m.couplings[start, begin]
    for a in range(start, end):
        for b in range(begin, stop):
            low, high = smaller(low, m.couplings[a, b]), larger(high, m.couplings[a, b])
    if weakened:
        factor = _factor(low, high, MAX_COUPLING_RANGE)
    for a in range(start, end):
        for b in range(begin, stop):
            m.base[a, b] = factor * m.couplings[a, b]
            m.base[b, a] = m.base[a, b]


@kernel(mode="inner")
def solve_tree(m, k):
    """Conditional probabilities and marginals of the tree; returns its log-partition."""
    first, order, parent = m.numbers[FIRST_EDGE], m.numbers[ORDER], m.numbers[PARENT]
    belief, logs, p = m.vectors[BELIEF], m.vectors[LOG_WEIGHT], m.vectors[PROBABILITY]
    marginal = m.vectors[MARGINAL]
    for a in range(first[k]):
        belief[a] = m.vectors[BASE_FIELD, a]
    for place in range(k - 1, 0, -1):
        i, up = order[place], parent[order[place]]
        for b in range(first[up], first[up + 1]):
            for a in range(first[i], first[i + 1]):
                logs[a] = belief[a] + m.base[a, b]
            belief[b] += normalised(logs, p, first[i], first[i + 1])
            for a in range(first[i], first[i + 1]):
                m.given[a, b - first[up]] = p[a]
    log_partition = normalised(belief, marginal, first[0], first[1])
    for a in range(first[0], first[1]):
        m.given[a, 0] = marginal[a]
    for place in range(1, k):
        i, up = order[place], parent[order[place]]
        for a in range(first[i], first[i + 1]):
            marginal[a] = 0.0
            for b in range(first[up], first[up + 1]):
                marginal[a] += m.given[a, b - first[up]] * marginal[b]
    return log_partition
