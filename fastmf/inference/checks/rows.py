"""Rows to be judged, and the time that it would take to solve them by other methods."""

from typing import NamedTuple

import numpy as np

from fastmf.models import RBM, BoltzmannMachine
from fastmf.models._couplings import entries
from fastmf.models._layered import Layered
from fastmf.priors._protocol import as_dtype
from fastmf.priors.concatenated import concatenate

# Units that are held at least, and the sweeps that belief propagation takes in most rows.
MIN_HELD, TYPICAL_SWEEPS = 4, 100
# Seconds that a check of all rows may take by these estimates: of a message, of a multiplication of
# a sweep or of matrices; and iterations of adaptive TAP. Verdicts do not depend on a clock.
MAX_SECONDS, MESSAGE_SECONDS, PRODUCT_SECONDS, TYPICAL_ITERATIONS = 0.5, 1e-8, 1e-9, 20


class JudgedRows(NamedTuple):
    """Rows to be judged: answers, and tilts with which they were solved.

    Parameters
    ----------
    machine : RBM or BoltzmannMachine
        In double precision; a DBM as `bipartite()`.
    mean, var : array of shape (n_rows, n_units)
        Units are in the order of the machine's layers.
    log_partition : array of shape (n_rows,)
    field, precision : array of shape (n_rows, n_units)
    clamped : bool array of shape (n_rows, n_units)
        Units that have their means as values.
    """

    machine: object
    mean: np.ndarray
    var: np.ndarray
    log_partition: np.ndarray
    field: np.ndarray
    precision: np.ndarray
    clamped: np.ndarray

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
    messages = n_solves * TYPICAL_SWEEPS * n_messages * MESSAGE_SECONDS
    products = n_rows * TYPICAL_ITERATIONS * float(np.prod(sizes)) * min(sizes) * PRODUCT_SECONDS
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
