"""Binary units of any kind as {0, 1} units: x = offset + scale * bit."""

from copy import copy

import numpy as np

from fastmf.models import RBM
from fastmf.priors._domain import binary_field, two_values
from fastmf.priors._protocol import has_log_prob
from fastmf.special import sigmoid_pair

# So many of the largest fields may be added up.
MANY = 1e8


def _largest(array):
    """Largest absolute value, without an array of them."""
    return float(max(array.max(initial=0), -array.min(initial=0)))


class Bits:
    """An RBM of binary units, and fields of rows, as an RBM of {0, 1} units.

    Parameters
    ----------
    model : RBM
    fields : pair of arrays or None
        Extra fields of the visible and hidden units, (n_units,) or (n_rows, n_units).

    Attributes
    ----------
    offsets, scales : pair of float
    factor : float
        The {0, 1} units have `factor` times the weights of the model.
    largest : float
        Largest absolute weight of the {0, 1} units.
    fields : pair of float64 arrays of shape (1 or n_rows, n_units)
        Total fields of the {0, 1} units.
    constant : float64 array of shape (1 or n_rows,)
        To be added to log-probabilities of the {0, 1} units.
    """

    def __init__(self, model, fields):
        if not isinstance(model, RBM):
            raise TypeError(f"model must be an RBM, got {type(model).__name__}.")
        for name, prior in zip(("visible", "hidden"), model.layers, strict=True):
            if not (two_values(prior) and has_log_prob(prior)):
                raise TypeError(
                    "belief propagation needs two-valued units (Bernoulli or Ising) in both "
                    f"layers, the {name} ones are {type(prior).__name__}."
                )
        values = [two_values(prior) for prior in model.layers]
        self.offsets = tuple(low for low, _ in values)
        self.scales = tuple(high - low for low, high in values)
        self.factor = self.scales[0] * self.scales[1]
        w = model.weights
        self.largest = self.factor * _largest(w)
        with np.errstate(over="ignore"):  # what is too large is told below
            linear = [binary_field(prior) for prior in model.layers]
            own = tuple(
                np.atleast_2d(b.astype(np.float64) + (0 if f is None else f))
                for (b, _), f in zip(linear, fields, strict=True)
            )
        largest, limit = max(_largest(b) for b in own), np.finfo(model.dtype).max / MANY
        if largest > limit:
            raise ValueError(
                f"field and the units' own must add up to {limit:.2g} at most in {model.dtype}, "
                f"got {largest:g}."
            )
        (ov, oh), (sv, sh), (b1, b2) = self.offsets, self.scales, own
        rows = w.sum(1, dtype=np.float64) if oh else 0.0
        columns = w.sum(0, dtype=np.float64) if ov else 0.0
        self.fields = sv * (b1 + oh * rows), sh * (b2 + ov * columns)
        self.constant = ov * b1.sum(1) + oh * b2.sum(1) + ov * oh * np.sum(rows)
        self.constant += sum(constant.sum(dtype=np.float64) for _, constant in linear)

    def repeated(self, n):
        """The same with n rows for every row of fields that has one of its own."""
        more = copy(self)
        more.fields = tuple(f if len(f) == 1 else np.repeat(f, n, axis=0) for f in self.fields)
        return more

    def means(self, log_odds):
        """Means and variances of the model's own units, from log-odds of the bits."""
        pairs = [sigmoid_pair(x) for x in log_odds]
        ends = [(low, low + scale) for low, scale in zip(self.offsets, self.scales, strict=True)]
        means = [low * q + high * p for (p, q), (low, high) in zip(pairs, ends, strict=True)]
        variances = [s * s * p * q for (p, q), s in zip(pairs, self.scales, strict=True)]
        return means, variances

    def values(self, layer, bits):
        """Values of the units of a layer, from their bits."""
        return self.offsets[layer] + self.scales[layer] * bits
