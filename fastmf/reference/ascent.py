"""NumPy twin of `fastmf.kernels.ascent`."""

import numpy as np


def ascend(weights, slope, velocity, how, below, above, queue, out, along, sizes):
    """Move couplings along their slope and on with their velocity, which is then the step made."""
    slope -= how.l2 * weights + how.l1 * np.sign(weights)
    slope -= np.outer(below[0], above[1]) + np.outer(below[1], above[0])
    velocity *= how.momentum
    velocity += how.rate * slope
    np.add(weights, velocity, out=out)
    along[:] = slope @ above[0]
    sizes[:] = (out * out).sum(1)
