"""NumPy twin of `kernels.bp.local_search`, which recomputes the objective for each flip."""

import numpy as np

from fastmf._outcomes import GAIN_TOLERANCE, LOG_STRIDE, MAX_ROUNDS
from fastmf.special import softplus


def _hidden_objective(joint, log_odds):
    return (np.maximum(log_odds, 0) if joint else softplus(log_odds)).sum()


def _climb_row(settings, weights, fields, visible, log_odds, start):
    """Flip units of one row; return whether no single flip raises the objective."""
    joint, _, scale, temperatures, logs = settings
    now = _hidden_objective(joint, log_odds)
    n_annealed = len(temperatures) * len(visible)
    n_rejected = n_tried = 0
    while n_rejected < len(visible) and n_tried < n_annealed + MAX_ROUNDS * len(visible):
        i, annealed = n_tried % len(visible), n_tried < n_annealed
        sign = -1.0 if visible[i] else 1.0
        flipped = log_odds + sign * weights[i]
        then = _hidden_objective(joint, flipped)
        least = GAIN_TOLERANCE * (scale[i] + abs(fields[i]))
        if annealed:
            least = temperatures[n_tried // len(visible)] * logs[(start + n_tried) % len(logs)]
        if sign * fields[i] + then - now > least:
            visible[i], log_odds, now, n_rejected = not visible[i], flipped, then, 0
        else:
            n_rejected = 0 if annealed else n_rejected + 1
        n_tried += 1
    return n_rejected >= len(visible)


def climb(settings, problem, workspaces, visible, objective, optimal, queue):
    """Flip visible units, one after another, first annealed, then while a flip gains."""
    joint, weights = settings.joint, problem.weights
    for row, v in enumerate(visible):
        fields = problem.visible_field[min(row, len(problem.visible_field) - 1)]
        hidden_field = problem.hidden_field[min(row, len(problem.hidden_field) - 1)]
        log_odds = hidden_field + v @ weights
        optimal[row] = _climb_row(settings, weights, fields, v, log_odds, row * LOG_STRIDE)
        objective[row] = fields[v].sum() + _hidden_objective(joint, hidden_field + v @ weights)
