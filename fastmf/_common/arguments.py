"""Checks of what users pass to solvers."""

from collections.abc import Hashable
from numbers import Integral, Real

import numpy as np


def number(name, value, low, high, *, below=False):
    """`value` as a float in [low, high], or in [low, high) if `below`."""
    if isinstance(value, bool) or not isinstance(value, Real | np.number):
        raise TypeError(f"{name} must be a number, got {type(value).__name__}.")
    value = float(value)
    if not (low <= value <= high) or (below and value == high):
        raise ValueError(
            f"{name} must be in [{low:g}, {high:g}{')' if below else ']'}, got {value:g}."
        )
    return value


def count(name, value, low=1):
    """`value` as an integer of at least `low`."""
    if isinstance(value, bool) or not isinstance(value, Integral | np.integer):
        raise TypeError(f"{name} must be an integer, got {type(value).__name__}.")
    if value < low:
        raise ValueError(f"{name} must be at least {low}, got {value}.")
    if value >= 2**63:
        raise ValueError(f"{name} must be below 2^63, got {value}.")
    return int(value)


def one_of(name, value, choices):
    """The one among the choices that `value` equals."""
    if not isinstance(value, Hashable) or value not in choices:
        listed = ", ".join(map(repr, choices))
        raise ValueError(f"{name} must be one of {listed}, got {value!r:.60}.")
    return choices[choices.index(value)]


def per_layer(name, value, sizes):
    """A list of one entry per layer: a single array speaks of the first layer."""
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


def rows(name, value, n_units, dtype, *, missing=False):
    """`value` as an array (n_units,) or (n_rows, n_units) of `dtype`, finite unless `missing`."""
    if value is None:
        return None
    array = np.asarray(value)
    if array.dtype.kind not in "fiub":
        raise TypeError(f"{name} must be an array of real numbers, got dtype {array.dtype}.")
    if array.ndim not in (1, 2) or array.shape[-1] != n_units:
        raise ValueError(
            f"{name} must have shape ({n_units},) or (n_rows, {n_units}), got {array.shape}."
        )
    if array.shape[0] == 0:
        raise ValueError(f"{name} must have at least one row.")
    if array.dtype != bool:
        with np.errstate(over="ignore"):  # what is too large for the type is told below
            array = array.astype(dtype, copy=False)
    if np.isinf(array).any() if missing else not np.isfinite(array).all():
        raise ValueError(f"{name} must be finite, got NaN or infinity in {array.dtype}.")
    return array


def common_rows(named_arrays):
    """Number of rows that all arrays share; None if none of them has rows."""
    found = {name: len(a) for name, a in named_arrays if a is not None and a.ndim == 2}
    lengths = {n for n in found.values() if n != 1}
    if len(lengths) > 1:
        listed = ", ".join(f"{name} {n}" for name, n in found.items())
        raise ValueError(f"the numbers of rows differ: {listed}.")
    return max(found.values(), default=None)


def iteration(damping, tol, max_iter, n_threads):
    """Checked options that every iteration has."""
    if damping is not None:
        damping = number("damping", damping, 0, 1, below=True)
    tol = number("tol", tol, 0, np.inf)
    max_iter = count("max_iter", max_iter)
    if n_threads is not None:
        n_threads = count("n_threads", n_threads)
    return damping, tol, max_iter, n_threads


def generator(rng):
    """The generator that random starts are drawn from."""
    if rng is None:
        raise ValueError("random starts need rng, a numpy.random.Generator or a seed.")
    try:
        return np.random.default_rng(rng)
    except (TypeError, ValueError) as error:
        raise type(error)(
            f"rng must be a numpy.random.Generator or a seed, got {rng!r}: {error}."
        ) from error
