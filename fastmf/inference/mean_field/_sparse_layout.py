"""The layout of a fully visible machine with sparse couplings, for `kernels.mean_field.sparse`.

Columns (units, or groups of states) are coloured so that none is coupled to another of its colour,
and stored colour by colour: then a sweep updates whole ranges of units, and their sources are about
as near to each other as in the model.
"""

import numpy as np
from scipy.sparse import csr_array

from fastmf.kernels.mean_field.colouring import greedy_colours
from fastmf.kernels.mean_field.rows import assess_address
from fastmf.kernels.mean_field.sparse import SparseCouplings
from fastmf.kernels.mean_field.units import units_address
from fastmf.priors._compiled import AddressTable, units_of
from fastmf.priors._groups import column_sizes, has_groups
from fastmf.priors._protocol import (
    is_concatenated,
    n_units,
    parts_of,
    precomputed,
)

# Units of a chunk: what is computed for them stays in the cache.
CHUNK_UNITS = 2048


class SparseLayout:
    """A fully visible machine with sparse couplings as the arrays that kernels take.

    Parameters
    ----------
    model : BoltzmannMachine
    order : {1, 2, 3}
    schedule : {"blocked", "sequential"}
        Colour by colour, or in the natural order.

    Attributes
    ----------
    graph : SparseCouplings
    couplings : csr_array
        Couplings of the units in the order of the layout.
    prior : unit prior
        In this order, too.
    units : int array of shape (n_units,)
        Number of each unit in the model.
    colours : list of int64 arrays of shape (n_chunks, 3)
        The chunks of units that are updated at once: see `sweep_chunks`.
    """

    grouped, sparse = False, True

    def __init__(self, model, order, schedule):
        self.n_units, self.n_couplings = model.n_units, model.couplings.nnz
        self.bounds, self.one_by_one = [slice(0, self.n_units)], schedule == "sequential"
        self.grouped = has_groups(model.prior)
        sizes, couplings = column_sizes(model.prior), model.couplings
        if self.grouped:
            couplings = whole_tables(couplings, sizes)
        part = np.repeat(np.arange(len(parts_of(model.prior))), _numbers_of_columns(model.prior))
        colour = np.zeros(len(sizes), np.int64)
        if not self.one_by_one:
            colour = colours_of(columns_graph(couplings, sizes) if self.grouped else couplings)
        # Parts of the prior stay side by side.
        columns = np.lexsort((colour, part))
        first = np.cumsum(sizes) - sizes
        starts = np.cumsum(sizes[columns]) - sizes[columns]
        self.units = np.arange(self.n_units)
        if not self.one_by_one:
            of_column = np.repeat(np.arange(len(sizes)), sizes[columns])
            self.units = first[columns][of_column] + self.units - starts[of_column]
            couplings = couplings[self.units][:, self.units]
            couplings.sort_indices()
        self.couplings = couplings
        self.prior = with_units(model.prior, self.units)
        states = np.repeat(sizes[columns], sizes[columns] if self.grouped else 0)
        self.graph = SparseCouplings(
            couplings.indptr.astype(np.int64),
            couplings.indices.astype(np.int32),
            np.array(couplings.data),
            states.astype(np.int32),
            (states == 1).astype(model.dtype),
        )
        self.colours = self._chunks(colour[columns], part[columns], starts, sizes[columns])
        self.width = max(int((c[:, 1] - c[:, 0]).max()) for c in self.colours)
        self.width = int(sizes.max()) if self.one_by_one else self.width
        self.n_chunks = sum(map(len, self.colours))
        names = ("moments", "third_cumulants") if order == 3 else ("moments",)
        units = units_of(precomputed(self.prior), model.dtype, names)
        self.layer = AddressTable([*units, self.n_units, 0, 0], units)
        self.max_sources = int(np.diff(couplings.indptr).max(initial=1)) if self.grouped else 0

    def _chunks(self, colour, part, starts, sizes):
        """The chunks of each colour; one of all units if they are updated one by one."""
        if self.one_by_one:
            return [np.array([[0, self.n_units, 0]])]
        ends = starts + sizes
        begins = np.flatnonzero(np.diff(colour, prepend=-1) | np.diff(part, prepend=-1))
        chunks = []
        for first, last in zip(begins, np.append(begins[1:], len(starts)), strict=True):
            while first < last:
                # Whole columns, at least one.
                stop = np.searchsorted(ends, starts[first] + CHUNK_UNITS, side="right")
                stop = min(max(stop, first + 1), last)
                chunks.append((colour[first], starts[first], ends[stop - 1]))
                first = stop
        chunks = np.array(chunks, np.int64)
        numbered = np.column_stack([chunks[:, 1:], np.arange(len(chunks))])
        return [numbered[chunks[:, 0] == k] for k in np.unique(chunks[:, 0])]

    def fits(self, model):
        """Whether its memory suits another model: never."""
        return False

    def addresses(self):
        """Addresses of compiled functions, for `TapSettings`."""
        finish = units_address(self.couplings.dtype)
        return {"update": 0, "finish": finish, "assess": assess_address()}

    def join(self, parts, whole):
        """Write the array of the model's units, if not None, into `whole`, (n_rows, n_units)."""
        if parts[0] is not None:
            whole[...] = parts[0][..., self.units]
        return whole

    def split(self, whole):
        """The array of the units in the order of the model."""
        out = np.empty_like(whole)
        out[..., self.units] = whole
        return out


def columns_graph(couplings, sizes):
    """A csr_array that is not zero where two columns of units are coupled."""
    members = members_of(sizes, couplings.dtype)
    pattern = csr_array(
        (np.ones_like(couplings.data), couplings.indices, couplings.indptr), couplings.shape
    )
    return csr_array(members.T @ pattern @ members)


def members_of(sizes, dtype):
    """Which units belong to which column, csr_array of shape (n_units, n_columns)."""
    n_units, column = int(sizes.sum()), np.repeat(np.arange(len(sizes)), sizes)
    arrays = np.ones(n_units, dtype), column, np.arange(n_units + 1)
    return csr_array(arrays, shape=(n_units, len(sizes)))


def whole_tables(couplings, sizes):
    """The couplings with all entries of the tables of coupled columns, zeros included."""
    members = members_of(sizes, couplings.dtype)
    whole = csr_array(members @ columns_graph(couplings, sizes) @ members.T)
    whole.sort_indices()
    if whole.nnz == couplings.nnz:
        return couplings
    n = couplings.shape[0]
    rows, others = (np.repeat(np.arange(n), np.diff(c.indptr)) for c in (whole, couplings))
    places = np.searchsorted(rows * n + whole.indices, others * n + couplings.indices)
    whole.data[:] = 0
    whole.data[places] = couplings.data
    return whole


def colours_of(graph):
    """Colours 0, 1, ... of the vertices of a graph, a csr_array; neighbours have different ones."""
    starts, neighbours = graph.indptr.astype(np.int64), graph.indices.astype(np.int32)
    degree = int(np.diff(starts).max(initial=0))
    colours = np.full(graph.shape[0], -1)
    unused, queue = np.full(degree + 2, -1), np.zeros(1, np.int64)
    greedy_colours(starts, neighbours, unused, colours, queue)
    return colours


def with_units(prior, units):
    """The prior of the same units in another order, which keeps parts and groups together."""
    if is_concatenated(prior):
        ends = np.cumsum([n_units(part) for part in prior.parts])
        pieces = zip(prior.parts, np.split(units, ends[:-1]), ends, strict=True)
        parts = [with_units(part, here - end + n_units(part)) for part, here, end in pieces]
        return prior._make((tuple(parts),))
    return prior._make(f[units] if np.ndim(f) else f for f in prior)


def _numbers_of_columns(prior):
    return [len(column_sizes(part)) for part in parts_of(prior)]
