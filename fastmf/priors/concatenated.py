"""Several priors side by side within one layer."""

from typing import NamedTuple

import numpy as np

from fastmf.priors import _protocol
from fastmf.priors._registry import REGISTRY, accepts_lists


class Concatenated(NamedTuple("_Concatenated", [("parts", tuple)])):
    """Several priors side by side: the units of the first, then the units of the second, and so on.

    Parameters
    ----------
    *priors
        Unit priors, built in or a user's own. Concatenated ones are flattened.

    Raises
    ------
    TypeError
        If there are no priors, or one of them is not a unit prior.

    Notes
    -----
    Parameters, derivatives and projections are `Concatenated`, too, part by part. The type is
    float32 if all parts are float32.

    Examples
    --------
    >>> import numpy as np, fastmf as mf
    >>> prior = mf.Concatenated(mf.Bernoulli(np.zeros(2)), mf.Gaussian(np.ones(1), np.ones(1)))
    >>> prior.moments(0.0, 0.0)[0]
    array([0.5, 0.5, 1. ])
    """

    __slots__ = ()

    def __new__(cls, *priors):
        """Join priors; a concatenated one is replaced by its parts."""
        parts = []
        for prior in priors:
            if not _protocol.is_unit_prior(prior):
                got = prior if isinstance(prior, type) else type(prior).__name__
                raise TypeError(f"Concatenated: priors must be unit priors, got {got}.")
            several = isinstance(prior, Concatenated)
            parts.extend(prior.parts if several else [_protocol.with_arrays(prior)])
        if not parts:
            raise TypeError("Concatenated: at least one prior is needed, got none.")
        dtypes = {np.asarray(f).dtype for part in parts for f in part}
        if len(dtypes) > 1:
            parts = [_protocol.as_dtype(part, np.float64) for part in parts]
        return cls._make((tuple(parts),))

    def __getnewargs__(self):
        """Return the arguments of the constructor of copies and pickles: the priors."""
        return self.parts

    def n_units(self):
        """Return the number of units of all parts together."""
        return sum(_protocol.n_units(part) for part in self.parts)

    def take(self, units):
        """Return the prior of a contiguous slice of the units."""
        start, stop, step = units.indices(self.n_units())
        if step != 1:
            raise ValueError(f"Concatenated: units must be contiguous, got a step of {step}.")
        taken = []
        for part in self.parts:
            n = _protocol.n_units(part)
            first, last = max(start, 0), min(stop, n)
            if first < last:
                taken.append(_protocol.take(part, slice(first, last)))
            start, stop = start - n, stop - n
        return self._make((tuple(taken),))

    def log_partition(self, b, a):
        """Return the log-partition of each unit."""
        return _join(p.log_partition(*tilt) for p, *tilt in self._split(b, a))

    def moments(self, b, a):
        """Return the mean and variance under the tilt exp(b x - a x^2 / 2)."""
        pairs = [p.moments(*tilt) for p, *tilt in self._split(b, a)]
        return _join(mean for mean, _ in pairs), _join(var for _, var in pairs)

    def third_cumulant(self, mean):
        """Return third cumulants and their derivatives, if all parts have them."""
        pairs = [p.third_cumulant(m) for p, m in self._split(mean)]
        return _join(cumulant for cumulant, _ in pairs), _join(slope for _, slope in pairs)

    def log_prob(self, x):
        """Return the log of the unnormalised prior, if all parts have it."""
        return _join(p.log_prob(x) for p, x in self._split(x))

    def contains(self, x):
        """Return whether values belong to the support."""
        return _join(_protocol.contains(p, x) for p, x in self._split(x))

    def draw(self, b, a, u):
        """Return the values that uniform numbers draw from the tilted distribution."""
        return _join(_protocol.draw(p, *drawn) for p, *drawn in self._split(b, a, u))

    @accepts_lists
    def sample(self, b, a, rng):
        """Draw from the tilted distribution."""
        return _join(_protocol.sample(p, *tilt, rng) for p, *tilt in self._split(b, a))

    def gradient(self, b, a):
        """Return the derivatives of the log-partition, part by part."""
        parts = tuple(_protocol.gradient(p, *tilt) for p, *tilt in self._split(b, a))
        return self._make((parts,))

    def log_prob_gradient(self, x):
        """Return the derivatives of log_prob, part by part."""
        parts = tuple(_protocol.log_prob_gradient(p, x) for p, x in self._split(x))
        return self._make((parts,))

    def project(self):
        """Return the nearest prior with parameters inside their domain."""
        return _protocol.project(self)

    @accepts_lists
    def _split(self, *arrays):
        """Yield each part with its units on the last axis of the arrays."""
        n_units, start = self.n_units(), 0
        for array in arrays:
            if np.ndim(array) and np.shape(array)[-1] not in (1, n_units):
                raise ValueError(
                    f"Concatenated: expected {n_units} units on the last axis, "
                    f"got shape {np.shape(array)}."
                )
        for part in self.parts:
            stop = start + _protocol.n_units(part)
            common = [np.ndim(x) == 0 or np.shape(x)[-1] < n_units for x in arrays]
            pieces = zip(arrays, common, strict=True)
            yield part, *(x if all_ else x[..., start:stop] for x, all_ in pieces)
            start = stop


REGISTRY["concatenated"] = Concatenated


def concatenate(priors):
    """Join priors; the result has their class if they have the same one, or is `Concatenated`."""
    if len(priors) == 1:
        return priors[0]
    if len({type(prior) for prior in priors}) == 1 and not _protocol.is_concatenated(priors[0]):
        return type(priors[0])(*map(np.concatenate, zip(*priors, strict=True)))
    return Concatenated(*priors)


def _join(pieces):
    pieces = list(pieces)
    rows = np.broadcast_shapes(*(p.shape[:-1] for p in pieces))
    return np.concatenate([np.broadcast_to(p, rows + p.shape[-1:]) for p in pieces], axis=-1)
