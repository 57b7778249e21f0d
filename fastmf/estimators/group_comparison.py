"""Differences between the networks of two groups."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.special import chdtrc, ndtr

from fastmf.estimators._edge_inclusion import Estimates
from fastmf.estimators._networks import Network


class Omnibus(NamedTuple):
    """Chi-squared test of all differences together.

    Parameters
    ----------
    statistic : float
    p_value : float
    n_degrees : int
    """

    statistic: float
    p_value: float
    n_degrees: int


@dataclass(frozen=True, eq=False)
class GroupComparison:
    """Differences of couplings in {0, 1} coding; see `compare_groups`.

    Parameters
    ----------
    difference, std : array of shape (n_features, n_features)
        The couplings of the first machine less those of the second, and their standard errors.
    p_value : array of shape (n_features, n_features)
        p-values of two-sided Wald tests, not adjusted for their number; 1 on the diagonal.
    probability : array of shape (n_features, n_features)
        Posterior probabilities that couplings differ.
    log_bayes_factor : array of shape (n_features, n_features)
        Log of the evidence for a difference over that for none.
    omnibus : Omnibus
    names : array of str of shape (n_features,)
    """

    difference: np.ndarray
    std: np.ndarray
    p_value: np.ndarray
    probability: np.ndarray
    log_bayes_factor: np.ndarray
    omnibus: Omnibus
    names: np.ndarray


def compare_groups(
    machine_a, machine_b, *, inclusion_probability=0.5, scale=1.0, errors="sandwich"
):
    """Which couplings differ between two groups of rows, each with its own fit.

    Parameters
    ----------
    machine_a, machine_b : FullyVisibleBoltzmannMachine
        Fitted to independent rows of the same features.
    inclusion_probability, scale : float or None
        Prior of the differences, as in `FullyVisibleBoltzmannMachine.edge_inclusion`.
    errors : {"sandwich", "naive"}

    Returns
    -------
    GroupComparison
        `difference`, `std`, `p_value`, `probability`, `log_bayes_factor`, and `omnibus`, a
        chi-squared test that no coupling differs.

    Raises
    ------
    ValueError
        If the features or their values are not the same, or a fit has no standard errors.

    Notes
    -----
    The test is for many rows: with few rows for each coupling it rejects too often.

    Examples
    --------
    >>> import numpy as np, fastmf as mf
    >>> rng = np.random.default_rng(0)
    >>> chain = lambda p: np.cumprod(np.where(rng.random((500, 3)) < [0.5, p, 0.8], 1, -1), axis=1)
    >>> a, b = (mf.FullyVisibleBoltzmannMachine().fit(chain(p)) for p in (0.5, 0.9))
    >>> found = mf.compare_groups(a, b)
    >>> np.argwhere(found.probability > 0.9).tolist(), found.omnibus.p_value < 0.01
    ([[0, 1], [1, 0]], True)
    """
    if not (isinstance(machine_a, Network) and type(machine_a) is type(machine_b)):
        raise TypeError(
            "machines must be two fitted machines of one class, got "
            f"{type(machine_a).__name__} and {type(machine_b).__name__}."
        )
    a, b = (machine._edge_estimates(errors) for machine in (machine_a, machine_b))
    same = np.array_equal(a.names, b.names) and all(
        np.array_equal(x, y) for x, y in zip(a.pairs, b.pairs, strict=True)
    )
    values = zip(machine_a.categories_, machine_b.categories_, strict=False)
    if not same or not all(np.array_equal(x, y) for x, y in values):
        raise ValueError(
            "machines must have the same features, values and pairs: fit both to the same columns, "
            f"got {list(a.names)} and {list(b.names)}."
        )
    delta = Estimates(a.values - b.values, a.covariance + b.covariance, a.pairs, a.names)
    found = delta.inclusion(inclusion_probability, scale, sensitivity=False)
    std = np.sqrt(delta.covariance.diagonal())
    statistic, n = delta.whitened().chi_square, len(std)
    p_value = np.ones_like(found.probability)
    p_value[delta.pairs] = p_value.T[delta.pairs] = 2 * ndtr(-abs(delta.values) / std)
    return GroupComparison(
        difference=delta.matrix(delta.values),
        std=delta.matrix(std),
        p_value=p_value,
        probability=found.probability,
        log_bayes_factor=found.log_bayes_factor,
        omnibus=Omnibus(statistic, float(chdtrc(n, statistic)), n),
        names=delta.names,
    )
