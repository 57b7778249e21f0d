"""Gibbs sampling of fully visible machines: units of one colour of the graph are drawn at once."""

import numpy as np
from scipy.sparse import csr_array

from fastmf.inference.mean_field._sparse_layout import colours_of, columns_graph, with_units
from fastmf.models._couplings import finite_machine
from fastmf.priors._groups import column_sizes
from fastmf.priors._protocol import n_units, parts_of, sample


class ColouredUnits:
    """The units of a machine by colours, each with their couplings to all others.

    Parameters
    ----------
    model : BoltzmannMachine
        With dense or sparse couplings, and units of any kind that can be sampled.

    Raises
    ------
    ValueError
        If a coupling is -inf.
    """

    def __init__(self, model):
        self.model = finite_machine("Gibbs sampling", model)
        sizes = column_sizes(model.prior)
        colour = np.repeat(colours_of(columns_graph(csr_array(model.couplings), sizes)), sizes)
        self.blocks, first = [], 0
        for part in parts_of(model.prior):
            here = slice(first, first + n_units(part))
            for k in np.unique(colour[here]):
                units = first + np.flatnonzero(colour[here] == k)
                couplings = model.couplings[units]
                self.blocks.append((k, units, with_units(part, units - first), couplings))
            first = here.stop
        self.blocks.sort(key=lambda block: block[0])

    def fields(self, x):
        """Fields of all units, for rows of states; both with one column for each row."""
        return self.model.couplings @ x

    def pair_sums(self, x):
        """x'Jx / 2 of each column of states, in double precision."""
        return np.einsum("ij,ij->j", x, self.fields(x), dtype=np.float64) / 2

    def sweep(self, x, rng, beta=1.0, tilt=None):
        """Draw all units in turn, in place, from the distribution with couplings beta J."""
        zero = x.dtype.type(0)
        for _, units, prior, couplings in self.blocks:
            b = (x.dtype.type(beta) * (couplings @ x)).T
            if tilt is not None:
                b = b + x.dtype.type(1 - beta) * tilt[units]
            x[units] = sample(prior, np.ascontiguousarray(b), zero, rng).T

    def sample(self, x, n_sweeps, rng, n_threads=None):
        """Chains, (n_chains, n_units), after more sweeps; `n_threads` is not used."""
        x = np.array(x.T, order="C")
        for _ in range(n_sweeps):
            self.sweep(x, rng)
        return np.ascontiguousarray(x.T)
