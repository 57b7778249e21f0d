"""NumPy twin of `fastmf.kernels.pseudo_likelihood.ordinal`."""

import numpy as np


def conditionals(products, thresholds, states, workspaces, queue, probabilities, residuals, value):
    """Compute probabilities of all categories, residuals x - E, and log-pseudo-likelihoods."""
    numbers = np.arange(len(thresholds), dtype=products.dtype)[:, None, None]
    eta = thresholds[:, None] + numbers * products
    eta -= eta.max(0)
    log_p = eta - np.log(np.exp(eta).sum(0))
    probabilities[...] = np.exp(log_p)
    of_states = np.take_along_axis(log_p, states[None].astype(int), 0)[0]
    value[:] = of_states.sum(1)
    residuals[:] = states - (numbers * probabilities).sum(0)
