"""Upper bounds of log-partitions by tree-reweighted belief propagation.

log Z is convex in the parameters, so that log Z <= sum_T p(T) log Z_T for parameters of spanning
trees T whose average, with probabilities p(T), is those of the model. With edge probabilities rho
and any log-messages u of a table J between units i and j, trees of the parameters

    h_i = f_i + sum_k rho u_ki           J_ij / rho - u_ij - u_ji

have that average. Tree-reweighted belief propagation,

    u_ij = log sum_i exp(h_i - u_ji + J_ij / rho),

minimises the bound over messages (Wainwright, Jaakkola & Willsky 2005); here the trees are summed
themselves, so that the bound holds for all messages, converged or not. Trees of a complete graph
are the n stars, rho = 2 / n, and of two layers the n m pairs of stars whose centres are coupled,
rho = (n + m - 1) / (n m): for both the sums over all trees are arrays of the size of the tables.
"""

import numpy as np

# Sweeps after which the bound is evaluated are powers of two, and the last.
MAX_BOUND_SWEEPS, MESSAGE_TOL, MESSAGE_DAMPING = 128, 1e-5, 0.5
# Rounding error, relative to the sum of all tables and fields.
BOUND_ROUNDING = 32 * np.finfo(np.float64).eps


def log_sum_exp(x, axis):
    """Logarithm of the sum of exp(x) along one axis; -inf where there are only such terms."""
    top = x.max(axis, keepdims=True)
    top = np.where(np.isfinite(top), top, 0)
    with np.errstate(divide="ignore"):
        return np.log(np.exp(x - top).sum(axis)) + top.squeeze(axis)


def layers_bound(tables, visible, hidden, max_sweeps=MAX_BOUND_SWEEPS):
    """Upper bound of the log-partition of two layers of discrete units.

    Parameters
    ----------
    tables : array of shape (n_visible, n_hidden, q, r)
        Couplings of the states of each pair.
    visible, hidden : array of shape (n_visible, q) and (n_hidden, r)
        Log-weights of the states of each unit, -inf for states that it does not have.
    max_sweeps : int

    Returns
    -------
    float
    """
    n, m = tables.shape[:2]
    if not (n and m):
        return float(sum(log_sum_exp(part, 1).sum() for part in (visible, hidden) if len(part)))
    rho = (n + m - 1) / (n * m)
    tables = tables / rho
    # Log-messages to the units of each layer.
    to_visible, to_hidden = np.zeros(tables.shape[:3]), np.zeros((n, m, tables.shape[3]))

    def own_of_visible():
        return visible + rho * to_visible.sum(1)

    def own_of_hidden():
        return hidden + rho * to_hidden.sum(0)

    def sums_over_visible():
        return log_sum_exp((own_of_visible()[:, None] - to_visible)[..., None] + tables, 2)

    def sums_over_hidden():
        return log_sum_exp((own_of_hidden() - to_hidden)[:, :, None] + tables, 3)

    def bound():
        from_hidden = sums_over_hidden() - to_visible
        from_visible = sums_over_visible() - to_hidden
        first = (own_of_visible() + from_hidden.sum(1))[:, None] - from_hidden - to_visible
        second = own_of_hidden() + from_visible.sum(0) - from_visible - to_hidden
        pairs = first[..., None] + second[:, :, None] + tables
        return float(log_sum_exp(pairs.reshape(n, m, -1), 2).mean())

    def sweep():
        return max(_damped(to_hidden, sums_over_visible()), _damped(to_visible, sums_over_hidden()))

    return _lowest(bound, sweep, max_sweeps) + _rounding(rho * tables, visible, hidden)


def complete_bound(tables, fields, max_sweeps=MAX_BOUND_SWEEPS):
    """Upper bound of the log-partition of discrete units, all of which may be coupled.

    Parameters
    ----------
    tables : array of shape (n_units, n_units, q, q)
        Couplings of the states of each pair, symmetric: tables[i, j, a, b] = tables[j, i, b, a];
        zero for i = j.
    fields : array of shape (n_units, q)
        Log-weights of the states of each unit, -inf for states that it does not have.
    max_sweeps : int

    Returns
    -------
    float
    """
    n = len(fields)
    if n < 2:
        return float(log_sum_exp(fields, 1).sum()) if n else 0.0
    rho = 2 / n
    tables = tables / rho
    # Log-messages of the first unit to the second.
    messages = np.zeros(tables.shape[:3])

    def own():
        return fields + rho * messages.sum(0)

    def sums():
        out = log_sum_exp((own()[:, None] - messages.swapaxes(0, 1))[..., None] + tables, 2)
        out[np.diag_indices(n)] = 0
        return out

    def bound():
        return float(log_sum_exp(own() + (sums() - messages).sum(0), 1).mean())

    def sweep():
        return _damped(messages, sums())

    return _lowest(bound, sweep, max_sweeps) + _rounding(rho * tables / 2, fields)


def _damped(messages, new):
    """Move messages towards new ones; returns the largest change without damping."""
    new -= new.max(-1, keepdims=True)
    new -= messages
    change = float(abs(new).max())
    new *= 1 - MESSAGE_DAMPING
    messages += new
    return change


def _lowest(bound, sweep, max_sweeps):
    """The lowest bound of some sweeps."""
    lowest = bound()
    for n_done in range(1, max_sweeps + 1):
        change = sweep()
        ends = change <= MESSAGE_TOL or n_done == max_sweeps
        if ends or n_done & (n_done - 1) == 0:
            lowest = min(lowest, bound())
        if ends:
            break
    return lowest


def _rounding(*parts):
    sizes = (abs(part[np.isfinite(part)]).sum() for part in parts)
    return BOUND_ROUNDING * (1 + sum(sizes))
