"""The path from independent units to a fully visible machine, for annealed importance sampling.

At beta the units have the couplings beta J and the tilt (1 - beta) c, the base; a step adds

    (beta' - beta) (x'Jx / 2 - c.x)

to a chain's log-weight, and a Gibbs sweep at beta' follows: colour by colour, or with dense
couplings of two-valued units and groups of states one after the other.
"""

from itertools import pairwise

import numpy as np

from fastmf.inference.sampling.annealing import Path, tilt_to_means
from fastmf.inference.sampling.colours import ColouredUnits
from fastmf.inference.sampling.gibbs import check_finite
from fastmf.inference.sampling.sequential import SequentialUnits, is_sequential


class VisiblePath(Path):
    """The path to a `BoltzmannMachine`; `units` are its units."""

    __slots__ = ()

    @classmethod
    def of(cls, model, shift, n_chains, rng, n_threads):
        """The path to a model."""
        kind = SequentialUnits if is_sequential(model) else ColouredUnits
        return cls(model, shift, n_chains, rng, n_threads, kind(model))

    def walk(self, base, betas, v):
        """Log importance weights of the chains `v`, and their ends."""
        (tilt,), units = base, self.units
        if isinstance(units, SequentialUnits):
            found = units.anneal(v, betas, self.rng, tilt=tilt, n_threads=self.n_threads)
            check_finite(found[0])
            return found
        x, log_weights = np.array(v.T, self.model.dtype, order="C"), np.zeros(len(v))
        with np.errstate(over="ignore", invalid="ignore"):  # `check_finite` raises for these
            for old, new in pairwise(betas):
                if new != old:
                    log_weights += (new - old) * (units.pair_sums(x) - tilt.astype(float) @ x)
                check_finite(log_weights)
                units.sweep(x, self.rng, new, tilt)
                check_finite(x)
        return log_weights, np.ascontiguousarray(x.T)

    def matched(self, neutral, samples):
        """The tilt under which uncoupled units have their means in the samples."""
        prior, fields = self.model.prior, (self.model.couplings @ samples.T).T
        mean = prior.moments(np.ascontiguousarray(fields), self.model.dtype.type(0))[0]
        return [tilt_to_means(prior, mean.mean(0, dtype=np.float64), neutral[0])]
