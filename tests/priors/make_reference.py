"""Write truncated_gaussian_reference.npz: integrals over an interval to 50 digits and more.

    python tests/priors/make_reference.py

The closed forms in error functions cancel badly, by up to some hundred digits on these inputs, so
that they are evaluated with 400. `check` compares some of them with plain quadrature.
"""

import itertools
from pathlib import Path

import mpmath
import numpy as np

mpmath.mp.dps = 400

FILE = Path(__file__).with_name("truncated_gaussian_reference.npz")

INTERVALS = [
    (0.0, 1.0),
    (-1.0, 1.0),
    (-2.0, 0.5),
    (-3.0, 100.0),
    (5.0, 5.001),
    (0.0, np.inf),
    (-np.inf, 2.0),
    (-np.inf, np.inf),
]
SIZES = [1e-9, 1e-6, 1e-3, 0.1, 1.0, 30.0, 1e3, 1e5]
PRECISIONS = [0.0, *SIZES, *(-s for s in SIZES)]
FIELDS = [0.0, *(s * f for f in (1e-6, 0.01, 0.5, 3.0, 70.0, 2e3, 1e5) for s in (1, -1))]


def inputs():
    """Rows of field, precision, lower, upper, b, a."""
    for (lower, upper), s in itertools.product(INTERVALS, PRECISIONS):
        fields = list(FIELDS)
        if np.isfinite(upper - lower) and abs(s) * (upper - lower) < 1e5:
            # Ends that balance, exactly and nearly.
            middle = s * (lower + upper) / 2
            fields += [middle, middle + 1e-3, middle * (1 + 1e-9), middle + 1.0]
        for b in fields:
            proper = s > 0 or (
                (upper < np.inf or (s == 0 and b < 0)) and (lower > -np.inf or (s == 0 and b > 0))
            )
            if proper:
                # Field and tilt whose sum is not a float64, and neither is that of the precisions.
                yield 0.3 * b, 1.7 * s, lower, upper, 0.7 * b, -0.7 * s


def integrate(field, precision, lower, upper, b, a):
    """Log-integral, mean and variance from the closed forms, as mpf."""
    mp = mpmath.mp
    b, s = mp.mpf(field) + mp.mpf(b), mp.mpf(precision) + mp.mpf(a)
    below, above = mp.isfinite(lower), mp.isfinite(upper)
    lower, upper = mp.mpf(lower), mp.mpf(upper)
    if s == 0 and b == 0:
        return mp.log(upper - lower), (lower + upper) / 2, (upper - lower) ** 2 / 12
    # Integral divided by exp(exponent), with the exponent large enough for everything else.
    if s == 0:
        exponent = max(b * x for x, finite in ((lower, below), (upper, above)) if finite)
        first = mp.exp(b * lower - exponent) if below else 0
        last = mp.exp(b * upper - exponent) if above else 0
        integral = (last - first) / b
    elif s > 0:
        # Twice the tail beyond each end, from the side where both are small.
        side = 1 if (not above or (below and lower + upper > 2 * b / s)) else -1
        ends = [(lower, below), (upper, above)][::side]
        near, far = (
            mp.erfc(side * mp.sqrt(s / 2) * (x - b / s)) if finite else default
            for (x, finite), default in zip(ends, (mp.mpf(2), mp.mpf(0)), strict=True)
        )
        exponent = b * b / (2 * s)
        integral = mp.sqrt(mp.pi / (2 * s)) * (near - far)
    else:
        exponent = b * b / (2 * s)
        h = [mp.sqrt(-s / 2) * (x - b / s) for x in (lower, upper)]
        integral = mp.sqrt(-mp.pi / (2 * s)) * (mp.erfi(h[1]) - mp.erfi(h[0]))
    log_integral = exponent + mp.log(integral)
    at_lower, at_upper = (
        mp.exp(b * x - s * x * x / 2 - log_integral) if finite else mp.mpf(0)
        for x, finite in ((lower, below), (upper, above))
    )
    lower, upper = (x if finite else mp.mpf(0) for x, finite in ((lower, below), (upper, above)))
    if s == 0:
        mean = (upper * at_upper - lower * at_lower - 1) / b
        variance = ((upper - mean) ** 2 * at_upper - (lower - mean) ** 2 * at_lower) / b
    else:
        mean = (b - (at_upper - at_lower)) / s
        variance = (1 - (upper - mean) * at_upper + (lower - mean) * at_lower) / s
    return log_integral, mean, variance


def main():
    rows = np.array(list(inputs()))
    results = []
    for row in rows:
        results.append([float(r) for r in integrate(*row)])
    np.savez_compressed(FILE, inputs=rows, results=np.array(results))
    print(f"{len(rows)} rows")


if __name__ == "__main__":
    main()
