"""Reports on networks: errors, tests, edges, centralities, predictability and resampling."""

from typing import NamedTuple

import numpy as np
from scipy.special import ndtri

from fastmf._common.arguments import count, flag, one_of, proper_fraction, real_array
from fastmf._common.names import pandas
from fastmf._common.progress import followed
from fastmf._common.warning import short_repr, warn_user
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

# Number of clusters below which standard errors warn: the coverage of 95 % intervals of binary
# items was 90 % in simulations with 10 clusters, 93 % with 20.
MIN_CLUSTERS = 20


class Centrality(NamedTuple):
    """Centrality of each feature, with its standard error.

    Parameters
    ----------
    value, standard_error : array of shape (n_features,)
    """

    value: np.ndarray
    standard_error: np.ndarray


class Predictability(NamedTuple):
    """How well each feature can be predicted from all other features.

    Parameters
    ----------
    r2 : array of shape (n_features,)
        Share of the variance explained by the conditional means.
    standard_error : array of shape (n_features,)
        Standard errors of `r2`.
    accuracy : array of shape (n_features,)
        Share of rows in which the most probable value is right.
    marginal_accuracy : array of shape (n_features,)
        Accuracy without the other features: the share of the most frequent value.
    """

    r2: np.ndarray
    standard_error: np.ndarray
    accuracy: np.ndarray
    marginal_accuracy: np.ndarray


@short_repr
class Bootstrap(NamedTuple):
    """Estimates from bootstrap samples of the rows.

    Parameters
    ----------
    couplings : array of shape (n, n_features, n_features)
    field : array of shape (n, n_features)
        Fields; for ordinal items the parameters of thresholds, item by item, (n, n_thresholds).
    converged : bool array of shape (n,)
        False for samples without a maximum, or whose maximum was not found.
    """

    couplings: np.ndarray
    field: np.ndarray
    converged: np.ndarray


@short_repr
class Stability(NamedTuple):
    """Correlations between centralities from all rows and from subsets of the rows.

    Parameters
    ----------
    dropped : array of shape (n_shares,)
        Shares of the rows that are dropped.
    strength, expected_influence : array of shape (n_shares, n)
        Correlation over features with the values of all rows, for each sample; NaN for samples
        without a maximum, or whose maximum was not found.
    converged : bool array of shape (n_shares, n)
    """

    dropped: np.ndarray
    strength: np.ndarray
    expected_influence: np.ndarray
    converged: np.ndarray

    def coefficient(self, name="strength", correlation=0.7, probability=0.95):
        """Compute the largest share of rows that can be dropped with stable centralities."""
        attained = (getattr(self, name) >= correlation).mean(1) >= probability
        stable = np.logical_and.accumulate(attained[np.argsort(self.dropped)])
        return float(np.sort(self.dropped)[stable].max(initial=0.0))

    def as_frame(self):
        """One line for each share and sample, as a pandas data frame."""
        dropped = np.broadcast_to(self.dropped[:, None], self.strength.shape)
        columns = self._asdict() | {"dropped": dropped}
        return pandas().DataFrame({name: values.ravel() for name, values in columns.items()})


class CouplingNetwork(Network):
    """Mixin for reports on machines with scalar couplings."""

    # --- errors ---------------------------------------------------------------------------------

    def _at_maximum(self):
        """Return objective, parameters and sampling, refitted without `l1` if it is positive."""
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
        """The option `tol`, limited so that its square is finite."""
        return min(float(self.tol), 1e100)

    def _without_l1(self):
        """Return the objective restricted to non-zero couplings, and its maximum."""
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
        """Compute the sandwich (Godambe) covariance H^-1 J H^-1 / n of the estimate.

        Returns
        -------
        array of shape (n_parameters, n_parameters)
            Fields, or parameters of thresholds item by item, followed by the couplings of pairs
            j < k, row by row: J_jk of binary units in {-1, +1}, sigma_jk of ordinal items.

        Raises
        ------
        ValueError
            If there is no maximum, or there are more than 6,000 parameters.

        Warns
        -----
        UserWarning
            With `l1`, as errors are for a refit of the non-zero couplings without it, and are too
            small; with fewer than 20 clusters, as errors are too small.
        """
        return self._godambe().covariance()

    def standard_errors(self, pairs=None):
        """Compute standard errors from the sandwich covariance.

        Parameters
        ----------
        pairs : int array of shape (n_pairs, 2), optional
            Compute only the errors of these couplings, or of the field if both units are equal.

        Returns
        -------
        couplings : array of shape (n_features, n_features)
            Symmetric, with zero diagonal.
        field : array of shape (n_features,), or thresholds : list of arrays of shape (m_i,)
            With `pairs`, a single array of shape (n_pairs,) is returned instead.

        Raises
        ------
        ValueError
            If there is no maximum.
        MemoryError
            If there is not enough memory for the errors of all parameters.

        Notes
        -----
        Errors and warnings are as in `covariance`. Errors of all parameters need three matrices of
        n_parameters^2 numbers and n_samples n_parameters^2 + 3 n_parameters^3 operations. Beyond
        6,000 parameters, each error of `pairs` takes about twenty gradients instead.
        """
        godambe = self._godambe()
        if pairs is not None:
            return godambe.standard_errors(real_array("pairs", pairs))
        return self._errors_of_all(godambe)

    def _errors_of_all(self, godambe):
        """Compute the standard errors of couplings and fields."""
        return godambe.objective.unpacked(godambe.standard_errors())

    def _fields_of(self, parameters):
        """Return fields, or thresholds, given their parameters."""
        return parameters

    def confint(self, level=0.95):
        """Compute Wald confidence intervals, not adjusted for their number.

        A penalty `l2` of the fit is removed, as in `test_couplings`.

        Parameters
        ----------
        level : float

        Returns
        -------
        couplings : array of shape (n_features, n_features, 2)
            Lower and upper limits.
        field : array of shape (n_features, 2), or thresholds : list of arrays of shape (m_i, 2)
        """
        ends = ndtri((1 + proper_fraction("level", level)) / 2) * np.array([-1.0, 1.0])
        parameters, godambe = self._tested(self._godambe())
        couplings, fields = godambe.objective.unpacked(parameters)

        def interval(values, errors):
            if isinstance(values, list):
                return [interval(*pair) for pair in zip(values, errors, strict=True)]
            return values[..., None] + ends * errors[..., None]

        values = couplings, self._fields_of(fields)
        return tuple(map(interval, values, self._errors_of_all(godambe)))

    # --- tests and edges ------------------------------------------------------------------------

    def _counted_rows(self):
        """Return labels, counts and weights (all 1) of the rows of the fit."""
        if self._sampling is not None or isinstance(self.l1, str):
            raise ValueError(
                "a permutation test needs frequency weights and all couplings: fit without "
                "clusters and without selection of couplings."
            )
        self._refits("a permutation test")
        counts = counts_of(self._row_weights())
        return self._items()[0], counts, np.ones(len(counts))

    def test_couplings(self, adjust="holm", *, as_frame=False):
        """Perform Wald tests of each coupling being zero.

        A penalty `l2`, whose bias would count as evidence, is first removed, as in
        `edge_inclusion`, unless rows are completed ("em").

        Parameters
        ----------
        adjust : {"holm", "bonferroni", "benjamini_hochberg", "benjamini_yekutieli", "none"}
        as_frame : bool, default False
            Return a pandas data frame, in which `first` and `second` are names of features.

        Returns
        -------
        CouplingTests
            Arrays over pairs: `first`, `second`, `coupling`, `standard_error`, `z`, `p_value` and
            `adjusted` p-values.
        """
        flag("as_frame", as_frame)
        parameters, godambe = self._tested(self._godambe())
        tests = godambe.wald_tests(parameters, one_of("adjust", adjust, ADJUSTMENTS))
        return pairs_frame(self, tests) if as_frame else tests

    def strength(self, *, as_frame=False):
        """Compute the sum of the absolute couplings of each feature, in {0, 1} coding.

        Parameters
        ----------
        as_frame : bool, default False
            Return a pandas data frame with the names of the features.

        Returns
        -------
        Centrality
            `value` and `standard_error`, by the delta method. Absolute values of couplings near
            zero are biased upwards. A penalty `l2` shrinks the sums, as it does `couplings_`, but
            not the estimates of `test_couplings`; with `l1`, they are sums of a fit without it.
        """
        return self._sums(np.sign, as_frame)

    def expected_influence(self, *, as_frame=False):
        """Compute the sum of the couplings of each feature, in {0, 1} coding.

        Parameters
        ----------
        as_frame : bool, default False
            Return a pandas data frame with the names of the features.

        Returns
        -------
        Centrality
            `value` and `standard_error`, arrays of shape (n_features,). Penalties have the effects
            described in `strength`.
        """
        return self._sums(np.ones_like, as_frame)

    def _sums(self, signs_of, as_frame):
        """Compute signed sums of the couplings of each feature, with standard errors."""
        estimates = self._edge_estimates("sandwich")
        signs = signs_of(estimates.values)
        values = estimates.matrix(signs * estimates.values).sum(0)
        result = Centrality(values, np.sqrt(estimates.variances_of_sums(signs)))
        return features_frame(self, result) if as_frame else result

    # --- resampling -----------------------------------------------------------------------------

    def predictability(self, *, as_frame=False):
        """Compute how well each feature of the training rows is predicted from all other features.

        Parameters
        ----------
        as_frame : bool, default False
            Return a pandas data frame with the names of the features.

        Returns
        -------
        Predictability
            For binary units, `r2` is the Brier skill score of the conditional probabilities; its
            `standard_error` is by the delta method. Penalties have the effects described in
            `strength`.

        Notes
        -----
        Values for training rows are optimistic for new rows. Scores of ordinal items are treated as
        numbers.
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
        """Return an object that refits the model with other weights, starting at the estimate."""
        if self._completions is not None:
            raise ValueError(f"{what} is for complete rows: fit with missing='drop'.")
        if self.solver == "firth":
            raise ValueError(
                f"{what} is for maxima without Firth's penalty: fit with another solver."
            )
        return Refits(self._objective, self._parameters, self._penalty_l1, self._tol)

    def bootstrap(self, n=1000, rng=0, verbose=False):
        """Fit bootstrap samples of the rows.

        Parameters
        ----------
        n : int
            Number of samples. The size of each is the sum of weights, or the number of clusters.
        rng : int, RandomState or None, default 0
        verbose : bool, default False
            Show the number of finished samples on stderr.

        Returns
        -------
        Bootstrap
            Couplings and fields of every sample, and whether it has a maximum.

        Raises
        ------
        ValueError
            If the fit has Firth's penalty or completed rows ("em").

        Warns
        -----
        ConvergenceWarning
            If some samples have no maximum, for example because a value is rare: omit samples that
            have not `converged`, or fit with a penalty `l2`.

        Notes
        -----
        The selection of couplings by `l1` is not repeated.
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
        """Return the weights of the rows of the objective."""
        return self._objective.weights * self._objective.total

    def stability(self, n=100, dropped=(0.1, 0.25, 0.5, 0.75), rng=0, verbose=False):
        """Compute how stable centralities are if rows are dropped at random.

        Parameters
        ----------
        n : int
            Number of samples for each share.
        dropped : sequence of float
            Shares of the rows, or clusters, that are dropped at random.
        rng : int, RandomState or None, default 0
        verbose : bool, default False
            Show the number of finished samples on stderr.

        Returns
        -------
        Stability
            Correlations with the centralities of all rows; its `coefficient` is the largest share
            up to which 95% of the samples have correlations of 0.7 or more.

        Raises
        ------
        ValueError
            As in `bootstrap`; if weights are not numbers of rows.
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
    """Compute the correlation of two vectors; 0 if one is constant."""
    x, y = x - x.mean(), y - y.mean()
    norm = np.sqrt((x @ x) * (y @ y))
    return float(x @ y / norm) if norm > 0 else 0.0
