"""Checks of the parameters of models, at construction."""

import numpy as np

from fastmf._common.arguments import real_array, rows
from fastmf.priors._groups import as_states
from fastmf.priors._protocol import as_dtype, has_log_prob, is_unit_prior, n_units, with_arrays
from fastmf.priors._registry import built_in
from fastmf.priors._values import check_support


def shared_matrix(name, value, may_lack_columns=False, may_be_forbidden=False):
    """Return a finite read-only matrix: a view of a float32 or float64 array, otherwise float64.

    With `may_be_forbidden`, entries may be -inf.
    """
    try:
        array = real_array(name, value)
    except TypeError:
        raise TypeError(
            f"{name} must be a matrix of real numbers, got {type(value).__name__}."
        ) from None
    if array.ndim != 2 or len(array) == 0 or not (array.size or may_lack_columns):
        raise ValueError(f"{name} must be a non-empty matrix, got shape {array.shape}.")
    if may_be_forbidden:
        not_nan_or_plus_inf(name, array)
    elif not np.isfinite(array).all():
        raise ValueError(f"{name} must be finite, got NaN or infinity.")
    matrix = array.view() if array.dtype in (np.float32, np.float64) else array.astype(float)
    matrix.flags.writeable = False
    return matrix


def matrix(name, value, may_lack_columns=False, may_be_forbidden=False):
    """Return a finite, read-only, C-contiguous copy: float32 stays, other types become float64."""
    matrix = shared_matrix(name, value, may_lack_columns, may_be_forbidden)
    # Solvers cache arrays that are computed from it, so that it must not change. A read-only array
    # that owns its data needs no copy.
    frozen = isinstance(value, np.ndarray) and value.flags.owndata and not value.flags.writeable
    return matrix if frozen and matrix.flags.c_contiguous else read_only(matrix)


def read_only(matrix):
    """Return a read-only, C-contiguous copy of an array."""
    matrix = np.array(matrix, order="C")
    matrix.flags.writeable = False
    return matrix


def not_nan_or_plus_inf(name, array):
    """Raise a ValueError if an array has entries that are NaN or +inf."""
    if not (array < np.inf).all():
        raise ValueError(f"{name} must be finite, got NaN or infinity.")


def by_states(value, n_axes):
    """Reshape couplings (n_groups, q, n) or (n_groups, q, n_groups, q) to a matrix of states."""
    if not isinstance(value, np.ndarray) or value.ndim != n_axes:
        return value
    return value.reshape(value.shape[0] * value.shape[1], -1)


def unit_prior(name, prior, n, dtype):
    """Check that `prior` is a unit prior of `n` units, and convert it to the type `dtype`."""
    if not is_unit_prior(prior):
        raise TypeError(
            f"{name} must be a unit prior, a NamedTuple with the methods log_partition and "
            f"moments, got {prior if isinstance(prior, type) else type(prior).__name__}."
        )
    if n_units(prior) != n:
        raise ValueError(
            f"{name} must have {n} units, as the other parameters do, got {n_units(prior)}."
        )
    prior = with_arrays(prior)  # kernels index every field
    if not built_in(prior):
        _try_methods(name, prior, n)
    return as_dtype(prior, dtype)


def _try_methods(name, prior, n):
    """Raise unless the required methods of a user's prior return arrays of the right shapes."""
    zero = np.zeros(n)
    with np.errstate(all="ignore"):
        try:
            mean, var = prior.moments(zero, zero)
            shapes = [np.shape(x) for x in (mean, var, prior.log_partition(zero, zero))]
        except Exception as error:
            raise TypeError(
                f"{name}: moments(b, a) of {type(prior).__name__} must return mean and variance, "
                f"and log_partition(b, a) one array; for zeros of shape ({n},): {error}"
            ) from error
    if set(shapes) != {(n,)}:
        raise ValueError(
            f"{name}: mean, variance and log-partition of {type(prior).__name__} must have the "
            f"shape ({n},) of b and a, got {', '.join(map(str, shapes))}."
        )


def states(name, x, n):
    """Convert `x` to an array of floats whose last axis has length `n`."""
    x = real_array(name, x)
    if x.ndim == 0 or x.shape[-1] != n:
        raise ValueError(f"{name} must have shape (..., {n}), got {x.shape}.")
    if not np.isfinite(x).all():
        raise ValueError(f"{name} must be finite, got NaN or infinity.")
    return x if x.dtype.kind == "f" else x.astype(float)


def states_of(name, prior, x):
    """Convert `x` to an array with one value for each unit of a layer; labels become one-hot."""
    return states(name, as_states(name, prior, x), n_units(prior))


def visible_rows(name, model, X, support=True):
    """Convert rows of visible states to the type of a model; labels become one-hot."""
    prior = model.layers[0]
    X = rows(name, as_states(name, prior, real_array(name, X)), n_units(prior), model.dtype)
    X = np.atleast_2d(X)
    if support:
        check_support(prior, X, False, model.dtype, name)
    return X


def log_prob(name, prior, x):
    """Sum the log-weights of the prior over units."""
    if not has_log_prob(prior):
        raise TypeError(f"the energy needs a prior with log_prob; {name} does not offer it.")
    return prior.log_prob(x).sum(-1)
