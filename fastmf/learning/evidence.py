"""Learning the hyper-parameters of a sparse linear model by maximising its evidence."""

from typing import NamedTuple

import numpy as np

from fastmf.inference.expectation_propagation import expectation_propagation
from fastmf.models import SparseLinearModel
from fastmf.priors import GaussBernoulli


class Hyperparameters(NamedTuple):
    """Hyper-parameters of a spike-and-slab regression.

    Parameters
    ----------
    noise_variance, slab_variance : float
    log_odds : array of shape (n_groups,)
        Prior log-odds of a non-zero coefficient, for each group of features.
    """

    noise_variance: float
    slab_variance: float
    log_odds: np.ndarray

    def model(self, X, y, groups):
        """The model with these hyper-parameters; `groups` holds the group of every feature."""
        prior = GaussBernoulli(
            np.zeros(X.shape[1]), 1 / self.slab_variance, np.asarray(self.log_odds)[groups]
        )
        return SparseLinearModel(X, y, self.noise_variance, prior)


def robust_solution(model, init=None, **options):
    """A fixed point; what is not reached is sought anew with sites of positive precision.

    Their bound, a thousandth of the prior's precision, keeps every cavity and moment proper, so
    that even what does not converge is of use.
    """
    try:
        result = expectation_propagation(model, init, **options)
    except ValueError:  # the sites of other hyper-parameters need not be proper here
        result = expectation_propagation(model, **options)
    if result.converged:
        return result
    zero = np.zeros(model.n_features)
    mean, var = model.prior.moments(zero, zero)
    options |= {
        "schedule": "parallel",
        "damping": 0.5,
        "site_precision_min": float(1e-3 / (mean * mean + var).max()),
    }
    return expectation_propagation(model, **options)


def evidence_gradient(model, result, groups, n_groups):
    """Derivatives of the log-evidence by ln noise variance, ln slab variance and log-odds.

    Sites are held: at a fixed point the energy is stationary in them. Hernández-Lobato &
    Hernández-Lobato (2011), Eq. 37, with E_Q[w_i^2] = (A^-1)_ii + m_i^2.
    """
    error = model.y - model.X @ result.mean
    # tr(X A^-1 X') from A A^-1 = 1, without a matrix of features.
    spread = model.noise_variance * (1 - result.sites[1] * result.var).sum()
    by_noise = ((error @ error + spread) / model.noise_variance - model.n_samples) / 2
    zero = np.zeros(model.n_features)
    tilted = model.prior.gradient(result.b, result.a)
    plain = model.prior.gradient(zero, zero)
    by_slab = -((tilted.precision - plain.precision) * model.prior.precision).sum()
    by_odds = np.bincount(groups, tilted.log_odds - plain.log_odds, n_groups)
    return by_noise, by_slab, by_odds


def maximise_evidence(X, y, start, fixed, groups, *, tol, max_iter, n_threads=None):
    """Hyper-parameters of largest evidence, by L-BFGS-B on their logarithms and log-odds.

    Parameters
    ----------
    X : array of shape (n_samples, n_features)
    y : array of shape (n_samples,)
        Centred.
    start : Hyperparameters
    fixed : Hyperparameters of bool
        Which ones to leave as they are.
    groups : int array of shape (n_features,)
        Group of every feature: features of a group share their log-odds.
    tol : float
        Of the fixed points.
    max_iter : int
        Steps of L-BFGS-B.
    n_threads : int, optional

    Returns
    -------
    Hyperparameters
    """
    from scipy.optimize import minimize  # costs more than all else at import

    n_groups, scale = len(start.log_odds), max(float(y @ y) / len(y), 1e-300)
    free = np.array([not fixed.noise_variance, not fixed.slab_variance]
                    + [not fixed.log_odds] * n_groups)  # fmt: skip
    whole = np.concatenate(
        [[np.log(start.noise_variance), np.log(start.slab_variance)], start.log_odds]
    )
    # Beyond these the evidence is flat, or rewards noise that rounding cannot tell from none.
    rarest = -np.log(10.0 * X.shape[1])
    bounds = np.array([(np.log(1e-5 * scale), np.log(2 * scale)),
                       (np.log(1e-6 * scale), np.log(1e4 * scale)),
                       *[(rarest, 3.0)] * n_groups])  # fmt: skip
    whole = np.where(free, np.clip(whole, *bounds.T), whole)
    if not free.any():
        return start
    last = None

    def hyperparameters(x):
        values = whole.copy()
        values[free] = x
        return Hyperparameters(np.exp(values[0]), np.exp(values[1]), values[2:])

    def objective(x):
        nonlocal last
        model = hyperparameters(x).model(X, y, groups)
        options = dict(tol=tol, max_iter=100, n_threads=n_threads)
        result = robust_solution(model, last, **options)
        if not np.isfinite(result.log_evidence):
            return 1e10, np.zeros(free.sum())
        last = result.sites if result.converged else None
        by_noise, by_slab, by_odds = evidence_gradient(model, result, groups, n_groups)
        gradient = np.concatenate([[by_noise, by_slab], by_odds])[free]
        return -result.log_evidence, -gradient

    found = minimize(objective, whole[free], jac=True, method="L-BFGS-B", bounds=bounds[free],
                     options={"maxiter": max_iter, "ftol": 1e-9, "gtol": 1e-4})  # fmt: skip
    return hyperparameters(found.x)
