"""Conditional probabilities of ordinal items given all others.

With s_i = sum_j sigma_ij x_j, the categories c = 0..m_i of item i, given all other items, have the
probabilities

    p_ic = exp(mu_ic + c s_i) / sum_b exp(mu_ib + b s_i),   mu_i0 = 0

The derivative of the log-pseudo-likelihood of a row by mu_ic is 1[x_i = c] - p_ic, and by sigma_ij
it is x_j (x_i - E_i) + x_i (x_j - E_j) with the means E_i = sum_c c p_ic.
"""

from fastmf._jit.intrinsics import fetch_and_increment, larger, row, smaller
from fastmf._jit.kernel import REORDER, kernel
from fastmf._threads.workers import next_task
from fastmf.kernels.pseudo_likelihood.binary import ROWS_AT_A_TIME
from fastmf.special import exp, log, where


@kernel(fastmath=REORDER, views=True)
def conditionals(products, thresholds, states, workspaces, queue, probabilities, residuals, value):
    """Compute probabilities of all categories, residuals x - E, and log-pseudo-likelihoods."""
    n_rows, n_items = states.shape
    worker = fetch_and_increment(row(queue, (1,), 1))
    for c in range(thresholds.shape[0]):
        fields = row(workspaces, (worker, c, 0), ROWS_AT_A_TIME * n_items)
        for i in range(ROWS_AT_A_TIME):
            for j in range(n_items):
                fields[i * n_items + j] = thresholds[c, j]
    first = next_task(queue) * ROWS_AT_A_TIME
    while first < n_rows:
        n = smaller(ROWS_AT_A_TIME, n_rows - first)
        _set_probabilities(products, states, workspaces, worker, first, n * n_items, probabilities)
        _set_residuals(states, workspaces, worker, first, n, residuals, value)
        first = next_task(queue) * ROWS_AT_A_TIME


@kernel(mode="merged")
def _set_probabilities(products, states, workspaces, worker, first, size, probabilities):
    """Compute probabilities, means, and log-probabilities of the states, as one long row."""
    n_categories, dtype = probabilities.shape[0], workspaces.dtype
    s, x = row(products, (first, 0), size), row(states, (first, 0), size)
    largest = row(workspaces, (worker, n_categories, 0), size)
    mean = row(workspaces, (worker, n_categories + 1, 0), size)
    total = row(workspaces, (worker, n_categories + 2, 0), size)
    zero, one = dtype.type(0), dtype.type(1)
    for j in range(size):
        largest[j], mean[j], total[j] = zero, zero, zero
    for c in range(1, n_categories):
        fields, number = row(workspaces, (worker, c, 0), size), dtype.type(c)
        for j in range(size):
            largest[j] = larger(largest[j], fields[j] + number * s[j])
    for c in range(n_categories):
        fields, number = row(workspaces, (worker, c, 0), size), dtype.type(c)
        p = row(probabilities, (c, first, 0), size)
        for j in range(size):
            p[j] = exp(fields[j] + number * s[j] - largest[j])
            total[j] += p[j]
            mean[j] += number * p[j]
    for j in range(size):
        largest[j] = -largest[j] - log(total[j])
        total[j] = one / total[j]
        mean[j] *= total[j]
    for c in range(n_categories):
        fields, number = row(workspaces, (worker, c, 0), size), dtype.type(c)
        p = row(probabilities, (c, first, 0), size)
        for j in range(size):
            p[j] *= total[j]
            largest[j] += where(x[j] == number, fields[j] + number * s[j], zero)


@kernel(mode="merged")
def _set_residuals(states, workspaces, worker, first, n, residuals, value):
    """Compute residuals and values of rows."""
    n_items, n_categories = states.shape[1], workspaces.shape[1] - 3
    for i in range(n):
        log_probability = workspaces.dtype.type(0)
        terms = row(workspaces, (worker, n_categories, i * n_items), n_items)
        mean = row(workspaces, (worker, n_categories + 1, i * n_items), n_items)
        x, out = row(states, (first + i, 0), n_items), row(residuals, (first + i, 0), n_items)
        for j in range(n_items):
            log_probability += terms[j]
            out[j] = x[j] - mean[j]
        value[first + i] = log_probability
