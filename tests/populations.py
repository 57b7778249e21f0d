"""Populations for maximum pseudo-likelihood: all states with the probabilities of a machine."""

import numpy as np

from fastmf.inference.sampling.discrete import probabilities
from fastmf.learning.pseudo_likelihood.binary import PseudoLikelihood
from fastmf.models import BoltzmannMachine
from fastmf.priors import Ising


def all_states(n_units):
    """All 2^n rows of -1 and +1; the first unit alternates fastest."""
    return 2.0 * ((np.arange(2**n_units)[:, None] >> np.arange(n_units)) & 1) - 1


def population(d=5, seed=0, scale=0.5, l2=0.0):
    """All states, weighted by a machine: the maximum is the machine itself (Hyvarinen 2006)."""
    rng = np.random.default_rng(seed)
    J = np.triu(scale * rng.normal(size=(d, d)), 1)
    model = BoltzmannMachine(J + J.T, Ising(scale * rng.normal(size=d)))
    objective = PseudoLikelihood(all_states(d), 1000 * probabilities(model), l2)
    return objective, objective.packed(model.couplings, model.prior.field)


def features(states):
    """Derivatives of the margins by fields and couplings, (n_rows, n_units, n_parameters)."""
    n, d = states.shape
    pairs = np.transpose(np.triu_indices(d, 1))
    out = np.zeros((n, d, d + len(pairs)))
    for j in range(d):
        out[:, j, j] = states[:, j]
        for c, (a, b) in enumerate(pairs):
            if j in (a, b):
                out[:, j, d + c] = states[:, a] * states[:, b]
    return out
