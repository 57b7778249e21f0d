"""NumPy twin of `fastmf.kernels.pseudo_likelihood.binary`."""

import itertools

import numpy as np

from fastmf.special import log_2_cosh, sigmoid, softplus


def residuals(field, states, weights, queue, out, value):
    """Compute residuals weight * (x - tanh eta) of rows, and log-pseudo-likelihoods."""
    t = -2 * states * (out + field)
    value[:] = -weights * softplus(t).sum(1)
    out[:] = 2 * weights[:, None] * states * sigmoid(t)


def _maximiser(old, gradient, curvature, l1, l2):
    target = old + (gradient - l2 * old) / (curvature + l2)
    return np.sign(target) * max(abs(target) - l1 / (curvature + l2), 0)


def _value(data, settings, couplings, field, eta):
    upper = np.triu(couplings, 1)
    squares = (upper**2).sum() + (field**2).sum()
    penalty = settings.l1 * abs(upper).sum() + settings.l2 / 2 * squares
    return (data.spins * eta - log_2_cosh(eta)).sum(0) @ data.weights - penalty


def _sweep(data, settings, J, h, eta):
    """Update all fields, then all couplings in lexicographic order, from the newest values."""
    states, weights = data.spins, data.weights
    l1, l2 = settings.l1, settings.l2
    tanh = np.tanh(eta)
    for j in range(len(h)):
        change = _maximiser(h[j], data.mean[j] - weights @ tanh[j], 1, 0, l2) - h[j]
        h[j] += change
        eta[j] += change
        tanh[j] = np.tanh(eta[j])
    for j, k in itertools.combinations(range(len(h)), 2):
        products = states[k] * tanh[j] + states[j] * tanh[k]
        gradient = 2 * data.second[j, k] - weights @ products
        change = _maximiser(J[j, k], gradient, 2, l1, l2) - J[j, k]
        if change != 0:
            J[j, k] = J[k, j] = J[j, k] + change
            eta[j] += change * states[k]
            eta[k] += change * states[j]
            tanh[j], tanh[k] = np.tanh(eta[j]), np.tanh(eta[k])


def bslm(data, settings, workspaces, queue, couplings, field, history, n_iter):
    """Maximise the penalised log-pseudo-likelihood by coordinates, from several starts."""
    for s, (J, h, values) in enumerate(zip(couplings, field, history, strict=True)):
        n_iter[s] = -settings.max_iter
        eta = J @ data.spins + h[:, None]
        values[0] = data.total * _value(data, settings, J, h, eta)
        for sweep in range(1, settings.max_iter + 1):
            _sweep(data, settings, J, h, eta)
            values[sweep] = data.total * _value(data, settings, J, h, eta)
            if values[sweep] - values[sweep - 1] <= settings.tol:
                n_iter[s] = sweep
                break
