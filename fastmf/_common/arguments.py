"""Checks of arguments that users pass to solvers."""

import functools
import os
import sys
from collections.abc import Hashable
from numbers import Integral, Real
from pathlib import Path

import numpy as np


def refusing_overflow(function):
    """Make a function raise one error with a remedy if the package overflows or makes NaN."""

    @functools.wraps(function)
    def checked(*args, **kwargs):
        with np.errstate(over="call", divide="call", invalid="call", call=refuse):
            return function(*args, **kwargs)

    def refuse(kind, _):
        # Functions of users, such as methods of their priors, may use infinities.
        frame, advice = sys._getframe(1), "values of smaller size, or double precision"
        while frame and frame.f_code is not checked.__code__:
            package = (frame.f_globals.get("__name__") or "").partition(".")[0]
            if not (package in sys.stdlib_module_names or package in ("fastmf", "numpy", "scipy")):
                return
            frame = frame.f_back
        raise FloatingPointError(f"{kind}: give couplings, fields and {advice}.")

    return checked


def number(name, value, low, high, *, below=False):
    """Check that `value` is in [low, high], or in [low, high) if `below`, and return a float."""
    value = value[()] if isinstance(value, np.ndarray) and not value.ndim else value
    if isinstance(value, bool) or not isinstance(value, Real):
        raise TypeError(f"{name} must be a number, got {type(value).__name__}.")
    try:
        value = float(value)
    except OverflowError:
        raise ValueError(f"{name} must be below 1.8e308 in size, got a larger number.") from None
    if np.isnan(value) and low == -np.inf and high == np.inf:
        raise ValueError(f"{name} must be a number, got NaN.")
    if not (low <= value <= high) or (below and value == high):
        raise ValueError(
            f"{name} must be in [{low:g}, {high:g}{')' if below else ']'}, got {value:g}."
        )
    return value


def doubles(name, value):
    """Convert `value` to an array of float64; raise a ValueError if an integer is too large."""
    try:
        return np.asarray(unmasked(name, value) if np.ma.isMaskedArray(value) else value, float)
    except OverflowError:
        raise ValueError(f"{name} must be below 1.8e308 in size, got a larger number.") from None


def proper_fraction(name, value):
    """Check that `value` is strictly between 0 and 1, and return a float."""
    if not 0 < (value := number(name, value, 0, 1)) < 1:
        raise ValueError(f"{name} must be between 0 and 1, got {value:g}.")
    return value


def positive(name, value, below=np.inf):
    """Check that `value` is positive and less than `below`, and return a float."""
    if not 0 < (value := number(name, value, -np.inf, np.inf)) < below:
        limit = "finite" if below == np.inf else f"below {below:g}"
        raise ValueError(f"{name} must be positive and {limit}, got {value:g}.")
    return value


def count(name, value, low=1, *, optional=False):
    """Check that `value` is an integer of at least `low`; None stays None if `optional`."""
    if value is None and optional:
        return None
    if type(value) is int and low <= value < 2**63:  # the usual case, fast for small solves
        return value
    value = value[()] if isinstance(value, np.ndarray) and not value.ndim else value
    if isinstance(value, bool) or not isinstance(value, Integral | np.integer):
        raise TypeError(f"{name} must be an integer, got {type(value).__name__}.")
    if value < low:
        raise ValueError(f"{name} must be at least {low}, got {value}.")
    if value >= 2**63:
        raise ValueError(f"{name} must be below 2^63, got {value!s:.40}.")
    return int(value)


def flag(name, value):
    """Check that `value` is True or False, or 1 or 0, and return a bool."""
    value = value[()] if isinstance(value, np.ndarray) and not value.ndim else value
    if isinstance(value, bool | np.bool_ | Integral) and value in (0, 1):
        return bool(value)
    raise TypeError(f"{name} must be True or False, got {value!r:.60}.")


def file_path(name, value):
    """Check that `value` can be the name of a file, and return a path."""
    if not isinstance(value, str | os.PathLike):
        raise TypeError(f"{name} must be a str or a path, got {type(value).__name__}.")
    try:
        if not (text := os.fsdecode(os.fsencode(value))) or "\0" in text:
            raise ValueError("a null character" if text else "it is empty")
    except ValueError as error:  # characters that the file system cannot encode, too
        raise ValueError(
            f"{name} must be the name of a file, got {value!a:.60}: {error}."
        ) from None
    return Path(value)


def one_of(name, value, choices):
    """Check that `value` equals one of the choices, and return it."""
    if isinstance(value, Hashable):
        # Absent values raise a ValueError; pandas' NA, which has no truth value, a TypeError.
        try:
            return choices[choices.index(value)]
        except (TypeError, ValueError):
            pass
    listed = ", ".join(map(repr, choices))
    raise ValueError(f"{name} must be one of {listed}, got {value!r:.60}.")


def per_layer(name, value, sizes):
    """Return a list of one entry per layer; a single array is for the first layer."""
    if value is None:
        return [None] * len(sizes)
    if not isinstance(value, tuple):
        return [value] + [None] * (len(sizes) - 1)
    if len(value) != len(sizes):
        raise ValueError(
            f"{name} must be an array or a tuple of {len(sizes)} (one for each layer), "
            f"got a tuple of {len(value)}."
        )
    return list(value)


def real_array(name, value, *, missing=False):
    """Convert `value` to an array of real numbers or booleans."""
    if np.ma.isMaskedArray(value):
        value = unmasked(name, value, missing=missing)
    try:
        array = np.asarray(value)
    except (TypeError, ValueError):  # lists of unequal lengths
        raise TypeError(
            f"{name} must be an array of real numbers, got {type(value).__name__}."
        ) from None
    if array.dtype.kind not in "fiub":
        what = f"dtype {array.dtype}" if array.ndim else type(value).__name__
        raise TypeError(f"{name} must be an array of real numbers, got {what}.")
    return array


def unmasked(name, array, *, missing=False):
    """Convert a masked array to an ordinary one, with NaN for masked entries if `missing`."""
    mask = np.ma.getmaskarray(array)
    if not mask.any():
        return np.asarray(array.data)
    if not missing:
        place = ", ".join(map(str, np.argwhere(mask)[0]))
        raise ValueError(
            f"{name} must have no masked entries here, got {np.count_nonzero(mask)}, the first at "
            f"[{place}]: fill them or leave them out."
        )
    kind = array.dtype.kind
    dtype = float if kind in "biu" else object if kind in "SU" else array.dtype
    return np.where(mask, np.nan, array.data.astype(dtype))


def row_weights(value, n_rows, name="sample_weight"):
    """Check weights of rows, and return a float64 array of shape (n_rows,), or None if None."""
    if value is None:
        return None
    weights = real_array(name, value).astype(np.float64)
    if weights.ndim == 0:
        weights = np.full(n_rows, weights)
    if weights.shape != (n_rows,):
        raise ValueError(
            f"{name} must be a number or have shape ({n_rows},), one for each row, got "
            f"{name}.shape == {weights.shape}."
        )
    wrong = ~(np.isfinite(weights) & (weights >= 0))
    if wrong.any():
        row = int(np.argmax(wrong))
        raise ValueError(
            f"{name} must be finite and at least 0, got {weights[row]:g} in row {row}."
        )
    if not weights.any():
        raise ValueError(f"{name} must be positive for some row, got zeros only.")
    with np.errstate(over="ignore"):
        if np.isinf(weights.sum()):
            raise ValueError(f"{name} must have a finite sum: divide it by a constant.")
    return weights


def rows(name, value, n_units, dtype, *, missing=False):
    """Convert to an array (n_units,) or (n_rows, n_units) of `dtype`; `missing` allows NaN."""
    if value is None:
        return None
    array = real_array(name, value, missing=missing)
    if array.ndim not in (1, 2) or array.shape[-1] != n_units:
        raise ValueError(
            f"{name} must have shape ({n_units},) or (n_rows, {n_units}), got {array.shape}."
        )
    if array.ndim == 2 and not len(array):
        raise ValueError(f"{name} must have at least one row.")
    if missing and array.dtype == bool:
        raise ValueError(
            f"{name} must have numbers where values are given and NaN elsewhere, got booleans: "
            f"give numpy.where(mask, values, nan), or {name}.astype(float) if they are values."
        )
    with np.errstate(over="ignore"):  # values that overflow are refused below
        array = array.astype(dtype, copy=False)
    if np.isinf(array).any() if missing else not np.isfinite(array).all():
        raise ValueError(f"{name} must be finite, got NaN or infinity in {array.dtype}.")
    return array


def common_rows(named_arrays):
    """Return the number of rows that all arrays share; None if no array has rows."""
    n_rows = {name: len(a) for name, a in named_arrays if a is not None and a.ndim == 2}
    lengths = {n for n in n_rows.values() if n != 1}
    if len(lengths) > 1:
        listed = ", ".join(f"{name} {n}" for name, n in n_rows.items())
        raise ValueError(f"the numbers of rows differ: {listed}.")
    return max(n_rows.values(), default=None)


def iteration(damping, tol, max_iter, n_threads):
    """Check the options that all iterative solvers have, and return them."""
    if damping is not None:
        damping = number("damping", damping, 0, 1, below=True)
    tol = number("tol", tol, 0, np.inf)
    max_iter = count("max_iter", max_iter)
    n_threads = count("n_threads", n_threads, optional=True)
    return damping, tol, max_iter, n_threads


def generator(rng, *, optional=False):
    """Return a generator from a generator or seed; from a random seed if None and `optional`."""
    if rng is None and not optional:
        raise ValueError("random starts need rng, a numpy.random.Generator or a seed.")
    try:
        return np.random.default_rng(rng)
    except (TypeError, ValueError, OverflowError) as error:
        kind = TypeError if isinstance(error, TypeError) else ValueError
        raise kind(
            f"rng must be a numpy.random.Generator or a seed, got {rng!r:.60}: {error!s:.80}."
        ) from error
