"""Binary items that networks are learned from."""

import numpy as np


def table(n=400, d=5, seed=0):
    """Rows of a chain, in {0, 1}."""
    rng = np.random.default_rng(seed)
    steps = np.where(rng.random((n, d)) < np.linspace(0.7, 0.8, d), 1, -1)
    return (1 + np.cumprod(steps, axis=1)) // 2


def labels(sizes, n, seed=0, strength=0.4):
    """Positions of these numbers of states; the second copies the first, in part."""
    rng = np.random.default_rng(seed)
    X = np.stack([rng.integers(0, q, n) for q in sizes], axis=1)
    X[:, 1] = np.where(rng.random(n) < strength, X[:, 0] % sizes[1], X[:, 1])
    return X
