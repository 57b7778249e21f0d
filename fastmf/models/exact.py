"""Exact log-partitions and averages of small discrete models, by enumeration of all states."""

import itertools
from typing import NamedTuple

import numpy as np

from fastmf._common.arguments import flag
from fastmf._common.html import extent, section, table
from fastmf._threads.workers import one_blas_thread
from fastmf.models._layered import Layered
from fastmf.models.boltzmann import BoltzmannMachine
from fastmf.priors._domain import columns_of_values, number_of_states

# Largest enumerations: units, and states of them together.
MAX_UNITS = 20
MAX_STATES = 1 << 24
# Numbers in one chunk of states or fields.
CHUNK_SIZE = 1 << 20


class Exact(NamedTuple):
    """What `exact` returns.

    Parameters
    ----------
    log_partition : float
    mean, var : array of shape (n_units,), or tuple (visible, hidden, ...) of arrays
    pairwise : array or tuple of arrays
        <x_i x_j>, (n_units, n_units); for an RBM <v_i h_j>, (n_visible, n_hidden), and for a DBM
        one such array for each pair of neighbouring layers.

    Notes
    -----
    All but the log-partition are None if averages were not asked for.
    """

    log_partition: float
    mean: np.ndarray | tuple | None = None
    var: np.ndarray | tuple | None = None
    pairwise: np.ndarray | tuple | None = None

    def __repr__(self):
        units = "without averages"
        if self.mean is not None:
            units = f"averages of {' + '.join(str(len(mean)) for mean in self._means())} units"
        return f"Exact(log-partition {self.log_partition:.6g}, {units})"

    def _means(self):
        return self.mean if isinstance(self.mean, tuple) else (self.mean,)

    def _repr_html_(self):
        """What notebooks show: the log-partition and the ranges of the averages."""
        rows = [("log-partition", f"{self.log_partition:.6g}")]
        if self.mean is not None:
            rows.append(("units", " + ".join(str(len(mean)) for mean in self._means())))
            for name in ("mean", "var", "pairwise"):
                parts = getattr(self, name)
                parts = parts if isinstance(parts, tuple) else (parts,)
                rows.append((name, "; ".join(map(extent, parts))))
        return section("Exact", table(rows))


def exact(model, *, averages=True):
    """Log-partition, means, variances and pair averages by summing over all states.

    Parameters
    ----------
    model : BoltzmannMachine, RBM or DBM
        A Boltzmann machine of at most 20 discrete units (a group of states is one), with at most
        2^24 states together, or an RBM with one such layer; the other layer, of any kind, is summed
        analytically. Of a DBM the even layers together, or the odd ones, are such a layer.
    averages : bool, default True
        Compute means, variances and pair averages too. Without them it takes half the time: some
        seconds for 16 hidden units next to 784, and twice as long for every further unit.

    Returns
    -------
    Exact

    Raises
    ------
    ValueError
        If the model is too large or not discrete.
    TypeError
        If the model is of another class.

    Examples
    --------
    >>> import numpy as np, fastmf as mf
    >>> pair = np.array([[0.0, 1.0], [1.0, 0.0]])
    >>> found = mf.exact(mf.BoltzmannMachine(pair, mf.Ising(np.zeros(2))))
    >>> np.isclose(found.log_partition, np.log(4 * np.cosh(1)))
    np.True_
    >>> np.isclose(found.pairwise[0, 1], np.tanh(1))
    np.True_
    """
    flag("averages", averages)
    if isinstance(model, Layered):
        return _exact_layered(model, averages)
    if isinstance(model, BoltzmannMachine):
        return _exact_boltzmann(model, averages)
    raise TypeError(
        f"model must be an RBM, a DBM or a BoltzmannMachine, got {type(model).__name__}."
    )


def _enumerable(prior):
    columns = columns_of_values(prior)
    return (
        columns is not None and len(columns) <= MAX_UNITS and number_of_states(prior) <= MAX_STATES
    )


def states_of(prior, width):
    """All states of the units, a chunk of rows at a time; `width` numbers go with each."""
    columns = columns_of_values(prior)
    counts = np.array([len(values) for values in columns])
    n_states, n_rows = int(np.prod(counts)), max(1, CHUNK_SIZE // width)
    # A state is a number in the mixed radix of the numbers of values of the groups or units.
    place = np.cumprod([1, *counts[:-1]])
    for start in range(0, n_states, n_rows):
        number = np.arange(start, min(start + n_rows, n_states))[:, None]
        digits = number // place % counts
        values = [values[digits[:, k]] for k, values in enumerate(columns)]
        yield np.hstack([np.zeros((len(number), 0)), *values])


class _Sums:
    """Sums over states of exp(log weight) times summands, relative to the largest weight so far."""

    def __init__(self):
        self.max_log_weight, self.totals = -np.inf, None

    def add(self, log_weights, summands):
        """Add a chunk of states; `summands(weights)` gives the weighted sums over it."""
        largest = max(self.max_log_weight, log_weights.max())
        if largest == -np.inf and self.totals is None:  # forbidden states so far
            return
        weights = np.exp(log_weights - largest)
        new = [weights.sum(), *summands(weights)]
        if self.totals is not None:
            scale = np.exp(self.max_log_weight - largest)
            new = [scale * old + more for old, more in zip(self.totals, new, strict=True)]
        self.max_log_weight, self.totals = largest, new

    def result(self):
        """The log of the sum of all weights, and the averages."""
        if self.totals is None:
            raise ValueError("model has no states that are possible: all have the energy +inf.")
        total, *others = self.totals
        return float(self.max_log_weight + np.log(total)), [other / total for other in others]


def _variance(mean, square):
    return np.maximum(square - mean**2, 0)  # rounding could make it negative


@one_blas_thread()
def _exact_boltzmann(model, averages):
    prior, n = model.prior, model.n_units
    if not _enumerable(prior):
        raise ValueError(
            f"exact needs at most {MAX_UNITS} discrete units (with a `support`) and {MAX_STATES} "
            f"states, got {model}."
        )
    sums = _Sums()
    for x in states_of(prior, n):

        def summands(w, x=x):
            return (w @ x, x.T @ (w[:, None] * x)) if averages else ()

        sums.add(-model.energy(x), summands)
    log_partition, found = sums.result()
    if not averages:
        return Exact(log_partition)
    mean, pairwise = found
    return Exact(log_partition, mean, _variance(mean, pairwise.diagonal()), pairwise)


@one_blas_thread()
def _exact_rbm(model, averages):
    v, h, couplings = model.visible, model.hidden, model.weights.astype(float)
    candidates = [
        (prior, other, flipped)
        for prior, other, flipped in ((v, h, False), (h, v, True))
        if _enumerable(prior)
    ]
    if not candidates:
        raise ValueError(
            f"exact needs a layer of at most {MAX_UNITS} discrete units and {MAX_STATES} states, "
            f"got {model}."
        )
    summed, other, flipped = min(candidates, key=lambda c: number_of_states(c[0]))
    if flipped:
        couplings = couplings.T

    sums = _Sums()
    for x in states_of(summed, sum(couplings.shape)):
        fields = x @ couplings

        def summands(w, x=x, fields=fields):
            if not averages:
                return ()
            mean, var = other.moments(fields, 0.0)
            return w @ x, w @ x**2, w @ mean, w @ (var + mean**2), x.T @ (w[:, None] * mean)

        log_weights = summed.log_prob(x).sum(1) + other.log_partition(fields, 0.0).sum(1)
        sums.add(log_weights, summands)
    log_partition, found = sums.result()
    if not averages:
        return Exact(log_partition)
    mean, square, other_mean, other_square, pairwise = found
    means = mean, other_mean
    variances = _variance(mean, square), _variance(other_mean, other_square)
    if flipped:
        means, variances, pairwise = means[::-1], variances[::-1], pairwise.T
    return Exact(log_partition, means, variances, pairwise)


def _exact_layered(model, averages):
    whole = _exact_rbm(model.bipartite(), averages)
    if not averages or not model.deep:
        return whole
    n_layers = len(model.sizes)

    def parts(sides):
        found = [None] * n_layers
        for side in (0, 1):
            ends = np.cumsum(model.sizes[side::2])[:-1]
            found[side::2] = np.split(sides[side], ends)
        return tuple(found)

    # The pairs of two layers, by the units' indices on the two sides of the RBM.
    numbers = parts([np.arange(len(mean)) for mean in whole.mean])
    pairwise = tuple(
        whole.pairwise[np.ix_(lower, upper)]
        if k % 2 == 0
        else whole.pairwise[np.ix_(upper, lower)].T
        for k, (lower, upper) in enumerate(itertools.pairwise(numbers))
    )
    return Exact(whole.log_partition, parts(whole.mean), parts(whole.var), pairwise)
