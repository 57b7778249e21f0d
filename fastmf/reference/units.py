"""Functions of unit priors for kernels, by NumPy also where fastmf would compile them."""

import inspect

import numpy as np

from fastmf.priors._protocol import by_parts, draw


def _of_parts(name, prior, b, a):
    """Yield results of a method of each part of a prior, without its compiled form."""
    b, a = np.broadcast_arrays(b, a)
    for (part, b_part), (_, a_part) in zip(by_parts(prior, b), by_parts(prior, a), strict=True):
        yield inspect.unwrap(getattr(type(part), name))(part, b_part, a_part)


def moments(prior, b, a):
    """Compute mean and variance of each unit under the tilt exp(b x - a x^2 / 2)."""
    pairs = zip(*_of_parts("moments", prior, b, a), strict=True)
    return tuple(np.concatenate(parts, -1) for parts in pairs)


def log_partition(prior, b, a):
    """Compute the log-partition of each unit under the tilt exp(b x - a x^2 / 2)."""
    return np.concatenate(list(_of_parts("log_partition", prior, b, a)), -1)


def draws(prior, b, u):
    """Draw values of units under the tilt exp(b x), from uniform numbers."""
    return draw(prior, b, b.dtype.type(0), u)
