"""Fixed points of sum-product by Newton steps on log-messages, where nothing else settles."""

import numpy as np

from fastmf.inference.bp.bethe import StationaryPoint
from fastmf.special import sigmoid, softplus

# Couplings and fields are turned up by equal factors in so many stages.
STAGES = 16
# Newton steps in a stage, and in the last one.
MAX_ITER, LAST_ITER = 10, 50
# On the way a log-message may be wrong by so much.
ROUGH = 1e-3
SMALLEST_SHARE = 0.1
# Pairs of units that follow each other more closely are taken to this precision in a step.
LOOSEST = 1e-12


def newton(weights, visible_field, hidden_field, tol, messages=None):
    """Find a fixed point of sum-product by Newton steps.

    Parameters
    ----------
    weights : float64 array of shape (n_visible, n_hidden)
    visible_field, hidden_field : array of shape (n_visible,) and (n_hidden,)
    tol : float
        Stop when a sweep would change no log-message to a hidden unit, nor its log-odds, by more.
    messages : array of shape (n_visible, n_hidden), optional
        Log-ratios from visible to hidden units to start from. None: the fixed point of weak
        couplings is followed while they are turned up.

    Returns
    -------
    StationaryPoint

    Notes
    -----
    Beliefs of units that strong couplings tie to each other hide in rounding what tells them
    apart, and so does the free energy as a function of them; logarithms of messages do not. Weak
    couplings have one fixed point, and where couplings and fields grow together it moves smoothly,
    but for folds: there the steps must find another one, and may fail.
    """
    n_iter, factors = 0, np.ones(1)
    if messages is None:
        messages = np.zeros_like(weights)
        factors = np.geomspace(min(1, 1 / abs(weights).max(initial=1e-300)), 1, STAGES)
    for factor, before in zip(factors, [factors[0], *factors], strict=False):
        parts = (factor * part for part in (weights, visible_field, hidden_field))
        here = _Sweep(*parts, messages * (factor / before))
        last = factor == factors[-1]
        for _ in range(LAST_ITER if last else MAX_ITER):
            if here.residual <= (tol if last else ROUGH):
                break
            here, n_iter = here.towards(here.step()), n_iter + 1
        messages = here.messages
    return StationaryPoint(
        log_odds=(here.visible, here.hidden),
        messages=np.exp(messages),
        log_partition=here.log_partition(),
        residual=float(here.residual),
        n_iter=n_iter,
    )


def confirmed(weights, visible_field, hidden_field, point):
    """The beliefs that messages give, and how far an undamped sweep takes them.

    Parameters
    ----------
    weights : float64 array of shape (n_visible, n_hidden)
    visible_field, hidden_field : array of shape (n_visible,) and (n_hidden,)
    point : StationaryPoint
        Of which the messages are read, and the number of iterations.

    Returns
    -------
    StationaryPoint
        The residual is that of belief propagation: the largest change of a belief in a sweep, or
        the square of the relative change of its log-odds.
    """
    low, high = np.minimum(weights, 0), np.maximum(weights, 0)
    # Beliefs of pairs that underflow give messages of 0, infinity or neither.
    with np.errstate(divide="ignore", invalid="ignore"):
        messages = np.nan_to_num(np.log(point.messages), nan=0.0).clip(low, high)
    here = _Sweep(weights, visible_field, hidden_field, messages)
    there = _Sweep(weights, visible_field, hidden_field, (messages + here.change).clip(low, high))
    log_odds, after = (here.visible, here.hidden), (there.visible, there.hidden)
    return StationaryPoint(
        log_odds=log_odds,
        messages=np.exp(messages),
        log_partition=here.log_partition(),
        residual=max(map(_belief_change, log_odds, after)),
        n_iter=point.n_iter,
    )


def _belief_change(old, new):
    """Largest change of a belief, or square of the relative change of its log-odds."""
    relative = (new - old) / (1 + abs(old) + abs(new))
    return float(np.maximum(abs(sigmoid(new) - sigmoid(old)), relative**2).max(initial=0))


class _Sweep:
    """An undamped sweep from log-messages of the visible units, and its linear form."""

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

    def towards(self, step):
        """The sweep from messages moved along a step, as far as they change less there."""
        low, high = np.minimum(self.weights, 0), np.maximum(self.weights, 0)
        share = 1.0
        while share > SMALLEST_SHARE:
            moved = (self.messages + share * step).clip(low, high)
            there = _Sweep(self.weights, *self.fields, moved)
            if there.norm < (1 - 1e-4 * share) * self.norm:
                return there
            share /= 2
        return _Sweep(self.weights, *self.fields, self.messages + self.change / 2)

    def step(self):
        """Change of the messages that would make the linear form of the sweep stand still.

        With slopes a of messages to visible units and b of those back, changes obey
        ds = change + b (dV - dr) and dr = a (dH - ds), where dV and dH are the sums of dr and ds:
        pair by pair ds = (change + b dV - a b dH) / (1 - a b), and dV and dH solve the equations
        that the sums are. Those of the visible units are eliminated.
        """
        a, rest_a = _slope(self.hidden_cavity, self.weights)
        b, rest_b = _slope(self.visible_cavity, self.weights)
        # Both have the sign of the weight.
        rest = np.maximum(rest_a + abs(a) * rest_b, LOOSEST)
        own, a_share, b_share = a * b / rest, a / rest, b / rest
        first, second = 1 + own.sum(1), 1 + own.sum(0)
        right = -(a_share * self.change).sum(1)
        rest_right = (self.change / rest).sum(0)
        try:
            of_hidden = np.linalg.solve(
                np.diag(second) - b_share.T @ (a_share / first[:, None]),
                rest_right + b_share.T @ (right / first),
            )
        except np.linalg.LinAlgError:
            return self.change
        of_visible = (right + a_share @ of_hidden) / first
        return (self.change + b * of_visible[:, None] - a * b * of_hidden) / rest

    def log_partition(self):
        """Bethe log-partition."""
        pairs = softplus(self.visible_cavity) - softplus(self.visible)[:, None]
        return softplus(self.visible).sum() + softplus(self.hidden).sum() + pairs.sum()


def _slope(log_odds, weights):
    """Derivative of a log-message by the log-odds of its cavity, and 1 minus its absolute value."""
    low, high = np.minimum(weights, 0), np.maximum(weights, 0)
    slope = sigmoid(log_odds + weights) - sigmoid(log_odds)
    return slope, sigmoid(-log_odds - high) + sigmoid(log_odds + low)
