"""NumPy twin of `fastmf.kernels.training.ascent`, which has the equations."""

import numpy as np


def gradient_of(pairs, weights):
    """Return the gradient by couplings that `Pairs` stand for."""
    terms = [x.T @ y / max(1, len(x)) for x, y in zip(pairs.lefts, pairs.rights, strict=True)]
    gradient = weights * (terms[1] - terms[0]) + terms[3] - terms[2]
    return gradient + pairs.added if len(pairs.added) else gradient


def ascend(address, pairs, weights, velocity, settings, sides, fields, packed, work, results):
    """Take one step of gradient ascent with momentum, weight decay and centring."""
    below, above = sides
    if settings.moves_fields:
        for side, (*_, of_model, of_data) in zip(sides, (pairs.lefts, pairs.rights), strict=True):
            side[0] = of_data.mean(0)
            side[1] = side[0] - of_model.mean(0)
    gradient = gradient_of(pairs, weights) - settings.l2 * weights
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
