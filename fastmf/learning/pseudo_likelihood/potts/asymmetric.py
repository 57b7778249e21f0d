"""The asymmetric objective, for one block of positions: regressions on all other positions.

See `fastmf.learning.pseudo_likelihood.potts.objective` for formulas and coordinates. Couplings
of a position to others are in its own conditional probabilities only, so that the curvature is that
of one side,

    D_ij(a, b) = N f_a (1 - f_a) f_b + N l2 / 2

At the maximum, with residuals R, J^(i)_j = 2 X_j'R_i / (N l2): where rows are fewer than states R
is kept in place of couplings.
"""

import numpy as np

from fastmf._outcomes import ABSENT
from fastmf.kernels.pseudo_likelihood.potts import LOW_FIELD, aligned
from fastmf.learning.pseudo_likelihood.potts.objective import Evaluator, field_scales, squares


class AsymmetricObjective:
    """Minus the penalised log-pseudo-likelihood of the positions of a block."""

    def __init__(self, data, layout, rows, block, l2, l2_field):
        self.layout, self.block = layout, block
        self.ridge, self.field_ridge = data.total * l2 / 2, data.total * l2_field
        n_positions, width = layout.n_positions, layout.width
        columns = slice(block * n_positions, (block + 1) * n_positions)
        rows = rows._replace(labels=np.ascontiguousarray(rows.labels[:, columns]))
        self.labels, self.weights = rows.labels, rows.weights
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
        with np.errstate(divide="ignore"):
            self.scale = np.where(free, 1 / np.sqrt(curvature), 0).astype(layout.dtype)
        scales = field_scales(data, self.field_ridge)
        self.field_scale, self.centring = (scale[self.states] for scale in scales)
        self.size = self.scale.size + len(self.states)
        self.gradient = aligned((1, *self.scale.shape), layout.dtype)
        self.field_gradient = aligned((1, width), layout.dtype)

    def start(self, field):
        """Coordinates of no couplings and a flat field of all positions."""
        z = aligned((self.size,), self.layout.dtype)
        z[:] = 0
        z[self.scale.size :] = self.centring * field[self.states] / self.field_scale
        return z

    def parameters(self, z):
        """The table of couplings to the block, (n_sources, width), and the field of its states."""
        table = z[: self.scale.size].reshape(self.scale.shape) * self.scale
        field = z[self.scale.size :] * self.field_scale
        return table, self._zero_sum(field - self.centring * (self.f @ table)[self.within])

    def _zero_sum(self, vector):
        positions = self.layout.position[self.states] - self.block * self.layout.n_positions
        return vector - (np.bincount(positions, vector) / np.bincount(positions))[positions]

    def _in_block(self, field):
        h = aligned((1, self.layout.width), self.layout.dtype)
        h[...] = LOW_FIELD
        h[0, self.within] = field
        return h

    def residuals(self, z):
        """w (x - p) of all rows for the states of the block, (n_rows, n_states of the block)."""
        table, field = self.parameters(z)
        p = self.evaluator.conditionals(table[None], self._in_block(field))[:, 0]
        s, position = np.nonzero(self.labels != ABSENT)
        p[s, self.labels[s, position].astype(np.int64) * self.layout.n_positions + position] -= 1
        return -self.weights[:, None] * p[:, self.within]

    def __call__(self, z, gradient):
        """The value at coordinates; its gradient is filled."""
        table, field = self.parameters(z)
        h = self._in_block(field)
        value = self.evaluator.value_and_gradient(
            table[None], h, self.gradient, self.field_gradient
        )
        value -= self.ridge / 2 * squares([table]) + self.field_ridge / 2 * (field @ field)
        of_field = self.field_gradient[0, self.within] - self.field_ridge * field
        of_field = self._zero_sum(of_field)
        padded = np.zeros(self.layout.width, self.layout.dtype)
        padded[self.within] = self.centring * of_field
        total = (
            self.gradient[0] - np.outer(self.f, padded) - self.layout.dtype.type(self.ridge) * table
        )
        gradient[: self.scale.size] = -(total * self.scale).reshape(-1)
        gradient[self.scale.size :] = -of_field * self.field_scale
        return -value
