"""A small machine and rows to learn from, for tests of the training loop."""

import numpy as np

from fastmf.learning.layered.settings import LayeredSettings
from fastmf.models import RBM
from fastmf.priors import Bernoulli

N_VISIBLE, N_HIDDEN = 8, 4


def stripes(n_rows=60, dtype=float):
    """Rows that are one of two complementary patterns, with a few flips."""
    rng = np.random.default_rng(0)
    pattern = np.arange(N_VISIBLE) % 2
    X = np.where(rng.random((n_rows, 1)) < 0.5, pattern, 1 - pattern)
    return np.where(rng.random(X.shape) < 0.05, 1 - X, X).astype(dtype)


def start(hidden=None, dtype=float, visible=Bernoulli):
    weights = 0.01 * np.random.default_rng(1).normal(size=(N_VISIBLE, N_HIDDEN))
    hidden = Bernoulli(np.zeros(N_HIDDEN)) if hidden is None else hidden
    return RBM(weights.astype(dtype), visible(np.zeros(N_VISIBLE)), hidden)


def quick(**options):
    options = {"learning_rate": 0.1, "n_epochs": 4, "batch_size": 16, "l2": 0.0} | options
    return LayeredSettings(**options)
