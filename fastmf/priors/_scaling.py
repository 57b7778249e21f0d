"""Standardisation of real-valued units, and gradient steps in the logarithm of their precisions.

With x = offset + scale y, exp(field x - precision x^2 / 2) has the same form in y, but for a
constant factor, with field scale (field - precision offset) and precision scale^2 precision.
"""

import numpy as np
from scipy.special import expit

from fastmf.priors._protocol import (
    by_parts,
    is_concatenated,
    joined,
    map_parts,
    n_units,
    parameter_names,
    parts_of,
)
from fastmf.priors._queries import unbounded
from fastmf.priors._registry import built_in

# Standard deviation of standardised unbounded units. Binary hidden units have a deviation of 1/2 at
# most; with this value, steps of the couplings have a suitable length for both.
LEARNED_DEVIATION = 1.5
# Standardised bounded units, whose precisions are learned without the logarithm, have deviation 1,
# and at most this interval, so that steps are not too long for a column that hardly varies.
WIDEST_INTERVAL = 10.0
# Largest mean of units that are not centred, in standard deviations: with the mean grows the
# dependence between steps of fields and of precisions.
FARTHEST_MEAN = 4.0
# Largest change of the logarithm of a precision in one step, and precision beyond which it does not
# grow: the likelihood is unbounded if hidden units explain a column without an error.
MAX_LOG_STEP, MAX_PRECISION = 0.5, 1e6


def _is_real(prior):
    """Return whether units are real-valued units of this package, which have a precision."""
    return built_in(prior) and hasattr(prior, "precision")


def is_real(prior):
    """Return whether some units of a layer are real-valued units of this package."""
    return any(map(_is_real, parts_of(prior)))


def units_of_measurement(prior):
    """Return the offset and scale by which each unit is standardised, in float64."""
    if is_concatenated(prior):
        parts = zip(*map(units_of_measurement, prior.parts), strict=True)
        return tuple(map(np.concatenate, parts))
    n = n_units(prior)
    if not _is_real(prior):
        return np.zeros(n), np.ones(n)
    spiked = hasattr(prior, "log_odds")
    slab = prior.slab() if spiked else prior
    mean, var = (np.asarray(part, np.float64) for part in slab.moments(0.0, 0.0))
    offset, deviation = mean, np.sqrt(var)
    if spiked:
        zero = expit(-np.asarray(prior.log_odds, np.float64))
        offset, far = 0 * mean, np.sqrt(var + mean**2) / FARTHEST_MEAN
        deviation = np.maximum(np.sqrt(var + zero * mean**2), far)
    scale, bounded = deviation / LEARNED_DEVIATION, ~unbounded(prior)
    if bounded.any():
        lower, upper = (np.asarray(bound, np.float64)[bounded] for bound in slab[2:4])
        width = np.maximum(abs(lower), abs(upper)) if spiked else upper - lower
        scale[bounded] = np.clip(deviation[bounded], width / WIDEST_INTERVAL, width)
    return offset, scale


def scale_of_hidden(prior):
    """Return the scale by which each hidden unit is standardised, in float64.

    Bounded units get the largest standard deviation of a binary unit, 1/2.
    """
    scales = []
    for part in parts_of(prior):
        deviation = np.full(n_units(part), 0.5)
        if _is_real(part):
            deviation = np.sqrt(np.asarray(part.moments(0.0, 0.0)[1], np.float64))
        scales.append(np.where(unbounded(part) | (deviation == 0), 1.0, 2 * deviation))
    return np.concatenate(scales)


def rescaled(prior, offset, scale):
    """Return the prior of y, for values x = offset + scale y of its real-valued units."""
    parts = zip(by_parts(prior, offset), by_parts(prior, scale), strict=True)
    return joined(prior, [_rescaled(part, o, s) for (part, o), (_, s) in parts])


def _rescaled(prior, offset, scale):
    if not _is_real(prior):
        return prior
    field, precision = (np.asarray(part, np.float64) for part in prior[:2])
    fields = {"field": scale * (field - precision * offset), "precision": scale**2 * precision}
    if hasattr(prior, "lower"):
        for name in ("lower", "upper"):
            fields[name] = (np.asarray(getattr(prior, name), np.float64) - offset) / scale
    return prior._replace(**{k: x.astype(getattr(prior, k).dtype) for k, x in fields.items()})


def at_temperature(prior, temperature):
    """Return the prior with fields, precisions and log-weights divided by a temperature."""

    def changed(part):
        if not built_in(part) or hasattr(part, "log_odds"):
            raise TypeError(f"at_temperature: not available for {type(part).__name__} units.")
        names = {"field", "precision", "log_weights"} & set(part._fields)
        return part._replace(**{name: getattr(part, name) / temperature for name in names})

    return map_parts(changed, prior)


def with_fixed_fields_of(prior, other):
    """Return the prior with the fixed fields of another prior, such as bounds."""

    def changed(part, of_other):
        fixed = set(part._fields) - set(parameter_names(part))
        return part._replace(**{name: getattr(of_other, name) for name in fixed})

    return map_parts(changed, prior, other)


def log_volume(prior, scale, X):
    """Sum the logs of the scales of the real values of each row.

    The result is the log-density of y less the log-density of x = offset + scale y. A spike at zero
    has no density.
    """
    total = np.zeros(len(X))
    for (part, x), (_, of_part) in zip(by_parts(prior, X), by_parts(prior, scale), strict=True):
        logs = np.log(of_part)
        total += (x != 0) @ logs if hasattr(part, "log_odds") else logs.sum()
    return total


# --- steps ------------------------------------------------------------------------------------


def _map_learned(function, prior, *others):
    """Map parts with a mask of units learned by log-precision; return the last argument if none."""

    def of_part(part, *of_others):
        learned = unbounded(part) if hasattr(part, "precision") else np.zeros(1, bool)
        return function(part, learned, *of_others) if learned.any() else (part, *of_others)[-1]

    return map_parts(of_part, prior, *others)


def by_log_precision(prior, gradient, *, means_held=False):
    """Return the gradient by the logarithm of precisions, for unbounded units."""

    def changed(part, learned, derivatives):
        of_log = derivatives.precision * np.where(learned, part.precision, 1)
        if means_held:
            of_log = of_log + np.where(
                _has_held_mean(part, learned), part.field * derivatives.field, 0
            )
        highest = learned & (part.precision >= MAX_PRECISION)
        of_log = np.where(highest, np.minimum(of_log, 0), of_log)
        return derivatives._replace(precision=of_log)

    return _map_learned(changed, prior, gradient)


def with_log_steps(prior, moved, step):
    """Return the prior after a step, in which precisions of unbounded units change by a factor."""

    def changed(part, learned, part_step, part_moved):
        factor = np.exp(np.clip(part_step.precision, -MAX_LOG_STEP, MAX_LOG_STEP))
        highest = np.maximum(part.precision, MAX_PRECISION)
        precision = np.minimum(part.precision * factor, highest)
        precision = np.where(learned, precision, part_moved.precision)
        new = part_moved._replace(precision=precision.astype(part.precision.dtype))
        held = np.where(
            _has_held_mean(part, learned), part.field * (precision / part.precision - 1), 0
        )
        return new._replace(field=(new.field + held).astype(part.field.dtype))

    return _map_learned(changed, prior, step, moved)


def with_log_precisions(prior):
    """Return the parameters of a prior, with the log of the precisions of unbounded units."""

    def changed(part, learned):
        logs = np.log(np.where(learned, part.precision, 1))
        return part._replace(precision=np.where(learned, logs, part.precision))

    return _map_learned(changed, prior)


def from_log_precisions(prior, values):
    """Return the prior with the parameters `values`, in the form of `with_log_precisions`."""

    def changed(part, learned, new):
        highest = np.maximum(part.precision, MAX_PRECISION)
        logs = np.minimum(new.precision, np.log(highest))
        return new._replace(precision=np.where(learned, np.exp(logs), new.precision))

    return _map_learned(changed, prior, values)


def _has_held_mean(prior, learned):
    """Return the mask of units whose precision changes at fixed mean, instead of fixed field."""
    far = np.square(prior.field) > FARTHEST_MEAN**2 * prior.precision
    return learned & (far | hasattr(prior, "log_odds"))
