"""Binary items that networks are learned from."""

import numpy as np


def table(n=400, d=5, seed=0):
    """Rows of a chain, in {0, 1}."""
    rng = np.random.default_rng(seed)
    steps = np.where(rng.random((n, d)) < np.linspace(0.7, 0.8, d), 1, -1)
    return (1 + np.cumprod(steps, axis=1)) // 2
