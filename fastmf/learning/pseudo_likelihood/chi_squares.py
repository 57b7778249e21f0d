"""Distribution of weighted sums of chi-squared variables.

Ratios of composite likelihoods have it: Q = sum_k w_k X_k with independent X_k of one degree of
freedom, whose cumulant-generating function is K(s) = -sum_k ln(1 - 2 w_k s) / 2. Its survival
function is the integral of exp(K(s) - s x) / (2 pi i s) along a path to the right of s = 0.
"""

import numpy as np
import scipy


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
        return -0.5 * np.log1p(-2 * weights * s).sum() - s * x

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
    at_saddle = cumulant(saddle)

    def integrand(t):
        s = saddle + curvature * t**2 + 1j * t
        return (np.exp(cumulant(s) - at_saddle) / s * (2 * curvature * t + 1j) / 1j).real

    width = 1 / np.sqrt(second)
    integral = scipy.integrate.quad(
        lambda t: float(integrand(width * t)), 0, np.inf, epsabs=0, epsrel=1e-12, limit=1000
    )[0]
    integral *= width / np.pi
    tail = float(np.exp(at_saddle) * integral)
    return min(max(tail if upper else 1 + tail, 0.0), 1.0)
