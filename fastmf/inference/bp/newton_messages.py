"""Fixed points of sum-product by Newton steps on the log-messages.

A sweep maps the log-messages s_ij of visible to hidden units to

    H_j = c_j + sum_i s_ij,    r_ij = softplus(H_j - s_ij + W_ij) - softplus(H_j - s_ij),
    V_i = b_i + sum_j r_ij,    s_ij' = softplus(V_i - r_ij + W_ij) - softplus(V_i - r_ij),

with cavity log-odds H_j - s_ij and V_i - r_ij; a fixed point has s' = s. Its Bethe log-partition is

    sum_i softplus(V_i) + sum_j softplus(H_j) + sum_ij (softplus(V_i - r_ij) - softplus(V_i)).
"""

import numpy as np

from fastmf.inference.bp.bethe import StationaryPoint
from fastmf.special import sigmoid, softplus

# Number of stages of the continuation, in which couplings and fields grow by equal factors.
N_STAGES = 16
# Largest number of Newton steps in a stage, and in the last one.
MAX_STAGE_STEPS, MAX_LAST_STEPS = 10, 50
# Tolerance of the log-messages in all stages but the last.
STAGE_TOLERANCE = 1e-3
MIN_NEWTON_STEP = 0.1
# Lower bound of 1 - a b in `_MessageSweep.step`: for strongly coupled pairs it would be rounding.
MIN_PIVOT = 1e-12


def newton_fixed_point(weights, visible_field, hidden_field, tol, messages=None):
    """Find a fixed point of sum-product by Newton steps.

    Parameters
    ----------
    weights : float64 array of shape (n_visible, n_hidden)
    visible_field, hidden_field : array of shape (n_visible,) and (n_hidden,)
    tol : float
        Stop when a sweep would change no log-message to a hidden unit, nor its log-odds, by more.
    messages : array of shape (n_visible, n_hidden), optional
        Log-messages from visible to hidden units to start from. None: continuation from the fixed
        point of weak couplings.

    Returns
    -------
    StationaryPoint

    Notes
    -----
    The beliefs of strongly coupled units differ by less than rounding, and so the Bethe free energy
    as a function of them cannot be minimised accurately; log-messages keep the difference. Weak
    couplings have one fixed point, and as couplings and fields grow together it moves continuously
    up to fold bifurcations: there the steps must find another fixed point, and may fail.
    """
    n_iter, factors = 0, np.ones(1)
    if messages is None:
        factors = np.geomspace(min(1, 1 / abs(weights).max(initial=1e-300)), 1, N_STAGES)
        messages = factors[0] * weights / 2
    for factor, previous in zip(factors, [factors[0], *factors], strict=False):
        parts = (factor * part for part in (weights, visible_field, hidden_field))
        sweep = _MessageSweep(*parts, messages * (factor / previous))
        last = factor == factors[-1]
        for _ in range(MAX_LAST_STEPS if last else MAX_STAGE_STEPS):
            if sweep.residual <= (tol if last else STAGE_TOLERANCE):
                break
            sweep, n_iter = sweep.line_search(sweep.step()), n_iter + 1
        messages = sweep.messages
    return StationaryPoint(
        log_odds=(sweep.visible, sweep.hidden),
        messages=np.exp(messages),
        log_partition=sweep.log_partition(),
        residual=float(sweep.residual),
        n_iter=n_iter,
    )


def confirmed(weights, visible_field, hidden_field, point):
    """Beliefs of the messages of a point, and their change in an undamped sweep.

    Parameters
    ----------
    weights : float64 array of shape (n_visible, n_hidden)
    visible_field, hidden_field : array of shape (n_visible,) and (n_hidden,)
    point : StationaryPoint
        Its messages and number of iterations are read.

    Returns
    -------
    StationaryPoint
        The residual is that of `belief_propagation`: the largest change in a sweep of a belief, of
        its log-odds, relative to these, or of a log-message.
    """
    low, high = np.minimum(weights, 0), np.maximum(weights, 0)
    # Pair beliefs that underflow give messages of 0, infinity or NaN.
    with np.errstate(divide="ignore", invalid="ignore"):
        messages = np.nan_to_num(np.log(point.messages), nan=0.0).clip(low, high)
    parts = weights, visible_field, hidden_field
    sweep = _MessageSweep(*parts, messages)
    after = _MessageSweep(*parts, (messages + sweep.change).clip(low, high))
    log_odds, new_log_odds = (sweep.visible, sweep.hidden), (after.visible, after.hidden)
    return StationaryPoint(
        log_odds=log_odds,
        messages=np.exp(messages),
        log_partition=sweep.log_partition(),
        residual=max(*map(_belief_change, log_odds, new_log_odds), abs(sweep.change).max()),
        n_iter=point.n_iter,
    )


def _belief_change(old, new):
    """Largest change of a belief, or relative change of its log-odds."""
    relative = abs(new - old) / (1 + (abs(old) + abs(new)) / 2)
    return float(np.maximum(abs(sigmoid(new) - sigmoid(old)), relative).max(initial=0))


class _MessageSweep:
    """An undamped sweep from log-messages of the visible units, and its linearisation."""

    def __init__(self, weights, visible_field, hidden_field, messages):
        self.weights, self.messages = weights, messages
        self.fields = visible_field, hidden_field
        self.hidden = hidden_field + messages.sum(0)
        self.hidden_cavity = self.hidden - messages
        self.incoming = softplus(self.hidden_cavity + weights) - softplus(self.hidden_cavity)
        self.visible = visible_field + self.incoming.sum(1)
        self.visible_cavity = self.visible[:, None] - self.incoming
        new = softplus(self.visible_cavity + weights) - softplus(self.visible_cavity)
        self.change = new - messages
        self.norm = np.linalg.norm(self.change)
        self.residual = max(abs(self.change).max(), abs(self.change.sum(0)).max())

    def line_search(self, step):
        """The sweep from messages moved along a step, with a step size at which `norm` falls."""
        low, high = np.minimum(self.weights, 0), np.maximum(self.weights, 0)
        step_size = 1.0
        while step_size > MIN_NEWTON_STEP:
            moved = (self.messages + step_size * step).clip(low, high)
            after = _MessageSweep(self.weights, *self.fields, moved)
            if after.norm < (1 - 1e-4 * step_size) * self.norm:
                return after
            step_size /= 2
        return _MessageSweep(self.weights, *self.fields, self.messages + self.change / 2)

    def step(self):
        """Newton step of the log-messages s: the root of the linearised change.

        With derivatives a of the messages r to visible units and b of those back,

            ds = change + b (dV - dr),  dr = a (dH - ds),  dV_i = sum_j dr_ij,  dH_j = sum_i ds_ij.

        For each pair ds = (change + b dV - a b dH) / (1 - a b), so dV and dH solve the linear
        system of the two sums; dV is eliminated.
        """
        a, complement_a = _derivative(self.hidden_cavity, self.weights)
        b, complement_b = _derivative(self.visible_cavity, self.weights)
        # 1 - a b; both have the sign of the weight.
        pivot = np.maximum(complement_a + abs(a) * complement_b, MIN_PIVOT)
        diagonal, a_scaled, b_scaled = a * b / pivot, a / pivot, b / pivot
        first, second = 1 + diagonal.sum(1), 1 + diagonal.sum(0)
        right_first = -(a_scaled * self.change).sum(1)
        right_second = (self.change / pivot).sum(0)
        try:
            hidden_step = np.linalg.solve(
                np.diag(second) - b_scaled.T @ (a_scaled / first[:, None]),
                right_second + b_scaled.T @ (right_first / first),
            )
        except np.linalg.LinAlgError:
            return self.change
        visible_step = (right_first + a_scaled @ hidden_step) / first
        return (self.change + b * visible_step[:, None] - a * b * hidden_step) / pivot

    def log_partition(self):
        """Bethe log-partition."""
        pairs = softplus(self.visible_cavity) - softplus(self.visible)[:, None]
        return softplus(self.visible).sum() + softplus(self.hidden).sum() + pairs.sum()


def _derivative(log_odds, weights):
    """Derivative of a log-message by its cavity log-odds, and 1 minus its absolute value."""
    low, high = np.minimum(weights, 0), np.maximum(weights, 0)
    derivative = sigmoid(log_odds + weights) - sigmoid(log_odds)
    return derivative, sigmoid(-log_odds - high) + sigmoid(log_odds + low)
