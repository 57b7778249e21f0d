"""The priors of this package and users' own by their names; what all of the package share."""

import functools
import inspect

import numpy as np

from fastmf._common.arguments import generator, real_array
from fastmf._common.rows import is_sparse, row_blocks
from fastmf.priors._compiled import compiled_if_large

# The priors of this package by their names, and users' own by the names of their classes.
REGISTRY: dict[str, type] = {}
USER_REGISTRY: dict[str, type] = {}


def unit_prior(name):
    """Class decorator: register a prior under `name`, and check and broadcast its parameters."""

    def decorate(class_):
        REGISTRY[name] = class_
        plain_new = class_.__new__

        @functools.wraps(plain_new)  # Numba reads the signature
        def checked_new(cls, *args, **kwargs):
            fields = plain_new(cls, *args, **kwargs)
            prior = cls._make(_per_unit(cls.__name__, fields._asdict()))
            getattr(prior, "_check", lambda: None)()
            return prior

        class_.__new__ = checked_new
        class_.__reduce__ = _pickled
        class_.sample = accepts_seeds(class_.sample)
        class_.from_data = accepts_tables(class_.from_data.__func__)
        for method in ("log_partition", "moments"):
            setattr(class_, method, compiled_if_large(class_, method))
        for method in ("log_partition", "moments", "log_prob", "sample", "draw"):
            setattr(class_, method, accepts_lists(getattr(class_, method)))
        return class_

    return decorate


def _pickled(prior):
    """How a prior is pickled: by its fields, which in derivatives are no valid parameters."""
    return type(prior)._make, (tuple(prior),)


def register(class_):
    """Class decorator: let models with this prior of one's own be saved, loaded and resumed.

    A file holds the name of the class and its fields, never code: whoever loads the file has to
    import the module where the class is defined and registered.

    Parameters
    ----------
    class_ : class
        A NamedTuple of per-unit arrays; it replaces an earlier one of the same name.

    Returns
    -------
    class
        The same.

    Raises
    ------
    TypeError
        If it is not such a class.
    ValueError
        If its name is that of a prior of this package.

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
    """Decorator: the method takes numbers, arrays and lists of them, and nothing else."""
    names = list(inspect.signature(method).parameters)[1:]

    @functools.wraps(method)  # kernels compile the wrapped method
    def checked(self, *args, **kwargs):
        args = [_real(names[min(k, len(names) - 1)], x) for k, x in enumerate(args)]
        return method(self, *args, **{k: _real(k, x) for k, x in kwargs.items()})

    return checked


def _real(name, x):
    """A number, or an array of numbers; seeds and generators as they are."""
    if name == "rng" or (type(x) is np.ndarray and x.dtype.kind in "fiub"):
        return x
    if isinstance(x, float | np.floating | np.integer | bool | np.bool_):
        return x
    # Other integers than these are no numbers to NumPy.
    if isinstance(x, int) and -(2**63) <= x < 2**64:
        return x
    return real_array(name, x)


def accepts_tables(from_data, *, missing=False):
    """Decorator: the class method takes lists and data frames too, and refuses other data."""

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


def accepts_seeds(sample):
    """Decorator: the method `sample` takes a seed in place of a generator too."""

    @functools.wraps(sample)
    def seeded(self, b, a, rng):
        return sample(self, b, a, generator(rng, optional=True))

    return seeded


def _per_unit(class_name, fields):
    """The fields as contiguous arrays of one shape (n_units,) and one floating type."""
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
        # A copy, as the prior must not change with the caller's array, nor be read-only like it.
        yield np.array(np.broadcast_to(array, shape), dtype=dtype, order="C")


def floating_type(X):
    """float32 for float32 data, float64 for all other."""
    return np.float32 if X.dtype == np.float32 else np.float64


def built_in(prior):
    """Whether a prior is of a class of this package, itself and not a subclass."""
    return type(prior) in REGISTRY.values()
