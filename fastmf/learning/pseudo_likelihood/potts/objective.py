"""The penalised log-pseudo-likelihood of a Potts machine in well-scaled coordinates.

With R = w (X - P) of one-hot rows X and conditional probabilities P
(`fastmf.kernels.pseudo_likelihood.potts`), and N times the penalties of a row,

    l      = sum_s w_s sum_i ln p_{s i x_si} - N l2 / 2 sum_{i<j} |J_ij|^2 - N l2_field / 2 |h|^2
    dl/dh  = g = sum_s R_s - N l2_field h
    dl/dJ  = X'R + R'X - N l2 J                       (blocks of pairs i != j)

*Coordinates.* Fields are centred, h' = h + c J f with the frequencies f, and have mean zero over
the states of each position, which does not change probabilities. All parameters are scaled by the
square root of the curvature at independent positions:

    D_ij(a, b) = N f_a f_b (2 - f_a - f_b) + N l2,   D_i(a) = N f_a (1 - f_a) + N l2_field

and c_i(a) = N f_a (1 - f_a) / D_i(a), which is smaller the more fields are penalised.

The *asymmetric* objective is a sum over positions i of multinomial regressions on all other
positions, each with its own couplings J^(i) and half the penalty, as pairs have two couplings,

    l_i = sum_s w_s ln p_{s i x_si} - N l2 / 4 sum_j |J^(i)_j|^2 - N l2_field / 2 |h_i|^2

and J_ij is the average of J^(i)_j and the transpose of J^(j)_i. The couplings J^(i) occur in the
conditional probabilities of position i only, so that the curvature is one-sided,

    D_ij(a, b) = N f_a (1 - f_a) f_b + N l2 / 2
"""

import copy

import numpy as np

from fastmf._outcomes import ABSENT
from fastmf._threads.workers import for_each, in_parallel, workers_for
from fastmf.kernels.pseudo_likelihood import hamming
from fastmf.kernels.pseudo_likelihood import potts as potts_kernels
from fastmf.kernels.pseudo_likelihood.potts import LOW_FIELD, POSITIONS, PottsRows, aligned
from fastmf.learning.pseudo_likelihood.graph import coupled_units
from fastmf.models._gauge import PositionStates

# --- places of states, and orders of rows ---------------------------------------------------------


class PottsLayout(PositionStates):
    """Layouts of states: flat, by positions with given sizes, and in blocks of positions.

    Attributes
    ----------
    first : int array of shape (n_groups,)
        First flat state of each position.
    position : int array of shape (n_states,)
        Position of each flat state.
    n_blocks, width : int
        Number of blocks of `POSITIONS` positions, and width of a block.
    place : int array of shape (n_states,)
        Index of each flat state in the concatenated blocks.
    entries : tuple of int arrays
        Indices of the couplings of all pairs of flat states, targets as rows, in tables of blocks.
    """

    def __init__(self, sizes, dtype=np.float64):
        super().__init__(np.asarray(sizes, np.int64))
        self.dtype = np.dtype(dtype)
        self.n_groups, self.n_states = len(self.sizes), int(self.sizes.sum())
        self.n_blocks = -(-self.n_groups // POSITIONS)
        self.width = POSITIONS * int(self.sizes.max())
        block, within = np.divmod(self.position, POSITIONS)
        within += (np.arange(self.n_states) - self.first[self.position]) * POSITIONS
        self.place = block * self.width + within
        self.entries = block[:, None], self.place, within[:, None]

    # --- flat arrays to blocks and back -------------------------------------------------------

    def to_blocks(self, vector, elsewhere=0):
        """Arrange a flat vector in blocks; `elsewhere` is for places without a state."""
        blocks = aligned((self.n_blocks, self.width), self.dtype)
        blocks[...] = elsewhere
        blocks.reshape(-1)[self.place] = vector
        return blocks

    def field_to_blocks(self, field):
        """Arrange a flat field in blocks; places without a state have a very low field."""
        return self.to_blocks(field, LOW_FIELD)

    def vector_from_blocks(self, blocks):
        """Return the flat vector of blocks, in double precision."""
        return blocks.reshape(-1)[self.place].astype(float)

    def couplings_to_blocks(self, couplings):
        """Convert J (n_states, n_states) to tables (n_blocks, n_blocks * width, width).

        Entry [p, source, a] is the coupling of a source to state a of block p.
        """
        tables = aligned((self.n_blocks, self.n_blocks * self.width, self.width), self.dtype)
        tables[...] = 0
        tables[self.entries] = couplings
        return tables

    def rows(self, labels, weights, parents, forests):
        """Return the `PottsRows` of labels, negative if absent; parents must precede rows."""
        n_rows = len(labels)
        codes = np.full((n_rows, self.n_blocks * POSITIONS), ABSENT, np.uint8)
        codes[:, : self.n_groups] = np.where(labels < 0, np.uint8(ABSENT), labels)
        spans, changes = self._changes(labels, parents)
        return PottsRows(
            codes, np.asarray(weights, self.dtype), parents, spans, changes, np.asarray(forests)
        )

    def _changes(self, labels, parents):
        """Return differences of rows from their parents: `spans` and `changes` of `PottsRows`."""
        block, within = np.divmod(np.arange(self.n_groups), POSITIONS)
        offset = (block * self.width + within).astype(np.int32)
        spans, parts, total = np.zeros((len(labels) + 1, 2), np.int64), [], 0
        for start in range(0, len(labels), 4096):
            new = labels[start : start + 4096].astype(np.int32)
            above = parents[start : start + 4096]
            old = np.where(above[:, None] < 0, -1, labels[above]).astype(np.int32)
            differs = new != old
            # For each row, the states of the parent are followed by the states of the row.
            both = np.stack([old, new], 1)
            differing = differs[:, None] & (both >= 0)
            parts.append((both * POSITIONS + offset)[differing])
            ends = total + np.cumsum(differing.sum(2).reshape(-1)).reshape(-1, 2)
            spans[start : start + len(new), 1] = ends[:, 0]
            spans[start + 1 : start + len(new) + 1, 0] = ends[:, 1]
            total = int(ends[-1, 1])
        spans[-1, 1] = total
        return spans, np.concatenate(parts).astype(np.int32)


# Number of rows of a forest, which has separate trees: the time to build a tree is quadratic in
# this number, and the fields of a forest fit in the cache.
FOREST_ROWS = 4096


def spanning_order(labels, n_threads=None):
    """Return an order of rows in which each row follows a similar one, its parent."""
    n_rows = len(labels)
    codes = hamming.padded(labels.astype(np.int16) + 1)
    sizes = np.count_nonzero(labels >= 0, axis=1).astype(np.int64)
    order, parents = np.empty(n_rows, np.int64), np.empty(n_rows, np.int64)
    n_tasks = -(-n_rows // FOREST_ROWS)
    n_workers = workers_for(n_tasks, n_rows * min(n_rows, FOREST_ROWS), n_threads)
    queue, remaining = np.zeros(1, np.int64), np.empty((2, n_rows), np.int64)
    in_parallel(
        hamming.spanning_trees,
        (codes, sizes, FOREST_ROWS, queue, order, parents, remaining),
        n_workers,
    )
    place = np.empty(n_rows, np.int64)
    place[order] = np.arange(n_rows)
    above = parents[order]
    forests = np.append(np.arange(0, n_rows, FOREST_ROWS), n_rows)
    return order, np.where(above < 0, -1, place[above]), forests


# --- the symmetric objective ----------------------------------------------------------------------


class PottsData:
    """Weighted rows of labels, which should be distinct, in the order of `spanning_order`.

    Labels (n_rows, n_groups) are negative if absent.
    """

    def __init__(self, labels, weights, sizes, n_threads=None):
        self.n_threads = n_threads
        labels = np.maximum(labels, -1)
        labels = labels.astype(np.int8 if max(sizes) < 127 else np.int16)
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
        """Return the data with weights that sum to the number of distinct rows.

        Tolerances, pseudocounts and single precision need weights of order one.
        """
        scaled, n_rows = copy.copy(self), float(len(self.weights))
        # This order of operations does not overflow for small weights.
        scaled.weights = self.weights / self.total * n_rows
        scaled.counts = self.counts / self.total * n_rows
        scaled.total = n_rows
        return scaled

    def frequencies(self):
        """Return the frequencies of all states with a pseudocount of one; never 0 or 1."""
        return (self.counts + 1) / (self.total + np.repeat(self.sizes, self.sizes))

    def rows(self, layout):
        """Return the `PottsRows` for the kernels."""
        return layout.rows(self.labels, self.weights, self.parents, self.forests)


class Evaluator:
    """Evaluates value and gradient of rows by kernels, for tables of couplings in a layout.

    The rows may be restricted to some blocks of the layout.
    """

    def __init__(self, layout, rows, n_threads=None):
        self.rows = rows
        self.n_blocks = rows.labels.shape[1] // POSITIONS
        work = 2 * self.n_blocks * layout.width * (len(rows.changes) + 20 * len(rows.labels))
        self.n_workers = workers_for(self.n_blocks, work, n_threads)
        self.memory = potts_kernels.workspaces(
            self.n_workers, int(np.diff(rows.forests).max()), layout.width, layout.dtype
        )
        self.values = np.empty((len(rows.labels), self.n_blocks))

    def value_and_gradient(self, tables, field, gradient, field_gradient):
        """Return the sum of the values of all rows; the gradients are overwritten."""
        arguments = (self.rows, tables, field, self.memory, np.zeros(2, np.int64),
                     gradient, field_gradient, self.values)  # fmt: skip
        in_parallel(potts_kernels.value_and_gradient, arguments, self.n_workers)
        return float(self.values.sum())


class SymmetricObjective:
    """Minus the penalised log-pseudo-likelihood as a function of scaled tiles and fields.

    `edges` are the coupled pairs of positions, (n_edges, 2), by default all.
    """

    def __init__(self, data, l2, l2_field, dtype, edges=None):
        self.data, self.layout = data, PottsLayout(data.sizes, dtype)
        self.ridge, self.field_ridge = data.total * l2, data.total * l2_field
        layout = self.layout
        self.evaluator = Evaluator(layout, data.rows(layout), data.n_threads)
        n_blocks, width = layout.n_blocks, layout.width
        self.tables = aligned((2, n_blocks, n_blocks * width, width), dtype)
        f = data.frequencies()
        self.f = layout.to_blocks(f)
        self.field_scale, self.centring = field_scales(data, self.field_ridge)
        self.scale = self._scale(edges)
        self.size = self.scale.size + layout.n_states
        self.n_workers = workers_for(n_blocks, 4 * self.scale.size, data.n_threads)

    def _scale(self, edges):
        layout, f = self.layout, self.f.astype(float)
        n, width = layout.n_blocks, layout.width
        n_padding = n * POSITIONS - layout.n_groups
        allowed = np.triu(np.pad(coupled_units(edges, layout.n_groups), (0, n_padding)))
        position = np.arange(n)[:, None] * POSITIONS + np.arange(width) % POSITIONS
        scale = aligned((n * (n + 1) // 2, width, width), layout.dtype)
        for p in range(n):
            f_p, f_r = f[p], f[: p + 1, :, None]
            coupled = allowed[position[: p + 1, :, None], position[p]] & (f_r > 0) & (f_p > 0)
            curvature = self.data.total * f_p * f_r * (2 - f_p - f_r) + self.ridge
            scale[self.of_block(p)] = 1 / np.sqrt(np.where(coupled, curvature, np.inf))
        return scale

    # --- coordinates ----------------------------------------------------------------------------

    def start(self, field):
        """Return the coordinates of zero couplings and a flat field."""
        z = aligned((self.size,), self.layout.dtype)
        z[:] = 0
        z[self.scale.size :] = self.centring * field / self.field_scale
        return z

    def tiles(self, z):
        """Return the tiles of a vector of coordinates."""
        return z[: self.scale.size].reshape(self.scale.shape)

    def of_block(self, p):
        """Return the slice of the tiles of a block with itself and the blocks before."""
        return slice(p * (p + 1) // 2, (p + 1) * (p + 2) // 2)

    def scatter(self, z):
        """Set the tables of couplings, `tables[0]`, and return the flat field at coordinates."""
        J, tiles = self.tables[0], self.tiles(z)
        by_pair = J.reshape(len(J), len(J), *tiles.shape[1:])

        def fill(p):
            of_block, diagonal = self.of_block(p), by_pair[p, p]
            np.multiply(self.scale[of_block], tiles[of_block], out=by_pair[p, : p + 1])
            by_pair[:p, p] = by_pair[p, :p].swapaxes(1, 2)
            diagonal += diagonal.T  # diagonal tiles hold one triangle

        for_each(fill, range(len(J))[::-1], self.n_workers)
        field = z[self.scale.size :] * self.field_scale
        field -= self.centring * self.layout.vector_from_blocks(self.f.reshape(-1) @ J)
        return self.layout.zero_sum(field)

    def __call__(self, z, gradient):
        """Return the value at coordinates; its gradient is overwritten."""
        layout = self.layout
        field = self.scatter(z)
        J, G = self.tables
        by_field = aligned((layout.n_blocks, layout.width), layout.dtype)
        value = self.evaluator.value_and_gradient(J, layout.field_to_blocks(field), G, by_field)
        by_field = layout.vector_from_blocks(by_field) - self.field_ridge * field
        value -= self.field_ridge / 2 * (field @ field) + self.ridge / 4 * squares(J)
        self._collect(by_field, gradient)
        return -value

    def _collect(self, by_field, gradient):
        """Set minus the gradient by coordinates, given `tables` and the gradient by the field.

        In a tile of blocks p, r: -scale * (G_pr + G_rp' - f_r g_p' - g_r f_p' - l2 J_pr), with the
        frequencies f, by which couplings are centred, and the centred gradient g by the field.
        """
        by_field = self.layout.zero_sum(by_field)
        f, g = self.f, self.layout.to_blocks(self.centring * by_field)
        left, right = np.stack([f, g], 2), np.stack([g, f], 1)
        tiles = self.tiles(gradient)
        J, G = self.tables.reshape(2, len(f), len(f), *tiles.shape[1:])

        def fill(p):
            r, of_block = slice(p + 1), self.of_block(p)
            total = np.matmul(left[r], right[p], out=tiles[of_block])
            total += self.ridge * J[p, r]
            total -= G[p, r]
            total -= G[r, p].swapaxes(1, 2)
            total *= self.scale[of_block]

        for_each(fill, range(len(f))[::-1], self.n_workers)
        gradient[self.scale.size :] = -by_field * self.field_scale

    def parameters(self, z):
        """Return couplings (n_states, n_states) and flat field, in double precision."""
        field = self.scatter(z)
        return self.tables[0][self.layout.entries].astype(float), field


def field_scales(data, field_ridge):
    """Return the scales of fields, and the fractions of the curvature due to the data."""
    f = data.frequencies()
    curvature = data.total * f * (1 - f)
    return 1 / np.sqrt(curvature + field_ridge), curvature / (curvature + field_ridge)


def squares(tables):
    """Compute the sum of the squares of all entries, in double precision."""
    return sum(float(np.vdot(table, table)) for table in tables)


# --- the asymmetric objective, for one block of positions -----------------------------------------


class AsymmetricObjective:
    """Minus the penalised log-pseudo-likelihood of the positions of a block."""

    def __init__(self, data, layout, rows, block, l2, l2_field):
        self.layout, self.block = layout, block
        self.ridge, self.field_ridge = data.total * l2 / 2, data.total * l2_field
        width, columns = layout.width, slice(block * POSITIONS, (block + 1) * POSITIONS)
        rows = rows._replace(labels=np.ascontiguousarray(rows.labels[:, columns]))
        self.evaluator = Evaluator(layout, rows, n_threads=1)
        frequencies = data.frequencies()
        self.states = np.flatnonzero(layout.place // width == block)
        self.within = layout.place[self.states] - block * width
        f = layout.to_blocks(frequencies).reshape(-1)
        self.f, of_block = f, f[block * width : (block + 1) * width]
        curvature = data.total * f[:, None] * (of_block * (1 - of_block)) + self.ridge
        position = np.full(len(f), -1)
        position[layout.place] = layout.position
        inside = position[block * width : (block + 1) * width]
        free = (position[:, None] != inside) & (position[:, None] >= 0) & (inside >= 0)
        self.scale = (1 / np.sqrt(np.where(free, curvature, np.inf))).astype(layout.dtype)
        scales = field_scales(data, self.field_ridge)
        self.field_scale, self.centring = (scale[self.states] for scale in scales)
        self.size = self.scale.size + len(self.states)
        self.gradient = aligned((1, *self.scale.shape), layout.dtype)
        self.field_gradient = aligned((1, width), layout.dtype)

    def start(self, field):
        """Return the coordinates of zero couplings and a flat field of all positions."""
        z = aligned((self.size,), self.layout.dtype)
        z[:] = 0
        z[self.scale.size :] = self.centring * field[self.states] / self.field_scale
        return z

    def parameters(self, z):
        """Return the table of couplings to the block, (n_sources, width), and its field."""
        table = z[: self.scale.size].reshape(self.scale.shape) * self.scale
        field = z[self.scale.size :] * self.field_scale
        return table, self._zero_sum(field - self.centring * (self.f @ table)[self.within])

    def _zero_sum(self, vector):
        positions = self.layout.position[self.states] - self.block * POSITIONS
        return vector - (np.bincount(positions, vector) / np.bincount(positions))[positions]

    def _in_block(self, field):
        h = aligned((1, self.layout.width), self.layout.dtype)
        h[...] = LOW_FIELD
        h[0, self.within] = field
        return h

    def __call__(self, z, gradient):
        """Return the value at coordinates; its gradient is overwritten."""
        table, field = self.parameters(z)
        h = self._in_block(field)
        value = self.evaluator.value_and_gradient(
            table[None], h, self.gradient, self.field_gradient
        )
        value -= self.ridge / 2 * squares([table]) + self.field_ridge / 2 * (field @ field)
        by_field = self.field_gradient[0, self.within] - self.field_ridge * field
        by_field = self._zero_sum(by_field)
        padded = np.zeros(self.layout.width, self.layout.dtype)
        padded[self.within] = self.centring * by_field
        total = self.gradient[0] - np.outer(self.f, padded) - self.ridge * table
        gradient[: self.scale.size] = -(total * self.scale).reshape(-1)
        gradient[self.scale.size :] = -by_field * self.field_scale
        return -value
