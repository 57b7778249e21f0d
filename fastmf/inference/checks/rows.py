"""Rows to be judged, reasons against them, and the time of other methods."""

from enum import StrEnum
from typing import NamedTuple

import numpy as np

from fastmf.models import RBM, BoltzmannMachine
from fastmf.models._couplings import entries
from fastmf.models._layered import Layered
from fastmf.priors._protocol import as_dtype
from fastmf.priors.concatenated import concatenate

# Nats, and fractions of the range of units on average and of one unit, by which answers may differ.
MAX_NATS, MAX_MEAN, MAX_ONE_MEAN = 1.0, 0.05, 0.2
# Units that are held at least.
MIN_HELD = 4
# Seconds that a check of all rows may take by these estimates, for a typical row: of belief
# propagation, a message, and of adaptive TAP, a multiplication. Verdicts do not depend on a clock.
MAX_SECONDS, MESSAGE_SECONDS, PRODUCT_SECONDS = 0.5, 1e-6, 2e-8


class Reason(StrEnum):
    """Reason why a row is not reliable, as its `message` has it."""

    EXACT = (
        "exact sums, which are quick, have another log-partition or other means; take "
        "fastmf.exact, or belief_propagation with algorithm='auto'"
    )
    IMPOSSIBLE = "no state is possible, as exact sums say: the log-partition is -inf"
    UNSTABLE = "no start leads to a stable solution, and this is the solution of the first start"
    STARTS = (
        "other starts lead to fixed points of which the mixture has another log-partition or other "
        "means: take fastmf.mixture, or `init` for one of them"
    )
    HELD_UNITS = (
        "belief propagation with single units held at each of their values has another "
        "log-partition or other means"
    )
    ADAPTIVE_TAP = "adaptive_tap has another log-partition or other means"
    MESSAGES = "belief propagation from its means has another log-partition or other means"


class Answer(NamedTuple):
    """Log-partition and means (n_units,) of one row."""

    log_partition: float
    mean: np.ndarray


def agree(answer, other, width, slack=0.0):
    """Whether two answers agree, where units have these ranges and means may differ by `slack`."""
    off = np.maximum(abs(other.mean - answer.mean) / width - slack, 0)
    means = off.mean() <= MAX_MEAN and off.max() <= MAX_ONE_MEAN if off.size else True
    return bool(abs(other.log_partition - answer.log_partition) <= MAX_NATS and means)


class JudgedRows(NamedTuple):
    """Rows to be judged: answers, and tilts with which they were solved."""

    machine: object  # RBM or BoltzmannMachine: in double precision; a DBM as `bipartite()`
    mean: np.ndarray  # (n_rows, n_units): units are in the order of the machine's layers
    var: np.ndarray  # (n_rows, n_units)
    log_partition: np.ndarray  # (n_rows,)
    field: np.ndarray  # (n_rows, n_units)
    precision: np.ndarray  # (n_rows, n_units)
    clamped: np.ndarray  # bool (n_rows, n_units): units that have their means as values

    def chosen(self, rows):
        """The same for some rows."""
        return JudgedRows(self.machine, *(part[rows] for part in self[1:]))

    @property
    def prior(self):
        """Prior of all units, side by side."""
        return concatenate(list(self.machine.layers))

    @property
    def clamp(self):
        """Values of clamped units, NaN where free; None without any."""
        return np.where(self.clamped, self.mean, np.nan) if self.clamped.any() else None

    def tilts(self):
        """Keyword arguments of solvers, by layers."""
        parts = {"field": self.field, "precision": self.precision, "clamp": self.clamp}
        used = {k: x for k, x in parts.items() if x is not None and np.any(x != 0)}
        return {k: split(self.machine, x) for k, x in used.items()}


def machine_of(model):
    """An RBM or BoltzmannMachine in double precision with the units and couplings of a model."""
    if isinstance(model, Layered):
        model = model.bipartite()
        layers = (as_dtype(prior, np.float64) for prior in model.layers)
        return RBM(model.weights.astype(np.float64), *layers)
    return BoltzmannMachine(model.couplings.astype(np.float64), as_dtype(model.prior, np.float64))


def joined(model, parts):
    """Arrays of one layer, or of all layers of a model, in the order of `machine_of`."""
    if isinstance(parts, tuple):
        order = (*parts[::2], *parts[1::2]) if isinstance(model, Layered) else parts
        parts = np.concatenate([np.atleast_2d(part) for part in order], axis=1)
    return np.atleast_2d(parts).astype(np.float64)


def split(machine, x):
    """An array of all units as a tuple of the layers of an RBM."""
    if isinstance(machine, RBM):
        return tuple(np.split(x, [len(machine.weights)], axis=-1))
    return x


def are_too_large(model, n_rows, whole):
    """Whether all methods would take too long, by the sizes of a model alone."""
    layered = isinstance(model, Layered)
    parts = model.couplings if layered else (model.couplings,)
    sizes = [sum(model.sizes[k::2]) for k in (0, 1)] if layered else model.couplings.shape
    n_messages = sum(map(count_couplings, parts)) * (2 if layered else 1)
    n_solves = n_rows * (2 * MIN_HELD if whole else 1)
    messages = n_solves * n_messages * MESSAGE_SECONDS
    products = n_rows * float(np.prod(sizes)) * min(sizes) * PRODUCT_SECONDS
    return min(messages, products) > MAX_SECONDS


def couplings_of(machine):
    """Couplings of an RBM or a BoltzmannMachine."""
    return machine.weights if isinstance(machine, RBM) else machine.couplings


def n_couplings(machine):
    """Number of couplings that are not zero."""
    return count_couplings(couplings_of(machine))


def count_couplings(couplings):
    """Number of entries that are not zero."""
    return int(np.count_nonzero(entries(couplings)))
