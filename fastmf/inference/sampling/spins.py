"""Probabilities and samples of a Boltzmann machine of spins."""

import numpy as np
from scipy.special import logsumexp

from fastmf.inference.sampling.trees import annealed_draws

# Up to so many units all states are enumerated.
MAX_ENUMERATED_UNITS = 20


def all_states(n_units):
    """All 2^n rows of -1 and +1; the first unit alternates fastest."""
    return 2.0 * ((np.arange(2**n_units)[:, None] >> np.arange(n_units)) & 1) - 1


def probabilities(model):
    """Probability of every row of `all_states`."""
    log_weights = -model.energy(all_states(model.n_units))
    return np.exp(log_weights - logsumexp(log_weights))


def sample(model, n_samples, rng, n_sweeps=100):
    """Samples: exact ones up to 20 units, `annealed_draws` beyond."""
    n = model.n_units
    if n <= MAX_ENUMERATED_UNITS:
        cumulative = np.cumsum(probabilities(model))
        chosen = np.searchsorted(cumulative, rng.random(n_samples) * cumulative[-1], side="right")
        return 2.0 * ((chosen[:, None] >> np.arange(n)) & 1) - 1
    return annealed_draws(model, n_samples, n_sweeps, rng).astype(np.float64)
