"""NumPy twin of `fastmf.kernels.local_search`."""

import numpy as np

from fastmf.special import softplus

RESOLUTION = 1e-11
MAX_ROUNDS = 1000


def climb(
    joint, weights, exponentials, row_sums, visible_field, hidden_field, chunk, visible, objective,
    optimal, queue,
):  # fmt: skip
    """Flip visible units, one after another, while that raises the objective."""

    def summed(field):
        return (np.maximum(field, 0) if joint else softplus(field)).sum()

    scale = 1 + abs(weights).sum(1)
    for row, v in enumerate(visible):
        b = visible_field[min(row, len(visible_field) - 1)]
        c = hidden_field[min(row, len(hidden_field) - 1)]
        field = c + v @ weights
        now = summed(field)
        unchanged = visits = 0
        while unchanged < len(v) and visits < MAX_ROUNDS * len(v):
            i = visits % len(v)
            sign = -1.0 if v[i] else 1.0
            moved = field + sign * weights[i]
            then = summed(moved)
            if sign * b[i] + then - now > RESOLUTION * (scale[i] + abs(b[i])):
                v[i], field, now, unchanged = not v[i], moved, then, 0
            else:
                unchanged += 1
            visits += 1
        optimal[row] = unchanged >= len(v)
        objective[row] = b[v].sum() + summed(c + v @ weights)
