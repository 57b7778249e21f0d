"""Predictability of features, and what resampled rows say of a network."""

from typing import NamedTuple

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted

from fastmf._common.arguments import count, flag, real_array
from fastmf._common.progress import followed
from fastmf._common.warning import warn_user
from fastmf.estimators.common.frames import features_frame
from fastmf.estimators.common.runs import generator_of
from fastmf.learning.pseudo_likelihood.fit import few_blas_threads
from fastmf.learning.pseudo_likelihood.resampling import (
    Refits,
    counts_of,
    with_replacement,
    without,
)


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


class Resampling:
    """Predictability, bootstraps and stability of a machine with a pseudo-likelihood."""

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
        check_is_fitted(self)
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
            If the maximum of some samples does not exist or was not found.

        Notes
        -----
        Where values are rare some samples have no maximum, and their couplings are where the solver
        stopped: leave out samples that have not `converged`, or fit with a penalty `l2`. Couplings
        that were selected by `l1` are selected in all samples.

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
        with few_blas_threads():
            refits = self._refits("bootstrap")
            n, rng, weights = count("n", n), generator_of(rng), self._row_weights()
            if self._sampling is None:
                counts_of(np.array([round(weights.sum())]))
            samples = followed(range(n), "bootstrap samples", flag("verbose", verbose))
            fits = [refits.maximum(with_replacement(rng, weights, self._sampling)) for _ in samples]
        d = self.n_features_in_
        couplings, field = np.empty((n, d, d)), np.empty((n, self._objective.n_fields))
        for k, fit in enumerate(fits):
            couplings[k], field[k] = self._objective.unpacked(fit.parameters)
        return Bootstrap(couplings, field, warn_of_refits([fit.stopped for fit in fits]))

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
            of left-out rows with correlations of 0.7 or more in 95% of the samples.

        Raises
        ------
        ValueError
            As `bootstrap`; if weights do not count rows.

        Examples
        --------
        >>> import numpy as np, fastmf as mf
        >>> rng = np.random.default_rng(0)
        >>> X = np.cumprod(np.where(rng.random((500, 4)) < 0.75, 1, -1), axis=1)  # a Markov chain
        >>> found = mf.FullyVisibleBoltzmannMachine().fit(X).stability(20, (0.1, 0.5))
        >>> found.strength.shape, found.coefficient("expected_influence")
        ((2, 20), 0.5)
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
                    result[0, i, k] = _correlation(abs(couplings).sum(0), abs(full).sum(0))
                    result[1, i, k] = _correlation(couplings.sum(0), full.sum(0))
                    converged[i, k] = fit.stopped
        result[:, ~warn_of_refits(converged)] = np.nan
        return Stability(dropped, *result, converged)


def warn_of_refits(converged):
    """Which refits have a maximum, an array; warns unless all have."""
    converged = np.array(converged)
    if not converged.all():
        warn_user(
            f"{(~converged).sum()} of {converged.size} samples of the rows have no maximum, or it "
            "was not found: where a rare value is missing couplings grow without bound; leave out "
            "these samples (`converged`), or fit with a penalty l2.", ConvergenceWarning,
        )  # fmt: skip
    return converged


def _correlation(x, y):
    """Correlation of two vectors, 0 if one does not vary."""
    x, y = x - x.mean(), y - y.mean()
    norm = np.sqrt((x @ x) * (y @ y))
    return float(x @ y / norm) if norm > 0 else 0.0
