"""NumPy twin of `fastmf.kernels.ascent`, where the equations are."""

import numpy as np


def ascend(weights, gradient, velocity, settings, centring, queue, row_sums, out):
    """Take one step of gradient ascent with momentum, weight decay and centring."""
    below, above = centring
    gradient -= settings.l2 * weights + settings.l1 * np.sign(weights)
    gradient -= np.outer(below[0], above[1]) + np.outer(below[1], above[0])
    velocity *= settings.momentum
    velocity += settings.rate * gradient
    np.add(weights, velocity, out=out)
    row_sums[0] = gradient @ above[0]
    row_sums[1] = (out * out).sum(1)
