"""NumPy twin of `fastmf.kernels.training.ascent`, where the equations are."""

import numpy as np


def ascend(weights, gradient, velocity, settings, centring, width, queue, sums):
    """Take one step of gradient ascent with momentum, weight decay and centring."""
    (below, above), (row_sums, offset_products) = centring, sums
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
