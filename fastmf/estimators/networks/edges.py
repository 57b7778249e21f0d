"""Posterior of the edges of a network, and differences between the networks of groups."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from typing import NamedTuple

import numpy as np
from scipy import linalg
from scipy.special import chdtrc, logit

from fastmf._common.arguments import count, flag, one_of, positive, proper_fraction
from fastmf._common.linalg import MIN_EIGENVALUE
from fastmf._common.names import pandas
from fastmf._common.progress import followed
from fastmf._common.warning import short_repr
from fastmf.estimators.common.reports import feature_names, slab_interval
from fastmf.estimators.common.runs import generator_of, warn_of_convergence
from fastmf.learning.evidence.edges import SLABS, EffectSets, SingleEffects, Whitened
from fastmf.learning.pseudo_likelihood.fit import few_blas_threads, maximum, newton
from fastmf.learning.pseudo_likelihood.godambe import Godambe, IncompleteGodambe
from fastmf.learning.pseudo_likelihood.resampling import Refits
from fastmf.learning.pseudo_likelihood.rows import distinct
from fastmf.special import sigmoid

ERRORS = ("sandwich", "naive")
# Largest number of couplings with a joint covariance matrix; with more, it has a block per feature.
MAX_JOINT = 1000

# Smallest ratio of sandwich to naive variances: the ratio for independent features, for which each
# coupling is estimated twice from the same rows. The sandwich of few rows, below 200, is smaller.
MIN_SANDWICH_RATIO = 2.0


class NodeCovariances(NamedTuple):
    """Covariance matrices of the couplings of each feature."""

    features: tuple  # indices of the features that have couplings
    edges: tuple  # int arrays: indices of the couplings of each feature
    blocks: tuple  # covariance matrices of these couplings

    def __add__(self, other):
        """Return the covariances of sums of independent estimates."""
        blocks = tuple(a + b for a, b in zip(self.blocks, other.blocks, strict=True))
        return self._replace(blocks=blocks)

    def diagonal(self):
        """Return the variances of all couplings."""
        out = np.empty(max(members.max() for members in self.edges) + 1)
        for members, block in zip(self.edges, self.blocks, strict=True):
            out[members] = block.diagonal()
        return out


def shrunk(sandwich, naive, n_rows, sets, min_ratio):
    """Shrink the correlations between sets of the sandwich covariance to the naive ones.

    First, variances in all directions of a set are raised to `min_ratio` times the naive ones.
    """
    # The inverse of the sandwich covariance of p couplings, from n rows, is too large in directions
    # in which the rows happen to vary little. Shrinking to the naive correlations with weight
    # p / (p + n) calibrates the probabilities of edges for few rows. Blocks within sets
    # (int arrays) are not shrunk, so that the result does not depend on coordinates in a set.
    p, sandwich = len(sandwich), sandwich.copy()
    weight, ratio = p / (p + n_rows), np.zeros((p, p))
    for members in sets:
        block = np.ix_(members, members)
        root, inverse = _power(naive[block], 0.5), _power(naive[block], -0.5)
        sandwich[block] = root @ _power(inverse @ sandwich[block] @ inverse, 1, min_ratio) @ root
        # The positive semidefinite matrix M with M naive M = sandwich.
        ratio[block] = inverse @ _power(root @ sandwich[block] @ root, 0.5) @ inverse
    return (1 - weight) * sandwich + weight * ratio @ naive @ ratio


def _power(matrix, exponent, least=0.0):
    """Return a power of a positive semidefinite matrix with eigenvalues of at least `least`."""
    values, vectors = linalg.eigh(matrix)
    values = np.maximum(values, max(least, np.finfo(float).eps * values[-1]))
    return (vectors * values**exponent) @ vectors.T


def without_penalty(godambe, scale):
    """Return estimates and information without the penalty of the fit."""
    # A Newton step from any point t, with mean score g and negative Hessian H of the unpenalised
    # objective, gives the estimate t + H^-1 g with covariance H^-1 J H^-1 / n. As the maximum may
    # be far away, or not exist, t is the posterior mode with a prior of this scale. Rows that say
    # little about a coupling give it a large variance, and its edge the prior probability.
    # A share of the prior stays, so that this variance is finite.
    objective, n = godambe.objective, len(godambe.parameters)
    ridge = np.full(n, scale**2 / objective.total)
    # A negligible prior for fields, which matters if a column is constant.
    ridge[: objective.n_fields] *= np.sqrt(MIN_EIGENVALUE)
    with few_blas_threads(n):
        point = newton(objective.with_ridge(ridge), godambe.parameters).parameters
        free = objective.with_ridge(np.sqrt(MIN_EIGENVALUE) * ridge)
        information = Godambe(free, point, godambe.sampling, MIN_SANDWICH_RATIO)
        return point + information.inverse @ objective.mean_score(point), information


def contrast_covariance(godambe, contrasts, sets, errors, min_ratio):
    """Return the covariance of contrasts, joint or in blocks by feature; see `MAX_JOINT`."""
    pairs, features, edges = godambe.objective.pairs, np.zeros(0, int), ()
    sets_of_blocks, subsets = [sets], [contrasts]
    if not godambe.objective.singular and len(sets) > MAX_JOINT:
        features = np.unique(np.concatenate(pairs))
        edges = tuple(np.flatnonzero((pairs[0] == k) | (pairs[1] == k)) for k in features)
        subsets = [contrasts[edge] for edge in edges]
        sets_of_blocks = [np.arange(len(edge))[:, None] for edge in edges]
    sandwich, naive = godambe.covariances_along(subsets)
    if errors == "sandwich":
        naive = [
            shrunk(a, b, godambe.effective_rows, sets, min_ratio)
            for a, b, sets in zip(sandwich, naive, sets_of_blocks, strict=True)
        ]
    return NodeCovariances(tuple(features.tolist()), edges, tuple(naive)) if edges else naive[0]


@short_repr
class ScaleSensitivity(NamedTuple):
    """Results for half, once and twice the scale of the slab."""

    scale: np.ndarray  # (3,)
    log_evidence: np.ndarray  # (3,)
    probability: np.ndarray  # (3, n_features, n_features)


class PairsResult:
    """Base class of results with matrices over pairs of features."""

    def __repr__(self):
        return f"{type(self).__name__}({len(self.names)} features)"

    def as_frame(self):
        """One line for each pair of features, as a pandas data frame."""
        pairs = np.triu_indices(len(self.names), 1)
        columns = {"first": self.names[pairs[0]], "second": self.names[pairs[1]]}
        for field in fields(self):
            value = getattr(self, field.name)
            if getattr(value, "shape", None) == 2 * self.names.shape:
                columns[field.name] = value[pairs]
        return pandas().DataFrame(columns)


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class EdgeInclusion(PairsResult):
    """Posterior of couplings under a spike-and-slab prior; see `edge_inclusion` of a machine.

    Parameters
    ----------
    probability : array of shape (n_features, n_features)
        Posterior probabilities that the couplings of a pair are not all zero, symmetric, with zero
        diagonal, like all matrices over pairs.
    log_bayes_factor : array of shape (n_features, n_features)
        Log-ratio of the evidences with and without the couplings of a pair; negative if the data
        favour their absence.
    mean : array
        Posterior means, including the mass at zero, of couplings in {0, 1} coding, (n_features,
        n_features); for Potts machines of couplings in the zero-sum gauge, shaped as `couplings_`.
    std : array of shape (n_features, n_features), or None for Potts machines
        Posterior standard deviations, including the mass at zero.
    log_evidence : float
        Log-density of the estimates, in nats.
    inclusion_probability, scale : float
        Parameters of the prior, as given or learned.
    slab : str
    converged : bool
    sensitivity : ScaleSensitivity
        Log-evidence and probabilities for half, once and twice the scale.
    names : array of str of shape (n_features,)
    """

    probability: np.ndarray
    log_bayes_factor: np.ndarray
    mean: np.ndarray
    std: np.ndarray | None
    log_evidence: float
    inclusion_probability: float
    scale: float
    slab: str
    converged: bool
    sensitivity: ScaleSensitivity | None
    names: np.ndarray

    def __repr__(self):
        p = self.probability[np.triu_indices(len(self.names), 1)]
        return (
            f"EdgeInclusion({(p > 0.9).sum()} of {len(p)} pairs with a probability above 0.9, "
            f"{(p < 0.1).sum()} below 0.1, log-evidence {self.log_evidence:.6g})"
        )

    def interval(self, level=0.95):
        """Compute equal-tailed credible intervals of single couplings, which may end at zero."""
        level = proper_fraction("level", level)
        if self.std is None:
            raise ValueError("intervals are of single couplings: those of Potts machines are sets.")
        return np.stack(slab_interval(level, self.probability, self.mean, self.std**2), axis=-1)

    def as_frame(self, level=0.95):
        """One line for each pair of features, as a pandas data frame."""
        frame = super().as_frame()
        if self.std is not None:
            pairs = np.triu_indices(len(self.names), 1)
            frame["lower"], frame["upper"] = self.interval(level)[pairs].T
        return frame


class Estimates(NamedTuple):
    """Gauge-invariant contrasts of couplings, with their covariance."""

    values: np.ndarray
    covariance: np.ndarray | NodeCovariances
    pairs: tuple
    names: np.ndarray
    sets: Sequence  # int arrays: indices of the contrasts of each pair; one if couplings are scalar
    unpacked: Callable | None = None  # maps contrasts to couplings; None if they are the same

    def matrix(self, values):
        """Return values of pairs as a symmetric matrix with zero diagonal."""
        out = np.zeros((len(self.names), len(self.names)))
        out[tuple(self.pairs)] = values
        return out + out.T

    def couplings(self, values):
        """Return contrasts as matrices of couplings."""
        return self.matrix(values) if self.unpacked is None else self.unpacked(values)

    def variances_of_sums(self, signs):
        """Compute the variances of the signed sums of the couplings of each feature."""
        incidence = np.zeros((len(self.names), len(signs)))
        for ends in self.pairs:
            incidence[ends, np.arange(len(signs))] = signs
        if not isinstance(self.covariance, NodeCovariances):
            return ((incidence @ self.covariance) * incidence).sum(1)
        out = np.zeros(len(self.names))
        for k, edges, block in zip(*self.covariance, strict=True):
            out[k] = incidence[k, edges] @ block @ incidence[k, edges]
        return out

    def inclusion(self, inclusion_probability, scale, slab="gaussian", sensitivity=True):
        """Check the prior; compute the `EdgeInclusion`, and its sensitivity to the scale."""
        log_odds = checked_prior(inclusion_probability, scale)
        one_of("slab", slab, SLABS)
        estimates, factor = self._effects()

        def with_prior(log_odds, scale):
            scale = None if scale is None else scale / factor
            return self._wrap(estimates.posterior(log_odds, scale, slab, 1 / factor), factor, slab)

        result = with_prior(log_odds, scale)
        if not sensitivity:
            return result
        log_odds = logit(result.inclusion_probability)
        scales = result.scale * np.array([0.5, 1.0, 2.0])
        results = [with_prior(log_odds, scales[0]), result, with_prior(log_odds, scales[2])]
        evidence = np.array([each.log_evidence for each in results])
        probability = np.stack([each.probability for each in results])
        return replace(result, sensitivity=ScaleSensitivity(scales, evidence, probability))

    def _effects(self):
        """Return the object that computes the posterior, and the factor of its scale."""
        if self.unpacked is not None:
            # A log-odds ratio of two states of either position has twice the deviation.
            return EffectSets(self.values, self.covariance, self.sets), 2.0
        if isinstance(self.covariance, NodeCovariances):
            nodes = self.covariance.blocks, self.covariance.edges
            return SingleEffects.of_nodes(self.values, *nodes), 1.0
        return SingleEffects.of(self.values, self.covariance), 1.0

    def _wrap(self, effects, factor, slab):
        """Return the `EdgeInclusion` of a posterior; warn unless it has converged."""
        if not effects.converged:
            warn_of_convergence(
                "Expectation propagation has not converged: probabilities of inclusion are "
                "approximate. Give a smaller scale, or errors of more rows."
            )
        return EdgeInclusion(
            probability=self.matrix(effects.probability),
            log_bayes_factor=self.matrix(effects.log_odds - effects.prior_log_odds),
            mean=self.couplings(effects.mean),
            std=self.matrix(effects.std) if self.unpacked is None else None,
            log_evidence=effects.log_evidence,
            inclusion_probability=float(sigmoid(np.float64(effects.prior_log_odds))),
            scale=float(factor * effects.scale),
            slab=slab,
            converged=effects.converged,
            sensitivity=None,
            names=self.names,
        )

    def deviations(self):
        """Compute the standard errors of the couplings."""
        if self.unpacked is None:
            return self.matrix(np.sqrt(self.covariance.diagonal()))
        factor = np.linalg.cholesky(self.covariance)
        return np.sqrt(sum(np.square(self.unpacked(column)) for column in factor.T))

    def chi_squares(self):
        """Compute the Wald statistic of each pair."""
        if self.unpacked is None:
            return self.values**2 / self.covariance.diagonal()
        return np.array([
            self.values[k] @ np.linalg.solve(self.covariance[np.ix_(k, k)], self.values[k])
            for k in self.sets
        ])  # fmt: skip

    def chi_square(self):
        """Compute the Wald statistic of all contrasts; NaN without a joint covariance."""
        if isinstance(self.covariance, NodeCovariances):
            return np.nan
        return Whitened.of(self.values, self.covariance).chi_square


def checked_prior(inclusion_probability, scale):
    """Check both arguments; return the prior log-odds, None if they are to be learned."""
    if inclusion_probability is not None:
        positive("inclusion_probability", inclusion_probability, 1.0)
    if scale is not None:
        positive("scale", scale)
    return None if inclusion_probability is None else logit(inclusion_probability)


class Network:
    """Mixin for tests and edges; `_at_maximum` returns objective, parameters and sampling."""

    # Ratio of a coupling in {0, 1} coding to the parameter of the objective.
    _coupling_factor = 1.0
    # Ratio of the prior deviation of couplings to the deviation of contrasts.
    _prior_factor = 1.0

    def _godambe(self):
        """Return Godambe's information about the parameters; raise if no maximum exists."""
        if self.existence_.exists is False:
            raise ValueError(f"there are no standard errors: {self.existence_.message}.")
        objective, parameters, sampling = self._at_maximum()
        if self._completions is not None:
            return IncompleteGodambe(objective, parameters, self._completions, sampling)
        return Godambe(objective, parameters, sampling)

    @property
    def _penalised(self):
        """Whether a penalty, also Firth's, gives estimates where rows say little."""
        return bool(self.l2 or getattr(self, "l2_field", 0) or self.solver == "firth")

    def _tested(self, godambe, scale=1.0):
        """Return estimates without the penalty of the fit, and their Godambe information."""
        if np.any(godambe.objective.ridge) and self._completions is None:
            return without_penalty(godambe, self._coupling_factor * self._prior_factor / scale)
        godambe.min_ratio = MIN_SANDWICH_RATIO if self._penalised else 0.0
        return godambe.parameters, godambe

    def _edge_estimates(self, errors, scale=None):
        """Return the estimates of couplings in {0, 1} coding, or of contrasts."""
        one_of("errors", errors, ERRORS)
        godambe, factor = self._godambe(), self._coupling_factor
        if (objective := godambe.objective).n_parameters == objective.n_fields:
            raise ValueError("the fit has no couplings: its graph, or the selection, has none.")
        contrasts, sets, pairs = objective.contrasts()
        contrasts, parameters, ratio = factor * contrasts, godambe.parameters, 0.0
        if scale is not None:
            (parameters, godambe), ratio = self._tested(godambe, scale), MIN_SANDWICH_RATIO
        covariance = contrast_covariance(godambe, contrasts, sets, errors, ratio)
        return Estimates(
            contrasts @ parameters, covariance, pairs, feature_names(self), sets,
            self._unpacked_contrasts(objective, contrasts),
        )  # fmt: skip

    def _unpacked_contrasts(self, objective, contrasts):
        """Return a function from contrasts to couplings; None if couplings are scalar."""

    def likelihood_ratio_test(self, pairs=None):
        """Perform a composite likelihood ratio test of couplings being zero.

        Parameters
        ----------
        pairs : int array of shape (n_pairs, 2), optional
            Couplings that are zero under the null hypothesis; default: all couplings.

        Returns
        -------
        RatioTest
            `statistic`, `p_value`, the `weights` of the chi-squared variables in its distribution
            under the null hypothesis, and the restricted `parameters`, fields first.

        Raises
        ------
        ValueError
            If there is no maximum, or a penalty, or more than 6,000 parameters.

        Notes
        -----
        Twice a difference of log-pseudo-likelihoods is a sum of chi-squared variables with weights
        from the Godambe information (Kent 1982; Varin, Reid & Firth 2011).
        """
        godambe = self._godambe()
        if self._penalised:
            raise ValueError(
                "likelihood ratios need maxima without penalties: fit without l2 and Firth's."
            )
        return godambe.likelihood_ratio_test(pairs)

    def edge_inclusion(
        self, inclusion_probability=0.5, scale=1.0, slab="gaussian", errors="sandwich"
    ):
        """Compute the posterior probability that the couplings of each pair are not all zero.

        Parameters
        ----------
        inclusion_probability : float or None
            Prior probability that a pair is coupled. None: the mode, in log-odds, of its posterior
            for a uniform prior.
        scale : float or None
            Prior standard deviation (or scale of the Cauchy slab) of non-zero couplings in {0, 1}
            coding, where couplings of binary units are log-odds ratios; for Potts machines, of the
            log-odds ratios of two states of either position. None: the mode, in its logarithm, of
            its posterior for a log-normal prior (median 1, deviation 1).
        slab : {"gaussian", "cauchy"}
            Prior of couplings that are not zero.
        errors : {"sandwich", "naive"}
            Covariance of the estimates: Godambe's, or the inverse Hessian, which would be right for
            a likelihood and is too small here.

        Returns
        -------
        EdgeInclusion
            `probability`, `log_bayes_factor`, `mean`, `log_evidence`, `as_frame`, the `sensitivity`
            to the scale, and for single couplings `std` and `interval`.

        Raises
        ------
        ValueError
            If there is no maximum, or the fit has no standard errors, or their covariance is
            singular.

        Notes
        -----
        Expectation propagation for normally distributed estimates and a spike-and-slab prior. The
        (q - 1) (r - 1) gauge-invariant contrasts of two positions with q and r states are included
        or excluded together. A penalty `l2` of the fit is removed, unless rows are completed
        ("em"). More than 1,000 scalar couplings are treated by feature, and both results for a pair
        are averaged.

        Examples
        --------
        >>> import numpy as np, fastmf as mf
        >>> rng = np.random.default_rng(0)
        >>> X = np.cumprod(np.where(rng.random((500, 4)) < 0.75, 1, -1), axis=1)  # a Markov chain
        >>> machine = mf.FullyVisibleBoltzmannMachine().fit(X)
        >>> (machine.edge_inclusion().probability > 0.5).astype(int)
        array([[0, 1, 0, 0],
               [1, 0, 1, 0],
               [0, 1, 0, 1],
               [0, 0, 1, 0]])
        """
        checked_prior(inclusion_probability, scale)
        estimates = self._edge_estimates(errors, 1.0 if scale is None else scale)
        return estimates.inclusion(inclusion_probability, scale, slab)


def warn_of_refits(converged):
    """Return a mask of the refits that have a maximum; warn unless all have."""
    converged = np.array(converged)
    if not converged.all():
        warn_of_convergence(
            f"{(~converged).sum()} of {converged.size} samples of the rows have no maximum, or it "
            "was not found: where a rare value is missing couplings grow without bound; leave out "
            "these samples (`converged`), or fit with a penalty l2."
        )
    return converged


# --- groups ---------------------------------------------------------------------------------------


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


@short_repr
class PermutationTest(NamedTuple):
    """Permutation test of the differences between two groups.

    For Potts machines, the couplings of a pair of positions, and their differences, are measured by
    their Frobenius norm in the zero-sum gauge.

    Parameters
    ----------
    n : int
        Number of permutations.
    largest, largest_p_value : float
        Largest absolute difference of a coupling, and its p-value.
    strength, strength_p_value : float
        Sum of absolute couplings of the first group minus the sum for the second group, and its
        two-sided p-value.
    p_value : array of shape (n_features, n_features)
        Two-sided p-values of single couplings, not adjusted for their number; 1 on the diagonal.
    converged : float
        Share of the permutations for which both maxima exist. The p-values are exact given these
        permutations.
    """

    n: int
    largest: float
    largest_p_value: float
    strength: float
    strength_p_value: float
    p_value: np.ndarray
    converged: float


@dataclass(frozen=True, eq=False, repr=False)
class GroupComparison(PairsResult):
    """Differences of couplings in {0, 1} coding; see `compare_groups`.

    Parameters
    ----------
    difference, std : array of shape (n_features, n_features)
        Couplings of the first machine minus couplings of the second, and standard errors; for Potts
        machines in the zero-sum gauge, shaped as `couplings_`.
    p_value : array of shape (n_features, n_features)
        p-values of two-sided Wald tests, not adjusted for their number; 1 on the diagonal. For
        pairs of positions, chi-squared tests of all their couplings.
    probability : array of shape (n_features, n_features)
        Posterior probabilities that couplings differ.
    log_bayes_factor : array of shape (n_features, n_features)
        Log-ratio of the evidences with and without a difference.
    omnibus : Omnibus
        NaN for more than 1,000 couplings, which have no joint covariance.
    names : array of str of shape (n_features,)
    permutation : PermutationTest, optional
    """

    difference: np.ndarray
    std: np.ndarray
    p_value: np.ndarray
    probability: np.ndarray
    log_bayes_factor: np.ndarray
    omnibus: Omnibus
    names: np.ndarray
    permutation: PermutationTest | None = None


def compare_groups(
    machine_a, machine_b, *, inclusion_probability=0.5, scale=1.0, errors="sandwich",
    n_permutations=0, rng=0, verbose=False,
):  # fmt: skip
    """Compare the couplings of machines fitted to two groups of rows.

    Parameters
    ----------
    machine_a, machine_b : FullyVisibleBoltzmannMachine, OrdinalMachine or PottsMachine
        Machines fitted to independent samples of the same features.
    inclusion_probability, scale : float or None
        Prior of the differences, as in `FullyVisibleBoltzmannMachine.edge_inclusion`.
    errors : {"sandwich", "naive"}
    n_permutations : int
        Number of permutations for tests that are exact for few rows, with two fits each; 0: no
        permutation test.
    rng : int, RandomState or None, default 0
        Random state of the permutations.
    verbose : bool, default False
        Show the number of finished permutations on stderr.

    Returns
    -------
    GroupComparison
        Differences with errors, tests and probabilities.

    Raises
    ------
    ValueError
        If the features or their values are not the same, or a fit has no standard errors; with
        permutations, if weights do not count rows.

    Notes
    -----
    Wald tests are asymptotic, and reject too often with few rows for each coupling. Permutations
    assign rows to the groups at random; their null hypothesis is that both groups have the same
    distribution, fields included. A penalty `l2` of the fits is removed as in `edge_inclusion`, but
    not from the fits of permutations. Rows of Potts machines keep their weights.

    Examples
    --------
    >>> import numpy as np, fastmf as mf
    >>> rng = np.random.default_rng(0)
    >>> chain = lambda p: np.cumprod(np.where(rng.random((500, 3)) < [0.5, p, 0.8], 1, -1), axis=1)
    >>> a, b = (mf.FullyVisibleBoltzmannMachine().fit(chain(p)) for p in (0.5, 0.9))
    >>> comparison = mf.compare_groups(a, b)
    >>> np.argwhere(comparison.probability > 0.9).tolist(), comparison.omnibus.p_value < 0.01
    ([[0, 1], [1, 0]], True)
    """
    n_permutations, rng = count("n_permutations", n_permutations, 0), generator_of(rng)
    verbose, errors = flag("verbose", verbose), one_of("errors", errors, ERRORS)
    if not (isinstance(machine_a, Network) and type(machine_a) is type(machine_b)):
        named = f"{type(machine_a).__name__} and {type(machine_b).__name__}"
        raise TypeError(f"machines must be fitted machines of one class, got {named}.")
    machines, estimates = (machine_a, machine_b), []
    for group, machine in zip("ab", machines, strict=True):
        try:
            estimates.append(machine._edge_estimates(errors, 1.0 if machine._penalised else None))
        except ValueError as error:
            raise ValueError(f"machine_{group}: {error}") from error
    a, b = estimates
    _check_alike(machine_a, machine_b, a, b)
    delta = a._replace(values=a.values - b.values, covariance=a.covariance + b.covariance)
    posterior = delta.inclusion(inclusion_probability, scale, sensitivity=False)
    statistic, n = delta.chi_square(), len(delta.values)
    degrees = np.array([len(members) for members in delta.sets])
    p_value = np.ones_like(posterior.probability)
    p_value[delta.pairs] = p_value.T[delta.pairs] = chdtrc(degrees, delta.chi_squares())
    return GroupComparison(
        difference=delta.couplings(delta.values),
        std=delta.deviations(),
        p_value=p_value,
        probability=posterior.probability,
        log_bayes_factor=posterior.log_bayes_factor,
        omnibus=Omnibus(statistic, float(chdtrc(n, statistic)), n),
        names=delta.names,
        permutation=_permutation_test(machines, n_permutations, rng, verbose),
    )


def _check_alike(machine_a, machine_b, a, b):
    """Raise unless two machines have the same features, values and pairs."""
    if not np.array_equal(a.names, b.names):
        raise ValueError(
            "machines must have the same features: fit both to the same columns, got "
            f"{list(a.names)} and {list(b.names)}."
        )
    values = zip(a.names, machine_a.categories_, machine_b.categories_, strict=True)
    for name, x, y in values:
        if not np.array_equal(x, y):
            raise ValueError(
                f"machines must have the same values of features, got {x.tolist()} and "
                f"{y.tolist()} of {name}: declare them (n_categories, n_states, or pandas' "
                "categories), or merge those that a group lacks."
            )
    if not all(np.array_equal(x, y) for x, y in zip(a.pairs, b.pairs, strict=True)):
        raise ValueError(
            "machines must have the same pairs of features with couplings: give both one graph, or "
            "fit both without l1."
        )


def _permutation_test(machines, n, rng, verbose=False):
    """Perform the permutation test with the rows of two machines; None without permutations."""
    if not n:
        return None
    machine, parts = machines[0], [each._counted_rows() for each in machines]
    labels, counts, weights = map(np.concatenate, zip(*parts, strict=True))
    first, used = np.arange(len(labels)) < len(parts[0][0]), counts * weights > 0
    labels, counts, weights, first = (x[used] for x in (labels, counts, weights, first))
    kinds, kind = np.unique(weights, return_inverse=True)
    rows, sums, members = distinct(np.column_stack([labels, kind]).astype(int), counts)
    of_first = np.bincount(members, counts * first).astype(np.int64)
    counts, labels, weights = sums.astype(np.int64), rows[:, :-1], kinds[rows[:, -1]]
    objective = machine._objective_of(labels, counts * weights)
    contrasts, sets, pairs = objective.contrasts()
    starts = np.array([contrast[0] for contrast in sets])

    def norms(couplings):  # absolute values if a pair has one coupling
        return np.sqrt(np.add.reduceat(np.square(couplings), starts))

    with few_blas_threads(objective.n_parameters):
        pooled = maximum(objective, objective.independent(), machine._tol).parameters
        refits = Refits(objective, pooled, machine._penalty_l1, machine._tol)

        def differences(of_a):
            fits = [refits.maximum(k * weights) for k in (of_a, counts - of_a)]
            a, b = (machine._coupling_factor * contrasts @ fit.parameters for fit in fits)
            strength = norms(a).sum() - norms(b).sum()
            return norms(a - b), strength, all(fit.stopped for fit in fits)

        delta, strength, _ = differences(of_first)
        results = [
            differences(rng.multivariate_hypergeometric(counts, of_first.sum(), method="marginals"))
            for _ in followed(range(n), "permutations", verbose)
        ]
    permuted, strengths, stopped = map(np.array, zip(*results, strict=True))
    share, stopped = float(stopped.mean()), warn_of_refits(stopped)
    permuted, strengths = permuted[stopped], strengths[stopped]
    p_value = np.ones((objective.n_units, objective.n_units))
    p_value[pairs] = p_value.T[pairs] = _p_value(permuted >= delta)
    largest = delta.max()
    return PermutationTest(
        n, float(largest), float(_p_value(permuted.max(1) >= largest)), float(strength),
        float(_p_value(abs(strengths) >= abs(strength))), p_value, share,
    )  # fmt: skip


def _p_value(as_large):
    """Return the share of permutations, the data included, with a statistic as large."""
    return (1 + as_large.sum(0)) / (1 + len(as_large))
