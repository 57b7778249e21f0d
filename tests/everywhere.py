"""What `test_threads` computes in many places: a solve and a fit of each estimator, to the byte."""

import sys
from hashlib import blake2b

import numpy as np

import fastmf as mf

ROWS, VISIBLE, HIDDEN = 100, 60, 40


def problem():
    """A machine and starts for two threads: the work is worth waking another."""
    rng = np.random.default_rng(0)
    weights = rng.normal(scale=0.3, size=(VISIBLE, HIDDEN))
    model = mf.RBM(weights, mf.Bernoulli(rng.normal(size=VISIBLE)), mf.Bernoulli(np.zeros(HIDDEN)))
    return model, (rng.random((ROWS, VISIBLE)) < 0.4).astype(float)


def numbers():
    """Solutions and parameters, as arrays by name."""
    (model, rows), learning = problem(), {"n_epochs": 1, "n_threads": 2, "random_state": 0}
    features = np.random.default_rng(1).normal(size=(ROWS, 20))
    rbm = mf.GeneralizedRBM(HIDDEN, batch_size=50, **learning).fit(rows)
    crbm = mf.ConditionalRBM(HIDDEN, batch_size=50, **learning).fit(features, rows[:, :20])
    visible = mf.FullyVisibleBoltzmannMachine(l2=0.1, n_threads=2).fit(2 * rows[:, :6] - 1)
    # So small that BLAS, on whose number of threads rounding depends, uses one.
    few = features[:30, :10]
    regression = mf.SpikeSlabRegressor(n_threads=2).fit(few, few[:, 0] + rows[:30, 0])
    return {
        "tap": mf.tap(model, rows, max_iter=50, n_threads=2).mean[1],
        "GeneralizedRBM": rbm.components_,
        "ConditionalRBM": crbm.model_.weights,
        "FullyVisibleBoltzmannMachine": visible.couplings_,
        "SpikeSlabRegressor": regression.coef_,
    }


def digests(arrays):
    """A short text by name, which depends on each byte of an array."""
    return {
        name: blake2b(array.tobytes(), digest_size=8).hexdigest() for name, array in arrays.items()
    }


def solution(_=None):
    """All numbers, as texts that can be compared at a glance."""
    return digests(numbers())


if __name__ == "__main__":
    np.savez(sys.argv[1], **numbers())
