"""Around decoding and uniqueness: one-flip local search, and Mooij and Kappen's certificate."""

import numpy as np

from fastmf.special import softplus

# Rounds of the power iteration; every one of them gives a valid bound.
ROUNDS = 200


def climb(weights, visible_field, hidden_field, visible, *, joint):
    """Flip visible units while that raises the objective, hidden units maximised or summed.

    Sequential mixed-product: unit after unit takes the better value given all others, until none
    changes, so that the end is a local maximum with respect to every single flip.

    Parameters
    ----------
    weights : array of shape (n_visible, n_hidden)
    visible_field, hidden_field : array of shape (n_visible,) and (n_hidden,)
        Of {0, 1} units.
    visible : bool array of shape (n_visible,)
        Where to start.
    joint : bool
        Whether hidden units are maximised (joint MAP) or summed (marginal MAP).

    Returns
    -------
    visible : bool array of shape (n_visible,)
    objective : float
    """

    def summed(field):
        return (np.maximum(field, 0) if joint else softplus(field)).sum()

    visible = visible.copy()
    field = hidden_field + visible @ weights
    now = summed(field)
    unchanged = i = 0
    while unchanged < len(visible):
        sign = -1.0 if visible[i] else 1.0
        moved = field + sign * weights[i]
        then = summed(moved)
        gain = sign * visible_field[i] + then - now
        # A gain within rounding could be taken back and forth for ever.
        if gain > 1e-12 * (1 + abs(now)):
            visible[i], field, now, unchanged = not visible[i], moved, then, 0
        else:
            unchanged += 1
        i = (i + 1) % len(visible)
    # Fields that were moved often carry the rounding of all moves.
    field = hidden_field + visible @ weights
    return visible, float(visible_field[visible].sum() + summed(field))


def spectral_radius(weights):
    """Upper bound of the spectral radius of Mooij and Kappen (2007), Corollary 3.

    Below 1, sum-product has one fixed point and converges to it from any start, whatever the
    fields. By Collatz and Wielandt, max (A x)_i / x_i bounds the radius for every positive x; power
    iteration makes the bound tight, slowly so on trees (whose radius is 0).

    Parameters
    ----------
    weights : array of shape (n_visible, n_hidden)
        Of {0, 1} units: four times the couplings of spins.
    """
    strength = np.tanh(abs(weights.astype(np.float64)) / 4)
    x, bound = np.ones_like(strength), np.inf
    for _ in range(ROUNDS):
        back = strength * (x.sum(0) - x)
        new = strength * (back.sum(1, keepdims=True) - back)
        ratio = (new / x).max()
        if ratio >= bound * (1 - 1e-9):
            break
        bound = ratio
        # The shift keeps x positive, and stops it from alternating.
        x = new.clip(min=0) + 0.1 * bound * x + 1e-300
        x /= x.max()
        x = x.clip(min=1e-250)
    return float(np.sqrt(min(bound, ratio)))
