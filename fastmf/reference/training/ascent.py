"""NumPy twin of `fastmf.kernels.training.ascent`, which has the equations."""

import numpy as np


def units_of(pairs, shape):
    """Return rows of the units below, and of those above, of each kind of `Pairs`."""
    n_left, n = shape
    rights = zip(pairs.rights, pairs.columns, strict=True)
    return [x[:, :n_left] for x in pairs.lefts], [x[:, k : k + n] for x, k in rights]


def ascend(address, pairs, weights, velocity, settings, sides, fields, packed, work, results):
    """Take one step of gradient ascent with momentum, weight decay and centring."""
    (below, above), (lefts, rights) = sides, units_of(pairs, weights.shape)
    if settings.moves_fields:
        for side, (*_, of_model, of_data) in zip(sides, (lefts, rights), strict=True):
            side[0] = of_data.mean(0)
            side[1] = side[0] - of_model.mean(0)
    second, of_data_second, first, of_data = (
        x.T @ y / max(1, len(x)) for x, y in zip(lefts, rights, strict=True)
    )
    gradient = weights * (of_data_second - second) + of_data - first - settings.l2 * weights
    gradient += pairs.added if len(pairs.added) else 0
    gradient -= np.outer(below[0], above[1]) + np.outer(below[1], above[0])
    velocity *= settings.momentum
    velocity += settings.rate * gradient
    weights += velocity
    if settings.l1 and settings.rate:
        threshold = settings.rate * settings.l1
        decay = np.clip(weights, -threshold, threshold)
        weights -= decay
        velocity -= decay
        gradient -= decay / settings.rate
    results.below[:] = gradient @ above[0]
    results.above[:] = below[0] @ gradient
    results.squared_norm[:] = np.sum(weights * weights)
    if settings.moves_fields:
        moves = below[1] - results.below, above[1] - results.above
        for (field, of_field), move in zip(fields, moves, strict=True):
            of_field *= settings.momentum
            of_field += settings.rate * move
            field += of_field
    for matrix, (panels, squares) in zip((weights, weights.T), packed, strict=True):
        width = panels.shape[2]
        for p, panel in enumerate(panels):
            columns = matrix[:, p * width : (p + 1) * width]
            panel[:, : columns.shape[1]] = columns
            squares[p] = panel**2
