"""NumPy twin of `fastmf.kernels.local_search`."""

import numpy as np

from fastmf.special import softplus

RESOLUTION = 1e-10


def climb(
    joint, weights, exponentials, row_sums, visible_field, hidden_field, chunk, visible, objective,
    queue,
):  # fmt: skip
    """Flip visible units, one after another, while that raises the objective."""

    def summed(field):
        return (np.maximum(field, 0) if joint else softplus(field)).sum()

    for row, v in enumerate(visible):
        b = visible_field[min(row, len(visible_field) - 1)]
        c = hidden_field[min(row, len(hidden_field) - 1)]
        field = c + v @ weights
        now = summed(field)
        unchanged = i = 0
        while unchanged < len(v):
            sign = -1.0 if v[i] else 1.0
            moved = field + sign * weights[i]
            then = summed(moved)
            if sign * b[i] + then - now > RESOLUTION * (1 + abs(b[i]) + abs(row_sums[i])):
                v[i], field, now, unchanged = not v[i], moved, then, 0
            else:
                unchanged += 1
            i = (i + 1) % len(v)
        objective[row] = b[v].sum() + summed(c + v @ weights)
