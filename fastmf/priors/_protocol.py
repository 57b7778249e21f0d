"""The protocol of unit priors: required methods, optional methods, and their defaults.

A unit prior is a NamedTuple of per-unit arrays with two methods,

    log_partition(self, b, a)    log of the integral of prior(x) exp(b x - a x^2 / 2)
    moments(self, b, a)          mean and variance of this tilted distribution

written as array expressions with the functions of `fastmf.special`. The same source runs in NumPy
(fields of shape (n_units,), `b` and `a` broadcast against them) and in kernels (one unit: each
field and argument is a scalar). A tilt for which the integral diverges has log-partition and
variance +inf, and any finite mean. Other methods are optional, with defaults here or in `_queries`:

    log_prob(self, x)             log of the unnormalised prior, -inf outside the support
    sample(self, b, a, rng)       draws from the tilted distribution
    draw(self, b, a, u)           value of the tilted distribution for a uniform number u: an array
                                  expression, by which kernels sample units of this kind
    gradient(self, b, a)          derivatives of log_partition, as the same NamedTuple
    moment_gradient(self, mean, var)   the same as `gradient`, from the moments under the tilt
    mixture_gradient(self, mean, var, nonzero)   and the probability of a non-zero value
    log_prob_gradient(self, x)    derivatives of log_prob, as the same NamedTuple
    third_cumulant(self, mean)    third cumulant as a function of the mean, and its derivative
    project(self)                 nearest prior with parameters inside their domain
    precomputed(self)             form for kernels, with parts that do not depend on the tilt
    contains(self, x)             whether each value is in the support (default: by log_prob)
    from_data(cls, X)             prior fitted to columns of data (class method)
    refit(self, X)                the same with the given values of fields that are not learned
    parameters                    names of the fields that are learned (default: all)
    support                       values of discrete units: a tuple if all units have equal values,
                                  or a property with an array (n_values, n_units), each column
                                  ascending and padded with NaN
    log_prob_is_linear            whether log_prob(x) is field x on the support (default: False)
    hidden_unit                   parameters of one hidden unit before learning, a tuple

Fields named `lower`, `upper`, `precision` and `log_odds` have the meaning of the fields of
`TruncatedGaussBernoulli`: `_queries` derives bounds and largest variances from them. Only the
package `priors` accesses fields; other packages call the functions here, in `_queries` and, for
data, in `_values`.
"""

from functools import partial

import numpy as np

# --- units and fields ---------------------------------------------------------------------------


def is_unit_prior(value):
    """Return whether a value is a unit prior: an instance with the two required methods."""
    required = ("_fields", "log_partition", "moments")
    return not isinstance(value, type) and all(hasattr(value, name) for name in required)


def n_units(prior):
    """Return the number of units that a prior describes."""
    method = getattr(prior, "n_units", None)
    return method() if method else max(np.size(f) for f in prior)


def with_arrays(prior):
    """Broadcast all fields of a prior, which may be numbers in users' priors, to (n_units,)."""
    if is_concatenated(prior):
        return prior
    n = n_units(prior)
    return prior._make(f if np.shape(f)[:1] == (n,) else np.broadcast_to(f, (n,)) for f in prior)


def repeated(prior, n):
    """Repeat a prior of a single unit for `n` units; return other priors unchanged."""
    if is_concatenated(prior) or n_units(prior) != 1:
        return prior
    return prior._make(np.broadcast_to(f, (n, *np.shape(f)[1:])) for f in prior)


def take(prior, units):
    """Return the prior of a slice of the units."""
    method = getattr(prior, "take", None)
    return method(units) if method else prior._make(f[units] if np.ndim(f) else f for f in prior)


def is_concatenated(prior):
    """Return whether a prior consists of several priors."""
    return hasattr(prior, "parts")


def parts_of(prior):
    """Return a tuple of the parts of a concatenated prior, or of the prior itself."""
    return getattr(prior, "parts", (prior,))


def by_parts(prior, x):
    """Return pairs (part, x): the parts of a prior with their units on the last axis of `x`."""
    parts = parts_of(prior)
    ends = np.cumsum([n_units(part) for part in parts[:-1]], dtype=int)
    return list(zip(parts, np.split(x, ends, axis=-1), strict=True))


def joined(prior, parts):
    """Replace the parts of a prior."""
    return prior._make((tuple(parts),)) if is_concatenated(prior) else parts[0]


def map_parts(function, *priors):
    """Apply a function to the parts of several priors, and return a prior of the results."""
    parts = zip(*map(parts_of, priors), strict=True)
    return joined(priors[0], [function(*group) for group in parts])


def field_names(prior):
    """Return the names of all fields of a prior or of its class."""
    return prior._fields


def as_dtype(prior, dtype):
    """Convert the parameters of a prior to another floating type."""
    return map_parts(lambda part: part._make(_cast(part, f, dtype) for f in part), prior)


def _cast(prior, field, dtype):
    with np.errstate(over="ignore"):
        # Kernels would be compiled once more for read-only arrays.
        cast = np.array(field, dtype, order="C")
    if np.asarray(field).dtype != dtype and (np.isinf(cast) & np.isfinite(field)).any():
        largest = np.max(np.abs(field), where=np.isfinite(field), initial=0)
        raise ValueError(
            f"{type(prior).__name__} has a parameter of {largest:g}, too large for {dtype}."
        )
    return cast


def parameter_names(prior):
    """Return the names of the fields that learning changes."""
    return getattr(prior, "parameters", prior._fields)


def learned_fields(prior):
    """Return the arrays that learning changes, of all parts."""
    return [getattr(part, name) for part in parts_of(prior) for name in parameter_names(part)]


def map_parameters(function, *priors):
    """Apply a function to the learned fields of several priors, and return a prior of them."""
    if is_concatenated(priors[0]):
        return map_parts(partial(map_parameters, function), *priors)
    names = parameter_names(priors[0])
    fields = {name: function(*[getattr(prior, name) for prior in priors]) for name in names}
    return priors[0]._replace(**fields)


def project(prior):
    """Return the nearest prior with parameters inside their domain, if it has `project`."""
    return map_parts(lambda part: part.project() if hasattr(part, "project") else part, prior)


def precomputed(prior):
    """Return the prior in the form for kernels, with parts that do not depend on the tilt."""

    def of_part(part):
        return part.precomputed() if offers(type(part), "precomputed") else part

    return map_parts(of_part, prior)


def offers(class_, name, of="moments"):
    """Return whether a class has an optional method, and no subclass has replaced the method `of`.

    An optional method computes the same as `of` in another way, and is wrong for a subclass that
    overrides `of`.
    """
    for base in class_.__mro__:
        if name in vars(base):
            return True
        if of in vars(base):
            return False
    return False


def sample(prior, b, a, rng):
    """Draw samples of the prior tilted by exp(b x - a x^2 / 2)."""
    if hasattr(prior, "sample"):
        return prior.sample(b, a, rng)
    if hasattr(prior, "draw") or values_to_draw(type(prior)):
        return sample_by_draw(prior, b, a, rng)
    raise TypeError(
        f"{type(prior).__name__} cannot be sampled: it has no method sample(b, a, rng) and no "
        "draw(b, a, u)."
    )


def sample_by_draw(self, b, a, rng):
    """Draw samples of the tilted distribution; raise a ValueError where it diverges."""
    shape = np.broadcast_shapes((n_units(self),), np.shape(b), np.shape(a))
    drawn = draw(self, b, a, rng.random(shape))
    if not np.isfinite(drawn).all():
        raise ValueError(
            f"{type(self).__name__}.sample: precision + a must be positive, and (field + b) / "
            "(precision + a) at most 1e50 in size, wherever a bound is infinite."
        )
    return drawn


def draw(prior, b, a, u):
    """Draw values of the tilted distribution from uniform numbers."""
    values = values_to_draw(type(prior))
    if not values:
        return prior.draw(b, a, u)
    (low, high), mean = values, prior.moments(b, a)[0]
    return np.where(low + (high - low) * u < mean, high, low).astype(mean.dtype)


def can_sample(prior):
    """Return whether the units can be sampled."""
    return all(hasattr(part, "sample") or can_draw(part) for part in parts_of(prior))


def can_draw(prior):
    """Return whether kernels can sample the units."""
    return all(_draws(type(part)) or values_to_draw(type(part)) for part in parts_of(prior))


def values_to_draw(class_):
    """Return the values of two-valued units that are drawn by their mean, not `draw`; or None."""
    values = getattr(class_, "support", None)
    two = isinstance(values, tuple) and len(values) == 2
    return values if two and not _draws(class_) else None


def _draws(class_):
    """Return whether the `draw` of a class is consistent with its other methods."""
    return all(offers(class_, "draw", of) for of in ("moments", "sample"))


def has_log_prob(prior):
    """Return whether the prior, and not only its integral, can be evaluated."""
    return all(hasattr(part, "log_prob") for part in parts_of(prior))


def contains(prior, x):
    """Whether each value belongs to the support; always true for a prior without log_prob."""
    if hasattr(prior, "contains"):
        return prior.contains(x)
    if not has_log_prob(prior):
        return np.ones(np.broadcast_shapes(np.shape(x), (n_units(prior),)), dtype=bool)
    return prior.log_prob(x) > -np.inf


def has_third_cumulant(prior):
    """Return whether the third cumulant of the units is available as a function of the mean."""
    return all(hasattr(part, "third_cumulant") for part in parts_of(prior))


# --- derivatives --------------------------------------------------------------------------------


def gradient(prior, b, a, mean=None, var=None):
    """Compute derivatives of `prior.log_partition(b, a)` by each parameter, as a NamedTuple.

    Priors with `moment_gradient` or `mixture_gradient` use the moments under this tilt if they are
    given. A prior without a method `gradient` is differentiated numerically.
    """
    class_ = type(prior)
    if mean is not None and offers(class_, "moment_gradient"):
        return prior.moment_gradient(mean, var)
    if mean is not None and offers(class_, "mixture_gradient", of="log_partition"):
        return prior.mixture_gradient(mean, var, -np.expm1(-prior.log_partition(b, a)))
    if offers(class_, "gradient", of="log_partition"):
        return prior.gradient(b, a)
    return _numerical_gradient(prior, lambda p: p.log_partition(b, a))


def log_prob_gradient(prior, x):
    """Compute derivatives of `prior.log_prob(x)` by each parameter, as the same NamedTuple."""
    if offers(type(prior), "log_prob_gradient", of="log_prob"):
        return prior.log_prob_gradient(x)
    if not has_log_prob(prior):
        raise TypeError(
            f"{type(prior).__name__} cannot be learned from data: it has no method log_prob(x)."
        )
    return _numerical_gradient(prior, lambda p: p.log_prob(x))


def _numerical_gradient(prior, function):
    derivatives = {}
    for name in parameter_names(prior):
        value = np.asarray(getattr(prior, name), dtype=np.float64)
        # Fourth-order central differences: error about 1e-11 of the function's scale.
        step = 1e-3 * np.maximum(1.0, np.abs(value))
        f = {k: function(prior._replace(**{name: value + k * step})) for k in (-2, -1, 1, 2)}
        derivatives[name] = (8 * (f[1] - f[-1]) - (f[2] - f[-2])) / (12 * step)
    return prior._make(derivatives.get(name, 0.0) for name in prior._fields)
