"""Priors on the hyper-parameters of spike-and-slab models.

With weak data the evidence is nearly flat: for pure noise its maximum is dense, with all
coefficients in a slab of negligible width, as often as it is sparse. Weak priors matter only then:

    inclusion           Beta(1/2, d/2) for d features of a group: one coefficient is expected
    slab / scale        log-normal about 0.5, its logarithm of standard deviation 2
    noise / scale       log-Cauchy about 0.6: its logarithm has a Cauchy distribution of width 0.5

The scale is the variance of y (1 for classification), divided for the slab by the mean square of
the features. Densities refer to logarithms and log-odds, the variables of the search. The prior of
the noise has heavy tails because noise may have any size: a millionth of the scale costs 7 nats,
whereas the cost under an inverse gamma distribution could outweigh the data.
"""

from typing import NamedTuple

import numpy as np
from scipy.special import betaln, expit

# Centres in units of the scales, and widths of the logarithms.
NOISE_CENTER, NOISE_WIDTH = 0.6, 0.5
SLAB_CENTER, SLAB_DEVIATION = 0.5, 2.0
# Pseudo-count of non-zero coefficients in the prior of the inclusion. With 1 or more, the inclusion
# of groups with mostly relevant features would be shrunk to half.
STRENGTH = 0.5


class ParameterPriors(NamedTuple):
    """Priors on ln noise variance, ln slab variance and the log-odds of each group."""

    noise: float  # centres of the variances (this and the next)
    slab: float
    n_of_groups: np.ndarray  # (n_groups,): number of features of each group
    # 1 if the rows are centred: the integral over the intercept, which has a flat prior, is
    # proportional to the standard deviation of the noise.
    n_lost: int = 0

    @classmethod
    def of(cls, task, n_lost=0):
        """Return the priors for a task."""
        n_of_groups = np.bincount(task.groups)
        return cls(NOISE_CENTER * task.scale, SLAB_CENTER * task.slab_scale, n_of_groups, n_lost)

    def log_density(self, hyperparameters, free):
        """Return the log-density of the learned (`free`) parameters, and its gradient."""
        noise = np.log(hyperparameters.noise_variance / self.noise) / NOISE_WIDTH
        slab = np.log(hyperparameters.slab_variance / self.slab) / SLAB_DEVIATION
        odds, n = np.asarray(hyperparameters.log_odds), self.n_of_groups
        centring = self.n_lost * np.log(hyperparameters.noise_variance) / 2
        densities = np.append(
            [
                centring - np.log(np.pi * NOISE_WIDTH) - np.log1p(noise * noise),
                -np.log(2 * np.pi * SLAB_DEVIATION**2) / 2 - slab * slab / 2,
            ],
            # p^s (1 - p)^(s n) over B(s, s n), with p = expit(odds) and s the strength
            STRENGTH * (odds - (1 + n) * np.logaddexp(0, odds))
            - betaln(STRENGTH, STRENGTH * np.maximum(n, 1)),
        )
        gradient = np.append(
            [
                self.n_lost / 2 - 2 * noise / (1 + noise * noise) / NOISE_WIDTH,
                -slab / SLAB_DEVIATION,
            ],
            STRENGTH * (1 - (1 + n) * expit(odds)),
        )
        return float(densities[free].sum()), np.where(free, gradient, 0.0)

    def information(self, hyperparameters):
        """Return the curvatures of minus the log-density; 0 for the noise, where it may be < 0."""
        odds, n = np.asarray(hyperparameters.log_odds), self.n_of_groups
        included = expit(odds)
        return np.append(
            [0.0, 1 / SLAB_DEVIATION**2], STRENGTH * (1 + n) * included * (1 - included)
        )
