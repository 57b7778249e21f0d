"""NumPy twin of `fastmf.kernels.messages`."""

import numpy as np
from scipy.special import expit

SUM, MAX, MIXED = 0, 1, 2


def messages(
    exp_weights,
    visible_field,
    hidden_field,
    algorithm,
    n_iter,
    chunk,
    limit,
    n_groups,
    queue,
    visible,
    hidden,
    log_partition,
    residual,
    pairs,
):
    """Belief propagation in log-ratios, one row after another."""
    w = np.log(exp_weights.astype(float))
    add = np.maximum if algorithm == MAX else np.logaddexp
    for row in range(len(visible)):
        b, c = visible_field[row].astype(float), hidden_field[row].astype(float)
        log_s, log_hidden = np.zeros_like(w), c
        beliefs = np.full(b.size + c.size, 2.0)
        for _ in range(n_iter):
            q = log_hidden - log_s
            log_r = add(0, w + q) - add(0, q)
            log_visible = b + log_r.sum(1)
            o = log_visible[:, None] - log_r
            if algorithm == MIXED:
                log_s = w * (log_visible > 0)[:, None]
            else:
                log_s = add(0, w + o) - add(0, o)
            log_hidden = c + log_s.sum(0)
            old, beliefs = beliefs, expit(np.concatenate([log_visible, log_hidden]))
            residual[row] = abs(beliefs - old).max()
        if algorithm == SUM:
            q = log_hidden - log_s
            log_r = add(0, w + q) - add(0, q)
            log_visible = b + log_r.sum(1)
            o = log_visible[:, None] - log_r
            log_total = np.logaddexp(np.logaddexp(0, o), np.logaddexp(q, w + o + q))
            pairs[row % n_groups] += np.exp(w + o + q - log_total)
            log_partition[row] = (
                np.logaddexp(0, log_visible).sum()
                + np.logaddexp(0, log_hidden).sum()
                - (log_total - np.logaddexp(0, o) - np.logaddexp(0, q)).sum()
            )
        visible[row], hidden[row] = log_visible, log_hidden
