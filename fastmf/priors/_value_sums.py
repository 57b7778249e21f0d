"""Sums over the values 0, 1, 2, ... of units, one value after the other, and draws from them.

A value has the weight factor exp(exponent). The text runs on arrays and, compiled, on the numbers
of a unit; inside kernels the loop over the units of a block is the inner one, and a vector.
"""

import numpy as np

from fastmf._jit.intrinsics import row
from fastmf._jit.kernel import compilable, kernel
from fastmf.priors._quadrature import PANEL_UNITS
from fastmf.special import exp, where


@kernel(mode="merged")
def rows_of_block(memory, n):
    """Rows of the memory of a block for what is known of its `n` units, inside kernels."""
    u = PANEL_UNITS
    return (
        row(memory, (0,), n),
        row(memory, (u,), n),
        row(memory, (2 * u,), n),
        row(memory, (3 * u,), n),
        row(memory, (4 * u,), n),
        row(memory, (5 * u,), n),
        row(memory, (6 * u,), n),
        row(memory, (7 * u,), n),
    )


@compilable(mode="inline")
def with_value(x, exponent, factor, sums):
    """Sums over the weights of the values so far, with that of the value `x`.

    West's (1979) updates of weighted means and squares: all terms are positive, so that variances
    much smaller than the squared mean keep their digits.
    """
    top, total, mean, squares = sums
    larger = exponent > top
    # The root of the ratio: multiplied twice, small ones vanish beside large factors.
    root = exp(-0.5 * abs(exponent - top))
    old, new = where(larger, root, 1.0), where(larger, 1.0, root)
    before = total * old * old
    added = factor * new * new
    total = before + added
    fraction, difference = added / total, x - mean
    mean = mean + fraction * difference
    squares = squares * old * old + before * fraction * difference * difference
    return where(larger, exponent, top), total, mean, squares


@compilable(mode="inline")
def past_value(exponent, factor, log_total, u, drawn):
    """Go on to the next value, of this weight, where the probability before it is not above `u`.

    `drawn` is the value so far, and the probability of the values before the next one.
    """
    x, below = drawn
    root = exp(0.5 * (exponent - log_total))
    x = x + where((exponent > -np.inf) & (u >= below), 1.0, 0.0)
    return x, below + factor * root * root
