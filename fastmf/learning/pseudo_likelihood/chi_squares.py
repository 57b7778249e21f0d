"""Weighted sums of chi-squared variables, which likelihood ratios of composite likelihoods are."""

import numpy as np
from scipy import optimize

# Largest number of steps of the integral, and where its integrand has vanished.
_STEPS, _NOTHING = 1 << 11, 1e-18


def survival(x, weights):
    """Probability that the sum of weights times independent chi-squared variables exceeds x.

    The inversion integral of the moment-generating function, along a parabola through its saddle
    point: exact to rounding, in the tails too (as in Kuonen 1999, without the approximation).

    Parameters
    ----------
    x : float
    weights : array of shape (n_weights,)
        Positive; every variable has one degree of freedom.

    Returns
    -------
    float
    """
    weights = np.asarray(weights, float)
    # Of order one: saddle points are then of the order of the number of weights at most.
    x, weights = x / weights.max(), weights / weights.max()
    if x <= 0:
        return 1.0
    upper = x > weights.sum()

    def cumulant(s):
        return -0.5 * np.log1p(-2 * weights * s[..., None]).sum(-1) - s * x

    def slope(s):
        return (weights / (1 - 2 * weights * s)).sum() - x - 1 / s

    # The saddle point is right of the pole at zero for the upper tail, left for the lower.
    sign, far = (1.0, 0.5) if upper else (-1.0, np.inf)
    near, end = sign / (2 * x + 2), 0.25 if upper else -1.0
    while sign * slope(near) > 0:
        near /= 2
    while sign * slope(end) < 0:
        end = (end + far) / 2 if upper else 2 * end
    saddle = optimize.brentq(slope, near, end, rtol=1e-12)
    terms = weights / (1 - 2 * weights * saddle)
    second = 2 * (terms**2).sum() + 1 / saddle**2
    bend = 2 / 3 * (terms**3).sum() / (terms**2).sum()
    at_saddle = cumulant(np.array(saddle))

    def integrand(t):
        s = saddle + bend * t**2 + 1j * t
        return (np.exp(cumulant(s) - at_saddle) / s * (2 * bend * t + 1j) / 1j).real

    end = 1 / np.sqrt(second)
    while abs(integrand(np.array([end, 1.1 * end]))).max() * abs(saddle) > _NOTHING:
        end *= 1.5
    # The trapezoidal rule, whose error falls exponentially; the last value vanishes.
    n_steps, total, before = 64, integrand(np.zeros(1)).sum() / 2, 0.0
    total += integrand(end / 64 * np.arange(1, 64)).sum()
    while abs(total / n_steps - before) > 1e-12 * abs(before) and n_steps < _STEPS:
        before, n_steps = total / n_steps, 2 * n_steps
        total += integrand(end / n_steps * np.arange(1, n_steps, 2)).sum()
    integral = total * end / n_steps / np.pi
    tail = float(np.exp(at_saddle) * integral)
    return min(max(tail if upper else 1 + tail, 0.0), 1.0)
