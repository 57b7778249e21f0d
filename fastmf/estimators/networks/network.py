"""Reports on networks: errors, tests, edges, centralities, predictability and resampled rows."""

from typing import NamedTuple

import numpy as np
from scipy.special import ndtri

from fastmf._common.arguments import count, flag, one_of, proper_fraction, real_array
from fastmf._common.names import pandas
from fastmf._common.progress import followed
from fastmf._common.warning import warn_user
from fastmf.estimators.common.data import check_counts
from fastmf.estimators.common.reports import features_frame, pairs_frame
from fastmf.estimators.common.runs import generator_of
from fastmf.estimators.networks.edges import Network, warn_of_refits
from fastmf.learning.pseudo_likelihood.fit import few_blas_threads, maximum
from fastmf.learning.pseudo_likelihood.godambe import ADJUSTMENTS
from fastmf.learning.pseudo_likelihood.resampling import (
    Refits,
    counts_of,
    with_replacement,
    without,
)

# Clusters below which errors warn: 95 % intervals of binary items held the truth in 90 % of
# simulated tables with 10 clusters, 93 % with 20.
MIN_CLUSTERS = 20


class Centrality(NamedTuple):
    """A number for each feature, with its standard error.

    Parameters
    ----------
    value, standard_error : array of shape (n_features,)
    """

    value: np.ndarray
    standard_error: np.ndarray


class Predictability(NamedTuple):
    """How well each feature is known from all others.

    Parameters
    ----------
    r2 : array of shape (n_features,)
        Share of its variance that its conditional means explain.
    standard_error : array of shape (n_features,)
        Standard errors of `r2`.
    accuracy : array of shape (n_features,)
        Share of rows in which the most probable value is right.
    marginal_accuracy : array of shape (n_features,)
        The same if nothing is known of the others: the share of the most frequent value.
    """

    r2: np.ndarray
    standard_error: np.ndarray
    accuracy: np.ndarray
    marginal_accuracy: np.ndarray


class Bootstrap(NamedTuple):
    """Estimates of resampled rows.

    Parameters
    ----------
    couplings : array of shape (n, n_features, n_features)
    field : array of shape (n, n_features)
        Fields; or the parameters of thresholds, item by item, (n, n_thresholds).
    converged : bool array of shape (n,)
        False where the maximum of a sample was not found, as it may not exist.
    """

    couplings: np.ndarray
    field: np.ndarray
    converged: np.ndarray


class Stability(NamedTuple):
    """Correlations of centralities with centralities of fewer rows.

    Parameters
    ----------
    dropped : array of shape (n_shares,)
        Shares of the rows that are dropped.
    strength, expected_influence : array of shape (n_shares, n)
        Correlation over features with the values of all rows, for each sample; NaN where the
        maximum of a sample was not found, as it may not exist.
    converged : bool array of shape (n_shares, n)
    """

    dropped: np.ndarray
    strength: np.ndarray
    expected_influence: np.ndarray
    converged: np.ndarray

    def coefficient(self, name="strength", correlation=0.7, probability=0.95):
        """Largest share of rows that can be dropped with little change of the centralities."""
        reached = (getattr(self, name) >= correlation).mean(1) >= probability
        enough = np.logical_and.accumulate(reached[np.argsort(self.dropped)])
        return float(np.sort(self.dropped)[enough].max(initial=0.0))

    def as_frame(self):
        """One line for each share and sample, as a pandas data frame."""
        dropped = np.broadcast_to(self.dropped[:, None], self.strength.shape)
        columns = self._asdict() | {"dropped": dropped}
        return pandas().DataFrame({name: values.ravel() for name, values in columns.items()})


class CouplingNetwork(Network):
    """Reports on the couplings of a machine that are numbers."""

    # --- errors ---------------------------------------------------------------------------------

    def _at_maximum(self):
        """The objective, parameters and sampling; of the fit without `l1`, if it had one."""
        if self._sampling is not None and self._sampling.shape[0] < MIN_CLUSTERS:
            warn_user(
                f"errors of {self._sampling.shape[0]} clusters are too small, and probabilities of "
                f"edges are not calibrated: take {MIN_CLUSTERS} clusters or more."
            )
        objective, parameters = self._objective, self._parameters
        if self._sampling is None:
            check_counts(objective.total, len(objective.weights), "clusters=range(len(X))")
        if self._penalty_l1:
            objective, parameters = self._without_l1()
            warn_user(
                f"errors are taken from a fit without l1 of the {len(objective.pairs[0])} "
                "couplings that are not zero, as if these had been known: they are too small."
            )
        return objective, parameters, self._sampling

    @property
    def _tol(self):
        """The option `tol` as a number that has a square."""
        return min(float(self.tol), 1e100)

    def _without_l1(self):
        """The objective with the couplings that are not zero alone, and its maximum."""
        n, pairs = self._objective.n_fields, np.stack(self._objective.pairs, axis=1)
        nonzero = self._parameters[n:] != 0
        objective = self._objective.restricted(pairs[nonzero])
        start = np.concatenate([self._parameters[:n], self._parameters[n:][nonzero]])
        with few_blas_threads(objective.n_parameters):
            result = maximum(objective, start, self._tol)
        if not result.stopped:
            raise ValueError(
                "there are no standard errors: without l1, the couplings that are not zero seem to "
                "have no maximum; give a larger l1, or l2."
            )
        return objective, result.parameters

    def covariance(self):
        """Sandwich (Godambe) covariance H^-1 J H^-1 / n of the estimate.

        Returns
        -------
        array of shape (n_parameters, n_parameters)
            Fields first, or parameters of thresholds item by item, then the couplings of pairs
            j < k, row by row: J_jk of binary units in {-1, +1}, sigma_jk of ordinal items.

        Raises
        ------
        ValueError
            If there is no maximum, or there are more than 6,000 parameters.

        Warns
        -----
        UserWarning
            With `l1`: errors are taken from a fit without it of the couplings that are not zero.
            With fewer than 20 clusters: errors are too small.
        """
        return self._godambe().covariance()

    def standard_errors(self, pairs=None):
        """Standard errors by the sandwich covariance.

        Parameters
        ----------
        pairs : int array of shape (n_pairs, 2), optional
            Only the errors of these couplings, or of the field where both units are the same.

        Returns
        -------
        couplings : array of shape (n_features, n_features)
            Symmetric, with zero diagonal.
        field : array of shape (n_features,), or thresholds : list of arrays of shape (m_i,)
            Instead of both, with `pairs` an array of shape (n_pairs,).

        Raises
        ------
        ValueError
            If there is no maximum.
        MemoryError
            If the machine has no room for what all errors take.

        Notes
        -----
        Errors and warnings are as in `covariance`. All errors take three matrices of n_parameters^2
        numbers and n_samples n_parameters^2 + 3 n_parameters^3 operations. Beyond 6,000 parameters
        each of the errors of `pairs` takes some twenty gradients instead.
        """
        godambe = self._godambe()
        if pairs is not None:
            return godambe.standard_errors(real_array("pairs", pairs))
        return self._errors_of_all(godambe)

    def _errors_of_all(self, godambe):
        """Errors of couplings and fields."""
        return godambe.objective.unpacked(godambe.standard_errors())

    def _fields_of(self, parameters):
        """Fields, or thresholds, of their parameters."""
        return parameters

    def confint(self, level=0.95):
        """Confidence intervals from the normal distribution, not adjusted for their number.

        Parameters
        ----------
        level : float

        Returns
        -------
        couplings : array of shape (n_features, n_features, 2)
            Lower and upper ends.
        field : array of shape (n_features, 2), or thresholds : list of arrays of shape (m_i, 2)
        """
        ends = ndtri((1 + proper_fraction("level", level)) / 2) * np.array([-1.0, 1.0])
        godambe = self._godambe()
        couplings, fields = godambe.objective.unpacked(godambe.parameters)

        def interval(values, errors):
            if isinstance(values, list):
                return [interval(*pair) for pair in zip(values, errors, strict=True)]
            return values[..., None] + ends * errors[..., None]

        values = couplings, self._fields_of(fields)
        return tuple(map(interval, values, self._errors_of_all(godambe)))

    # --- tests and edges ------------------------------------------------------------------------

    def _counted_rows(self):
        """Labels of the rows of the fit, the number and the weight of equal ones."""
        if self._sampling is not None or isinstance(self.l1, str):
            raise ValueError(
                "permutations are of rows that weights count, and of all couplings: fit "
                "without clusters, weights='sampling' and selection of couplings."
            )
        self._refits("a permutation test")
        counts = counts_of(self._row_weights())
        return self._items()[0], counts, np.ones(len(counts))

    def test_couplings(self, adjust="holm", *, as_frame=False):
        """Wald tests of every coupling against zero.

        Parameters
        ----------
        adjust : {"holm", "bonferroni", "benjamini_hochberg", "benjamini_yekutieli", "none"}
        as_frame : bool, default False
            A pandas data frame instead, in which `first` and `second` are names of features.

        Returns
        -------
        CouplingTests
            Arrays over pairs: `first`, `second`, `coupling`, `standard_error`, `z`, `p_value` and
            `adjusted` p-values.
        """
        flag("as_frame", as_frame)
        tests = self._godambe().wald_tests(one_of("adjust", adjust, ADJUSTMENTS))
        return pairs_frame(self, tests) if as_frame else tests

    def strength(self, *, as_frame=False):
        """Sum of the moduli of the couplings of each feature, in {0, 1} coding.

        Parameters
        ----------
        as_frame : bool, default False
            A pandas data frame instead, with the names of the features.

        Returns
        -------
        Centrality
            `value` and `standard_error`, by the delta method, which is for couplings that are not
            near zero: moduli of small ones are too large.
        """
        return self._sums(np.sign, as_frame)

    def expected_influence(self, *, as_frame=False):
        """Sum of the couplings of each feature, in {0, 1} coding.

        Parameters
        ----------
        as_frame : bool, default False
            A pandas data frame instead, with the names of the features.

        Returns
        -------
        Centrality
            `value` and `standard_error`, arrays of shape (n_features,).
        """
        return self._sums(np.ones_like, as_frame)

    def _sums(self, signs_of, as_frame):
        """Sums of signed couplings of each feature, with their standard errors."""
        estimates = self._edge_estimates("sandwich")
        signs = signs_of(estimates.values)
        values = estimates.matrix(signs * estimates.values).sum(0)
        errors = np.sqrt(estimates.variances_of_sums(signs))
        result = Centrality(values, errors)
        return features_frame(self, result) if as_frame else result

    # --- resampling -----------------------------------------------------------------------------

    def predictability(self, *, as_frame=False):
        """How well each feature is known from all others, in the rows of the fit.

        Parameters
        ----------
        as_frame : bool, default False
            A pandas data frame instead, with the names of the features.

        Returns
        -------
        Predictability
            `r2` of binary units is the Brier skill of the conditional probabilities; its
            `standard_error` is by the delta method.

        Notes
        -----
        Values of the rows of the fit are larger than values of other rows would be. Scores of
        ordinal items are taken as numbers.
        """
        godambe = self._godambe()
        objective, parameters = godambe.objective, godambe.parameters
        states, means, hits, frequent = objective.predictions(parameters)
        weights = objective.term_weights()
        residuals, deviations = states - means, states - (weights * states).sum(0)
        unexplained, total = ((weights * x**2).sum(0) for x in (residuals, deviations))
        constant = total <= 1e-14 * np.square(states).max(0)
        total = np.where(constant, 1.0, total)
        factors = -2 * weights * residuals
        direct = residuals**2 - unexplained / total * deviations**2
        with few_blas_threads():
            variances = godambe.variances_of(
                objective.prediction_gradients(parameters, factors),
                direct * weights / objective.weights[:, None],
            )
        result = Predictability(
            np.where(constant, np.nan, 1 - unexplained / total),
            np.where(constant, np.nan, np.sqrt(variances) / total),
            (weights * hits).sum(0),
            frequent,
        )
        return features_frame(self, result) if as_frame else result

    def _refits(self, what):
        """Fits for other weights, from the estimate."""
        if self._completions is not None:
            raise ValueError(f"{what} is for complete rows: fit with missing='drop'.")
        if self.solver == "firth":
            raise ValueError(
                f"{what} is for maxima without Firth's penalty: fit with another solver."
            )
        return Refits(self._objective, self._parameters, self._penalty_l1, self._tol)

    def bootstrap(self, n=1000, rng=0, verbose=False):
        """Estimates of rows that are drawn with replacement.

        Parameters
        ----------
        n : int
            Number of samples, each of the size that all weights count, or of all clusters.
        rng : int, RandomState or None, default 0
        verbose : bool, default False
            Whether to show on stderr how many samples are done.

        Returns
        -------
        Bootstrap
            Couplings and fields of every sample, and whether it has a maximum.

        Raises
        ------
        ValueError
            With Firth's penalty, or rows that were completed.

        Warns
        -----
        ConvergenceWarning
            If some samples have no maximum, as where values are rare: leave out samples that have
            not `converged`, or fit with a penalty `l2`.

        Notes
        -----
        Couplings that were selected by `l1` are selected in all samples.
        """
        with few_blas_threads():
            refits = self._refits("bootstrap")
            n, rng, weights = count("n", n), generator_of(rng), self._row_weights()
            if self._sampling is None:
                counts_of(np.array([round(weights.sum())]))
            samples = followed(range(n), "bootstrap samples", flag("verbose", verbose))
            fits = [refits.maximum(with_replacement(rng, weights, self._sampling)) for _ in samples]
        estimates = zip(*(self._objective.unpacked(fit.parameters) for fit in fits), strict=True)
        return Bootstrap(*map(np.array, estimates), warn_of_refits([fit.stopped for fit in fits]))

    def _row_weights(self):
        """Weights of the rows of the objective."""
        return self._objective.weights * self._objective.total

    def stability(self, n=100, dropped=(0.1, 0.25, 0.5, 0.75), rng=0, verbose=False):
        """Whether centralities stay as they are if fewer rows had been seen.

        Parameters
        ----------
        n : int
            Samples of each share.
        dropped : sequence of float
            Shares of the rows, or clusters, that are dropped at random.
        rng : int, RandomState or None, default 0
        verbose : bool, default False
            Whether to show on stderr how many samples are done.

        Returns
        -------
        Stability
            Correlations with the centralities of all rows; its `coefficient` is the largest share
            at which 95% of the samples have correlations of 0.7 or more.

        Raises
        ------
        ValueError
            As `bootstrap`; if weights do not count rows.
        """
        refits = self._refits("stability")
        n, rng, weights = count("n", n), generator_of(rng), self._row_weights()
        verbose = flag("verbose", verbose)
        dropped = np.atleast_1d(real_array("dropped", dropped)).astype(float)
        if dropped.ndim != 1 or not ((dropped > 0) & (dropped < 1)).all():
            raise ValueError(f"dropped must be shares between 0 and 1, got {dropped.tolist()}.")
        full = self.couplings_
        result, converged = np.empty((2, len(dropped), n)), np.empty((len(dropped), n), bool)
        with few_blas_threads():
            for i, share in enumerate(dropped):
                for k in followed(range(n), f"samples without {share:.0%}", verbose):
                    fit = refits.maximum(without(rng, share, weights, self._sampling))
                    couplings, _ = self._objective.unpacked(fit.parameters)
                    result[0, i, k] = correlation(abs(couplings).sum(0), abs(full).sum(0))
                    result[1, i, k] = correlation(couplings.sum(0), full.sum(0))
                    converged[i, k] = fit.stopped
        result[:, ~warn_of_refits(converged)] = np.nan
        return Stability(dropped, *result, converged)


def correlation(x, y):
    """Correlation of two vectors, 0 if one does not vary."""
    x, y = x - x.mean(), y - y.mean()
    norm = np.sqrt((x @ x) * (y @ y))
    return float(x @ y / norm) if norm > 0 else 0.0
