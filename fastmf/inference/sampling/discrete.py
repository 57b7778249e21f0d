"""Samples and averages of fully visible machines of discrete units, and means of missing units.

Results are exact if all states can be enumerated. Otherwise chains start from independent draws of
the maximum spanning tree of the couplings, and are annealed to the machine,

    (1 - beta) tree + beta machine,    beta from 0 to 1

with resampling in proportion to their weights (sequential Monte Carlo; Del Moral, Doucet & Jasra
2006). So phases between which chains do not mix have the correct weights. Couplings are between
deviations of units from the means of their states, so that the path does not depend on the coding.

Means of missing units given the observed units are computed in the same ways, or by TAP. States are
enumerated in two halves A and B, coupled by one matrix,

    p(a, b) ~ exp(f_A(a) + f_B(b) + a' J_AB b)

so that a row costs a matrix product and an exponential for each state.
"""

import math
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from scipy.sparse.csgraph import breadth_first_order, minimum_spanning_tree
from scipy.special import softmax

from fastmf._common.rows import blocks
from fastmf.inference.mean_field.tap import tap
from fastmf.inference.sampling.gibbs import (
    MIN_ANNEALED,
    RESAMPLE_BELOW,
    Population,
    anneal_chains,
    effective_size,
    systematic,
    units_of_columns,
)
from fastmf.inference.sampling.states import batches_of_rows, flat_states, one_hot_states
from fastmf.kernels.sampling.annealing import VisibleUnits
from fastmf.models.boltzmann import check_machine, dense_machine
from fastmf.models.exact import MAX_LAYER_UNITS, numbered_states, states_of
from fastmf.priors._groups import column_sizes
from fastmf.priors._queries import columns_of_values, number_of_states

# Maximum number of states for enumeration.
MAX_ENUMERATED_STATES = pow(2, MAX_LAYER_UNITS)
# Largest difference of the log-weights of a column, and of the couplings of two columns, in a tree
# from which particles start: particles from a frozen tree would be equal, and would not reveal that
# other states have more weight.
MAX_RANGE = 3.0


def probabilities(model):
    """Compute the probability of each state, in the order of `states_of`."""
    chunks = states_of(model.prior, model.n_units)
    return softmax(np.concatenate([-model.energy(x) for x in chunks]))


def sample(model, n_samples, rng, n_sweeps=100):
    """Draw samples, (n_samples, n_units): exact for few states, otherwise `annealed_draws`."""
    if number_of_states(model.prior) > MAX_ENUMERATED_STATES:
        return annealed_draws(model, n_samples, n_sweeps, rng)
    below, u = np.cumsum(probabilities(model)), rng.random(n_samples)
    drawn = np.searchsorted(below, u * below[-1], side="right")
    return numbered_states(columns_of_values(model.prior), np.minimum(drawn, len(below) - 1))


# --- trees ----------------------------------------------------------------------------------------


class Columns(NamedTuple):
    """A machine of columns of one-hot states."""

    log_weights: np.ndarray  # float64 (n_states,)
    # float64 (n_states, n_states): symmetric; zero between states of one column
    couplings: np.ndarray
    offsets: np.ndarray  # int (n_columns + 1,): first state of each column, and the number of all

    @classmethod
    def of(cls, states, couplings):
        """Make columns from `FlatStates` and the couplings of their units."""
        between = states.values @ (states.values @ couplings.astype(np.float64)).T
        return cls(states.log_weights, np.ascontiguousarray(between), states.offsets)

    @property
    def sizes(self):
        """Number of states of each column."""
        return np.diff(self.offsets)

    def chosen(self, columns, log_weights):
        """Select columns by a mask, with new log-weights of all states."""
        states = np.flatnonzero(np.repeat(columns, self.sizes))
        couplings = self.couplings[np.ix_(states, states)]
        offsets = np.append(0, np.cumsum(self.sizes[columns]))
        return states, Columns(log_weights[states], couplings, offsets)

    def mixed(self, other, beta):
        """Interpolate log-weights and couplings between two machines of the same columns."""
        pairs = zip(self[:2], other[:2], strict=True)
        return Columns(*((1 - beta) * x + beta * y for x, y in pairs), self.offsets)

    def per_column(self, function, values):
        """Reduce by a ufunc over the states of each column, repeated for each of its states."""
        return np.repeat(function.reduceat(values, self.offsets[:-1], -1), self.sizes, -1)

    def pairs_of(self, edges):
        """Expand entries of pairs of columns to all pairs of their states."""
        column = np.repeat(np.arange(len(self.sizes)), self.sizes)
        return edges[np.ix_(column, column)]

    def centred(self):
        """Rewrite couplings as couplings between deviations of one-hot states from their mean."""
        J, n = self.couplings, np.repeat(self.sizes, self.sizes)
        rows = self.per_column(np.add, J) / n
        fields = (rows / n).sum(1)
        J = J - rows - rows.T + self.per_column(np.add, rows.T) / n
        return Columns(self.log_weights + fields, J, self.offsets)

    def strengths(self):
        """Compute the norms of the couplings of pairs of columns."""
        first = self.offsets[:-1]
        return np.sqrt(np.add.reduceat(np.add.reduceat(self.couplings**2, first), first, axis=1))


class Tree:
    """The maximum spanning tree of columns: `order` from the root on, `parent` of each, `edges`."""

    def __init__(self, strengths):
        # Lengths must be positive, as zeros are not edges.
        tree = minimum_spanning_tree(np.triu(1 + strengths.max() - strengths, 1))
        self.order, self.parent = breadth_first_order(tree, 0, directed=False)
        self.edges = np.zeros(strengths.shape, bool)
        below, above = self.order[1:], self.parent[self.order[1:]]
        self.edges[below, above] = self.edges[above, below] = True

    def solve(self, columns):
        """Compute the probabilities of the states of columns given the states of their parents."""
        self.offsets = columns.offsets
        states = [slice(*ends) for ends in pairwise(columns.offsets)]
        beliefs, self.given = columns.log_weights.copy(), {}
        for i in self.order[:0:-1]:
            up = states[self.parent[i]]
            logs = beliefs[states[i], None] + columns.couplings[states[i], up]
            totals = np.logaddexp.reduce(logs, axis=0)
            self.given[i] = np.exp(logs - totals)
            beliefs[up] += totals
        self.given[0] = softmax(beliefs[states[0]])[:, None]
        return self

    def marginals(self):
        """Compute the probabilities of all states, (n_states,)."""
        marginals = {}
        for i in self.order:
            above = marginals[self.parent[i]] if i else np.ones(1)
            marginals[i] = self.given[i] @ above
        return np.concatenate([marginals[i] for i in range(len(marginals))])

    def draws(self, n_draws, rng):
        """Draw independent samples, one-hot in the states."""
        labels = np.zeros((n_draws, len(self.given)), np.int64)
        for i in self.order:
            cumulative = np.cumsum(self.given[i], axis=0)[:-1]
            above = labels[:, max(self.parent[i], 0)]  # of the root 0
            labels[:, i] = (cumulative[:, above] <= rng.random(n_draws)).sum(0)
        one_hot = np.zeros((n_draws, self.offsets[-1]))
        np.put_along_axis(one_hot, self.offsets[:-1] + labels, 1, axis=1)
        return one_hot


def annealed_draws(model, n_draws, n_sweeps, rng):
    """Draw samples of a machine of discrete units; exact if all of its couplings are a tree."""
    check_machine(model, "Gibbs sampling")
    states = flat_states(model.prior)
    columns = Columns.of(states, model.couplings).centred()
    tree = Tree(columns.strengths())
    n_chains, n_last = max(n_draws, MIN_ANNEALED), n_sweeps // 2
    column = np.repeat(np.arange(len(tree.edges)), column_sizes(model.prior))
    couplings = np.array(model.couplings, order="C")
    units, none = units_of_columns(model.prior), np.zeros(len(couplings))
    added = couplings * ~tree.edges[np.ix_(column, column)]
    # Couplings between values equal couplings between deviations plus these fields.
    middle = states.means(1 / np.repeat(columns.sizes, columns.sizes)).astype(model.dtype)
    fields = added @ middle
    tree.solve(columns)
    x = states.means(tree.draws(n_chains, rng)).astype(model.dtype)
    population = Population(n_chains)
    for old, new in pairwise(np.linspace(0, 1, n_sweeps - n_last + 1)):
        pairs = np.einsum("ij,ij->i", (x - 2 * middle) @ added, x, dtype=np.float64)
        population.add((new - old) / 2 * pairs)
        if new == 1 or effective_size(population.log_weights) < RESAMPLE_BELOW * n_chains:
            x = x[population.resample(rng)]
        between = couplings - couplings.dtype.type(1 - new) * added
        tilted = units._replace(field=units.field + (1 - new) * fields)
        _, x = anneal_chains(between, tilted, x, np.ones(2), rng, none)
    x = x[rng.permutation(n_chains)[:n_draws]]
    return anneal_chains(couplings, units, x, np.ones(n_last + 1), rng, none)[1]


# --- averages -------------------------------------------------------------------------------------


def annealed_probabilities(
    columns,
    rng,
    tol,
    *,
    n_particles=None,
    n_replicates=8,
    n_rounds=8,
    n_sweeps=3,
    n_last_sweeps=8,
    n_threads=None,
):
    """Estimate the probabilities of the states of columns, and their largest standard error.

    Independent replicates are weighted by their estimates of the partition function; each round
    adds `n_replicates`, until the error is below `tol`. They have more particles if there are few
    states.
    """
    n_particles = n_particles or max(128, 2**14 // columns.offsets[-1])
    columns = columns.centred()
    tree = Tree(columns.strengths())
    edges = columns.pairs_of(tree.edges)
    if not columns.couplings[~edges].any():
        return tree.solve(columns).marginals(), 0.0
    base = _weakened(columns, edges)
    tree.solve(base)
    logs, means = np.zeros(0), np.zeros((0, columns.offsets[-1]))
    for _ in range(n_rounds):
        x = tree.draws(n_replicates * n_particles, rng)
        replicates = _Replicates(base, columns, x, n_replicates, rng, n_threads)
        if replicates.anneal(n_sweeps) == 1:  # the marginals of the tree, corrected
            p = tree.marginals() + replicates.averages(x) - x.reshape(*replicates.shape, -1).mean(1)
        else:
            p = np.mean([replicates.averages_after_sweep() for _ in range(n_last_sweeps)], axis=0)
        p = np.maximum(p, 0)
        p /= columns.per_column(np.add, p)
        logs, means = np.append(logs, replicates.log_partition), np.vstack([means, p])
        weights = softmax(logs)
        mean, n = weights @ means, len(logs)
        error = np.sqrt((weights**2 @ (means - mean) ** 2).max() * n / (n - 1))
        if error <= tol:
            break
    return mean, error


def _weakened(columns, edges):
    """Reduce the columns to the couplings of a tree, limited in range."""
    logs, J = columns.log_weights, columns.couplings
    ranges = columns.per_column(np.maximum, logs) - columns.per_column(np.minimum, logs)
    logs = logs * MAX_RANGE / np.maximum(ranges, MAX_RANGE)
    high, low = (
        columns.per_column(function, columns.per_column(function, J).T)
        for function in (np.maximum, np.minimum)
    )
    J = J * edges * MAX_RANGE / np.maximum(high - low, MAX_RANGE)
    return Columns(logs, J, columns.offsets)


class _Replicates:
    """Populations of particles `x`, draws of `base`, annealed to `columns` in the same steps."""

    def __init__(self, base, columns, x, n_replicates, rng, n_threads):
        self.base, self.columns, self.rng, self.n_threads = base, columns, rng, n_threads
        self.x, self.shape = x, (n_replicates, len(x) // n_replicates)
        self.log_partition, self.beta = np.zeros(n_replicates), 0.0

    def anneal(self, n_sweeps):
        """Anneal all particles, with sweeps between steps; return the number of steps."""
        fields, couplings = (y - x for x, y in zip(self.base[:2], self.columns[:2], strict=True))
        n_steps = 0
        while self.beta < 1:
            if n_steps:
                firsts = np.arange(0, len(self.x), self.shape[1])
                chosen = [systematic(weights, self.rng) for weights in self.weights]
                self.x = self.x[np.concatenate(firsts[:, None] + chosen)]
                self.sweep(n_sweeps)
            residual = self.x @ fields + np.einsum("ij,ij->i", self.x @ couplings, self.x) / 2
            step = _largest_step(residual.reshape(self.shape), 1 - self.beta)
            logs = step * residual.reshape(self.shape)
            self.log_partition += np.logaddexp.reduce(logs, axis=1) - np.log(self.shape[1])
            self.weights = softmax(logs, axis=1)
            self.beta, n_steps = self.beta + step, n_steps + 1
        return n_steps

    def sweep(self, n_sweeps):
        """Draw all columns of all particles in turn, from the distribution at beta."""
        logs, couplings, offsets = self.base.mixed(self.columns, self.beta)
        units = VisibleUnits(offsets, np.zeros_like(logs), np.ones_like(logs), logs)
        betas = np.ones(n_sweeps + 1)
        path = self.x, betas, self.rng, np.zeros_like(logs), self.n_threads
        _, self.x = anneal_chains(couplings, units, *path)

    def averages_after_sweep(self):
        """Sweep, then average the probabilities of states given the other columns."""
        self.sweep(1)
        columns = self.columns
        logs = columns.log_weights + self.x @ columns.couplings
        p = np.exp(logs - columns.per_column(np.maximum, logs))
        return self.averages(p / columns.per_column(np.add, p))

    def averages(self, values):
        """Average values, (n_replicates * n_particles, n_states), with the weights."""
        return (self.weights[:, None] @ values.reshape(*self.shape, -1))[:, 0]


def _largest_step(residual, remaining):
    """Return the largest step that keeps the effective number of particles above one half."""

    def enough(step):
        return min(map(effective_size, step * residual)) >= RESAMPLE_BELOW * residual.shape[1]

    if enough(remaining):
        return remaining
    low, high = 0.0, remaining
    # At most a thousand steps.
    while high - low > max(1e-3, low / 64):
        middle = (low + high) / 2
        low, high = (middle, high) if enough(middle) else (low, middle)
    return max(low, min(remaining, 1e-3))


METHODS = ("auto", "exact", "annealing", "tap")
# Target of the standard error of probabilities, and the largest error that counts as converged.
GOAL_ERROR, WORST_ERROR = 0.003, 0.01


class ConditionalMeans(NamedTuple):
    """Result of `conditional_means`."""

    mean: np.ndarray  # (n_rows, n_units): observed values are unchanged
    # (n_rows,): largest standard error of the probability of a state: 0 if means are exact, NaN if
    # it is unknown (TAP)
    error: np.ndarray
    converged: np.ndarray  # bool (n_rows,)


def conditional_means(model, X, method="auto", *, seed=0, n_threads=None):
    """Compute the means of missing units given the observed units."""
    model = dense_machine("conditional_means", model)
    states, X = flat_states(model.prior), np.asarray(X, float)
    incomplete = np.flatnonzero(states.missing(X).any(1))
    mean, error, converged = X.copy(), np.zeros(len(X)), np.ones(len(X), bool)
    if not len(incomplete):
        return ConditionalMeans(mean, error, converged)
    # Equal rows are computed once.
    marked = np.nan_to_num(X[incomplete], nan=1 + np.nanmax(abs(X), initial=0))
    _, first, inverse = np.unique(marked, axis=0, return_index=True, return_inverse=True)
    rows = X[incomplete[first]]
    if method == "tap":
        solved = tap(model, clamp=rows, n_threads=n_threads)
        distinct = solved.mean, np.full(len(rows), np.nan), solved.converged
    else:
        distinct = _summed(model, states, rows, method, seed, n_threads)
    for out, part in zip((mean, error, converged), distinct, strict=True):
        out[incomplete] = part[inverse.reshape(-1)]
    return ConditionalMeans(mean, error, converged)


def _summed(model, states, X, method, seed, n_threads):
    """Compute means of distinct rows by enumeration or annealing."""
    missing = states.missing(X)
    log_states = missing @ np.log2(np.diff(states.offsets))
    enumerable = (log_states <= math.log2(MAX_ENUMERATED_STATES)) & (method != "annealing")
    if method == "exact" and not enumerable.all():
        raise ValueError(
            "method 'exact' takes rows whose missing values have at most "
            f"2^{math.log2(MAX_ENUMERATED_STATES):g} states together, got "
            f"2^{log_states.max():.0f}: take 'annealing', or 'tap'."
        )
    columns = Columns.of(states, model.couplings)
    fields = (states.values @ (np.nan_to_num(X, nan=0.0) @ model.couplings).T).T
    fields += states.log_weights
    p, error = np.zeros_like(fields), np.zeros(len(X))
    if enumerable.any():
        p[enumerable] = _enumerated(columns, fields[enumerable], missing[enumerable])
    for row in np.flatnonzero(~enumerable):
        chosen, rng = missing[row], np.random.default_rng(seed)
        numbers, part = columns.chosen(chosen, fields[row])
        p[row, numbers], error[row] = annealed_probabilities(
            part, rng, GOAL_ERROR, n_threads=n_threads
        )
    mean = np.where(np.isnan(X), states.means(p), X)
    return ConditionalMeans(mean, error, error <= WORST_ERROR)


# --- enumeration ----------------------------------------------------------------------------------


def _enumerated(columns, fields, missing):
    """Compute the probabilities of the states of missing columns by enumeration."""
    out = np.zeros_like(fields)
    for rows, states, sizes in batches_of_rows(missing, columns.offsets):
        halves = _halves(sizes)
        n_entries = max(math.prod(map(int, sizes)), states.shape[1] ** 2)
        for block in blocks(len(rows), len(rows) * n_entries):
            of_rows, of_row = states[block], rows[block, None]
            couplings = columns.couplings[of_rows[:, :, None], of_rows[:, None]]
            out[of_row, of_rows] = _probabilities(couplings, fields[of_row, of_rows], *halves)
    return out


def _halves(sizes):
    """Split columns into two parts with similar numbers of states; return their one-hot states."""
    middle = np.searchsorted(np.cumsum(np.log(sizes)), np.log(sizes).sum() / 2) + 1
    return one_hot_states(sizes[:middle]), one_hot_states(sizes[middle:])


def _probabilities(couplings, field, first, second):
    """Compute the probabilities of the states of each column, for a block of rows."""
    n = first.shape[1]
    logs = first @ couplings[:, :n, n:] @ second.T
    logs += _log_weights(couplings[:, :n, :n], field[:, :n], first)[:, :, None]
    logs += _log_weights(couplings[:, n:, n:], field[:, n:], second)[:, None]
    logs -= logs.max((1, 2), keepdims=True)
    weights = np.exp(logs, out=logs)
    sums = weights.sum(2) @ first, weights.sum(1) @ second
    return np.hstack(sums) / weights.sum((1, 2))[:, None]


def _log_weights(couplings, field, states):
    return field @ states.T + ((states @ couplings) * states).sum(2) / 2
