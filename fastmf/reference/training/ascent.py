"""NumPy twin of `fastmf.kernels.training.ascent`, which has the equations."""

import numpy as np

from fastmf.reference.linear.product import unpacked


def ascend(address, pairs, weights, velocity, settings, centring, packed, work, sums):
    """Take one step of gradient ascent with momentum, weight decay and centring."""
    (below, above), (row_sums, offset_products) = centring, sums
    n, lefts, rights, added = pairs
    rights, width = unpacked(rights, weights.shape[1]), work.scratch.shape[2]
    gradient = lefts[n:].T @ rights[n:] + weights * (lefts[:n].T @ rights[:n])
    if len(added):
        gradient += added
    gradient -= settings.l2 * weights
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
    row_sums[0] = gradient @ above[0]
    row_sums[1] = (weights * weights).sum(1)
    for task, products in enumerate(offset_products):
        rows = slice(task * width, (task + 1) * width)
        products[:] = below[0, rows] @ gradient[rows]
    for matrix, (panels, squares) in zip((weights, weights.T), packed, strict=True):
        for p, panel in enumerate(panels):
            columns = matrix[:, p * width : (p + 1) * width]
            panel[:, : columns.shape[1]] = columns
            squares[p] = panel**2
