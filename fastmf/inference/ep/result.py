"""The result of expectation propagation, and functions that make it from a state."""

from dataclasses import dataclass, fields

import numpy as np

from fastmf._outcomes import BOUNDED, CONVERGED, LOST, MESSAGES, OUT_OF_ITERATIONS
from fastmf.inference.ep.sites import log_normalisers, mismatch, tilted_units, total
from fastmf.inference.fixed_point import FixedPoint

# Largest change of a mean or variance, as in `FixedPoint`, that rounding of cavities may cause.
MAX_ROUNDING = 1e-4


@dataclass(frozen=True, eq=False, repr=False)
class ExpectationPropagation(FixedPoint):
    """Result of `expectation_propagation`: a `FixedPoint` with the sites and the evidence.

    Parameters
    ----------
    sites : array of shape (2, n_units)
        Linear coefficients t1 and precisions t2 of the Gaussian factors exp(t1 w - t2 w^2 / 2) that
        replace the prior. Pass the result as `init` to start from here.
    log_evidence : float
        `log_partition` for the normalised prior: the log-evidence of a linear model.
    energies : array of shape (n_iter,), optional
        Energy of every iteration (of every outer one for "convergent"), with history=True.
    schedule : str
        The schedule that ran last: "convergent" if "auto" continued with a descent.
    block_sites : tuple of (int array, array), optional
        With blocks: the features of each block, and the matrix T of its site
        exp(t1'w - w'T w / 2). `sites` has t1 and the diagonals, as `b` and `a` have for cavities.
    inclusion_probability : array of shape (n_features,), optional
        For a linear model with a GaussBernoulli prior: probabilities that a feature is not zero.
    sole_probability : array of shape (n_features,), optional
        With blocks: probabilities that a feature is the only one of its block that is not zero (for
        a single feature, both are the same).
    full_probability : array of shape (n_blocks,), optional
        Probability of the largest patterns of each block.
    most_included : int array of shape (n_blocks,), optional
        Maximum number of features that the patterns of each block include.
    gaussian_mean : array of shape (n_units,), optional
    prior_share : float, optional
        With blocks: means of the Gaussian, and the trace of its covariance times the precisions of
        the sites. Derivatives of the evidence need both.
    """

    sites: np.ndarray | None = None
    log_evidence: float = -np.inf
    energies: np.ndarray | None = None
    schedule: str = ""
    block_sites: tuple | None = None
    inclusion_probability: np.ndarray | None = None
    sole_probability: np.ndarray | None = None
    full_probability: np.ndarray | None = None
    most_included: np.ndarray | None = None
    gaussian_mean: np.ndarray | None = None
    prior_share: float | None = None


def log_normaliser(problem):
    """Compute the log-partition of the prior, without couplings or data."""
    return total(log_normalisers(problem.prior), problem.weights)


def described(state, outcome, trace, units, log_partitions, **fields):
    """Make a result from (tilted moments, cavities, sites) of units, (2, n_units) each.

    `log_partitions` has the values of the posterior and of the prior.
    """
    (mean, var), (b, a), sites = units
    log_partition, normaliser = log_partitions
    return ExpectationPropagation(
        mean=mean, var=var, b=b, a=a, log_partition=log_partition, converged=outcome == CONVERGED,
        n_iter=len(trace.residuals), residual=state.residual, message=MESSAGES[outcome],
        history=np.array(trace.residuals) if trace.with_energies else None, sites=sites,
        log_evidence=log_partition - normaliser if np.isfinite(normaliser) else -np.inf,
        energies=np.array(trace.energies) if trace.with_energies else None, **fields,
    )  # fmt: skip


def result_of(problem, end, trace, normaliser=None):
    """Make the result of the state at which a schedule ended."""
    state, outcome, schedule = end
    at_bound = np.isclose(state.proposal[1], problem.min_site_precision, rtol=1e-6).any()
    if at_bound and outcome == OUT_OF_ITERATIONS and schedule != "convergent":
        outcome = BOUNDED
    with np.errstate(over="ignore", invalid="ignore"):
        log_partition = -problem.energy(state)
        lost = not (np.isfinite(log_partition) and _cavities_known(problem, state))
    if outcome == CONVERGED and lost:
        outcome = LOST
    normaliser = log_normaliser(problem) if normaliser is None else normaliser
    exist = np.isfinite(state.tilted).all(0)
    units = np.where(exist, state.tilted, state.gaussian), state.cavity, state.site
    return described(state, outcome, trace, units, (log_partition, normaliser), schedule=schedule)


def _cavities_known(problem, state):
    """Whether moments are accurate in spite of rounding in cavities, differences of naturals."""
    rounding = 4 * np.finfo(float).eps * np.maximum(abs(state.site), abs(state.site + state.cavity))
    signs = np.array([[1.0], [-1.0]])
    moved = (tilted_units(problem, state.cavity + sign * signs * rounding)[0] for sign in (1, -1))
    return all(mismatch(moments, state.tilted) <= MAX_ROUNDING for moments in moved)


def stacked_rows(rows):
    """Stack results of rows; histories of rows that ended earlier repeat their last value."""
    columns = {}
    n_iter = max(row.n_iter for row in rows)
    for name in (f.name for f in fields(ExpectationPropagation)):
        values = [getattr(row, name) for row in rows]
        if values[0] is None:
            columns[name] = None
            continue
        if name in ("history", "energies"):
            values = [np.pad(v, (0, n_iter - len(v)), "edge") for v in values]
        columns[name] = np.stack(values)
    return ExpectationPropagation(**columns)
