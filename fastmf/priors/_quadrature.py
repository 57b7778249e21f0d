"""The integral of exp(b x - s x^2 / 2) over an interval, and the mean and variance of the density.

Closed forms with error functions lose all digits where s is small, where the interval is narrow, or
far out in a tail. Gauss-Legendre quadrature over a window around most of the mass is accurate for
either sign of s.

For s > 0 the mass is around the mode, clipped to the interval; for s <= 0 it is at the two ends,
separated by the antimode. In both cases it is divided into two *panels*: in each, the exponent
decreases from an anchor as -k y - s y^2 / 2 in the distance y >= 0. A panel ends where the interval
ends, at the antimode, or where the exponent has dropped by `MAX_DROP`. The moments of the two
panels are combined as in a mixture, without cancellation.

The same code runs on NumPy arrays and, compiled, on scalars. Its three steps are separate because
a loop over many units is fastest with the units innermost in each step (`integrate_block`).
"""

from typing import NamedTuple

import numpy as np

from fastmf._jit.intrinsics import fma, row, widest_vectors
from fastmf._jit.kernel import REORDER, compilable, kernel
from fastmf.priors._compiled import UNITS_PER_BLOCK
from fastmf.special import (
    INVERSE_LN2,
    clip,
    exp,
    exp2_of_product,
    exp_of_small,
    log_of_normal,
    two_product,
    two_sum,
    where,
)

# Densities below exp(-MAX_DROP) of the maximum are left out: less than 1e-11 of a variance.
MAX_DROP = 33.0

# Larger tilts and bounds are treated as infinite; products of these limits fit into a float64. An
# integral with mass beyond MAX_BOUND on an unbounded interval is infinite, too: if it were cut off
# there, the mean of a diverging iteration would stop growing, and look like a fixed point.
MAX_BOUND = 1e50
MAX_TILT = MAX_BOUND**2
MAX_MASS = float(np.finfo(np.float64).max)


def _panel_rule(n_nodes, linear):
    """Return a Gauss-Legendre rule on [0, 1] in y, where t = linear y + (1 - linear) y^2.

    The substitution concentrates nodes at the anchor. For exponents that drop by at most
    `MAX_DROP`, 20 nodes with linear = 0.6 have errors of 1e-13 (mass), 3e-13 (mean, in standard
    deviations) and 2e-12 (variance); the plain rule and t = y^2 have larger ones with 24 nodes.
    """
    y, weights = np.polynomial.legendre.leggauss(n_nodes)
    y, weights = (y + 1) / 2, weights / 2
    t, weights = linear * y + (1 - linear) * y**2, weights * (linear + 2 * (1 - linear) * y)
    return t, weights, weights * t, weights * t**2, -INVERSE_LN2 * t


# Nodes, and weights of the integrals of 1, t and t^2. The density at a node is 2 to the power of
# the entry of BINARY_NODES times the mean derivative of the exponent from the anchor to the node.
NODES, NODE_WEIGHTS, FIRST_WEIGHTS, SECOND_WEIGHTS, BINARY_NODES = _panel_rule(20, 0.6)


@compilable(mode="inline")
def diverges(b, s, lower, upper):
    """Return whether the integral of exp(b x - s x^2 / 2) over [lower, upper] is infinite.

    It is also treated as infinite if, towards an infinite bound, the exponent does not decrease at
    MAX_BOUND, or so slowly that much of the mass is beyond MAX_BOUND.
    """
    drop = s * MAX_BOUND
    below = (lower < -MAX_BOUND) & ((s < 0.0) | (b + drop < 1.0 / MAX_BOUND))
    above = (upper > MAX_BOUND) & ((s < 0.0) | (b - drop > -1.0 / MAX_BOUND))
    return below | above


@compilable(mode="inline")
def _derivative(b, b_low, s, s_low, x):
    """Return (b + b_low) - (s + s_low) x, the exponent's derivative, as a sum of two numbers."""
    product, product_low = two_product(s, x)
    high, low = two_sum(b, -product)
    return high, low + (b_low - product_low - s_low * x)


@compilable(mode="inline")
def _window(width, descent, s):
    """Return the width over which the exponent drops by MAX_DROP, at most `width`.

    `descent` is minus the derivative of the exponent at the anchor, away from it.
    """
    discriminant = descent * descent + 2.0 * MAX_DROP * s
    root = np.sqrt(where(discriminant > 0.0, discriminant, 0.0))
    window = 2.0 * MAX_DROP / (descent + root + 1e-250)
    return where(window < width, window, width)


class Panels(NamedTuple):
    """The two panels of the mass of a unit."""

    # Drop of the exponent across each panel: linear t + quadratic t^2 for t from 0 to 1.
    linear1: float
    quadratic1: float
    linear2: float
    quadratic2: float
    # Widths, with the sign of the direction from the anchor of the panel.
    reach1: float
    reach2: float
    weight1: float
    weight2: float
    # Anchors of the panels, relative to the one with the larger exponent, which is `anchor`.
    position1: float
    position2: float
    anchor: float
    # Added to mass and variance: infinity where the integral diverges.
    excess: float
    exponent: float


@compilable(mode="inline")
def panels(field, precision, lower, upper, b, a):
    """Return the panels of the exponent (field + b) x - (precision + a) x^2 / 2 on [lower, upper].

    The rounding errors of field + b, of precision + a and of the derivatives are stored as second
    parts: if the weights of the two ends are similar, their ratio depends on these errors.
    """
    b, b_low = two_sum(field, b)
    s, s_low = two_sum(precision, a)
    infinite = diverges(b, s, lower, upper)
    b = where(infinite, 0.0, clip(b, -MAX_TILT, MAX_TILT))
    s = where(infinite, 1.0, clip(s, -MAX_TILT, MAX_TILT))
    b_low, s_low = where(infinite, 0.0, b_low), where(infinite, 0.0, s_low)
    lower = where(lower < -MAX_BOUND, -MAX_BOUND, lower)
    upper = where(upper > MAX_BOUND, MAX_BOUND, upper)
    width = upper - lower

    # The derivatives of the exponent at the two ends. Their mean times the width is the difference
    # between the exponents at the upper end and at the lower one.
    at_lower, at_lower_low = _derivative(b, b_low, s, s_low, lower)
    at_upper, at_upper_low = _derivative(b, b_low, s, s_low, upper)
    rise = 0.5 * width * ((at_lower + at_upper) + (at_lower_low + at_upper_low))
    inward = where(at_lower < 0.0, -(at_lower + at_lower_low), 0.0)
    outward = where(at_upper > 0.0, at_upper + at_upper_low, 0.0)

    # The mode or the antimode, clipped. Panel 1 lies below it, panel 2 above it.
    peaked = s > 0.0
    divisor = where(peaked, where(s < 1e-200, 1e-200, s), where(s > -1e-200, -1e-200, s))
    middle = clip(b / divisor, lower, upper)
    descent1 = where(peaked, outward, inward)
    descent2 = where(peaked, inward, outward)
    reach1 = _window(middle - lower, descent1, s)
    reach2 = _window(upper - middle, descent2, s)

    rise = where(peaked, 0.0, rise)
    ratio = exp(-abs(rise))
    weight1 = reach1 * where(rise > 0.0, ratio, 1.0)
    weight2 = reach2 * where(rise > 0.0, 1.0, ratio)
    anchor = where(peaked, middle, where(rise > 0.0, upper, lower))
    position1 = where(peaked, 0.0, lower - anchor)
    position2 = where(peaked, 0.0, upper - anchor)
    half_derivative, half_derivative_low = _derivative(b, b_low, s, s_low, 0.5 * anchor)
    direction = where(infinite, 0.0, where(peaked, -1.0, 1.0))
    return Panels(
        descent1 * reach1, 0.5 * s * reach1 * reach1, descent2 * reach2, 0.5 * s * reach2 * reach2,
        direction * reach1, -direction * reach2, weight1, weight2, position1, position2,
        where(infinite, clip(0.0, lower, upper), anchor), where(infinite, np.inf, 0.0),
        anchor * (half_derivative + half_derivative_low),
    )  # fmt: skip


@compilable(mode="inline")
def _add_node(k, linear, quadratic, m0, m1, m2):
    """Add node k of the integrals of (1, t, t^2) exp(-linear t - quadratic t^2) over [0, 1]."""
    e = exp2_of_product(fma(quadratic, NODES[k], linear), BINARY_NODES[k])
    return (
        fma(NODE_WEIGHTS[k], e, m0),
        fma(FIRST_WEIGHTS[k], e, m1),
        fma(SECOND_WEIGHTS[k], e, m2),
    )


@compilable(mode="inner", fastmath=REORDER)
def sums_over(p):
    """Integrals of (1, t, t^2) exp(-linear t - quadratic t^2) over [0, 1], for both panels."""
    m0 = m1 = m2 = 0.0 * p.linear1
    n0 = n1 = n2 = 0.0 * p.linear2
    for k in range(len(NODES)):
        m0, m1, m2 = _add_node(k, p.linear1, p.quadratic1, m0, m1, m2)
        n0, n1, n2 = _add_node(k, p.linear2, p.quadratic2, n0, n1, n2)
    return m0, m1, m2, n0, n1, n2


@compilable(mode="inline")
def _merge(p, sums):
    """Return the mass, mean and variance of both panels together."""
    m0, m1, m2, n0, n1, n2 = sums
    t1, t2 = m1 / m0, n1 / n0
    mean1 = p.position1 + p.reach1 * t1
    mean2 = p.position2 + p.reach2 * t2
    variance1 = p.reach1 * p.reach1 * (m2 / m0 - t1 * t1)
    variance2 = p.reach2 * p.reach2 * (n2 / n0 - t2 * t2)
    mass1, mass2 = p.weight1 * m0, p.weight2 * n0
    mass = mass1 + mass2
    fraction1, fraction2 = mass1 / mass, mass2 / mass
    d = mean2 - mean1
    return (
        mass + p.excess,
        p.anchor + (fraction1 * mean1 + fraction2 * mean2),
        fraction1 * variance1 + fraction2 * variance2 + fraction1 * fraction2 * d * d + p.excess,
    )


@compilable
def integrate(field, precision, lower, upper, b, a):
    """Integrate exp((field + b) x - (precision + a) x^2 / 2) and its moments over [lower, upper].

    Notes
    -----
    Tramel et al. (2018), Eqs. 73-92, by quadrature; Eqs. 78, 82 and 92 are wrong as printed.
    """
    p = panels(field, precision, lower, upper, b, a)
    mass, mean, variance = _merge(p, sums_over(p))
    return p.exponent, mass, mean, variance


@compilable(mode="inline")
def log_mass(mass):
    """Return the log of a mass, which is infinite where the integral diverges."""
    return where(mass <= MAX_MASS, log_of_normal(mass), mass)


@compilable
def log_integral(field, precision, lower, upper, b, a):
    """Return the log of the integral of `integrate`."""
    exponent, mass, _, _ = integrate(field, precision, lower, upper, b, a)
    return exponent + log_mass(mass)


# --- blocks of units, inside kernels --------------------------------------------------------------

# Rows of the memory of a block: the six arguments of `integrate`, its four results, the panels of a
# unit, and the sums over its nodes.
ARGUMENTS, EXPONENTS, MASSES, PANEL_SUMS, POINT_SUMS = (
    k * UNITS_PER_BLOCK for k in (0, 6, 7, 10, 23)
)
# Nodes added at a time, so that a unit's sums stay in registers.
NODES_PER_PASS = len(NODES) // 4


@kernel(mode="merged")
def integrate_block(prior, start, b, a, memory):
    """Apply `integrate` to a block of units of a prior with a slab's fields, from `start` on."""
    u, n = UNITS_PER_BLOCK, b.shape[0]
    for i in range(n):
        memory[i], memory[i + u] = prior.field[start + i], prior.precision[start + i]
        memory[i + 2 * u], memory[i + 3 * u] = prior.lower[start + i], prior.upper[start + i]
        memory[i + 4 * u], memory[i + 5 * u] = b[i], a[i]
    integrate_rows(memory, n)


@kernel(mode="inner", views=True)
def integrate_rows(memory, n):
    """Fill in panels of up to UNITS_PER_BLOCK units, the sums over their nodes, and the results."""
    widest_vectors()
    u = UNITS_PER_BLOCK
    x, y = row(memory, (ARGUMENTS,), 6 * u), row(memory, (PANEL_SUMS,), 13 * u)
    for i in range(n):
        p = panels(x[i], x[i + u], x[i + 2 * u], x[i + 3 * u], x[i + 4 * u], x[i + 5 * u])
        y[i], y[i + u], y[i + 2 * u], y[i + 3 * u] = p[:4]
        y[i + 4 * u], y[i + 5 * u], y[i + 6 * u], y[i + 7 * u] = p[4:8]
        y[i + 8 * u], y[i + 9 * u], y[i + 10 * u], y[i + 11 * u] = p[8:12]
        y[i + 12 * u] = p.exponent
    for panel in range(2):
        linear, quadratic = row(y, (2 * panel * u,), n), row(y, ((2 * panel + 1) * u,), n)
        first = POINT_SUMS + 3 * panel * u
        m0, m1 = row(memory, (first,), n), row(memory, (first + u,), n)
        m2 = row(memory, (first + 2 * u,), n)
        for i in range(n):
            m0[i], m1[i], m2[i] = 0.0, 0.0, 0.0
        for node in range(0, len(NODES), NODES_PER_PASS):
            _add_nodes(node, linear, quadratic, m0, m1, m2)
    sums, out = row(memory, (POINT_SUMS,), 6 * u), row(memory, (EXPONENTS,), 4 * u)
    for i in range(n):
        p = Panels(
            y[i], y[i + u], y[i + 2 * u], y[i + 3 * u], y[i + 4 * u], y[i + 5 * u], y[i + 6 * u],
            y[i + 7 * u], y[i + 8 * u], y[i + 9 * u], y[i + 10 * u], y[i + 11 * u], y[i + 12 * u],
        )  # fmt: skip
        s = sums[i], sums[i + u], sums[i + 2 * u], sums[i + 3 * u], sums[i + 4 * u], sums[i + 5 * u]
        out[i] = p.exponent
        out[i + u], out[i + 2 * u], out[i + 3 * u] = _merge(p, s)


@compilable(mode="inner", fastmath=REORDER)
def _add_nodes(first, linear, quadratic, m0, m1, m2):
    """Add NODES_PER_PASS nodes for many units."""
    widest_vectors()
    for i in range(linear.shape[0]):
        sums = m0[i], m1[i], m2[i]
        for k in range(NODES_PER_PASS):
            sums = _add_node(first + k, linear[i], quadratic[i], sums[0], sums[1], sums[2])
        m0[i], m1[i], m2[i] = sums


# --- quantiles ------------------------------------------------------------------------------------
# A quantile lies in one of the two panels, at the fraction t of its width. There the equation for
# the integral of exp(-linear t - quadratic t^2) is solved by Newton's method, or by bisection where
# that would leave the bracket, for many units at once.

# Newton's method takes a few steps; bisection alone takes one for each bit of the result.
MAX_QUANTILE_STEPS = np.finfo(np.float64).nmant


@compilable(mode="inner", fastmath=REORDER)
def _add_nodes_up_to(first, t, linear, quadratic, integral):
    """Add NODES_PER_PASS nodes of the integral of exp(-linear x - quadratic x^2) from 0 to t."""
    widest_vectors()
    for i in range(t.shape[0]):
        total = 0.0
        for k in range(NODES_PER_PASS):
            x = t[i] * NODES[first + k]
            total += NODE_WEIGHTS[first + k] * exp_of_small(-(linear[i] + quadratic[i] * x) * x)
        integral[i] += t[i] * total


@compilable(mode="inline")
def _start(fraction, linear, quadratic):
    """Solve linear t + quadratic t^2 = E, the quantile of an exponential truncated to t <= 1."""
    drop = -log_of_normal(1.0 - fraction * (1.0 - exp(-(linear + quadratic))))
    square = linear * linear + 4.0 * quadratic * drop
    root = linear + np.sqrt(where(square > 0.0, square, 0.0))
    return clip(where(root > 1e-3, 2.0 * drop / (root + 1e-300), fraction), 0.0, 1.0)


@compilable(mode="inline")
def _step(t, low, high, excess, linear, quadratic):
    """Make a step of Newton's method for an integral that is too large by `excess`.

    Return the new t and the bracket. A step that would leave the bracket is replaced by bisection.
    """
    low, high = where(excess > 0.0, low, t), where(excess > 0.0, t, high)
    new = t - excess / exp_of_small(-(linear + quadratic * t) * t)
    return where((low <= new) & (new <= high), new, 0.5 * (low + high)), low, high


@kernel(mode="inner")
def fill_quantiles(memory, n):
    """Replace the probabilities in the first row by quantiles, NaN where the integral diverges."""
    u = UNITS_PER_BLOCK
    value = row(memory, (ARGUMENTS,), n)
    lower = row(memory, (ARGUMENTS + 2 * u,), n)
    upper = row(memory, (ARGUMENTS + 3 * u,), n)
    t = row(memory, (EXPONENTS,), n)
    low = row(memory, (EXPONENTS + u,), n)
    high = row(memory, (EXPONENTS + 2 * u,), n)
    goal = row(memory, (EXPONENTS + 3 * u,), n)
    widest_vectors()
    linear, quadratic = row(memory, (PANEL_SUMS,), n), row(memory, (PANEL_SUMS + u,), n)
    reach, position = row(memory, (PANEL_SUMS + 4 * u,), n), row(memory, (PANEL_SUMS + 8 * u,), n)
    panels, sums = row(memory, (PANEL_SUMS,), 13 * u), row(memory, (POINT_SUMS,), 6 * u)
    for i in range(n):
        mass1 = panels[6 * u + i] * sums[i]
        mass2 = panels[7 * u + i] * sums[3 * u + i]
        wanted = value[i] * (mass1 + mass2)
        first = wanted < mass1
        fraction = clip(where(first, wanted, wanted - mass1) / where(first, mass1, mass2), 0.0, 1.0)
        linear[i] = where(first, panels[i], panels[2 * u + i])
        quadratic[i] = where(first, panels[u + i], panels[3 * u + i])
        reach[i] = where(first, panels[4 * u + i], panels[5 * u + i])
        position[i] = where(first, panels[8 * u + i], panels[9 * u + i])
        goal[i] = fraction * where(first, sums[i], sums[3 * u + i])
        t[i], low[i], high[i] = _start(fraction, linear[i], quadratic[i]), 0.0, 1.0
    excess = row(memory, (POINT_SUMS,), n)
    for _ in range(MAX_QUANTILE_STEPS):
        moving = 0
        for i in range(n):
            excess[i] = -goal[i]
        for node in range(0, len(NODES), NODES_PER_PASS):
            _add_nodes_up_to(node, t, linear, quadratic, excess)
        for i in range(n):
            new, low[i], high[i] = _step(t[i], low[i], high[i], excess[i], linear[i], quadratic[i])
            # The error of a Newton step is its size squared, times a derivative of 2 MAX_DROP.
            moving += 1 if abs(new - t[i]) > 1e-8 * t[i] else 0
            t[i] = new
        if moving == 0:
            break
    for i in range(n):
        x = panels[10 * u + i] + (position[i] + reach[i] * t[i])
        value[i] = where(panels[11 * u + i] > 0.0, np.nan, clip(x, lower[i], upper[i]))
