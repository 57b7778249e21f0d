"""Exact sums over the states of a pairwise graph, by elimination of one unit after the other.

Steps are counted in the order of elimination. The clique of step k is the table, over its unit and
the later ones of its separator, of the log-weights that mention its unit: its field, couplings to
later units, and messages of earlier cliques. Its sum over the unit is its message, to the clique of
the first unit of its separator:

    message(s) = log sum_x exp(clique(x, s)),    p(x | s) = exp(clique(x, s) - message(s))

Messages of empty separators add up to log Z. In the opposite order p(x, s) = p(x | s) p(s), with
p(s) summed from the clique to which the message went. p(x | s) is kept, or computed once more from
the messages where memory is short. Log-weights of -inf are states that cannot
occur; where all states x have -inf, p(x | s) is set to 0, and so is p(s).
"""

import math
from typing import NamedTuple

import numpy as np


class Tables(NamedTuple):
    """Log-weights of a pairwise graph.

    Parameters
    ----------
    fields : list of arrays of shape (n_states_i,)
    edges : int array of shape (n_edges, 2)
        Every pair once.
    couplings : list of arrays of shape (n_states_i, n_states_j)
        In the order of the edges.
    """

    fields: list
    edges: np.ndarray
    couplings: list


class Marginals(NamedTuple):
    """Log-partition, probabilities of states, and of pairs of them by edges; or None."""

    log_partition: float
    units: list | None
    pairs: list | None


def sum_over_states(tables, plan, kept):
    """Log-partition and marginals of the units and edges of `tables`.

    Parameters
    ----------
    tables : Tables
    plan : EliminationPlan
    kept : {"nothing", "messages", "cliques"}
        Results of each step: nothing if no marginals are wanted. They take half the memory or less
        with messages alone, and half as much time again.
    """
    graph = _Elimination(tables, plan, kept == "messages")
    constants, conditionals = [], []
    for k, separator in enumerate(plan.separators):
        clique = graph.clique(k)
        message = log_sum(clique, kept == "cliques")
        if kept == "cliques":
            conditionals.append(clique)
        # Rounding would grow with the messages if their largest entries were passed on.
        largest = message.max()
        if largest == -np.inf:
            return Marginals(-np.inf, None, None)
        constants.append(largest)
        if separator:
            message -= largest
            graph.send(k, message)
    log_partition = math.fsum(constants)
    if kept == "nothing":
        return Marginals(log_partition, None, None)
    return Marginals(log_partition, *_marginals(graph, conditionals))


def most_probable_state(tables, plan):
    """State of each unit in the most probable joint state: int array of shape (n_units,)."""
    graph, choices = _Elimination(tables, plan, False), []
    for k, separator in enumerate(plan.separators):
        clique = graph.clique(k)
        choices.append(clique.argmax(0).astype(np.min_scalar_type(len(clique))))
        if separator:
            graph.send(k, clique.max(0))
    found = np.zeros(len(plan.order), np.int64)
    for k in reversed(range(len(choices))):
        found[k] = choices[k][tuple(found[plan.separators[k]])]
    states = np.empty_like(found)
    states[plan.order] = found
    return states


def log_sum(clique, normalise, axis=0):
    """Log-sum over an axis; the clique is used up, or becomes exp(clique - log-sum)."""
    message = clique.max(axis, keepdims=True)
    message[message == -np.inf] = 0
    clique -= message
    np.exp(clique, out=clique)
    total = clique.sum(axis, keepdims=True)
    impossible = total == 0
    total[impossible] = 1
    if normalise:
        clique /= total
    # In place: these arrays are as large as half a clique.
    message += np.log(total, out=total)
    message[impossible] = -np.inf
    return message.squeeze(axis)


class _Elimination:
    """Tables of a graph by steps of its elimination, with the messages that wait at each.

    With `keeps_messages`, messages stay when a clique has been made of them.
    """

    def __init__(self, tables, plan, keeps_messages):
        self.plan, self.n_edges = plan, len(tables.edges)
        self.keeps_messages = keeps_messages
        self.senders = [[] for _ in plan.order]
        self.step = np.empty(len(plan.order), np.int64)
        self.step[plan.order] = np.arange(len(plan.order))
        self.fields = [tables.fields[v] for v in plan.order]
        # At the earlier of its two steps: (later step, table, number of the edge, transposed).
        self.edges = [[] for _ in plan.order]
        for e, (i, j) in enumerate(self.step[tables.edges].tolist()):
            table = tables.couplings[e]
            entry = (j, table, e, False) if i < j else (i, table.T, e, True)
            self.edges[min(i, j)].append(entry)
        self.inbox = [[] for _ in plan.order]

    def _axes(self, k, table, steps):
        """A table over the unit of step k and these later ones, with axes for its whole clique."""
        shape = dict.fromkeys(self.plan.separators[k], 1)
        for s in steps:
            shape[s] = self.plan.sizes[s]
        return table.reshape(len(table), *shape.values())

    def clique(self, k):
        """Sum of all that mentions the unit of step k."""
        parts = [self._axes(k, self.fields[k], ())]
        parts += [self._axes(k, table, (j,)) for j, table, _, _ in self.edges[k]]
        parts += [
            self._axes(k, message, self.plan.separators[child][1:])
            for child, message in self.inbox[k]
        ]
        if not self.keeps_messages:
            self.inbox[k] = None
        # Small tables first: only the last sums are then as large as the clique.
        first, *others = sorted(parts, key=np.size)
        total = first.copy()
        for part in others:
            fits = np.broadcast_shapes(total.shape, part.shape) == total.shape
            total = np.add(total, part, out=total if fits else None)
        return total

    def send(self, k, message):
        """Leave a message where the first unit of its separator is eliminated."""
        to = self.plan.separators[k][0]
        self.senders[to].append(k)
        self.inbox[to].append((k, message))

    def conditional(self, k):
        """p(x | s) of step k, from its messages, for the last time."""
        clique = self.clique(k)
        log_sum(clique, True)
        self.inbox[k] = None
        return clique


def _marginals(graph, conditionals):
    """Probabilities of units and of pairs, from those of each unit given its separator."""
    n, plan = len(graph.plan.order), graph.plan
    units, pairs, of_separator = [None] * n, [None] * graph.n_edges, [None] * n
    for k in reversed(range(n)):
        separator = plan.separators[k]
        joint = conditionals.pop() if conditionals else graph.conditional(k)
        if separator:
            joint *= of_separator[k]
            of_separator[k] = None
        axis = dict(zip((k, *separator), range(joint.ndim), strict=True))
        for child in graph.senders[k]:
            of_separator[child] = _summed_to(joint, [axis[s] for s in plan.separators[child]])
        later = {axis[j]: (e, transposed) for j, _, e, transposed in graph.edges[k]}
        joint = _summed_to(joint, [0, *sorted(later)])
        for a in sorted(later):
            e, transposed = later[a]
            pair = joint.reshape(*joint.shape[:2], -1).sum(-1)
            pairs[e] = pair.T if transposed else pair
            joint = joint.sum(1)
        units[plan.order[k]] = joint
    return units, pairs


def _summed_to(table, axes):
    """Sums over all axes but these."""
    others = tuple(a for a in range(table.ndim) if a not in axes)
    return table.sum(others) if others else table
