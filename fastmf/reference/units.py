"""Queries of kernels to unit priors, by NumPy also where fastmf would compile them."""

import inspect

import numpy as np

from fastmf.priors._protocol import by_parts, draw, is_concatenated


def moments(prior, b, a):
    """Mean and variance of each unit under the tilt exp(b x - a x^2 / 2)."""
    b, a = np.broadcast_arrays(b, a)
    if is_concatenated(prior):
        tilts = zip(by_parts(prior, b), by_parts(prior, a), strict=True)
        parts = [moments(part, b_part, a_part) for (part, b_part), (_, a_part) in tilts]
        return tuple(np.concatenate(of_parts, -1) for of_parts in zip(*parts, strict=True))
    return inspect.unwrap(type(prior).moments)(prior, b, a)


def log_partition(prior, b, a):
    """Log-partition of each unit under the tilt exp(b x - a x^2 / 2)."""
    b, a = np.broadcast_arrays(b, a)
    if is_concatenated(prior):
        tilts = zip(by_parts(prior, b), by_parts(prior, a), strict=True)
        parts = [log_partition(part, b_part, a_part) for (part, b_part), (_, a_part) in tilts]
        return np.concatenate(parts, -1)
    return inspect.unwrap(type(prior).log_partition)(prior, b, a)


def draws(prior, b, u):
    """The values that uniform numbers draw from each unit under the tilt exp(b x)."""
    return draw(prior, b, b.dtype.type(0), u)
