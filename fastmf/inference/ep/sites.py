"""The problem and the state of expectation propagation, which all schedules share.

With sites t instead of the priors, the marginals of the Gaussian have naturals V = t + c; a tilted
unit is its prior times its cavity c. At a fixed point both have the same moments. The energy is

    E = -ln Z(t) - sum ln Zhat(c) + sum ln Ztilde(t + c)

with Z the integral of the Gaussian with sites, Zhat of the tilted units, and Ztilde of the
marginals (Hernández-Lobato & Hernández-Lobato 2011, Eqs. 9-12).
"""

from typing import NamedTuple

import numpy as np

from fastmf._threads.workers import in_parallel, workers_for
from fastmf.inference.gaussian import gaussian_side
from fastmf.inference.gaussian.bipartite import RepeatedRows
from fastmf.kernels.ep.sites import UNITS_PER_TASK, SiteSettings, match_sites, tilt_sites
from fastmf.models import SparseLinearModel
from fastmf.priors._compiled import Units, units_of
from fastmf.priors._protocol import as_dtype, n_units, parts_of
from fastmf.priors._queries import has_spike, two_values
from fastmf.priors.concatenated import concatenate

# Smallest second moment of a unit under its prior, relative to a unit without field or log-odds.
MIN_RELATIVE_MOMENT = 1e-6


class EPProblem(NamedTuple):
    """A Gaussian side, priors, and stopping criteria."""

    side: object  # GaussianSide; None if the units are not coupled
    prior: tuple
    units: Units  # table of the units of the prior, for kernels
    min_site_precision: float  # -inf for none
    tol: float
    max_iter: int
    n_threads: int | None
    prior_precision: np.ndarray  # (n_units,), inverse second moments under the priors alone
    evaluations: list  # [number of evaluations of the inner objective of the double loop]
    weights: np.ndarray | None = None  # (n_units,), multiplicities of units; None: 1

    def state_of(self, site):
        """Compute the state with these sites; None if the Gaussian is not proper."""
        return state_with_moments(self, site, self.side.moments(site))

    def energy(self, state):
        """Compute -ln Z(t) - sum ln Zhat(c) + sum ln Ztilde(t + c): Eqs. 9-12 of the paper."""
        _, units = tilted_units(self, state.cavity)
        marginals = gaussian_log_partition(state.cavity + state.site, self.weights)
        value = marginals - units - state.log_partition
        return float(value) if np.isfinite(value) else np.inf

    def difference(self, state):
        """Return tilted minus Gaussian moments, in standard deviations, as a vector."""
        (mean, var), of_gaussian = state.tilted - state.gaussian, state.gaussian[1]
        with np.errstate(over="ignore", invalid="ignore"):
            return np.concatenate([mean / np.sqrt(of_gaussian), var / of_gaussian])

    def roots(self):
        """Return roots of the multiplicities of units, for each element of `difference`."""
        return 1.0 if self.weights is None else np.sqrt(np.tile(self.weights, 2))


class EPState(NamedTuple):
    """Sites, and all quantities computed from them, of shape (2, n_units)."""

    site: np.ndarray
    gaussian: np.ndarray
    cavity: np.ndarray
    tilted: np.ndarray
    log_partition: float  # of the Gaussian
    proposal: np.ndarray  # the sites of the next iteration
    residual: float  # largest difference of a mean or variance between the Gaussian and the units

    def agrees(self, tol):
        """Whether Gaussian and tilted units have the same moments: the rule of `FixedPoint`."""
        return self.residual <= tol and self._effect() <= tol

    def _effect(self):
        """Return the largest effect of a difference on the log-partition, free of scale."""
        mean, var = self.gaussian - self.tilted
        with np.errstate(over="ignore"):
            by_mean = mean**2 / np.maximum(self.gaussian[1], self.tilted[1])
            return float(np.maximum(by_mean, (self.cavity[1] * var) ** 2).max())


class EPTrace:
    """Residual and energy of every iteration, and the last state of the parallel schedule."""

    def __init__(self, with_energies=True):
        self.with_energies, self.residuals, self.energies = bool(with_energies), [], []
        self.last_state = None

    def add(self, residual, energy):
        """Add an iteration; `energy` is a function, called only if energies are stored."""
        self.residuals.append(residual)
        if self.with_energies:
            self.energies.append(energy())


def problem_of(model, min_site_precision=-np.inf, tol=1e-8, max_iter=1000, n_threads=None):
    """Make the problem of a model, in double precision."""
    prior = concatenate([as_dtype(layer, np.float64) for layer in model.layers])
    side, weights = gaussian_side(model, n_threads), None
    if isinstance(model, SparseLinearModel):
        weights = model.unit_weights()
    if weights is not None:
        side = RepeatedRows(side, model.row_weights, model.noise_variance)
    units = units_of(prior, np.float64, ("moments", "log_partition"))
    return EPProblem(
        side, prior, units, min_site_precision, tol, max_iter, n_threads,
        prior_precision=1 / second_moments(prior), evaluations=[0], weights=weights,
    )  # fmt: skip


def log_normalisers(prior):
    """Compute the log-partitions of uncoupled units."""
    zero = np.zeros(n_units(prior))
    return prior.log_partition(zero, zero)


def second_moments(prior):
    """Compute second moments of uncoupled units; 1 where they do not exist."""
    return np.concatenate([_second_moments(part) for part in parts_of(prior)])


def _second_moments(prior):
    """Compute second moments of units of one kind.

    Neighbours may move units that their field or log-odds keep at 0. So second moments are bounded
    from below relative to a free unit: two equally likely values, or the slab.
    """
    zero = np.zeros(n_units(prior))
    free, values = 0.0, two_values(prior)
    if values is not None:
        free = (values[1] - values[0]) ** 2 / 4
    elif has_spike(prior):
        mean, var = prior.slab().moments(zero, zero)
        free = mean * mean + var
    mean, var = prior.moments(zero, zero)
    second = np.maximum(mean * mean + var, MIN_RELATIVE_MOMENT * free)
    return np.where(np.isfinite(second) & (second > 0), second, 1.0)


def mismatch(moments, tilted):
    """Return the largest difference of a mean or variance; inf if one does not exist.

    Variances above 1: in standard deviations, and relative to the variance.
    """
    with np.errstate(invalid="ignore"):
        variance = np.maximum(1, np.maximum(moments[1], tilted[1]))
        mean, var = abs(moments - tilted)
        largest = np.maximum(mean / np.sqrt(variance), var / variance).max()
    return float(largest) if largest < np.inf else np.inf


def per_unit(kernel, problem, inputs, outputs):
    """Run kernel(units, *inputs, queue, *outputs) over blocks of units, in threads."""
    n_units, queue = len(problem.prior_precision), np.zeros(1, np.int64)
    n_workers = workers_for(-(-n_units // UNITS_PER_TASK), 100 * n_units, problem.n_threads)
    in_parallel(kernel, (problem.units, *inputs, queue, *outputs), n_workers)


def state_with_moments(problem, site, moments):
    """Compute the state from sites and moments of the Gaussian; None if it is not proper."""
    if moments is None or not (moments.marginal[1] > 0).all():
        return None
    outputs = cavity, tilted, proposal = np.empty((3, *site.shape))
    settings = SiteSettings(problem.prior_precision, 0.0, problem.min_site_precision)
    per_unit(match_sites, problem, (settings, moments.marginal, site), tuple(outputs))
    largest = mismatch(moments.marginal, tilted)
    return EPState(site, moments.marginal, cavity, tilted, moments.log_partition, proposal, largest)


def tilted_units(problem, cavity):
    """Compute moments of the units under their cavities, and the sum of their log-partitions."""
    outputs = tilted, log_partition = np.empty(cavity.shape), np.empty(cavity.shape[1])
    per_unit(tilt_sites, problem, (cavity,), outputs)
    return tilted, total(log_partition, problem.weights)


def total(values, weights):
    """Sum over units, with their multiplicities."""
    return values.sum() if weights is None else values @ weights


def gaussian_log_partition(natural, weights=None):
    """Sum the log of the integral of exp(V1 w - V2 w^2 / 2) over units."""
    first, second = natural
    return total(first * first / second + np.log(2 * np.pi / second), weights) / 2


def first_sites(problem, mean, var, cavity=0.0):
    """Return the sites for these moments and cavities, and the means.

    Marginals without moments have mean 0 and precision 1.
    """
    mean, var = (np.broadcast_to(m, (problem.side.n_units,)) for m in (mean, var))
    exist = np.isfinite(var) & (var > 0)
    precision = 1 / np.maximum(np.where(exist, var, 1.0), 1e-6)
    precision = np.maximum(precision, problem.min_site_precision)
    mean = np.where(exist, mean, 0.0)
    return np.stack([mean * precision, precision]) - cavity, mean
