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
from itertools import pairwise

import numpy as np

from fastmf._outcomes import ABSENT
from fastmf._threads.workers import for_each, in_parallel, workers_for
from fastmf.kernels.pseudo_likelihood import hamming
from fastmf.kernels.pseudo_likelihood import potts as potts_kernels
from fastmf.kernels.pseudo_likelihood.potts import LANES, LOW_FIELD, PottsRows, aligned
from fastmf.learning.pseudo_likelihood.graph import coupled_units
from fastmf.models._gauge import PositionStates

# --- places of states, and orders of rows ---------------------------------------------------------


class PottsLayout(PositionStates):
    """Layouts of states: flat, by positions with given sizes, and in blocks of similar positions.

    Attributes
    ----------
    bounds : int array of shape (n_blocks + 1, 2)
        First column and first place of each block, and the numbers of columns and of places.
    column, offset, stride : int array of shape (n_groups,)
        Column of each position, place of its first state, and distance of the places of its states.
    place : int array of shape (n_states,)
        Place of each flat state in the concatenated blocks.
    """

    def __init__(self, sizes, dtype=np.float64):
        super().__init__(np.asarray(sizes, np.int64))
        self.dtype = np.dtype(dtype)
        self.n_groups, self.n_states = len(self.sizes), int(self.sizes.sum())
        self.column, self.offset, self.stride = np.empty((3, self.n_groups), np.int64)
        order, bounds, column, place = np.argsort(-self.sizes, kind="stable"), [(0, 0)], 0, 0
        while column < self.n_groups:
            # A row of a block has about `LANES` vectors: wider tables drop out of the cache, and
            # with narrower ones there are more passes over the rows.
            q, most = int(self.sizes[order[column]]), min(LANES, self.n_groups - column)
            n = 1 << int(np.clip(np.log2(LANES**2 / q).round(), 0, np.ceil(np.log2(most))))
            members = order[column : column + n]
            within = np.arange(len(members))
            self.column[members], self.offset[members] = column + within, place + within
            self.stride[members] = n
            column, place = column + n, place + -(-n * q // LANES) * LANES
            bounds.append((column, place))
        self.bounds, self.width = np.array(bounds), place
        state = np.arange(self.n_states) - self.first[self.position]
        self.place = self.offset[self.position] + state * self.stride[self.position]

    def blocks(self, tables):
        """Return the slice of places, and the table (n_places, width) of each block."""
        places = [slice(*ends) for ends in pairwise(self.bounds[:, 1])]
        n = self.width
        return [(x, tables[n * x.start : n * x.stop].reshape(n, -1)) for x in places]

    # --- flat arrays to blocks and back -------------------------------------------------------

    def to_blocks(self, vector, elsewhere=0, states=slice(None)):
        """Arrange a vector of flat states in blocks; `elsewhere` is for all other places."""
        blocks = aligned((self.width,), self.dtype)
        blocks[...] = elsewhere
        blocks[self.place[states]] = vector
        return blocks

    def couplings_to_blocks(self, couplings):
        """Convert J (n_states, n_states) to the concatenated tables of blocks, sources as rows."""
        matrix, tables = np.zeros((self.width,) * 2), aligned((self.width**2,), self.dtype)
        matrix[np.ix_(self.place, self.place)] = couplings.T
        for places, table in self.blocks(tables):
            table[...] = matrix[:, places]
        return tables

    def rows(self, labels, weights, parents, forests):
        """Return the `PottsRows` of labels, negative if absent; parents must precede rows."""
        codes = np.full((len(labels), self.bounds[-1, 0]), ABSENT, np.uint8)
        codes[:, self.column] = np.where(labels < 0, np.uint8(ABSENT), labels)
        offset, stride = self.offset.astype(np.int32), self.stride.astype(np.int32)
        spans, parts, total = np.zeros((len(labels) + 1, 2), np.int64), [], 0
        for start in range(0, len(labels), 4096):
            new = labels[start : start + 4096].astype(np.int32)
            above = parents[start : start + 4096]
            old = np.where(above[:, None] < 0, -1, labels[above]).astype(np.int32)
            differs = new != old
            # For each row, the states of the parent are followed by the states of the row.
            both = np.stack([old, new], 1)
            differing = differs[:, None] & (both >= 0)
            parts.append((both * stride + offset)[differing])
            ends = total + np.cumsum(differing.sum(2).reshape(-1)).reshape(-1, 2)
            spans[start : start + len(new), 1] = ends[:, 0]
            spans[start + 1 : start + len(new) + 1, 0] = ends[:, 1]
            total = int(ends[-1, 1])
        spans[-1, 1] = total
        weights, changes = np.asarray(weights, self.dtype), np.concatenate(parts)
        return PottsRows(codes, self.bounds, weights, parents, spans, changes, np.asarray(forests))


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
    arguments = codes, sizes, FOREST_ROWS, queue, order, parents, remaining
    in_parallel(hamming.spanning_trees, arguments, n_workers)
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
        row, position = np.nonzero(self.labels >= 0)
        states = flat.first[position] + self.labels[row, position]
        self.counts = np.bincount(states, self.weights[row], flat.n_states)

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
    """Evaluates value and gradient of rows, which may be restricted to some blocks of a layout."""

    def __init__(self, layout, rows, n_threads=None):
        self.rows, n_rows, n_blocks = rows, len(rows.labels), len(rows.bounds) - 1
        work = 2 * rows.bounds[-1, 1] * (len(rows.changes) + 20 * n_rows)
        self.n_workers, width = workers_for(n_blocks, work, n_threads), np.diff(rows.bounds[:, 1])
        self.memory = potts_kernels.workspaces(
            self.n_workers, int(np.diff(rows.forests).max()), int(width.max()), layout.dtype
        )
        self.values = np.empty((n_rows, n_blocks))

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
        self.penalty, self.within, layout = self.ridge / 4, self.layout.place, self.layout
        self.states, self.places, self.zero_sum = slice(None), slice(None), layout.zero_sum
        self.evaluator = Evaluator(layout, data.rows(layout), data.n_threads)
        self.tables = aligned((2, layout.width**2), dtype)
        self.J, self.G = (layout.blocks(tables) for tables in self.tables)
        self.f = layout.to_blocks(data.frequencies())
        self.field_scale, self.centring = field_scales(data, self.field_ridge)
        self.scale = self._scale(edges)
        self.size = self.scale.size + layout.n_states
        self.n_workers = workers_for(len(self.J), 4 * self.scale.size, data.n_threads)

    def _scale(self, edges):
        layout, f = self.layout, self.f.astype(float)
        self.n_couplings = np.cumsum([0, *(x.stop * (x.stop - x.start) for x, _ in self.J)])
        allowed = np.zeros((layout.width,) * 2, bool)
        coupled = coupled_units(edges, layout.n_groups)[layout.position][:, layout.position]
        allowed[np.ix_(layout.place, layout.place)] = coupled
        scale = aligned((self.n_couplings[-1],), layout.dtype)
        for (places, _), tile in zip(self.J, self.tiles(scale), strict=True):
            f_p, f_r = f[places], f[: places.stop, None]
            curvature = self.data.total * f_p * f_r * (2 - f_p - f_r) + self.ridge
            coupled = np.triu(allowed[: places.stop, places], 1 - places.start)
            tile[...] = 1 / np.sqrt(np.where(coupled, curvature, np.inf))
        return scale

    # --- coordinates ----------------------------------------------------------------------------

    def start(self):
        """Return the coordinates of uncoupled positions, with pseudocounts of one row."""
        z = aligned((self.size,), self.layout.dtype)
        z[:] = 0
        field = self.zero_sum(np.log(self.data.counts[self.states] + 1))
        z[self.scale.size :] = self.centring * field / self.field_scale
        return z

    def tiles(self, z):
        """Return the couplings of each block to itself and the blocks before it."""
        parts = zip(self.J, pairwise(self.n_couplings), strict=True)
        return [z[start:end].reshape(x.stop, -1) for (x, _), (start, end) in parts]

    def scatter(self, z):
        """Set the tables of couplings, `J`, and return the flat field at coordinates."""
        self._set_couplings(self.tiles(z))
        centre = np.concatenate([self.f @ table for _, table in self.J])[self.within]
        return self.zero_sum(z[self.scale.size :] * self.field_scale - self.centring * centre)

    def _set_couplings(self, tiles):
        scale = self.tiles(self.scale)

        def fill(p):
            places, table = self.J[p]
            np.multiply(scale[p], tiles[p], out=table[: places.stop])
            for before, transposed in self.J[:p]:
                transposed[places] = table[before].T
            table[places] += table[places].T.copy()  # diagonal tiles hold one triangle

        for_each(fill, range(len(tiles))[::-1], self.n_workers)

    def __call__(self, z, gradient):
        """Return the value at coordinates; its gradient is overwritten."""
        field, (J, G), n = self.scatter(z), self.tables, self.scale.size
        h = self.layout.to_blocks(field, LOW_FIELD, self.states)[self.places]
        value = self.evaluator.value_and_gradient(J, h, G, by_field := np.empty_like(h))
        value -= self.penalty * squares(table for _, table in self.J)
        value -= self.field_ridge / 2 * (field @ field)
        by_field = self.zero_sum(by_field[self.within] - self.field_ridge * field)
        centred = self.layout.to_blocks(self.centring * by_field, 0, self.states)[self.places]
        self._collect(centred, self.tiles(gradient))
        gradient[n:] = -by_field * self.field_scale
        return -value

    def _collect(self, g, tiles):
        """Set minus the gradient by tiles, given `tables` and the centred gradient by the field.

        In a tile of blocks p, r: -scale * (G_pr + G_rp' - f_r g_p' - g_r f_p' - l2 J_pr), with the
        frequencies f, by which couplings are centred.
        """
        left, right = np.stack([self.f, g], 1), np.stack([g, self.f])
        scale = self.tiles(self.scale)

        def fill(p):
            (places, J), (_, G) = self.J[p], self.G[p]
            total = np.matmul(left[: places.stop], right[:, places], out=tiles[p])
            total += self.ridge * J[: places.stop]
            total -= G[: places.stop]
            for before, transposed in self.G[: p + 1]:
                total[before] -= transposed[places].T
            total *= scale[p]

        for_each(fill, range(len(tiles))[::-1], self.n_workers)

    def parameters(self, z):
        """Return couplings (n_states, n_states) and flat field, in double precision."""
        field = self.scatter(z)
        place, couplings = self.layout.place, np.hstack([table for _, table in self.J])
        return couplings[np.ix_(place, place)].astype(float), field


def field_scales(data, field_ridge):
    """Return the scales of fields, and the fractions of the curvature due to the data."""
    f = data.frequencies()
    curvature = data.total * f * (1 - f)
    return 1 / np.sqrt(curvature + field_ridge), curvature / (curvature + field_ridge)


def squares(tables):
    """Compute the sum of the squares of all entries, in double precision."""
    return sum(float(np.vdot(table, table)) for table in tables)


# --- the asymmetric objective, for one block of positions -----------------------------------------


class AsymmetricObjective(SymmetricObjective):
    """Minus the penalised log-pseudo-likelihood of the positions of a block."""

    def __init__(self, data, layout, rows, block, l2, l2_field):
        self.data, self.layout = data, layout
        self.ridge, self.field_ridge = data.total * l2 / 2, data.total * l2_field
        self.penalty, (start, end) = self.ridge / 2, rows.bounds[block : block + 2, 1]
        rows = rows._replace(bounds=rows.bounds[block : block + 2] - [0, start])
        self.evaluator = Evaluator(layout, rows, n_threads=1)
        self.states = np.flatnonzero((layout.place >= start) & (layout.place < end))
        self.places, self.within = slice(start, end), layout.place[self.states] - start
        members = np.unique(layout.position[self.states])
        self.zero_sum = PositionStates(layout.sizes[members]).zero_sum
        self.f = f = layout.to_blocks(data.frequencies())
        curvature = data.total * f[:, None] * (f * (1 - f))[self.places] + self.ridge
        position = layout.to_blocks(layout.position, -1)
        inside = position[self.places]
        free = (position[:, None] != inside) & (position[:, None] >= 0) & (inside >= 0)
        self.scale = (1 / np.sqrt(np.where(free, curvature, np.inf))).astype(layout.dtype)
        scales = field_scales(data, self.field_ridge)
        self.field_scale, self.centring = (scale[self.states] for scale in scales)
        self.size = self.scale.size + len(self.states)
        self.tables = aligned((2, self.scale.size), layout.dtype)
        self.J, self.G = ([(self.places, x.reshape(len(f), -1))] for x in self.tables)

    def tiles(self, z):
        """Return the table of couplings to the block, (n_places, width)."""
        return z[: self.scale.size].reshape(self.scale.shape)

    def parameters(self, z):
        """Return the table of couplings to the block, and its field."""
        field = self.scatter(z)
        return self.J[0][1], field

    def _set_couplings(self, table):
        np.multiply(table, self.scale, out=self.J[0][1])

    def _collect(self, g, table):
        table[...] = np.outer(self.f, g) + self.ridge * self.J[0][1] - self.G[0][1]
        table *= self.scale
