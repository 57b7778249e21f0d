"""Registries of the priors of this package and of users, and the methods that priors share."""

import functools
import inspect

import numpy as np

from fastmf._common.arguments import generator, real_array, refusing_overflow
from fastmf._common.rows import is_sparse, row_blocks
from fastmf.priors._compiled import compiled_if_large
from fastmf.priors._protocol import sample_by_draw

# The priors of this package by their names, and users' priors by the names of their classes.
REGISTRY: dict[str, type] = {}
USER_REGISTRY: dict[str, type] = {}


def unit_prior(name, *, missing=False):
    """Return a class decorator that registers a prior and adds the methods that priors share.

    The constructor checks and broadcasts fields unless the class defines `__new__`. `missing` says
    whether `from_data` takes missing values.
    """

    def decorate(class_):
        REGISTRY[name] = class_
        if class_.__bases__ == (tuple,) or "__new__" not in vars(class_):
            class_.__new__ = _checked_new(class_.__new__)
        for method, default in _DEFAULTS.items():
            setattr(class_, method, getattr(class_, method, default))
        # Without the checks of `__new__`: derivatives are no valid parameters.
        class_.__reduce__ = lambda prior: (type(prior)._make, (tuple(prior),))
        class_.from_data = accepts_tables(class_.from_data.__func__, missing=missing)
        for method in () if hasattr(class_, "sizes") else ("log_partition", "moments"):
            setattr(class_, method, compiled_if_large(class_, method))
        for method in ("log_partition", "moments", "log_prob", "sample", "draw"):
            setattr(class_, method, accepts_lists(getattr(class_, method)))
        class_.sample = refusing_overflow(class_.sample)
        return class_

    return decorate


def _checked_new(plain_new):
    """Return a constructor that checks and broadcasts the fields, one number for each unit."""

    @functools.wraps(plain_new)  # Numba reads the signature
    def checked_new(cls, *args, **kwargs):
        fields = plain_new(cls, *args, **kwargs)
        prior = cls._make(_per_unit(cls.__name__, fields._asdict()))
        getattr(prior, "_check", lambda: None)()
        return prior

    return checked_new


def _gradient(self, b, a):
    """Return derivatives of the log-partition, zero for fields that are not learned."""
    mean, var = self.moments(b, a)
    if hasattr(self, "mixture_gradient"):
        return self.mixture_gradient(mean, var, -np.expm1(-self.log_partition(b, a)))
    return self.moment_gradient(mean, var)


def _log_prob_gradient(self, x):
    """Return derivatives of log_prob, from the moments of a distribution with all mass at x."""
    if hasattr(self, "mixture_gradient"):
        return self.mixture_gradient(x, 0 * x, (x != 0) + 0 * x)
    return self.moment_gradient(x, 0 * x)


_DEFAULTS = {
    "sample": sample_by_draw,
    "gradient": _gradient,
    "log_prob_gradient": _log_prob_gradient,
}


def register(class_):
    """Register a user's class of priors, so that models with it can be saved and loaded.

    A file holds the name of the class and its fields, never code: before a file is loaded, the
    module that defines and registers the class must be imported. Use it as a class decorator.

    Parameters
    ----------
    class_ : class
        A NamedTuple of per-unit arrays; it replaces an earlier class of the same name.

    Returns
    -------
    class
        The argument `class_`.

    Raises
    ------
    TypeError
        If `class_` is not derived from NamedTuple.
    ValueError
        If a prior of this package has the name of the class.

    Examples
    --------
    >>> from typing import NamedTuple
    >>> import numpy as np, fastmf as mf
    >>> @mf.priors.register
    ... class Coin(NamedTuple):
    ...     field: np.ndarray
    ...     def log_partition(self, b, a):
    ...         return np.logaddexp(0, self.field + b - a / 2)
    ...     def moments(self, b, a):
    ...         mean = 1 / (1 + np.exp(a / 2 - b - self.field))
    ...         return mean, mean * (1 - mean)
    >>> Coin(np.zeros(2)).moments(0.0, 0.0)[0]
    array([0.5, 0.5])
    """
    if not (isinstance(class_, type) and issubclass(class_, tuple) and hasattr(class_, "_fields")):
        raise TypeError(f"register takes a class derived from NamedTuple, got {class_!r:.60}.")
    if class_.__name__ in REGISTRY:
        raise ValueError(f"a prior named {class_.__name__} exists already; choose another name.")
    USER_REGISTRY[class_.__name__] = class_
    return class_


def accepts_lists(method):
    """Make a method accept numbers, arrays and lists, and a seed in place of a generator."""
    names = list(inspect.signature(method).parameters)[1:]

    @functools.wraps(method)  # kernels compile the wrapped method
    def checked(self, *args, **kwargs):
        args = [_real(names[min(k, len(names) - 1)], x) for k, x in enumerate(args)]
        return method(self, *args, **{k: _real(k, x) for k, x in kwargs.items()})

    return checked


def _real(name, x):
    """Convert an argument to a number or an array of numbers; `rng` to a generator."""
    if name == "rng":
        return generator(x, optional=True)
    if type(x) is np.ndarray and x.dtype.kind in "fiub":
        return x
    # NumPy would store larger integers as objects.
    if isinstance(x, float | np.floating | np.integer | np.bool_ | int) and abs(x) < 2.0**64:
        return x
    return real_array(name, x)


def accepts_tables(from_data, *, missing=False):
    """Make a class method accept lists and data frames, and refuse invalid data."""

    @functools.wraps(from_data)
    def checked(cls, X, *args, **kwargs):
        if not is_sparse(X):
            X = real_array("X", X, missing=missing)
            if X.ndim != 2 or X.size == 0:
                raise ValueError(f"X must have shape (n_samples, n_units), got {X.shape}.")
            if X.dtype.kind == "f" and not missing:
                if not all(np.isfinite(X[rows]).all() for rows in row_blocks(X)):
                    raise ValueError("X must be finite, got NaN or infinity.")
        options = {k: x if x is None else _real(k, x) for k, x in kwargs.items()}
        return from_data(cls, X, *args, **options)

    return classmethod(checked)


def _per_unit(class_name, fields):
    """Yield the fields as contiguous arrays of one shape (n_units,) and one floating type."""
    arrays = {}
    for name, value in fields.items():
        try:
            array = real_array(name, value)
        except TypeError:
            raise TypeError(
                f"{class_name}: {name} must be a number or an array of numbers, "
                f"got {type(value).__name__}."
            ) from None
        if array.ndim > 1:
            raise ValueError(
                f"{class_name}: {name} must have shape (n_units,), got shape {array.shape}."
            )
        arrays[name] = array
    # Python numbers take the floating type of the arrays given with them.
    typed = [v.dtype for k, v in arrays.items() if isinstance(fields[k], (np.ndarray, np.generic))]
    dtype = np.float32 if typed and all(d == np.float32 for d in typed) else np.float64
    try:
        shape = np.broadcast_shapes((1,), *(v.shape for v in arrays.values()))
    except ValueError:
        shapes = ", ".join(f"{k} {v.shape}" for k, v in arrays.items())
        raise ValueError(f"{class_name}: the parameters differ in length: {shapes}.") from None
    for name, array in arrays.items():
        if np.isnan(array).any():
            raise ValueError(f"{class_name}: {name} contains NaN.")
        if name not in ("lower", "upper") and not np.isfinite(array).all():
            raise ValueError(f"{class_name}: {name} contains an infinity.")
        # A copy: the prior must neither change with the caller's array nor be read-only.
        yield np.array(np.broadcast_to(array, shape), dtype=dtype, order="C")


def floating_type(X):
    """Return float32 for float32 data, and float64 for other data."""
    return np.float32 if X.dtype == np.float32 else np.float64


def built_in(prior):
    """Return whether the class of a prior, not only a base class, belongs to this package."""
    return type(prior) in REGISTRY.values()
