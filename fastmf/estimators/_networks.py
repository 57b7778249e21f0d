"""What networks are asked for: edges, centralities, predictability, codings and bootstraps."""

from typing import NamedTuple

import numpy as np
from sklearn.utils.validation import check_is_fitted

from fastmf._common.arguments import count, flag, one_of
from fastmf.estimators._edge_inclusion import Estimates, coupling_covariance
from fastmf.estimators._frames import feature_names, pairs_frame, pandas
from fastmf.estimators._runs import generator_of
from fastmf.learning.pseudo_likelihood import lbfgs, newton
from fastmf.learning.pseudo_likelihood.binary.distinct_rows import WeightedRows
from fastmf.learning.pseudo_likelihood.fit import few_blas_threads
from fastmf.learning.pseudo_likelihood.godambe import ADJUSTMENTS

ERRORS = ("sandwich", "naive")
# Couplings up to which the covariances of all of them are taken; beyond, those of each feature.
MAX_JOINT = 1000
CODINGS = ("01", "-1+1")
# Options under which a maximum is not that of the likelihood.
PENALTIES = ("l2", "l2_field", "penalty")
# Parameters up to which samples of the bootstrap are fitted by Newton's method.
_MAX_NEWTON_PARAMETERS = 1300


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
        Share of its variance that its conditional probabilities explain.
    standard_error : array of shape (n_features,)
        Standard errors of `r2`.
    accuracy : array of shape (n_features,)
        Share of rows in which the more probable value is right.
    marginal_accuracy : array of shape (n_features,)
        The same if nothing is known of the others: the share of the more frequent value.
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
    converged : bool array of shape (n,)
        False where the maximum of a sample was not found, as it may not exist.
    """

    couplings: np.ndarray
    field: np.ndarray
    converged: np.ndarray


class Network:
    """Reports on the couplings of a machine with Godambe's information."""

    # A coupling in {0, 1} coding is this times the parameter.
    _coupling_factor = 1.0

    def _edge_estimates(self, errors):
        """Couplings in {0, 1} coding with their covariance."""
        one_of("errors", errors, ERRORS)
        godambe, factor = self._godambe(), self._coupling_factor
        first, pairs = godambe.objective.n_fields, tuple(godambe.objective.pairs)
        values = factor * np.asarray(godambe.parameters)[first:]
        C = coupling_covariance(godambe, errors, MAX_JOINT)
        return Estimates(values, C * factor**2, pairs, feature_names(self))

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

        Raises
        ------
        ImportError
            With `as_frame`, if pandas is not installed.

        Examples
        --------
        >>> import numpy as np, fastmf as mf
        >>> rng = np.random.default_rng(0)
        >>> X = np.cumprod(np.where(rng.random((500, 4)) < 0.75, 1, -1), axis=1)  # a Markov chain
        >>> machine = mf.FullyVisibleBoltzmannMachine().fit(X)
        >>> tests = machine.test_couplings()
        >>> neighbours = tests.second == tests.first + 1
        >>> bool((tests.adjusted[neighbours] < 0.05).all())
        True
        """
        flag("as_frame", as_frame)
        tests = self._godambe().wald_tests(one_of("adjust", adjust, ADJUSTMENTS))
        return pairs_frame(self, tests) if as_frame else tests

    def likelihood_ratio_test(self, pairs=None):
        """Composite likelihood ratio test of some couplings against zero.

        Parameters
        ----------
        pairs : int array of shape (n_pairs, 2), optional
            Couplings that are zero under the hypothesis; default all: independent features.

        Returns
        -------
        RatioTest
            `statistic`, `p_value`, the `weights` of the chi-squared variables whose sum has the
            distribution of the statistic, and the restricted `parameters`, fields first.

        Raises
        ------
        ValueError
            If there is no maximum, or a penalty, or for more than 6,000 parameters.

        Notes
        -----
        Twice the difference of two log-pseudo-likelihoods is not chi-squared, but a sum of
        chi-squares with weights from the Godambe information (Kent 1982; Varin, Reid & Firth 2011).

        Examples
        --------
        >>> import numpy as np, fastmf as mf
        >>> rng = np.random.default_rng(0)
        >>> X = np.cumprod(np.where(rng.random((500, 4)) < 0.75, 1, -1), axis=1)  # a Markov chain
        >>> machine = mf.FullyVisibleBoltzmannMachine().fit(X)
        >>> machine.likelihood_ratio_test().p_value < 1e-6  # independent units
        True
        >>> machine.likelihood_ratio_test([(0, 2), (0, 3), (1, 3)]).p_value > 0.01
        True
        """
        godambe = self._godambe()
        if any(getattr(self, name, None) for name in PENALTIES):
            raise ValueError(
                "likelihood ratios need maxima without penalties: fit without l2 and penalty."
            )
        return godambe.likelihood_ratio_test(pairs)

    def edge_inclusion(
        self, inclusion_probability=0.5, scale=1.0, slab="gaussian", errors="sandwich"
    ):
        """Posterior probability of each coupling that it is not zero.

        Parameters
        ----------
        inclusion_probability : float or None
            Prior probability of a coupling. None: that of the largest evidence times a uniform
            prior.
        scale : float or None
            Prior standard deviation of couplings that are not zero, or scale of their Cauchy
            distribution, in {0, 1} coding, in which those of binary units are log-odds ratios.
            None: that of the largest evidence times a log-normal prior (median 1, deviation 1).
        slab : {"gaussian", "cauchy"}
            Prior of couplings that are not zero.
        errors : {"sandwich", "naive"}
            Covariance of the estimates: Godambe's, or that which takes the pseudo-likelihood for a
            likelihood, whose standard errors are too small (0.7 times, say) and whose
            probabilities are too near to 0 and 1.

        Returns
        -------
        EdgeInclusion
            `probability`, `log_bayes_factor`, `mean`, `std`, `log_evidence`, `interval`,
            `as_frame`, and the `sensitivity` to the scale.

        Raises
        ------
        ValueError
            If there is no maximum, or the fit has no standard errors, or their covariance is
            singular, as with fewer different rows than parameters.

        Notes
        -----
        Estimates are taken as normal about the couplings, with their covariance; expectation
        propagation then includes or excludes couplings, to within some 0.01 of the sum over all
        graphs. A penalty of the fit moves estimates, and results with them.

        Of more than 1,000 couplings (45 features), those of each feature are taken together, with
        their covariance, which leaves out the correlations of pairs that have no feature in common:
        a coupling has the mean of the log-odds and moments at its two ends.

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
        estimates = self._edge_estimates(errors)
        return estimates.inclusion(inclusion_probability, scale, slab)

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
            near zero: moduli of small ones are larger than those of the truth.

        Examples
        --------
        >>> import numpy as np, fastmf as mf
        >>> rng = np.random.default_rng(0)
        >>> X = np.cumprod(np.where(rng.random((500, 4)) < 0.75, 1, -1), axis=1)  # a Markov chain
        >>> machine = mf.FullyVisibleBoltzmannMachine().fit(X)
        >>> sorted(machine.strength().value.argsort()[:2].tolist())  # the ends of the chain
        [0, 3]
        """
        estimates = self._edge_estimates("sandwich")
        return self._sums(estimates, np.sign(estimates.values), as_frame)

    def expected_influence(self, *, as_frame=False):
        """Sum of the couplings of each feature, in {0, 1} coding.

        Parameters
        ----------
        as_frame : bool, default False
            A pandas data frame instead, with the names of the features.

        Returns
        -------
        Centrality
            `value` and `standard_error`.

        Examples
        --------
        >>> import numpy as np, fastmf as mf
        >>> rng = np.random.default_rng(0)
        >>> X = np.cumprod(np.where(rng.random((500, 4)) < 0.75, 1, -1), axis=1)  # a Markov chain
        >>> machine = mf.FullyVisibleBoltzmannMachine().fit(X)
        >>> influence = machine.expected_influence()
        >>> np.allclose(influence.value, 4 * machine.couplings_.sum(0))
        True
        """
        estimates = self._edge_estimates("sandwich")
        return self._sums(estimates, np.ones(len(estimates.values)), as_frame)

    def _sums(self, estimates, signs, as_frame):
        """Sums of signed couplings of each feature, with their standard errors."""
        values = estimates.matrix(signs * estimates.values).sum(0)
        errors = np.sqrt(estimates.variances_of_sums(signs))
        return self._framed(Centrality(values, errors), as_frame)

    def _framed(self, found, as_frame):
        if not as_frame:
            return found
        return pandas().DataFrame(found._asdict(), index=feature_names(self))


class BinaryNetwork(Network):
    """What is for binary units alone."""

    # {0, 1} coding: x = 2 y - 1.
    _coupling_factor = 4.0

    def in_coding(self, coding):
        """Couplings and field of units in other values.

        Parameters
        ----------
        coding : {"01", "-1+1"}
            "01": p(y) ~ exp(y'Sy / 2 + m'y) for y in {0, 1}, with S = 4 J and
            m_i = 2 h_i - 2 sum_j J_ij. "-1+1": J and h, as they are in `couplings_` and `field_`.

        Returns
        -------
        couplings : array of shape (n_features, n_features)
        field : array of shape (n_features,)

        Examples
        --------
        >>> import numpy as np, fastmf as mf
        >>> rng = np.random.default_rng(0)
        >>> X = np.cumprod(np.where(rng.random((500, 4)) < 0.75, 1, -1), axis=1)  # a Markov chain
        >>> machine = mf.FullyVisibleBoltzmannMachine().fit(X)
        >>> couplings, field = machine.in_coding("01")
        >>> probability = 1 / (1 + np.exp(-field - couplings @ [0, 0, 0, 0]))  # all others are 0
        >>> np.allclose(probability, machine.conditional_proba(np.full((1, 4), -1))[0])
        True
        """
        check_is_fitted(self)
        one_of("coding", coding, CODINGS)
        if coding == "-1+1":
            return self.couplings_.copy(), self.field_.copy()
        return 4 * self.couplings_, 2 * self.field_ - 2 * self.couplings_.sum(1)

    def predictability(self, *, as_frame=False):
        """How well each feature is known from all others, in the rows of the fit.

        Parameters
        ----------
        as_frame : bool, default False
            A pandas data frame instead, with the names of the features.

        Returns
        -------
        Predictability
            `r2`, the share of the variance explained (the Brier skill of the conditional
            probabilities) with its `standard_error` by the delta method; `accuracy` and
            `marginal_accuracy`.

        Notes
        -----
        Values of the rows of the fit are larger than those of other rows would be.

        Examples
        --------
        >>> import numpy as np, fastmf as mf
        >>> rng = np.random.default_rng(0)
        >>> X = np.cumprod(np.where(rng.random((500, 4)) < 0.75, 1, -1), axis=1)  # a Markov chain
        >>> machine = mf.FullyVisibleBoltzmannMachine().fit(X)
        >>> sorted(machine.predictability().r2.argsort()[:2].tolist())  # the ends of the chain
        [0, 3]
        """
        godambe = self._godambe()
        objective = godambe.objective
        states, weights = objective.rows.states, objective.weights
        t = np.tanh(states @ self.couplings_ + self.field_)
        residuals, mean = states - t, weights @ states
        unexplained, total = weights @ residuals**2, 1 - mean**2
        constant = total <= 0
        total = np.where(constant, 1.0, total)
        ratio = unexplained / total
        # The derivatives of the unexplained part by the fields of rows, then by parameters.
        slopes = -2 * weights[:, None] * residuals * (1 - t * t)
        by_field, by_couplings = slopes.sum(0), slopes.T @ states
        gradients = np.zeros((len(mean), len(godambe.parameters)))
        for j in range(len(mean)):
            couplings = np.zeros_like(self.couplings_)
            couplings[j] = by_couplings[j]
            field = np.where(np.arange(len(mean)) == j, by_field, 0.0)
            gradients[j] = objective.packed(couplings + couplings.T, field)
        with few_blas_threads():
            influences = residuals**2 - unexplained + godambe.influences(gradients)
        influences += 2 * ratio * mean * (states - mean)
        errors = np.sqrt(weights @ influences**2 / objective.total) / total
        found = Predictability(
            np.where(constant, np.nan, 1 - ratio),
            np.where(constant, np.nan, errors),
            weights @ (states * t > 0) + weights @ (t == 0) / 2,
            (1 + abs(mean)) / 2,
        )
        return self._framed(found, as_frame)

    def bootstrap(self, n=1000, rng=0):
        """Estimates of rows that are drawn with replacement.

        Parameters
        ----------
        n : int
            Number of samples, each of as many rows as all weights count.
        rng : int, RandomState or None, default 0

        Returns
        -------
        Bootstrap
            `couplings` and `field` of every sample, and whether they `converged`.

        Raises
        ------
        ValueError
            With Firth's penalty or mean-field inversions.

        Notes
        -----
        Samples are weights of the distinct rows, and each fit starts at the estimate. Where rare
        values make the maximum of some samples infinite, give a penalty `l2`.

        Examples
        --------
        >>> import numpy as np, fastmf as mf
        >>> rng = np.random.default_rng(0)
        >>> X = np.cumprod(np.where(rng.random((500, 4)) < 0.75, 1, -1), axis=1)  # a Markov chain
        >>> machine = mf.FullyVisibleBoltzmannMachine().fit(X)
        >>> samples = machine.bootstrap(100)
        >>> ratio = samples.couplings.std(0)[0, 1] / machine.standard_errors()[0][0, 1]
        >>> bool(0.7 < ratio < 1.4)
        True
        """
        check_is_fitted(self)
        if self.penalty or self.solver in ("naive_mean_field", "tap_inversion"):
            raise ValueError(
                "bootstrap is for maxima without Firth's penalty: fit with penalty=None, and "
                "another solver."
            )
        n, rng = count("n", n), generator_of(rng)
        rows, n_rows = self._objective.rows, round(self._objective.total)
        if n_rows < 1:
            raise ValueError(
                f"weights must count rows, got a sum of {self._objective.total:g}: multiply them."
            )
        probabilities = rows.weights / rows.weights.sum()
        fits = []
        with few_blas_threads():
            for _ in range(n):
                drawn = rng.multinomial(n_rows, probabilities).astype(float)
                fits.append(self._refitted(rows.states, drawn))
        d = self.n_features_in_
        couplings, field = np.empty((n, d, d)), np.empty((n, d))
        for k, fit in enumerate(fits):
            couplings[k], field[k] = self._objective.unpacked(fit.parameters)
        return Bootstrap(couplings, field, np.array([fit.stopped for fit in fits]))

    def _refitted(self, states, weights):
        """The maximum for other weights of the rows, from the estimate."""
        kept = weights > 0
        rows = WeightedRows(states[kept], weights[kept])
        objective = self._objective_of(rows, self._objective.edges)
        if self._penalty_l1:
            return lbfgs.lbfgs(objective, self._parameters, l1=self._penalty_l1, tol=self.tol)
        if objective.n_parameters > _MAX_NEWTON_PARAMETERS:
            return lbfgs.lbfgs(objective, self._parameters, tol=self.tol)
        return newton.newton(objective, self._parameters, tol=self.tol)
