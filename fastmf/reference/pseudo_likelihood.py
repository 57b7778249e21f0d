"""NumPy twin of `fastmf.kernels.pseudo_likelihood`."""

import numpy as np

from fastmf.special import log_2_cosh, sigmoid, softplus


def residuals(products, field, states, weights, queue, out, value):
    """What a row says against the model: weight * (x - tanh eta), and its log-pseudo-likelihood."""
    t = -2 * states * (products + field)
    value[:] = -weights * softplus(t).sum(1)
    out[:] = 2 * weights[:, None] * states * sigmoid(t)


def pair_tables(codes, n_codes, first, second, values, queue, sums):
    """Sums of values over the rows where two groups of units are in given states."""
    for table, g, h in zip(sums, first, second, strict=True):
        keys = codes[g].astype(np.int64) * n_codes + codes[h]
        for c, column in enumerate(values.T):
            table[:, c] = np.bincount(keys, column, n_codes**2)


def scores(states, residuals, queue, out):
    """Derivatives of rows' log-pseudo-likelihoods by the fields and by the couplings."""
    n_units = states.shape[1]
    first, second = np.triu_indices(n_units, 1)
    out[:, :n_units] = residuals
    out[:, n_units:] = states[:, first] * residuals[:, second]
    out[:, n_units:] += residuals[:, first] * states[:, second]


def _maximiser(old, gradient, curvature, l1, l2):
    target = old + (gradient - l2 * old) / (curvature + l2)
    return np.sign(target) * max(abs(target) - l1 / (curvature + l2), 0)


def _value(states, weights, couplings, field, eta, l1, l2):
    upper = np.triu(couplings, 1)
    penalty = l1 * abs(upper).sum() + l2 / 2 * ((upper**2).sum() + (field**2).sum())
    return (states * eta - log_2_cosh(eta)).sum(0) @ weights - penalty


def bslm(
    states, weights, mean, second, step, l1, l2, scale, tol, max_iter, queue, couplings, field,
    history, n_iter,
):  # fmt: skip
    """Coordinate-wise maximisation of the penalised log-pseudo-likelihood from several starts."""
    n_units = len(states)
    for J, h, values, s in zip(couplings, field, history, range(len(field)), strict=True):
        n_iter[s] = -max_iter
        eta = J @ states + h[:, None]
        values[0] = scale * _value(states, weights, J, h, eta, l1, l2)
        tanh = np.tanh(eta)
        for sweep in range(1, max_iter + 1):
            for j in range(n_units):
                change = _maximiser(h[j], mean[j] - weights @ tanh[j], 1 / step, 0, l2) - h[j]
                h[j] += change
                eta[j] += change
                tanh[j] = np.tanh(eta[j])
            for j in range(n_units):
                for k in range(j + 1, n_units):
                    products = states[k] * tanh[j] + states[j] * tanh[k]
                    gradient = 2 * second[j, k] - weights @ products
                    change = _maximiser(J[j, k], gradient, 2 / step, l1, l2) - J[j, k]
                    if change != 0:
                        J[j, k] = J[k, j] = J[j, k] + change
                        eta[j] += change * states[k]
                        eta[k] += change * states[j]
                        tanh[j], tanh[k] = np.tanh(eta[j]), np.tanh(eta[k])
            values[sweep] = scale * _value(states, weights, J, h, eta, l1, l2)
            if values[sweep] - values[sweep - 1] <= tol:
                n_iter[s] = sweep
                break
