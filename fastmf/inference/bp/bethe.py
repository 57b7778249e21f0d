"""Minima of the Bethe free energy of two layers of {0, 1} units, where messages do not settle."""

from typing import NamedTuple

import numpy as np
from scipy.linalg import cho_factor, cho_solve

from fastmf.special import sigmoid, sigmoid_pair, softplus

# Beliefs further out differ by less than the smallest number beside 1; products of four still fit.
LARGEST_LOG_ODDS = 150.0
# Longest step of a log-odds.
REACH = 8.0
MAX_ITER = 300
# A decrease of the free energy below this share of its value is rounding.
RESOLUTION = 1e-13


class StationaryPoint(NamedTuple):
    """Where a search ended.

    Parameters
    ----------
    log_odds : tuple of arrays (n_visible,) and (n_hidden,)
        Of the beliefs, as the messages below give them.
    messages : array of shape (n_visible, n_hidden)
        Ratios m(1) / m(0) from visible to hidden units; at a stationary point a fixed point of
        belief propagation.
    log_partition : float
    residual : float
        Largest change of a belief that a sweep would make, as the search itself estimates it;
        `newton.confirmed` makes the sweep.
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
        Of the beliefs to start from.
    tol : float
        Stop when a sweep of belief propagation would change no belief by more.

    Returns
    -------
    StationaryPoint

    Notes
    -----
    At given unit beliefs the pair beliefs that minimise the free energy are the root of a
    quadratic (Welling and Teh 2001); what remains is a smooth function of n_visible + n_hidden
    variables with closed first and second derivatives, and its stationary points are the fixed
    points of sum-product. Newton steps with a shift (Levenberg and Marquardt), so that the free
    energy never rises. Within a layer units do not meet: the Hessian has two diagonal blocks, and
    each step factorises one matrix of the size of the smaller layer.
    """
    n = len(visible_field)
    fields = np.concatenate([visible_field, hidden_field])
    x = np.concatenate(log_odds).clip(-LARGEST_LOG_ODDS, LARGEST_LOG_ODDS)
    here, shift, n_iter = _Point(weights, fields, x), 0.0, 0
    while here.residual > tol and n_iter < MAX_ITER and shift < 1e9:
        n_iter += 1
        step = here.step(shift)
        if step is not None:
            moved = x + step.clip(-REACH, REACH)
            there = _Point(weights, fields, moved.clip(-LARGEST_LOG_ODDS, LARGEST_LOG_ODDS))
            noise = RESOLUTION * here.scale
            fell = there.free_energy < here.free_energy - noise
            level = there.free_energy <= here.free_energy + noise
            if fell or (level and there.residual < here.residual):
                here, x, shift = there, there.log_odds, 0.0 if shift < 0.1 else shift / 8
                continue
        shift = max(4 * shift, 0.1)
    final = x - here.gradient
    pairs = here.pairs
    yes, no = sigmoid_pair(x[n:])
    return StationaryPoint(
        log_odds=(final[:n], final[n:]),
        messages=yes * pairs.neither / (no * pairs.hidden_only),
        log_partition=-here.free_energy,
        residual=float(here.residual),
        n_iter=n_iter,
    )


class Pairs(NamedTuple):
    """Beliefs of pairs: probabilities that both units are 1, only one of them, or neither."""

    both: np.ndarray
    visible_only: np.ndarray
    hidden_only: np.ndarray
    neither: np.ndarray


def pairs_given_units(weights, visible, hidden):
    """Pair beliefs that minimise the Bethe free energy at given log-odds of the units.

    All sums are of positive terms, so that each of the four probabilities has full relative
    precision: for negative weights the hidden unit is turned over first.
    """
    (x, x_not), (h, h_not) = sigmoid_pair(visible[:, None]), sigmoid_pair(hidden)
    turned = weights < 0
    y, y_not = np.where(turned, h_not, h), np.where(turned, h, h_not)
    e, grow = np.exp(abs(weights)), np.expm1(abs(weights))
    difference = np.where(x + y > 1, y_not - x_not, x - y)
    unlike = 2 * (x * y_not + y * x_not)
    root = np.sqrt((grow * difference) ** 2 + grow * unlike + 1)
    equal = 2 * e * x * y / (1 + grow * (x + y) + root)
    neither = 2 * e * x_not * y_not / (1 + grow * (x_not + y_not) + root)
    one_of_them = (grow * difference**2 + unlike) / (root + 1)
    more = (one_of_them + abs(difference)) / 2
    less = equal * neither / (e * more)
    x_only, y_only = np.where(difference < 0, (less, more), (more, less))
    return Pairs(
        np.where(turned, x_only, equal),
        np.where(turned, equal, x_only),
        np.where(turned, neither, y_only),
        np.where(turned, y_only, neither),
    )


class _Point:
    """The free energy at log-odds of all units, and its derivatives there.

    Derivatives are by the beliefs tau; those of second order are multiplied by the standard
    deviations sqrt(tau (1 - tau)), which makes them the identity where nothing is coupled.
    """

    def __init__(self, weights, fields, log_odds):
        n, m = weights.shape
        self.log_odds, self.weights = log_odds, weights
        self.pairs = pairs = pairs_given_units(weights, log_odds[:n], log_odds[n:])
        tau, not_tau = sigmoid_pair(log_odds)
        neither = np.log(pairs.neither)
        # Sums of the log-odds of cavities.
        cavity = np.concatenate(
            [
                (np.log(pairs.visible_only) - neither).sum(1),
                (np.log(pairs.hidden_only) - neither).sum(0),
            ]
        )
        others = np.repeat([m - 1, n - 1], [n, m])
        entropy = softplus(log_odds) - tau * log_odds
        terms = tau * (cavity - fields) + others * entropy
        self.free_energy = terms.sum() + neither.sum()
        self.scale = 1 + abs(terms).sum() + abs(neither).sum()
        self.gradient = cavity - fields - others * log_odds
        self.residual = abs(sigmoid(log_odds - self.gradient) - tau).max()
        self.deviation = np.sqrt(tau * not_tau)

    def step(self, shift):
        """Change of the log-odds by a shifted Newton step; None if the matrix is not positive."""
        n = len(self.weights)
        p = self.pairs
        # 1 - rho^2 by a sum of positive terms, for correlations rho of pairs.
        product = np.outer(self.deviation[:n], self.deviation[n:])
        rho = np.expm1(self.weights) * p.visible_only * p.hidden_only / product
        rest = p.visible_only * p.hidden_only * (p.both + p.neither)
        rest = (rest + p.both * p.neither * (p.visible_only + p.hidden_only)) / product**2
        cross, own = -rho / rest, rho**2 / rest
        first, second = 1 + shift + own.sum(1), 1 + shift + own.sum(0)
        slope = -self.deviation * self.gradient
        right, rest_right = slope[:n], slope[n:]
        small_first = n < len(second)
        if small_first:  # eliminate the larger layer
            cross, first, second = cross.T, second, first
            right, rest_right = rest_right, right
        scaled = cross / first[:, None]
        schur = np.diag(second) - cross.T @ scaled
        try:
            factor = cho_factor(schur, overwrite_a=True, check_finite=False)
        except np.linalg.LinAlgError:
            return None
        of_second = cho_solve(factor, rest_right - scaled.T @ right, check_finite=False)
        of_first = (right - cross @ of_second) / first
        parts = (of_second, of_first) if small_first else (of_first, of_second)
        return np.concatenate(parts) / self.deviation
