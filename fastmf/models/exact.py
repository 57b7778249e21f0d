"""Exact log-partitions and averages of discrete models, by elimination or enumeration."""

import itertools
import math
from typing import NamedTuple

import numpy as np
import scipy

from fastmf._common.arguments import flag, number, refusing_overflow
from fastmf._common.rows import BLOCK_ENTRIES, is_sparse
from fastmf._threads.workers import one_blas_thread
from fastmf.models._graph_sums import GraphSums
from fastmf.models._state_tables import (
    Tables,
    allowed_states,
    average_products,
    one_row,
    pairwise_graph,
    states_of_units,
    with_all_pairs,
)
from fastmf.models.boltzmann import BoltzmannMachine, check_machine, machine_of_layers
from fastmf.models.layered import places_on_sides
from fastmf.priors._groups import column_is_group, column_sizes
from fastmf.priors._queries import columns_of_values, number_of_states

# Largest enumerations: numbers of units and of joint states.
MAX_LAYER_UNITS = 20
MAX_LAYER_STATES = 1 << 24
NO_STATES = "model has no states that are possible: all have the energy +inf."


class Exact(NamedTuple):
    """Result of `exact`.

    Parameters
    ----------
    log_partition : float
    mean, var : array of shape (n_units,), or tuple (visible, hidden, ...) of arrays
    pairwise : array, csr_array or tuple of arrays
        <x_i x_j>, (n_units, n_units); for an RBM <v_i h_j>, (n_visible, n_hidden), and for a DBM
        one such array for each pair of neighbouring layers. With sparse couplings, or more than 20
        units or 2^24 states, a csr_array with the pairs of coupled units and <x_i^2> on its
        diagonal.
    mode : array of shape (n_units,) or (n_groups,)
        Most probable state: values of the units, and labels of groups.

    Notes
    -----
    Fields that were not asked for are None.
    """

    log_partition: float
    mean: np.ndarray | tuple | None = None
    var: np.ndarray | tuple | None = None
    pairwise: "np.ndarray | scipy.sparse.csr_array | tuple | None" = None
    mode: np.ndarray | None = None

    def __repr__(self):
        units = "without averages"
        if self.mean is not None:
            means = self.mean if isinstance(self.mean, tuple) else (self.mean,)
            units = f"averages of {' + '.join(str(len(mean)) for mean in means)} units"
        return f"Exact(log-partition {self.log_partition:.6g}, {units})"


@refusing_overflow
def exact(model, *, field=None, clamp=None, averages=True, mode=False, max_bytes=2**31):
    """Compute the log-partition, means, variances and pair averages as sums over all states.

    Parameters
    ----------
    model : BoltzmannMachine, RBM or DBM
        A Boltzmann machine of discrete units whose graph has a small width, or an RBM with a layer
        of at most 20 discrete units (a group of states is one) and 2^24 states; the other layer, of
        any kind, is summed analytically. The even layers of a DBM together, or the odd ones, count
        as one layer. Other layered machines of discrete units are treated as graphs.
    field : array of shape (n_units,), optional
        Added to the field of the prior of a Boltzmann machine.
    clamp : array of shape (n_units,), optional
        Values of clamped units of a Boltzmann machine, NaN where free; for categorical units also
        labels (n_groups,), negative where free. The sum is over the states with these values.
    averages : bool, default True
        Compute means, variances and pair averages, too, which doubles the time. The log-partition
        for 16 hidden and 784 visible units takes some seconds; each further unit doubles this.
    mode : bool, default False
        Find the most probable state of a Boltzmann machine, too.
    max_bytes : int, default 2**31
        Largest memory for the tables of a Boltzmann machine, checked in advance. With
        averages=False they take less.

    Returns
    -------
    Exact

    Raises
    ------
    ValueError, FloatingPointError
        If the model is too large or not discrete, no state has a positive weight, or sums overflow.
    TypeError
        If the model is of another class, or an option is only for Boltzmann machines.

    Notes
    -----
    The units of a Boltzmann machine are eliminated one after the other: the sum over the states of
    one unit leaves a table over its neighbours. Units with at most two neighbours come first, many
    at once: a chain of a million spins takes some seconds. For the other units the cheapest of
    three orders is taken: as numbered, reverse Cuthill-McKee, or weighted minimum fill. The memory
    grows exponentially with the width, the number of neighbours in the largest table: 1 for trees,
    2 for rings, about the shorter side for grids, and n_units - 1 if all units are coupled.

    Examples
    --------
    A chain of 1000 spins, and its most probable state with the first spin down:

    >>> import numpy as np, fastmf as mf
    >>> from scipy.sparse import diags_array
    >>> bonds = np.ones(999)
    >>> chain = diags_array([bonds, bonds], offsets=[-1, 1], format="csr")
    >>> model = mf.BoltzmannMachine(chain, mf.Ising(np.zeros(1000)))
    >>> np.isclose(mf.exact(model).log_partition, np.log(2) + 999 * np.log(2 * np.cosh(1)))
    np.True_
    >>> down = np.append(-1, np.full(999, np.nan))
    >>> mf.exact(model, clamp=down, mode=True).mode[:3]
    array([-1., -1., -1.])
    """
    averages, mode = flag("averages", averages), flag("mode", mode)
    max_bytes = number("max_bytes", max_bytes, 0, np.inf)
    check_machine(model)
    if isinstance(model, BoltzmannMachine):
        return _exact_boltzmann(model, field, clamp, averages, mode, max_bytes)
    for name, value in (("field", field is not None), ("clamp", clamp is not None), ("mode", mode)):
        if value:
            raise TypeError(f"{name} needs a BoltzmannMachine of all units, got {model!r:.40}.")
    return _exact_layered(model, averages, max_bytes)


def _enumerable(prior):
    n_units, n_states = len(column_sizes(prior)), number_of_states(prior)
    return n_units <= MAX_LAYER_UNITS and n_states <= MAX_LAYER_STATES


def states_of(prior, width):
    """Yield all states of the units in chunks of rows, for `width` numbers of memory per row."""
    columns = columns_of_values(prior)
    n_states, n_rows = math.prod(map(len, columns)), max(1, BLOCK_ENTRIES // 4 // width)
    for start in range(0, n_states, n_rows):
        yield numbered_states(columns, np.arange(start, min(start + n_rows, n_states)))


def numbered_states(columns, numbers):
    """Return states from their numbers, in the mixed radix of the columns' numbers of values."""
    counts = np.array([len(values) for values in columns])
    digits = numbers[:, None] // np.cumprod([1, *counts[:-1]]) % counts
    values = [values[digits[:, k]] for k, values in enumerate(columns)]
    return np.hstack([np.zeros((len(numbers), 0)), *values])


def sums_over_side(summed, other, weights, summands, X=None):
    """Compute the log-partition of an RBM, and averages, by enumerating one layer.

    summands(w, x, fields) computes a list of sums over states `x` with weights `w`; given x, the
    units of the other layer are independent, with these `fields`. With rows `X` of the other layer,
    NaN where units are summed, w has the shape (n_rows, n_states), rows are on the last axis of
    each sum, and the log-probabilities of observed values are left out.
    """
    if X is not None:
        seen, missing = np.nan_to_num(X, nan=0.0), missing_columns(other, X).astype(float)
    largest, totals = -np.inf, None
    for x in states_of(summed, sum(weights.shape)):
        x = x.astype(weights.dtype)
        fields = x @ weights
        logs = summed.log_prob(x).sum(1, dtype=np.float64)
        of_columns = other.log_partition(fields, fields.dtype.type(0))
        if X is None:
            logs += of_columns.sum(1, dtype=np.float64)
        else:
            logs = seen @ fields.T + missing @ of_columns.T + logs
        # Weights are relative to the largest one so far.
        new_largest = np.maximum(largest, logs.max(-1))
        if np.all(new_largest == -np.inf):  # all states so far are impossible
            continue
        w = np.exp(logs - new_largest[..., None])
        sums = [w.sum(-1), *summands(w, x, fields)]
        if totals is not None:
            scale = np.exp(largest - new_largest)
            sums = [scale * total + new for total, new in zip(totals, sums, strict=True)]
        largest, totals = new_largest, sums
    if totals is None:
        raise ValueError(NO_STATES)
    total, *sums = totals
    return largest + np.log(total), [part / total for part in sums]


def missing_columns(prior, X):
    """Return whether each unit or group of each row is missing: NaN in its first unit."""
    sizes = column_sizes(prior)
    return np.isnan(X[:, np.cumsum(sizes) - sizes])


def normalized(logs):
    """Return the logarithms of sums of weights over the last axis, and their probabilities."""
    largest = logs.max(-1, keepdims=True)
    w = np.exp(logs - largest)
    total = w.sum(-1, keepdims=True)
    return (largest + np.log(total))[..., 0], w / total


def _variance(mean, square):
    return np.maximum(square - mean**2, 0)  # rounding could make it negative


def _exact_boltzmann(model, field, clamp, averages, mode, max_bytes):
    """Sum a Boltzmann machine by elimination; average all pairs if couplings are dense."""
    states = states_of_units(model.prior)
    shift = one_row("field", field, model)
    fields = np.where(allowed_states(model, clamp, states), states.weights, -np.inf)
    if shift is not None:
        fields += shift[states.columns] * states.values
    graph = pairwise_graph(model)
    tables = Tables(states.sizes, graph.edges, fields, np.zeros(0))
    n_states = np.bincount(tables.units, fields > -np.inf, len(states.sizes)).astype(np.int64)
    if not n_states.all():
        raise ValueError(NO_STATES)
    all_pairs = averages and not is_sparse(model.couplings) and _enumerable(model.prior)
    edges = np.stack(np.triu_indices(len(n_states), 1), axis=1) if all_pairs else graph.edges
    sums = GraphSums(n_states, edges, max_bytes)
    _refuse_large(sums, averages or mode, max_bytes)
    tables = tables._replace(couplings=states.couplings(graph))
    tables = with_all_pairs(tables) if all_pairs else tables
    marginals = sums.marginals(tables, averages)
    if marginals.log_partition == -np.inf:
        raise ValueError(NO_STATES)
    best = None
    if mode:
        best = np.flatnonzero(sums.marginals(tables, maximum=True).units)
        labels, is_group = best - tables.first, column_is_group(model.prior)
        best = labels if is_group.all() else np.where(is_group, labels, states.values[best])
    if not averages:
        return Exact(marginals.log_partition, mode=best)
    mean, square = states.means(marginals)
    pairwise = average_products(tables, states, marginals, square)
    if all_pairs:
        pairwise = pairwise.toarray()
    return Exact(marginals.log_partition, mean, _variance(mean, square), pairwise, best)


def _refuse_large(sums, averages, max_bytes):
    """Raise a ValueError if sums over a graph do not fit in memory."""
    plan, n_bytes = sums.plan, sums.n_bytes(averages)
    if plan.complete and n_bytes <= max_bytes:
        return
    least = "" if plan.complete else "at least "
    more = ", or pass a larger max_bytes if there is memory" if plan.complete else ""
    raise ValueError(
        f"exact cannot eliminate one unit after the other: it needs {least}{n_bytes:.3g} bytes, "
        f"more than max_bytes={max_bytes:.3g}. The graph has a width of {least}{plan.width}, and "
        f"its largest table {least}2^{plan.log2_largest:.1f} entries. Use belief_propagation or "
        f"log_partition_bounds{more}."
    )


@one_blas_thread()
def _exact_rbm(model, averages):
    counts = [number_of_states(layer) if _enumerable(layer) else np.inf for layer in model.layers]
    side = int(np.argmin(counts))
    summed, independent = model.layers[side], model.layers[1 - side]
    weights = (model.weights.T if side else model.weights).astype(float)

    def summands(w, x, fields):
        if not averages:
            return ()
        mean, var = independent.moments(fields, 0.0)
        return w @ x, w @ x**2, w @ mean, w @ (var + mean**2), x.T @ (w[:, None] * mean)

    log_partition, sums = sums_over_side(summed, independent, weights, summands)
    if not averages:
        return Exact(float(log_partition))
    mean, square, other_mean, other_square, pairwise = sums
    means = mean, other_mean
    variances = _variance(mean, square), _variance(other_mean, other_square)
    if side:
        means, variances, pairwise = means[::-1], variances[::-1], pairwise.T
    return Exact(float(log_partition), means, variances, pairwise)


def _exact_graph(pair, model, averages, max_bytes):
    """Sum a layered machine, no layer of which can be enumerated, as one graph."""
    machine, n = machine_of_layers(pair.weights, pair.layers), pair.n_visible
    try:
        sums = _exact_boltzmann(machine, None, None, averages, False, max_bytes)
    except ValueError as error:
        raise ValueError(
            f"exact needs a layer of at most {MAX_LAYER_UNITS} discrete units and "
            f"{MAX_LAYER_STATES} states, got {model}; and as a graph: {error}"
        ) from None
    if not averages:
        return sums
    mean, var = ((part[:n], part[n:]) for part in (sums.mean, sums.var))
    return Exact(sums.log_partition, mean, var, sums.pairwise[:n, n:].toarray())


def _exact_layered(model, averages, max_bytes):
    pair = model.bipartite()
    if _enumerable(pair.visible) or _enumerable(pair.hidden):
        sums = _exact_rbm(pair, averages)
    else:
        sums = _exact_graph(pair, model, averages, max_bytes)
    if not averages or not model.deep:
        return sums
    mean, var = (
        tuple(np.concatenate(sides)[layer] for layer in model.bounds)
        for sides in (sums.mean, sums.var)
    )
    places = itertools.pairwise(places_on_sides(model.sizes))
    pairwise = tuple(
        sums.pairwise[upper, lower].T.copy() if k % 2 else sums.pairwise[lower, upper].copy()
        for k, (lower, upper) in enumerate(places)
    )
    return Exact(sums.log_partition, mean, var, pairwise)
