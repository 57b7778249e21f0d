"""Direct minimisation of the Bethe free energy of two layers of {0, 1} units.

With unit beliefs tau_i, tau_j, pair beliefs b_ij over the four states of a pair, couplings W,
fields b, c and entropies S, the Bethe free energy is

    F = - sum_i b_i tau_i - sum_j c_j tau_j - sum_ij W_ij b_ij(1, 1)
        - sum_ij S(b_ij) + (m - 1) sum_i S(tau_i) + (n - 1) sum_j S(tau_j).

At given unit beliefs the best pair belief is the root of a quadratic, with the cavity log-odds
log b_ij(1, 0) / b_ij(0, 0) of visible and log b_ij(0, 1) / b_ij(0, 0) of hidden units. Then

    dF / dtau_i = sum_j log(b_ij(1, 0) / b_ij(0, 0)) - b_i - (m - 1) logit(tau_i).
"""

from typing import NamedTuple

import numpy as np
from scipy.linalg import cho_factor, cho_solve

from fastmf.special import sigmoid, sigmoid_pair, softplus

# Beliefs of larger log-odds are 1 in float64; products of four such probabilities do not underflow.
MAX_BETHE_LOG_ODDS = 150.0
# Largest change of the log-odds of a unit in a step.
MAX_BETHE_STEP = 8.0
MAX_NEWTON_STEPS = 300
# The shift of the Hessian: the smallest that is not 0, and the one at which the search ends.
MIN_SHIFT, MAX_SHIFT = 0.1, 1e9
# A decrease of the free energy below this fraction of its terms is rounding.
BETHE_ROUNDING = 1e-13


class StationaryPoint(NamedTuple):
    """Beliefs and messages at the end of a search for a stationary point.

    Parameters
    ----------
    log_odds : tuple of arrays (n_visible,) and (n_hidden,)
        Log-odds of the beliefs that the messages give.
    messages : array of shape (n_visible, n_hidden)
        Ratios m(1) / m(0) from visible to hidden units; at a stationary point a fixed point of
        belief propagation.
    log_partition : float
    residual : float
        Largest change of a belief in a sweep, as estimated by the search;
        `newton_messages.confirmed` computes it.
    n_iter : int
    """

    log_odds: tuple
    messages: np.ndarray
    log_partition: float
    residual: float
    n_iter: int


def minimise_bethe(weights, visible_field, hidden_field, log_odds, tol):
    """Minimise the Bethe free energy as a function of the beliefs of the units.

    Parameters
    ----------
    weights : float64 array of shape (n_visible, n_hidden)
    visible_field, hidden_field : array of shape (n_visible,) and (n_hidden,)
    log_odds : pair of arrays
        Log-odds of the beliefs to start from.
    tol : float
        Stop when a sweep of belief propagation would change no belief by more.

    Returns
    -------
    StationaryPoint

    Notes
    -----
    With the best pair beliefs at given unit beliefs (Welling and Teh 2001), the free energy is a
    smooth function of n_visible + n_hidden variables with first and second derivatives in closed
    form; its stationary points are the fixed points of sum-product. Newton steps with a shifted
    Hessian (Levenberg and Marquardt) never raise the free energy. Units of one layer are not
    coupled: the Hessian has two diagonal blocks, and a step factorises one matrix of the size of
    the smaller layer.
    """
    n = len(visible_field)
    fields = np.concatenate([visible_field, hidden_field])
    x = np.concatenate(log_odds).clip(-MAX_BETHE_LOG_ODDS, MAX_BETHE_LOG_ODDS)
    now, shift, n_iter = _BetheFreeEnergy(weights, fields, x), 0.0, 0
    while now.residual > tol and n_iter < MAX_NEWTON_STEPS and shift < MAX_SHIFT:
        n_iter += 1
        step = now.step(shift)
        if step is not None:
            trial = (x + step.clip(-MAX_BETHE_STEP, MAX_BETHE_STEP)).clip(
                -MAX_BETHE_LOG_ODDS, MAX_BETHE_LOG_ODDS
            )
            after = _BetheFreeEnergy(weights, fields, trial)
            rounding_error = BETHE_ROUNDING * now.scale
            falls = after.value < now.value - rounding_error
            stays = after.value <= now.value + rounding_error
            if falls or (stays and after.residual < now.residual):
                now, x, shift = after, trial, 0.0 if shift < MIN_SHIFT else shift / 8
                continue
        shift = max(4 * shift, MIN_SHIFT)
    final = x - now.gradient  # log-odds that the messages below give
    pairs = now.pairs
    p, q = sigmoid_pair(x[n:])
    return StationaryPoint(
        log_odds=(final[:n], final[n:]),
        messages=p * pairs.neither / (q * pairs.hidden_only),
        log_partition=-now.value,
        residual=float(now.residual),
        n_iter=n_iter,
    )


class Pairs(NamedTuple):
    """Pair beliefs: probabilities that both units are 1, only one of them, or neither."""

    both: np.ndarray
    visible_only: np.ndarray
    hidden_only: np.ndarray
    neither: np.ndarray


def pairs_given_units(weights, visible, hidden):
    """Pair beliefs that minimise the Bethe free energy at given log-odds of the units.

    Each of the four probabilities has full relative precision, because all sums are of positive
    terms: for negative weights the values of the hidden unit are exchanged first.
    """
    (x, x_not), (h, h_not) = sigmoid_pair(visible[:, None]), sigmoid_pair(hidden)
    negative = weights < 0
    y, y_not = np.where(negative, h_not, h), np.where(negative, h, h_not)
    e, e_minus_1 = np.exp(abs(weights)), np.expm1(abs(weights))
    difference = np.where(x + y > 1, y_not - x_not, x - y)
    unequal = 2 * (x * y_not + y * x_not)
    root = np.sqrt((e_minus_1 * difference) ** 2 + e_minus_1 * unequal + 1)
    both = 2 * e * x * y / (1 + e_minus_1 * (x + y) + root)
    neither = 2 * e * x_not * y_not / (1 + e_minus_1 * (x_not + y_not) + root)
    one_of_them = (e_minus_1 * difference**2 + unequal) / (root + 1)
    larger = (one_of_them + abs(difference)) / 2
    smaller = both * neither / (e * larger)
    x_only, y_only = np.where(difference < 0, (smaller, larger), (larger, smaller))
    return Pairs(
        np.where(negative, x_only, both),
        np.where(negative, both, x_only),
        np.where(negative, neither, y_only),
        np.where(negative, y_only, neither),
    )


class _BetheFreeEnergy:
    """The Bethe free energy at log-odds of all units, and its derivatives.

    Derivatives are with respect to the beliefs tau; second ones are multiplied by the standard
    deviations sqrt(tau (1 - tau)), which makes the Hessian the identity without couplings.
    """

    def __init__(self, weights, fields, log_odds):
        n, m = weights.shape
        self.log_odds, self.weights = log_odds, weights
        self.pairs = pairs = pairs_given_units(weights, log_odds[:n], log_odds[n:])
        tau, not_tau = sigmoid_pair(log_odds)
        neither = np.log(pairs.neither)
        cavity_sums = np.concatenate(
            [
                (np.log(pairs.visible_only) - neither).sum(1),
                (np.log(pairs.hidden_only) - neither).sum(0),
            ]
        )
        n_neighbours = np.repeat([m, n], [n, m])
        entropy = softplus(log_odds) - tau * log_odds
        terms = tau * (cavity_sums - fields) + (n_neighbours - 1) * entropy
        self.value = terms.sum() + neither.sum()
        self.scale = 1 + abs(terms).sum() + abs(neither).sum()
        self.gradient = cavity_sums - fields - (n_neighbours - 1) * log_odds
        self.residual = abs(sigmoid(log_odds - self.gradient) - tau).max()
        self.deviation = np.sqrt(tau * not_tau)

    def step(self, shift):
        """Newton step of the log-odds with `shift` added to the diagonal of the Hessian.

        None if that matrix is not positive definite.
        """
        n = len(self.weights)
        p = self.pairs
        # 1 - rho^2 as a sum of positive terms, for correlations rho of pairs.
        product = np.outer(self.deviation[:n], self.deviation[n:])
        rho = np.expm1(self.weights) * p.visible_only * p.hidden_only / product
        one_minus = p.visible_only * p.hidden_only * (p.both + p.neither)
        one_minus += p.both * p.neither * (p.visible_only + p.hidden_only)
        one_minus /= product**2
        cross, diagonal = -rho / one_minus, rho**2 / one_minus
        first, second = 1 + shift + diagonal.sum(1), 1 + shift + diagonal.sum(0)
        right = -self.deviation * self.gradient
        right_first, right_second = right[:n], right[n:]
        if swapped := n < len(second):  # eliminate the larger layer
            cross, first, second = cross.T, second, first
            right_first, right_second = right_second, right_first
        scaled = cross / first[:, None]
        schur = np.diag(second) - cross.T @ scaled
        try:
            factor = cho_factor(schur, overwrite_a=True, check_finite=False)
        except np.linalg.LinAlgError:
            return None
        step_second = cho_solve(factor, right_second - scaled.T @ right_first, check_finite=False)
        step_first = (right_first - cross @ step_second) / first
        parts = (step_second, step_first) if swapped else (step_first, step_second)
        return np.concatenate(parts) / self.deviation
