"""The penalised log-pseudo-likelihood of a Potts machine in well-scaled coordinates.

With R = w (X - P) of one-hot rows X and conditional probabilities P
(`fastmf.kernels.pseudo_likelihood.potts`), and N times the penalties of a row,

    l      = sum_s w_s sum_i ln p_{s i x_si} - N l2 / 2 sum_{i<j} |J_ij|^2 - N l2_field / 2 |h|^2
    dl/dh  = g = sum_s R_s - N l2_field h
    dl/dJ  = X'R + R'X - N l2 J                       (blocks of pairs i != j)

*Coordinates.* Fields are centred, h' = h + c J f with the frequencies f, and have mean zero over
the states of each position, which changes no probability. Everything is divided by the square root
of the curvature at independent positions:

    D_ij(a, b) = N f_a f_b (2 - f_a - f_b) + N l2,   D_i(a) = N f_a (1 - f_a) + N l2_field

and c_i(a) = N f_a (1 - f_a) / D_i(a): the best field follows J f less, the more it is penalised.

The *asymmetric* objective is a sum over positions i of multinomial regressions on all others, each
with couplings J^(i) of its own and half the penalty, as each pair of positions has two of them,

    l_i = sum_s w_s ln p_{s i x_si} - N l2 / 4 sum_j |J^(i)_j|^2 - N l2_field / 2 |h_i|^2

and J_ij is the average of J^(i)_j and the transpose of J^(j)_i.
"""

import copy

import numpy as np

from fastmf._threads.workers import in_parallel, workers_for
from fastmf.kernels.pseudo_likelihood import potts as potts_kernels
from fastmf.kernels.pseudo_likelihood.potts import aligned
from fastmf.learning.pseudo_likelihood.graph import coupled_units
from fastmf.learning.pseudo_likelihood.potts.layout import PottsLayout
from fastmf.learning.pseudo_likelihood.potts.tree import spanning_order
from fastmf.learning.pseudo_likelihood.rows import distinct


class PottsData:
    """Weighted rows of labels, merged and in the order of a tree.

    Labels (n_rows, n_groups) are negative if absent.
    """

    def __init__(self, labels, weights, sizes, n_threads=None):
        self.n_threads = n_threads
        labels = np.maximum(labels, -1)
        labels = labels.astype(np.int8 if max(sizes) < 127 else np.int16)
        labels, weights, _ = distinct(labels, np.asarray(weights, float))
        order, self.parents, self.forests = spanning_order(labels, n_threads)
        self.labels, self.weights = labels[order], weights[order]
        self.total = float(weights.sum())
        flat = PottsLayout(sizes)
        self.sizes, self.n_states = flat.sizes, flat.n_states
        self.counts = np.zeros(flat.n_states)
        for j, first in enumerate(flat.first):
            present = self.labels[:, j] >= 0
            self.counts[first : first + sizes[j]] = np.bincount(
                self.labels[present, j], self.weights[present], sizes[j]
            )

    def of_mean_weight_one(self):
        """The same with weights that add up to the number of distinct rows.

        Tolerances, pseudocounts and single precision do not suit weights of any size.
        """
        scaled, n_rows = copy.copy(self), float(len(self.weights))
        # In this order nothing overflows, however small weights are.
        scaled.weights = self.weights / self.total * n_rows
        scaled.counts = self.counts / self.total * n_rows
        scaled.total = n_rows
        return scaled

    def frequencies(self):
        """Frequencies of all states, with a pseudocount of one; never 0 or 1."""
        q = np.repeat(self.sizes, self.sizes)
        return (self.counts + 1) / (self.total + q)

    def rows(self, layout):
        """`PottsRows` for the kernels."""
        return layout.rows(self.labels, self.weights, self.parents, self.forests)


class Evaluator:
    """Calls the kernels of a layout with rows: tables of couplings in, tables of gradients out.

    The rows may be of some blocks of the layout.
    """

    def __init__(self, layout, rows, n_threads=None):
        self.layout, self.rows = layout, rows
        self.n_blocks = rows.labels.shape[1] // layout.n_positions
        work = 2 * self.n_blocks * layout.width * (len(rows.changes) + 20 * len(rows.labels))
        self.n_workers = workers_for(self.n_blocks, work, n_threads)
        forest_rows = int(np.diff(rows.forests).max())
        self.memory = potts_kernels.workspaces(
            self.n_workers, forest_rows, layout.width, layout.dtype
        )
        self.values = np.empty((len(rows.labels), self.n_blocks))

    def value_and_gradient(self, tables, field, gradient, field_gradient):
        """Sum of the values of all rows; the gradients are filled."""
        arguments = (self.rows, tables, field, self.memory, np.zeros(2, np.int64),
                     gradient, field_gradient, self.values)  # fmt: skip
        in_parallel(potts_kernels.value_and_gradient, arguments, self.n_workers)
        return float(self.values.sum())

    def conditionals(self, tables, field):
        """Conditional probabilities, (n_rows, n_blocks, width)."""
        out = aligned((len(self.values), self.n_blocks, self.layout.width), self.layout.dtype)
        arguments = self.rows, tables, field, self.memory, np.zeros(2, np.int64), out
        in_parallel(potts_kernels.conditionals, arguments, self.n_workers)
        return out


class SymmetricObjective:
    """Minus the penalised log-pseudo-likelihood, as a function of scaled tiles and fields.

    `edges` are the pairs of positions with couplings, (n_edges, 2), by default all.
    """

    def __init__(self, data, l2, l2_field, dtype, edges=None):
        self.data, self.layout = data, PottsLayout(data.sizes, dtype)
        self.ridge, self.field_ridge = data.total * l2, data.total * l2_field
        layout = self.layout
        self.evaluator = Evaluator(layout, data.rows(layout), data.n_threads)
        n_blocks, width = layout.n_blocks, layout.width
        self.places = np.stack(np.tril_indices(n_blocks), 1)
        self.tables = aligned((2, n_blocks, n_blocks * width, width), dtype)
        self._by_pair = self.tables.reshape(2, n_blocks, n_blocks, width**2)
        f = data.frequencies()
        self.f = layout.to_blocks(f)
        self.field_scale, self.centring = field_scales(data, self.field_ridge)
        self.scale = self._scale(edges)
        self.n_tile_numbers = self.scale.size
        self.size = self.n_tile_numbers + layout.n_states
        work = 4 * self.scale.size
        self.n_workers = workers_for(len(self.places), work, data.n_threads)

    def _scale(self, edges):
        layout, n_positions = self.layout, self.layout.n_positions
        n_padding = layout.n_blocks * n_positions - layout.n_groups
        allowed = np.pad(coupled_units(edges, layout.n_groups), (0, n_padding))
        q = layout.width // n_positions
        scale = aligned((len(self.places), layout.width**2), layout.dtype)
        f = self.f.astype(float)
        position = np.arange(q * n_positions) % n_positions
        for t, (p, r) in enumerate(self.places):
            f_p, f_r = f[p], f[r][:, None]
            curvature = self.data.total * f_p * f_r * (2 - f_p - f_r) + self.ridge
            coupled = np.zeros((layout.width, layout.width), bool)
            n = len(position)
            block = allowed[np.ix_(r * n_positions + position, p * n_positions + position)]
            coupled[:n, :n] = block & (f_r[:n] > 0) & (f_p[:n] > 0)
            if p == r:
                coupled[:n, :n] &= position[:, None] < position
            with np.errstate(divide="ignore"):
                scale[t] = np.where(coupled, 1 / np.sqrt(curvature), 0).reshape(-1)
        return scale

    # --- coordinates ----------------------------------------------------------------------------

    def start(self, field):
        """Coordinates of no couplings and a flat field."""
        z = aligned((self.size,), self.layout.dtype)
        z[:] = 0
        z[self.n_tile_numbers :] = self.centring * field / self.field_scale
        return z

    def tiles(self, z):
        """The tiles of a vector of coordinates."""
        return z[: self.n_tile_numbers].reshape(self.scale.shape)

    def scatter(self, z):
        """Tables of couplings, in `tables[0]`, and the flat field at coordinates."""
        J, (p, r), width = self.tables[0], self.places.T, self.layout.width
        tiles = (self.scale * self.tiles(z)).reshape(-1, width, width)
        tiles[p == r] += tiles[p == r].swapaxes(1, 2)  # of one triangle
        by_pair = J.reshape(len(J), len(J), width, width)
        by_pair[p, r], by_pair[r, p] = tiles, tiles.swapaxes(1, 2)
        field = z[self.n_tile_numbers :] * self.field_scale
        field -= self.centring * self.layout.vector_from_blocks(self._times(J, self.f))
        return self.layout.zero_sum(field)

    def _times(self, tables, vector):
        """The couplings times a vector in blocks."""
        flat = vector.reshape(-1)
        return np.stack([flat @ table for table in tables])

    def __call__(self, z, gradient):
        """The value at coordinates; its gradient is filled."""
        layout = self.layout
        field = self.scatter(z)
        J, G = self.tables
        of_field = aligned((layout.n_blocks, layout.width), layout.dtype)
        value = self.evaluator.value_and_gradient(J, layout.field_to_blocks(field), G, of_field)
        of_field = layout.vector_from_blocks(of_field) - self.field_ridge * field
        value -= self.field_ridge / 2 * (field @ field) + self.ridge / 4 * squares(J)
        self._collect(of_field, gradient)
        return -value

    def _collect(self, of_field, gradient):
        """Minus the gradient in coordinates, from `tables` and that by the field."""
        of_field = self.layout.zero_sum(of_field)
        centred = self.layout.to_blocks(self.centring * of_field)
        vectors = np.stack([self.f, centred])
        tiles = self.tiles(gradient)
        arguments = (self._by_pair, vectors, self.ridge, self.scale, self.places,
                     np.zeros(1, np.int64), tiles)  # fmt: skip
        in_parallel(potts_kernels.gather_gradient, arguments, self.n_workers)
        gradient[self.n_tile_numbers :] = of_field * self.field_scale
        np.negative(gradient, out=gradient)

    def parameters(self, z):
        """Couplings (n_states, n_states) and field, flat and in double precision."""
        field = self.scatter(z)
        return self.layout.couplings_from_blocks(self.tables[0]), field


def field_scales(data, field_ridge):
    """Scales of fields, and the fractions of the curvature that are not the penalty's."""
    f = data.frequencies()
    curvature = data.total * f * (1 - f)
    return 1 / np.sqrt(curvature + field_ridge), curvature / (curvature + field_ridge)


def squares(tables):
    """Sum of the squares of all entries, in double precision."""
    return sum(float(np.vdot(table, table)) for table in tables)
