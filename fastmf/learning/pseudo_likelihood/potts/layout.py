"""Places of the states of all positions: flat, and in blocks of positions as kernels take them."""

import math

import numpy as np

from fastmf._jit.vectors import lanes_of
from fastmf._outcomes import ABSENT
from fastmf.kernels.pseudo_likelihood.potts import LOW_FIELD, PottsRows, aligned
from fastmf.kernels.pseudo_likelihood.potts_vectors import MAX_VECTORS
from fastmf.models._gauge import PositionStates


class PottsLayout(PositionStates):
    """Flat states of positions with some numbers of states, and blocks of positions.

    Attributes
    ----------
    first : int array of shape (n_groups,)
        First flat state of each position.
    position, state : int array of shape (n_states,)
        Position and number of each flat state.
    n_positions, n_blocks, width : int
        Positions of a block, blocks, numbers in a row of a block.
    place : int array of shape (n_states,)
        Place of each flat state in all blocks.
    """

    def __init__(self, sizes, dtype=np.float64):
        super().__init__(np.asarray(sizes, np.int64))
        self.dtype = np.dtype(dtype)
        self.n_groups, self.n_states = len(self.sizes), int(self.sizes.sum())
        self.state = np.arange(self.n_states) - self.first[self.position]
        lanes = lanes_of(dtype)
        self.n_positions = self._positions_of_a_block(lanes)
        self.n_blocks = -(-self.n_groups // self.n_positions)
        self.width = -(-self.n_positions * int(self.sizes.max()) // lanes) * lanes
        block, within = np.divmod(self.position, self.n_positions)
        self.place = block * self.width + self.state * self.n_positions + within

    def _positions_of_a_block(self, lanes):
        """The number for which all positions take the least time."""
        q, best = int(self.sizes.max()), (math.inf, 1)
        n = 1
        while n <= lanes and n < 2 * self.n_groups:
            n_vectors = -(-n * q // lanes)
            n_blocks = -(-self.n_groups // n)
            if n_vectors <= MAX_VECTORS or n == 1:
                # Beside its vectors a pass over the rows takes the time of another one.
                best = min(best, (n_blocks * (n_vectors + 1), -n))
            n *= 2
        return -best[1]

    # --- flat arrays to blocks and back -------------------------------------------------------

    def to_blocks(self, vector, elsewhere=0):
        """A flat vector in blocks, and a number at places without a state."""
        blocks = aligned((self.n_blocks, self.width), self.dtype)
        blocks[...] = elsewhere
        blocks.reshape(-1)[self.place] = vector
        return blocks

    def field_to_blocks(self, field):
        """A flat field in blocks; places without a state have a very low field."""
        return self.to_blocks(field, LOW_FIELD)

    def vector_from_blocks(self, blocks):
        """A flat vector, in double precision."""
        return blocks.reshape(-1)[self.place].astype(float)

    def couplings_to_blocks(self, couplings):
        """Tables of couplings, (n_blocks, n_blocks * width, width), of J (n_states, n_states).

        Entry [p, source, a] is the coupling of a source to state a of block p.
        """
        tables = aligned((self.n_blocks, self.n_blocks * self.width, self.width), self.dtype)
        tables[...] = 0
        for p in range(self.n_blocks):
            states = self.place // self.width == p
            tables[p][self.place[:, None], self.place[states] - p * self.width] = couplings[
                states
            ].T
        return tables

    def couplings_from_blocks(self, tables):
        """J (n_states, n_states) of tables, in double precision: targets first."""
        couplings = np.empty((self.n_states, self.n_states))
        for p in range(self.n_blocks):
            states = self.place // self.width == p
            couplings[states] = tables[p][self.place][:, self.place[states] - p * self.width].T
        return couplings

    def rows(self, labels, weights, parents, forests):
        """`PottsRows` of labels (n_rows, n_groups), negative if absent, each after its parent."""
        n_rows = len(labels)
        codes = np.full((n_rows, self.n_blocks * self.n_positions), ABSENT, np.uint8)
        codes[:, : self.n_groups] = np.where(labels < 0, np.uint8(ABSENT), labels)
        spans, changes = self._changes(labels, parents)
        return PottsRows(
            codes, np.asarray(weights, self.dtype), parents, spans, changes, np.asarray(forests)
        )

    def _changes(self, labels, parents):
        """Differences between rows and their parents: `spans` and `changes` of `PottsRows`."""
        block, within = np.divmod(np.arange(self.n_groups), self.n_positions)
        offset = (block * self.width + within).astype(np.int32)
        spans, parts, total = np.zeros((len(labels) + 1, 2), np.int64), [], 0
        for start in range(0, len(labels), 4096):
            new = labels[start : start + 4096].astype(np.int32)
            above = parents[start : start + 4096]
            old = np.where(above[:, None] < 0, -1, labels[above]).astype(np.int32)
            differs = new != old
            # For each row first what the parent has, then what the row has.
            both = np.stack([old, new], 1)
            differing = differs[:, None] & (both >= 0)
            parts.append((both * self.n_positions + offset)[differing])
            ends = total + np.cumsum(differing.sum(2).reshape(-1)).reshape(-1, 2)
            spans[start : start + len(new), 1] = ends[:, 0]
            spans[start + 1 : start + len(new) + 1, 0] = ends[:, 1]
            total = int(ends[-1, 1])
        spans[-1, 1] = total
        return spans, np.concatenate(parts).astype(np.int32)
