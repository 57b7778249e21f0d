"""Gibbs sampling of fully visible machines: units one after the other, or colour by colour."""

from itertools import pairwise

import numpy as np
from scipy.sparse import csr_array, issparse

from fastmf._threads.workers import in_parallel, workers_for
from fastmf.inference.mean_field._sparse_layout import colours_of, columns_graph, with_units
from fastmf.inference.sampling.gibbs import check_finite
from fastmf.kernels.sampling.annealing import (
    TiltedBetas,
    VisibleUnits,
    anneal_visible,
    visible_work,
)
from fastmf.models.boltzmann import check_machine
from fastmf.priors._groups import column_is_group, column_sizes
from fastmf.priors._protocol import n_units, parts_of, sample
from fastmf.priors._queries import binary_field, two_values


def sampled_units(model):
    """The units of a machine as they are drawn; of sparse machines whole colours at once.

    Raises a ValueError if a coupling is -inf.
    """
    check_machine(model, "Gibbs sampling")
    parts = parts_of(model.prior)
    one_by_one = all(column_is_group(part).all() or two_values(part) for part in parts)
    if one_by_one and not issparse(model.couplings):
        return SequentialUnits(model)
    return ColouredUnits(model)


class SequentialUnits:
    """Two-valued units and groups of states with dense couplings, drawn one after the other."""

    def __init__(self, model):
        self.model = model
        self.couplings = np.array(model.couplings, order="C")
        self.units = units_of_columns(model.prior)

    def anneal(self, x, betas, rng, tilt, n_threads=None):
        """Log importance weights of chains moved from uncoupled units to the model, and ends."""
        x = np.asarray(x, self.model.dtype)
        return anneal_chains(self.couplings, self.units, x, betas, rng, tilt, n_threads)

    def sample(self, x, n_sweeps, rng, n_threads=None):
        """Chains, (n_chains, n_units), after more sweeps."""
        return self.anneal(x, np.ones(n_sweeps + 1), rng, np.zeros(x.shape[1]), n_threads)[1]


class ColouredUnits:
    """Units of any kind that can be sampled by colours, each with their couplings to all others."""

    def __init__(self, model):
        self.model = model
        sizes = column_sizes(model.prior)
        colour = np.repeat(colours_of(columns_graph(csr_array(model.couplings), sizes)), sizes)
        self.blocks, first = [], 0
        for part in parts_of(model.prior):
            of_part = slice(first, first + n_units(part))
            for k in np.unique(colour[of_part]):
                units = first + np.flatnonzero(colour[of_part] == k)
                couplings = model.couplings[units]
                self.blocks.append((k, units, with_units(part, units - first), couplings))
            first = of_part.stop
        self.blocks.sort(key=lambda block: block[0])

    def sweep(self, x, rng, beta, tilt):
        """Draw all units of columns of states in turn, in place, with couplings beta J."""
        zero, dtype = x.dtype.type(0), x.dtype.type
        for _, units, prior, couplings in self.blocks:
            b = (dtype(beta) * (couplings @ x)).T + dtype(1 - beta) * tilt[units]
            x[units] = sample(prior, np.ascontiguousarray(b), zero, rng).T

    def anneal(self, x, betas, rng, tilt, n_threads=None):
        """As of `SequentialUnits`; `n_threads` is not used."""
        x, log_weights = np.array(x.T, self.model.dtype, order="C"), np.zeros(len(x))
        tilt = np.asarray(tilt, x.dtype)
        for old, new in pairwise(betas):
            if new != old:
                fields = self.model.couplings @ x
                pairs = np.einsum("ij,ij->j", x, fields, dtype=np.float64) / 2
                log_weights += (new - old) * (pairs - tilt.astype(float) @ x)
            # What has diverged could not be sampled.
            check_finite(log_weights)
            self.sweep(x, rng, new, tilt)
            check_finite(x)
        return log_weights, np.ascontiguousarray(x.T)

    sample = SequentialUnits.sample


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
