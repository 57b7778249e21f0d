"""Special functions of NumPy arrays and, inside kernels, of scalars.

Each function is an ordinary NumPy function; in kernels it is replaced by a version that LLVM can
vectorise: Numba has no vector mathematics library, and a call to the scalar one costs five times as
much as the polynomial below. No function overflows or returns NaN for finite input.
"""

import math
from typing import NamedTuple

import numpy as np
import scipy

from fastmf._jit.intrinsics import bits_to_float, float_to_bits, fma, larger, smaller
from fastmf._jit.kernel import compilable, compiled_from, emitted, kernel
from fastmf._jit.lazily import types


class Exponential(NamedTuple):
    """Constants of `exp` for a floating type.

    Arguments below `low` or above `high` are clipped: results would be subnormal or overflow.
    Adding `magic` to x / ln 2 rounds it to the integer n and leaves n in the low bits, from where a
    shift by `n_fraction` moves it into the exponent; `coefficients` belong to the series in
    x - n ln 2.
    """

    low: float
    high: float
    inverse_ln2: float
    magic: float
    ln2_high: float
    ln2_low: float
    bias: int
    n_fraction: int
    coefficients: tuple


def _series(n_terms):
    return tuple(1.0 / math.factorial(k) for k in range(n_terms))


LN2, INVERSE_LN2 = math.log(2.0), 1.4426950408889634
EXPONENTIALS = {
    np.float32: Exponential(
        -87.0, 88.0, INVERSE_LN2, 1.5 * 2.0**23, 0.693359375, -2.12194440e-4, 127, 23, _series(8)
    ),
    np.float64: Exponential(
        -708.0,
        709.0,
        INVERSE_LN2,
        1.5 * 2.0**52,
        6.93147180369123816490e-01,
        1.90821492927058770002e-10,
        1023,
        52,
        _series(13),
    ),
}


def where(condition, x, y):
    """Return `x` where the condition holds and `y` elsewhere, without a branch."""
    return np.where(condition, x, y)


@emitted(where)
def _where(typing_context, condition, x, y):
    common = typing_context.unify_types(types.unliteral(x), types.unliteral(y))

    def generate(context, builder, signature, values):
        return builder.select(*values)

    return common(types.boolean, common, common), generate


def constant(value, like):
    """Convert `value` to the type of `like`: in Numba 0.5 times a float32 would be a float64."""
    return value


@emitted(constant)
def _constant(typing_context, value, like):
    return _converted(types.float32 if like == types.float32 else types.float64, value, like)


def _converted(wanted, value, *others):
    """Return an intrinsic that converts a number to another type."""
    given = types.unliteral(value)

    def generate(context, builder, signature, values):
        return context.cast(builder, values[0], given, wanted)

    return wanted(given, *others), generate


@compilable
def clip(x, lower, upper):
    """Return the number in [lower, upper] nearest to `x`."""
    return where(x < lower, lower, where(x > upper, upper, x))


def widen(x):
    """Convert `x` to double precision."""
    return np.asarray(x, dtype=np.float64)


@emitted(widen)
def _widen(typing_context, x):
    return _converted(types.float64, x)


def narrow(x, like):
    """Convert `x` to the precision of `like`; the result is infinite where it overflows."""
    with np.errstate(over="ignore"):
        return np.asarray(x).astype(like.dtype)


@emitted(narrow)
def _narrow(typing_context, x, like):
    return _converted(types.float32 if like == types.float32 else types.float64, x, like)


@compilable
def two_sum(x, y):
    """Return x + y rounded, and the rounding error: their sum is x + y exactly (Knuth)."""
    total = x + y
    x_part = total - y
    return total, (x - x_part) + (y - (total - x_part))


def two_product(x, y):
    """Return x * y rounded, and the rounding error: their sum is x * y exactly (Dekker)."""

    def split(z):
        high = 134217729.0 * z
        high = high - (high - z)
        return high, z - high

    product = x * y
    (x1, x2), (y1, y2) = split(x), split(y)
    return product, x2 * y2 - (((product - x1 * y1) - x2 * y1) - x1 * y2)


@compiled_from(two_product)
def _two_product(x, y):
    def with_fma(x, y):
        product = x * y
        return product, fma(x, y, -product)

    return with_fma


def exp(x):
    """Return the exponential, with arguments clipped to the range of the floating-point type."""
    x = np.asarray(x)
    constants = EXPONENTIALS.get(x.dtype.type, EXPONENTIALS[np.float64])
    return np.exp(np.minimum(np.maximum(x, constants.low), constants.high))


@compiled_from(exp)
def _exp(x):
    # x = n ln 2 + r with |r| <= ln(2) / 2.
    if x == types.float32:
        f, form = np.float32, EXPONENTIALS[np.float32]
        low, high, inverse_ln2, magic, ln2_high, ln2_low = map(f, form[:6])
        bias, mantissa_bits = np.int32(form.bias), np.int32(form.n_fraction)
        c0, c1, c2, c3, c4, c5, c6, c7 = map(f, form.coefficients)

        def single(x):
            # In this order NaN stays NaN.
            x = smaller(high, larger(low, x))
            t = fma(x, inverse_ln2, magic)
            n = t - magic
            r = fma(n, -ln2_low, fma(n, -ln2_high, x))
            p = fma(fma(fma(c7, r, c6), r, c5), r, c4)
            p = fma(fma(fma(fma(p, r, c3), r, c2), r, c1), r, c0)
            return p * bits_to_float(np.int32((float_to_bits(t) + bias) << mantissa_bits))

        return single

    form = EXPONENTIALS[np.float64]
    low, high, inverse_ln2, magic, ln2_high, ln2_low, _, _ = form[:8]
    c0, c1, c2, c3, c4, c5, c6, c7, c8, c9, c10, c11, c12 = form.coefficients

    def double(x):
        x = smaller(high, larger(low, float(x)))
        t = fma(x, inverse_ln2, magic)
        n = t - magic
        r = fma(n, -ln2_low, fma(n, -ln2_high, x))
        p = fma(fma(fma(fma(c12, r, c11), r, c10), r, c9), r, c8)
        p = fma(fma(fma(fma(p, r, c7), r, c6), r, c5), r, c4)
        p = fma(fma(fma(fma(p, r, c3), r, c2), r, c1), r, c0)
        return p * bits_to_float((float_to_bits(t) + 1023) << 52)

    return double


def exp2_of_product(x, y):
    """Return 2 to the power x y, where |x y| <= 140: cheaper than `exp`."""
    return np.exp2(x * y)


@compiled_from(exp2_of_product)
def _exp2_of_product(x, y):
    magic = 1.5 * 2.0**52
    # Interpolation at Chebyshev points: error 2e-15 on [-1/2, 1/2], with two terms fewer than a
    # Taylor series of the same accuracy.
    interpolation = np.polynomial.Chebyshev.interpolate(np.exp2, 10, domain=[-0.5, 0.5])
    coefficients = interpolation.convert(kind=np.polynomial.Polynomial).coef
    c0, c1, c2, c3, c4, c5, c6, c7, c8, c9, c10 = (float(c) for c in coefficients)

    def double(x, y):
        x, y = float(x), float(y)
        t = fma(x, y, magic)
        # 2^n and 2^r; without a fused operation, sums could be reordered so that r is lost.
        r = fma(x, y, magic - t)
        p = fma(fma(fma(c10, r, c9), r, c8), r, c7)
        p = fma(fma(fma(fma(p, r, c6), r, c5), r, c4), r, c3)
        p = fma(fma(fma(p, r, c2), r, c1), r, c0)
        # Adding n to the exponent bits multiplies by 2^n.
        return bits_to_float(float_to_bits(p) + (float_to_bits(t) << 52))

    return double


def exp_of_small(x):
    """Return the exponential of a number between -100 and 100: cheaper than `exp`."""
    return np.exp(x)


@compiled_from(exp_of_small)
def _exp_of_small(x):
    return lambda x: exp2_of_product(x, INVERSE_LN2)


def log(x):
    """Return the natural logarithm of a positive number."""
    return np.log(x)


@compiled_from(log)
def _log(x):
    return lambda x: math.log(x)


def log1p(x):
    """Return log(1 + x) for x > -1."""
    return np.log1p(x)


@compiled_from(log1p)
def _log1p(x):
    return lambda x: math.log1p(x)


def _artanh_coefficients(degree, largest):
    """Return a polynomial p with artanh(s) = s + s z p(z) / 2 for z = s^2 from 0 to `largest`."""
    series = np.polynomial.Polynomial([2 / (2 * k + 3) for k in range(20)])
    interpolation = np.polynomial.Chebyshev.interpolate(series, degree, domain=[0, largest])
    return interpolation.convert(kind=np.polynomial.Polynomial).coef


def log1p_of_fraction(x):
    """Return log(1 + x) for x in [0, 1]: cheaper than `log1p`."""
    return np.log1p(x)


@compiled_from(log1p_of_fraction)
def _log1p_of_fraction(x):
    # 2 artanh(s) with s = x / (2 + x): 2 s + s z (2/3 + 2/5 z + 2/7 z^2 + ...), where z = s^2 is at
    # most 1/9 and the series is interpolated, to 5e-17 or 2e-8 of the whole.
    if x == types.float32:
        f = np.float32
        two = f(2.0)
        c0, c1, c2, c3 = (f(c) for c in _artanh_coefficients(3, 1 / 9))

        def single(x):
            s = x / (two + x)
            z = s * s
            p = fma(fma(fma(c3, z, c2), z, c1), z, c0)
            return fma(s * z, p, s + s)

        return single

    c0, c1, c2, c3, c4, c5, c6, c7, c8, c9 = map(float, _artanh_coefficients(9, 1 / 9))

    def double(x):
        s = x / (2.0 + x)
        z = s * s
        p = fma(fma(fma(fma(fma(c9, z, c8), z, c7), z, c6), z, c5), z, c4)
        p = fma(fma(fma(fma(p, z, c3), z, c2), z, c1), z, c0)
        return fma(s * z, p, s + s)

    return double


# The functions below are compiled from their source: the same code for arrays and scalars.


@compilable
def sigmoid_pair(t):
    """Return sigmoid(t) and sigmoid(-t), to full relative precision, from one exponential."""
    e = exp(-abs(t))
    one = constant(1.0, t)
    large = one / (one + e)
    small = e * large
    return where(t > 0, large, small), where(t > 0, small, large)


@compilable
def sigmoid(t):
    """Return 1 / (1 + exp(-t))."""
    return sigmoid_pair(t)[0]


@compilable
def softplus(t):
    """Return log(1 + exp(t))."""
    return where(t > 0, t, constant(0.0, t)) + log1p_of_fraction(exp(-abs(t)))


def log_of_normal(x):
    """Return the natural logarithm of a positive float64, neither subnormal nor infinite.

    Unlike `log` it vectorises.
    """
    return np.log(x)


@compiled_from(log_of_normal)
def _log_of_normal(x):
    # x = 2^n (1 + f) with 1 + f between the roots of 1/2 and 2, and log(1 + f) = 2 artanh(s) with
    # s = f / (2 + f), where 2 s = f - f^2 / 2 + s f^2 / 2.
    root, magic = int(np.sqrt(0.5).view(np.int64)), int(np.float64(1.5 * 2.0**52).view(np.int64))
    c0, c1, c2, c3, c4, c5, c6 = map(float, _artanh_coefficients(6, (3 - 2 * 2**0.5) ** 2))
    ln2_high, ln2_low = EXPONENTIALS[np.float64][4:6]

    def of_parts(x):
        bits = float_to_bits(x)
        exponent = (bits - root) >> 52
        n = bits_to_float(exponent + magic) - 1.5 * 2.0**52
        f = bits_to_float(bits - (exponent << 52)) - 1.0
        s, half = f / (2.0 + f), 0.5 * f * f
        z = s * s
        p = fma(fma(fma(fma(c6, z, c5), z, c4), z, c3), z, c2)
        p = fma(fma(fma(p, z, c1), z, c0), z, half)
        return fma(n, ln2_high, f - (half - fma(s, p, n * ln2_low)))

    return of_parts if x == types.float64 else None


@compilable
def log_2_cosh(t):
    """Return log(2 cosh(t))."""
    return abs(t) + log1p_of_fraction(exp(constant(-2.0, t) * abs(t)))


@compilable
def log_cosh(t):
    """Return log(cosh(t))."""
    return log_2_cosh(t) - constant(LN2, t)


# The quantile of the standard normal distribution by Wichura (1988), Algorithm AS 241, PPND16: the
# coefficients of the numerators and denominators, the highest power first, in p (1 - p) near the
# middle, and in the square root of -log p in the near and the far tail.
_MIDDLE = (
    (
        2509.0809287301226727, 33430.575583588128105, 67265.770927008700853, 45921.953931549871457,
        13731.693765509461125, 1971.5909503065514427, 133.14166789178437745,
        3.387132872796366608,
    ),
    (
        5226.495278852854561, 28729.085735721942674, 39307.89580009271061, 21213.794301586595867,
        5394.1960214247511077, 687.1870074920579083, 42.313330701600911252, 1.0,
    ),
)  # fmt: skip
_NEAR = (
    (
        7.7454501427834140764e-4, 0.0227238449892691845833, 0.24178072517745061177,
        1.27045825245236838258, 3.64784832476320460504, 5.7694972214606914055,
        4.6303378461565452959, 1.42343711074968357734,
    ),
    (
        1.05075007164441684324e-9, 5.475938084995344946e-4, 0.0151986665636164571966,
        0.14810397642748007459, 0.68976733498510000455, 1.6763848301838038494,
        2.05319162663775882187, 1.0,
    ),
)  # fmt: skip
_FAR = (
    (
        2.01033439929228813265e-7, 2.71155556874348757815e-5, 0.0012426609473880784386,
        0.026532189526576123093, 0.29656057182850489123, 1.7848265399172913358,
        5.4637849111641143699, 6.6579046435011037772,
    ),
    (
        2.04426310338993978564e-15, 1.4215117583164458887e-7, 1.8463183175100546818e-5,
        7.868691311456132591e-4, 0.0148753612908506148525, 0.13692988092273580531,
        0.59983220655588793769, 1.0,
    ),
)  # fmt: skip
# Random numbers are multiples of 2^-53; probabilities are clipped so that quantiles are finite.
_LEAST = 2.0**-54


def normal_quantile(p):
    """Return the standard normal quantile of a probability, clipped to [2^-54, 1 - 2^-53]."""
    return scipy.special.ndtri(np.clip(p, _LEAST, 1 - 2 * _LEAST))


# Inlining is forced, as LLVM would not inline so long a function, nor vectorise loops with it.
@compiled_from(normal_quantile, mode="inline")
def _normal_quantile(p):
    def polynomials(coefficients):
        above, below = coefficients

        def of(r):
            numerator, denominator = above[0], below[0]
            for k in range(1, 8):
                numerator = fma(numerator, r, above[k])
                denominator = fma(denominator, r, below[k])
            return numerator, denominator

        return kernel(of, mode="inner", name=None)

    middle, near, far = map(polynomials, (_MIDDLE, _NEAR, _FAR))

    def quantile(p):
        p = clip(p, _LEAST, 1.0 - 2.0 * _LEAST)
        centre = p - 0.5
        r = math.sqrt(-log_of_normal(smaller(p, 1.0 - p)))
        m, n, f = middle(0.180625 - centre * centre), near(r - 1.6), far(r - 5.0)
        inside, sign = abs(centre) <= 0.425, where(centre < 0.0, -1.0, 1.0)
        above = where(inside, centre * m[0], sign * where(r <= 5.0, n[0], f[0]))
        return above / where(inside, m[1], where(r <= 5.0, n[1], f[1]))

    return quantile
