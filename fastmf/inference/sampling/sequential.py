"""Gibbs sampling and annealing with dense couplings, one unit or group after the other."""

import numpy as np
from scipy.sparse import issparse

from fastmf._threads.workers import in_parallel, workers_for
from fastmf.kernels.sampling.visible import (
    TiltedBetas,
    VisibleUnits,
    anneal_visible,
    visible_work,
)
from fastmf.models._couplings import finite_machine
from fastmf.priors._groups import column_is_group, column_sizes
from fastmf.priors._protocol import parts_of
from fastmf.priors._queries import binary_field, two_values


def is_sequential(model):
    """Whether `SequentialUnits` take a machine; of sparse ones whole colours are drawn at once."""
    parts = parts_of(model.prior)
    return not issparse(model.couplings) and all(
        column_is_group(part).all() or two_values(part) for part in parts
    )


class SequentialUnits:
    """The units of a machine, to be drawn one after the other.

    Parameters
    ----------
    model : BoltzmannMachine
        With dense couplings, and units that are two-valued or in groups of states.

    Raises
    ------
    ValueError
        If a coupling is -inf.
    """

    def __init__(self, model):
        self.model = finite_machine("Gibbs sampling", model)
        self.couplings = np.array(model.couplings, order="C")
        self.units = units_of_columns(model.prior)

    def anneal(self, x, betas, rng, *, tilt=None, n_threads=None):
        """Chains that are moved along the path from uncoupled units to the model."""
        x = np.asarray(x, self.model.dtype)
        tilt = np.zeros(x.shape[1]) if tilt is None else tilt
        return anneal_chains(self.couplings, self.units, x, betas, rng, tilt, n_threads)

    def sample(self, x, n_sweeps, rng, n_threads=None):
        """Chains after more sweeps of Gibbs sampling of the model."""
        return self.anneal(x, np.ones(n_sweeps + 1), rng, n_threads=n_threads)[1]


def anneal_chains(couplings, units, x, betas, rng, tilt, n_threads=None):
    """Log importance weights of chains that are moved along a path, and their ends."""
    x, (n_chains, n) = np.array(x, order="C"), x.shape
    path = TiltedBetas(np.array(tilt, np.float64), np.array(betas, np.float64))
    log_weights, work = np.zeros(n_chains), len(betas) * n_chains * n * n
    n_workers = workers_for(n_chains, work, n_threads)
    seeds = rng.integers(2**64, size=len(betas) - 1, dtype=np.uint64)
    arguments = couplings, units, path, seeds, x, log_weights, visible_work(n, n_workers)
    in_parallel(anneal_visible, arguments, n_workers)
    return log_weights, x


def units_of_columns(prior):
    """Two-valued units and groups of states as the kernel takes them."""
    first, values = np.append(0, np.cumsum(column_sizes(prior))), []
    for part in parts_of(prior):
        is_group = column_is_group(part).all()
        field = part.field if is_group else binary_field(part)[0]
        low, high = (0.0, 1.0) if is_group else two_values(part)
        values.append([np.full(len(field), low), np.full(len(field), high), field])
    return VisibleUnits(first, *np.concatenate(values, axis=1).astype(np.float64))
