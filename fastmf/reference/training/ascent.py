"""NumPy twin of `fastmf.kernels.training.ascent`, where the equations are."""

import numpy as np


def ascend(weights, gradient, velocity, settings, centring, queue, row_sums, out):
    """Take one step of gradient ascent with momentum, weight decay and centring."""
    below, above = centring
    gradient -= settings.l2 * weights
    gradient -= np.outer(below[0], above[1]) + np.outer(below[1], above[0])
    velocity *= settings.momentum
    velocity += settings.rate * gradient
    np.add(weights, velocity, out=out)
    if settings.l1 and settings.rate:
        threshold = settings.rate * settings.l1
        decay = np.clip(out, -threshold, threshold)
        out -= decay
        velocity -= decay
        gradient -= decay / settings.rate
    row_sums[0] = gradient @ above[0]
    row_sums[1] = (out * out).sum(1)
