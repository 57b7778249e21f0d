"""Distribution of weighted sums of chi-squared variables.

Ratios of composite likelihoods have it: Q = sum_k w_k X_k with independent X_k of one degree of
freedom, whose cumulant-generating function is K(s) = -sum_k ln(1 - 2 w_k s) / 2. Its survival
function is the integral of exp(K(s) - s x) / (2 pi i s) along a path to the right of s = 0.
"""

import numpy as np
import scipy

# Largest number of steps of the trapezoidal rule, and the integrand at which it is cut off.
_MAX_STEPS, _MIN_INTEGRAND = 1 << 11, 1e-18


def survival(x, weights):
    """Probability that the sum of weights times independent chi-squared variables exceeds x.

    By the inversion integral of the moment-generating function along a parabola through its saddle
    point, accurate to about 1e-10 relative in the tails too. (Kuonen 1999 has the saddle-point
    approximation of the same integral.)
    """
    weights = np.asarray(weights, float)
    # Weights of order one: saddle points are then of the order of the number of weights at most.
    x, weights = x / weights.max(), weights / weights.max()
    # Beyond these ends the probability is 1 or 0 in double precision, whatever the weights are.
    if x <= 1e-100:
        return 1.0
    if x > 3000 + 2 * len(weights):
        return 0.0
    upper = x > weights.sum()

    def cumulant(s):
        return -0.5 * np.log1p(-2 * weights * s[..., None]).sum(-1) - s * x

    def derivative(s):
        return (weights / (1 - 2 * weights * s)).sum() - x - 1 / s

    # The saddle point is right of the pole at zero for the upper tail, left for the lower.
    sign, far = (1.0, 0.5) if upper else (-1.0, np.inf)
    near, end = sign / (2 * x + 2), 0.25 if upper else -1.0
    while sign * derivative(near) > 0:
        near /= 2
    while sign * derivative(end) < 0:
        end = (end + far) / 2 if upper else 2 * end
    saddle = scipy.optimize.brentq(derivative, near, end, rtol=1e-12)
    terms = weights / (1 - 2 * weights * saddle)
    second = 2 * (terms**2).sum() + 1 / saddle**2
    curvature = 2 / 3 * (terms**3).sum() / (terms**2).sum()
    at_saddle = cumulant(np.array(saddle))

    def integrand(t):
        s = saddle + curvature * t**2 + 1j * t
        return (np.exp(cumulant(s) - at_saddle) / s * (2 * curvature * t + 1j) / 1j).real

    end = 1 / np.sqrt(second)
    while abs(integrand(np.array([end, 1.1 * end]))).max() * abs(saddle) > _MIN_INTEGRAND:
        end *= 1.5
    # The trapezoidal rule, whose error falls exponentially; the last value vanishes.
    n_steps, total, before = 64, integrand(np.zeros(1)).sum() / 2, 0.0
    total += integrand(end / 64 * np.arange(1, 64)).sum()
    while abs(total / n_steps - before) > 1e-12 * abs(before) and n_steps < _MAX_STEPS:
        before, n_steps = total / n_steps, 2 * n_steps
        total += integrand(end / n_steps * np.arange(1, n_steps, 2)).sum()
    integral = total * end / n_steps / np.pi
    tail = float(np.exp(at_saddle) * integral)
    return min(max(tail if upper else 1 + tail, 0.0), 1.0)
