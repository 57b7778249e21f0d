"""The integral of exp(b x - s x^2 / 2) over an interval, and its mean and variance.

The textbook forms in error functions lose all their digits where s is small, where the interval
is narrow, or far out in a tail. Quadrature with a window around the bulk of the mass does not,
whatever the sign of s, and one code path serves every regime.

For s > 0 the bulk sits around the mode, clipped to the interval; for s <= 0 it sits at the two
ends, which the antimode separates. Either way it falls into two *panels*: in each, the exponent
decreases from an anchor as -k y - s y^2 / 2 in the distance y >= 0. A panel reaches to the end of
the interval or to the antimode, or only to where the exponent has dropped by `DROP`. The moments of
the two panels are then merged as those of a mixture, in which nothing cancels.

The same text runs on NumPy arrays and, compiled, on scalars. Its three steps are separate because
a loop over many units is fastest with the units innermost in each step (`tilted_moments`).
"""

from typing import NamedTuple

import numpy as np
from numba.extending import register_jitable

from fastmf._numba import INNER, REORDER, widest_vectors
from fastmf.special import clip, exp, exp_of_small, log, two_product, two_sum, where, widen

# What lies below exp(-DROP) of the maximum is left out: less than 1e-11 of a variance.
DROP = 33.0

# Larger tilts and bounds are as good as infinite; their products still fit into a float64. Mass
# beyond LARGEST_BOUND on an interval without end counts as infinite too: cut off there, the mean of
# a diverging iteration would stop growing, and look like a fixed point.
LARGEST_TILT = 1e100
LARGEST_BOUND = 1e50
SLOWEST_DECAY = 1e-50

_inlined = register_jitable(**INNER, forceinline=True)


def _panel_rule(n_nodes, linear):
    """Gauss-Legendre rule on [0, 1] after the substitution t = linear y + (1 - linear) y^2.

    The substitution crowds nodes at the anchor. For exponents that drop by no more than `DROP`, 20
    nodes with linear = 0.6 have errors of 1e-13 (mass), 3e-13 (mean, in standard deviations) and
    2e-12 (variance); neither the plain rule nor t = y^2 gets there with 24.
    """
    y, weights = np.polynomial.legendre.leggauss(n_nodes)
    y, weights = (y + 1) / 2, weights / 2
    return linear * y + (1 - linear) * y**2, weights * (linear + 2 * (1 - linear) * y)


NODES, WEIGHTS = _panel_rule(20, 0.6)
# Of the integrals of t and t^2.
FIRST_WEIGHTS, SECOND_WEIGHTS = WEIGHTS * NODES, WEIGHTS * NODES**2


@_inlined
def diverges(b, s, lower, upper):
    """Whether the integral of exp(b x - s x^2 / 2) over [lower, upper] is infinite.

    Also where, towards an infinite bound, the exponent does not yet fall at LARGEST_BOUND, or so
    slowly that much of the mass is beyond it.
    """
    drop = s * LARGEST_BOUND
    below = (lower < -LARGEST_BOUND) & ((s < 0.0) | (b + drop < SLOWEST_DECAY))
    above = (upper > LARGEST_BOUND) & ((s < 0.0) | (b - drop > -SLOWEST_DECAY))
    return below | above


@_inlined
def _slope(b, b_low, s, s_low, x):
    """(b + b_low) - (s + s_low) x in two parts, accurate even where they cancel."""
    product, product_low = two_product(s, x)
    high, low = two_sum(b, -product)
    return high, low + (b_low - product_low - s_low * x)


@_inlined
def _window(room, slope, s):
    """How far a panel reaches: to where the exponent has dropped by DROP, if there is room."""
    discriminant = slope * slope + 2.0 * DROP * s
    root = np.sqrt(where(discriminant > 0.0, discriminant, 0.0))
    window = 2.0 * DROP / (slope + root + 1e-250)
    return where(window < room, window, room)


class Panels(NamedTuple):
    """Where the mass of a unit is.

    Parameters
    ----------
    slope1, curvature1, slope2, curvature2
        Drop of the exponent across each of the two panels.
    reach1, reach2
        Their widths, with the sign of the direction from the anchor.
    weight1, weight2
    position1, position2
        Their anchors, relative to the higher one.
    anchor
    excess
        To be added to mass and variance: infinity where the integral diverges.
    exponent
        At the anchor.
    """

    slope1: float
    curvature1: float
    slope2: float
    curvature2: float
    reach1: float
    reach2: float
    weight1: float
    weight2: float
    position1: float
    position2: float
    anchor: float
    excess: float
    exponent: float


@_inlined
def panels(field, precision, lower, upper, b, a):
    """The two panels of the exponent (field + b) x - (precision + a) x^2 / 2 on [lower, upper].

    The rounding errors of field + b, of precision + a and of the slopes are carried along: where
    the two ends balance, the ratio of their weights would otherwise be lost in them.
    """
    b, b_low = two_sum(field, b)
    s, s_low = two_sum(precision, a)
    infinite = diverges(b, s, lower, upper)
    b = where(infinite, 0.0, clip(b, -LARGEST_TILT, LARGEST_TILT))
    s = where(infinite, 1.0, clip(s, -LARGEST_TILT, LARGEST_TILT))
    b_low, s_low = where(infinite, 0.0, b_low), where(infinite, 0.0, s_low)
    lower = where(lower < -LARGEST_BOUND, -LARGEST_BOUND, lower)
    upper = where(upper > LARGEST_BOUND, LARGEST_BOUND, upper)
    width = upper - lower

    # The slopes of the exponent at the two ends. Their mean times the width is how far the
    # exponent rises from the lower end to the upper one.
    at_lower, at_lower_low = _slope(b, b_low, s, s_low, lower)
    at_upper, at_upper_low = _slope(b, b_low, s, s_low, upper)
    rise = 0.5 * width * ((at_lower + at_upper) + (at_lower_low + at_upper_low))
    inward = where(at_lower < 0.0, -(at_lower + at_lower_low), 0.0)
    outward = where(at_upper > 0.0, at_upper + at_upper_low, 0.0)

    # The mode or the antimode, clipped. Panel 1 lies below it, panel 2 above it.
    peaked = s > 0.0
    divisor = where(peaked, where(s < 1e-200, 1e-200, s), where(s > -1e-200, -1e-200, s))
    middle = clip(b / divisor, lower, upper)
    slope1 = where(peaked, outward, inward)
    slope2 = where(peaked, inward, outward)
    reach1 = _window(middle - lower, slope1, s)
    reach2 = _window(upper - middle, slope2, s)

    rise = where(peaked, 0.0, rise)
    ratio = exp(-abs(rise))
    weight1 = reach1 * where(rise > 0.0, ratio, 1.0)
    weight2 = reach2 * where(rise > 0.0, 1.0, ratio)
    anchor = where(peaked, middle, where(rise > 0.0, upper, lower))
    position1 = where(peaked, 0.0, lower - anchor)
    position2 = where(peaked, 0.0, upper - anchor)
    half_slope, half_slope_low = _slope(b, b_low, s, s_low, 0.5 * anchor)
    direction = where(infinite, 0.0, where(peaked, -1.0, 1.0))
    return Panels(
        slope1 * reach1,
        0.5 * s * reach1 * reach1,
        slope2 * reach2,
        0.5 * s * reach2 * reach2,
        direction * reach1,
        -direction * reach2,
        weight1,
        weight2,
        position1,
        position2,
        where(infinite, clip(0.0, lower, upper), anchor),
        where(infinite, np.inf, 0.0),
        anchor * (half_slope + half_slope_low),
    )


@_inlined
def _add_node(k, slope, curvature, m0, m1, m2):
    """Add node k of the integrals of (1, t, t^2) exp(-slope t - curvature t^2) over [0, 1]."""
    e = exp_of_small(-(slope + curvature * NODES[k]) * NODES[k])
    return m0 + WEIGHTS[k] * e, m1 + FIRST_WEIGHTS[k] * e, m2 + SECOND_WEIGHTS[k] * e


@register_jitable(**INNER, fastmath=REORDER)
def sums_over(p):
    """Integrals of (1, t, t^2) exp(-slope t - curvature t^2) over [0, 1], for both panels."""
    m0 = m1 = m2 = 0.0 * p.slope1
    n0 = n1 = n2 = 0.0 * p.slope2
    for k in range(len(NODES)):
        m0, m1, m2 = _add_node(k, p.slope1, p.curvature1, m0, m1, m2)
        n0, n1, n2 = _add_node(k, p.slope2, p.curvature2, n0, n1, n2)
    return m0, m1, m2, n0, n1, n2


@_inlined
def _merge(p, sums):
    """Mass, mean and variance of the two panels together."""
    m0, m1, m2, n0, n1, n2 = sums
    t1, t2 = m1 / m0, n1 / n0
    mean1 = p.position1 + p.reach1 * t1
    mean2 = p.position2 + p.reach2 * t2
    variance1 = p.reach1 * p.reach1 * (m2 / m0 - t1 * t1)
    variance2 = p.reach2 * p.reach2 * (n2 / n0 - t2 * t2)
    mass1, mass2 = p.weight1 * m0, p.weight2 * n0
    mass = mass1 + mass2
    share1, share2 = mass1 / mass, mass2 / mass
    gap = mean2 - mean1
    return (
        mass + p.excess,
        p.anchor + (share1 * mean1 + share2 * mean2),
        share1 * variance1 + share2 * variance2 + share1 * share2 * gap * gap + p.excess,
    )


@register_jitable(**INNER)
def integrate(field, precision, lower, upper, b, a):
    """Integral and moments of exp((field + b) x - (precision + a) x^2 / 2) on [lower, upper].

    Parameters
    ----------
    field, precision, lower, upper, b, a : float64 scalars, or arrays that broadcast

    Returns
    -------
    exponent, mass : the integral is exp(exponent) mass; the mass is infinite where it diverges
    mean, variance : where the integral diverges, the point nearest to zero, and +inf

    Notes
    -----
    Tramel et al. (2018), Eqs. 73-92; Eqs. 78, 82 and 92 are wrong as printed, and none is used.
    """
    p = panels(field, precision, lower, upper, b, a)
    mass, mean, variance = _merge(p, sums_over(p))
    return p.exponent, mass, mean, variance


@register_jitable(**INNER)
def log_integral(field, precision, lower, upper, b, a):
    """Log of the integral of `integrate`."""
    exponent, mass, _, _ = integrate(field, precision, lower, upper, b, a)
    return exponent + log(mass)


# --- many units at once ---------------------------------------------------------------------------

# Units per block, and the size of the block's workspace: 19 numbers per unit, within the L1 cache.
BLOCK = 64
WORKSPACE = 19 * BLOCK
# Nodes for which a unit's sums stay in registers: 20 nodes of one unit at a time would not.
TOGETHER = 5


@register_jitable(**INNER)
def prepare_block(prior, start, b, a, workspace):
    """The first two steps of `integrate` for up to BLOCK units of a prior, from `start` on."""
    widest_vectors()
    n = b.shape[0]
    units = slice(start, start + n)
    field, precision = prior.field[units], prior.precision[units]
    lower, upper = prior.lower[units], prior.upper[units]
    for i in range(n):
        p = panels(
            widen(field[i]),
            widen(precision[i]),
            widen(lower[i]),
            widen(upper[i]),
            widen(b[i]),
            widen(a[i]),
        )
        workspace[i] = p.slope1
        workspace[i + BLOCK] = p.curvature1
        workspace[i + 2 * BLOCK] = p.slope2
        workspace[i + 3 * BLOCK] = p.curvature2
        workspace[i + 4 * BLOCK] = p.reach1
        workspace[i + 5 * BLOCK] = p.reach2
        workspace[i + 6 * BLOCK] = p.weight1
        workspace[i + 7 * BLOCK] = p.weight2
        workspace[i + 8 * BLOCK] = p.position1
        workspace[i + 9 * BLOCK] = p.position2
        workspace[i + 10 * BLOCK] = p.anchor
        workspace[i + 11 * BLOCK] = p.excess
        workspace[i + 12 * BLOCK] = p.exponent
    for panel in range(2):
        inputs, outputs = 2 * panel * BLOCK, (13 + 3 * panel) * BLOCK
        slope = workspace[inputs : inputs + n]
        curvature = workspace[inputs + BLOCK : inputs + BLOCK + n]
        m0 = workspace[outputs : outputs + n]
        m1 = workspace[outputs + BLOCK : outputs + BLOCK + n]
        m2 = workspace[outputs + 2 * BLOCK : outputs + 2 * BLOCK + n]
        for i in range(n):
            m0[i], m1[i], m2[i] = 0.0, 0.0, 0.0
        for first in range(0, len(NODES), TOGETHER):
            _add_nodes(first, slope, curvature, m0, m1, m2)


@register_jitable(**INNER, fastmath=REORDER)
def _add_nodes(first, slope, curvature, m0, m1, m2):
    """Add TOGETHER nodes for many units."""
    widest_vectors()
    for i in range(slope.shape[0]):
        sums = m0[i], m1[i], m2[i]
        for k in range(TOGETHER):
            sums = _add_node(first + k, slope[i], curvature[i], sums[0], sums[1], sums[2])
        m0[i], m1[i], m2[i] = sums


@_inlined
def finish_block(workspace, i):
    """The last step of `integrate`, for the i-th unit of the block."""
    p = Panels(
        workspace[i],
        workspace[i + BLOCK],
        workspace[i + 2 * BLOCK],
        workspace[i + 3 * BLOCK],
        workspace[i + 4 * BLOCK],
        workspace[i + 5 * BLOCK],
        workspace[i + 6 * BLOCK],
        workspace[i + 7 * BLOCK],
        workspace[i + 8 * BLOCK],
        workspace[i + 9 * BLOCK],
        workspace[i + 10 * BLOCK],
        workspace[i + 11 * BLOCK],
        workspace[i + 12 * BLOCK],
    )
    sums = (
        workspace[i + 13 * BLOCK],
        workspace[i + 14 * BLOCK],
        workspace[i + 15 * BLOCK],
        workspace[i + 16 * BLOCK],
        workspace[i + 17 * BLOCK],
        workspace[i + 18 * BLOCK],
    )
    mass, mean, variance = _merge(p, sums)
    return p.exponent, mass, mean, variance
