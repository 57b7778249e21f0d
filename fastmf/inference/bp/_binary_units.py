"""Binary units as {0, 1} units: x = offset + scale * u with u in {0, 1}.

With offsets o and scales s of the two layers, weights W and fields b, c of the model, the {0, 1}
units have weights s_v s_h W and fields s_v (b + o_h W 1) and s_h (c + o_v W' 1).
"""

from copy import copy

import numpy as np

from fastmf.priors._queries import binary_field, two_values
from fastmf.special import sigmoid_pair


def _max_abs(array):
    """Largest absolute value, without an array of absolute values."""
    return float(max(array.max(initial=0), -array.min(initial=0)))


def _total(field, extra):
    """Fields of units and extra ones as rows in float64; infinite if they are too large."""
    if extra is None:
        return np.array(field, np.float64, ndmin=2)
    with np.errstate(over="ignore"):
        return np.atleast_2d(field.astype(np.float64) + extra)


def _check_fields(fields, dtype):
    """Raise ValueError where sums of up to 1 / eps fields may not be numbers."""
    limit = np.finfo(dtype).max * np.finfo(dtype).eps
    for max_field in map(_max_abs, fields):
        if not max_field <= limit:  # NaN, too
            raise ValueError(
                f"field and the units' own must add up to {limit:.2g} at most in {dtype}, "
                f"got {max_field:g}."
            )


class BinaryUnits:
    """An RBM of binary units, and fields of rows, as an RBM of {0, 1} units.

    The {0, 1} units have `factor` times the weights of the model, and total fields of shape
    (1 or n_rows, n_units); `constant`, (1 or n_rows,), is to be added to log-probabilities.
    `prior_fields` b of the priors are exp(b x + constant) at the two values of x.
    """

    def __init__(self, model, fields):
        values = [two_values(prior) for prior in model.layers]
        self.model = model
        self.offsets = tuple(low for low, _ in values)
        self.scales = tuple(high - low for low, high in values)
        self.factor = self.scales[0] * self.scales[1]
        w = model.weights
        self.max_weight = self.factor * _max_abs(w)
        self.prior_fields, constants = zip(*map(binary_field, model.layers), strict=True)
        total = tuple(map(_total, self.prior_fields, fields))
        _check_fields(total, model.dtype)
        (o_v, o_h), (s_v, s_h), (b, c) = self.offsets, self.scales, total
        self._own_fields = total
        rows = w.sum(1, dtype=np.float64) if o_h else 0.0
        columns = w.sum(0, dtype=np.float64) if o_v else 0.0
        self.fields = s_v * (b + o_h * rows), s_h * (c + o_v * columns)
        self.constant = o_v * b.sum(1) + o_h * c.sum(1) + o_v * o_h * np.sum(rows)
        self.constant += sum(x.sum(dtype=np.float64) for x in constants)

    def weights(self):
        """Weights of the {0, 1} units in float64, a new array."""
        weights = self.model.weights.astype(np.float64)
        weights *= self.factor
        return weights

    def symmetric_field(self, layer):
        """Log-odds of the units of a layer while all messages are in the middle of their range.

        With couplings W of {0, 1} units that is W / 2: what a unit sends that is as often high as
        low, whichever of its values is called 1. So these log-odds do not depend on the coding of
        the units; for spins they are twice the field of the model.
        """
        # Not from `fields`: the middle of a spin is 0, and sums of its weights cancel exactly.
        middle = self.offsets[1 - layer] + self.scales[1 - layer] / 2
        field = self._own_fields[layer]
        if middle:
            field = field + middle * self.model.weights.sum(1 - layer)
        return self.scales[layer] * field

    def of_rows(self, rows):
        """The same with the fields of these rows; fields that all rows share stay shared."""
        units = copy(self)
        for name in ("fields", "_own_fields"):
            parts = (f if len(f) == 1 else f[rows] for f in getattr(self, name))
            setattr(units, name, tuple(parts))
        return units

    def means(self, log_odds):
        """Means and variances of the model's units, from log-odds of the {0, 1} units."""
        pairs = [sigmoid_pair(x) for x in log_odds]
        ends = [(low, low + scale) for low, scale in zip(self.offsets, self.scales, strict=True)]
        means = [low * q + high * p for (p, q), (low, high) in zip(pairs, ends, strict=True)]
        variances = [s * s * p * q for (p, q), s in zip(pairs, self.scales, strict=True)]
        return means, variances

    def values(self, layer, units):
        """Convert {0, 1} units of a layer to values of the model."""
        return self.offsets[layer] + self.scales[layer] * units

    def is_one(self, visible):
        """{0, 1} units as booleans, from values of the visible units of the model."""
        return visible > self.offsets[0] + self.scales[0] / 2
