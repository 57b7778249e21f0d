"""State and bookkeeping that all schedules of expectation propagation share."""

from typing import NamedTuple

import numpy as np

from fastmf._threads import in_parallel, workers_for
from fastmf.kernels.sites import UNITS, match_sites, tilt_sites


class Problem(NamedTuple):
    """What is to be solved, and how precisely.

    Parameters
    ----------
    side : Gaussian side
        See `fastmf.inference.gaussian`.
    prior : unit prior
    least : float
        Smallest precision of a site, -inf for none.
    tol : float
    max_iter : int
    n_threads : int or None
    own : array of shape (n_units,)
        Inverse second moments of the uncoupled units; 1 where they do not exist.
    evaluations : list of int
        [number of evaluations of the inner objective of the double loop so far].
    """

    side: object
    prior: tuple
    least: float
    tol: float
    max_iter: int
    n_threads: int | None
    own: np.ndarray
    evaluations: list


class State(NamedTuple):
    """Sites, and everything that follows from them.

    Parameters
    ----------
    site, gaussian, cavity, tilted : array of shape (2, n_units)
        Sites; means and variances of the Gaussian; cavities; means and variances of the units under
        their cavities.
    log_partition : float
        Of the Gaussian.
    proposal : array of shape (2, n_units)
        The sites of the next iteration.
    """

    site: np.ndarray
    gaussian: np.ndarray
    cavity: np.ndarray
    tilted: np.ndarray
    log_partition: float
    proposal: np.ndarray

    def residual(self):
        """Largest difference between the two sides in a mean or a variance."""
        return gap(self.gaussian, self.tilted)


class Trace:
    """Residual and energy of every iteration."""

    def __init__(self, wanted=True):
        self.wanted, self.residuals, self.energies = wanted, [], []

    def add(self, residual, energy):
        """Note an iteration; `energy` is a function, called if a history is wanted."""
        self.residuals.append(residual)
        if self.wanted:
            self.energies.append(energy())


def gap(moments, others):
    """Largest difference of a mean or variance; inf if one does not exist."""
    with np.errstate(invalid="ignore"):
        largest = float(abs(moments - others).max())
    return largest if largest < np.inf else np.inf


def per_unit(kernel, problem, n_units, *arguments):
    """Run a kernel over blocks of units; a None among the arguments becomes the queue."""
    queue = np.zeros(1, np.int64)
    arguments = tuple(queue if a is None else a for a in arguments)
    n_workers = workers_for(-(-n_units // UNITS), 100 * n_units, problem.n_threads)
    in_parallel(kernel, (problem.prior, *arguments), n_workers)


def state_of(problem, site):
    """Everything that follows from the sites; None if they leave no proper Gaussian."""
    return state_from(problem, site, problem.side.moments(site))


def state_from(problem, site, moments):
    """The same, given the moments of the Gaussian."""
    if moments is None or not (moments.marginal[1] > 0).all():
        return None
    cavity, tilted, proposal = np.empty((3, *site.shape))
    out = None, cavity, tilted, proposal
    per_unit(match_sites, problem, site.shape[1], problem.own, moments.marginal, site, 0.0,
             problem.least, *out)  # fmt: skip
    return State(site, moments.marginal, cavity, tilted, moments.log_partition, proposal)


def tilt(problem, cavity):
    """Moments of the units under their cavities, and the sum of their log-partitions."""
    tilted, log_partition = np.empty(cavity.shape), np.empty(cavity.shape[1])
    per_unit(tilt_sites, problem, cavity.shape[1], cavity, None, tilted, log_partition)
    return tilted, log_partition.sum()


def gaussian_log_partition(natural):
    """Sum of log integral exp(V1 w - V2 w^2 / 2) over units."""
    first, second = natural
    return (first * first / second + np.log(2 * np.pi / second)).sum() / 2


def energy(problem, state):
    """-ln Z(t) - sum ln Zhat(c) + sum ln Ztilde(t + c): Eqs. 9-12 of the paper."""
    _, units = tilt(problem, state.cavity)
    joined = gaussian_log_partition(state.cavity + state.site)
    value = joined - units - state.log_partition
    return float(value) if np.isfinite(value) else np.inf


def first_sites(problem, mean, var, cavity=0.0):
    """Sites that give the units these moments under their cavities, and the means.

    Where moments do not exist the sites have mean 0 and precision 1.
    """
    mean, var = (np.broadcast_to(m, (problem.side.n_units,)) for m in (mean, var))
    proper = np.isfinite(var) & (var > 0)
    precision = np.where(proper, 1 / np.where(proper, var, 1.0), 1.0)
    precision = np.maximum(np.minimum(precision, 1e6), problem.least)
    mean = np.where(proper, mean, 0.0)
    return np.stack([mean * precision, precision]) - cavity, mean
