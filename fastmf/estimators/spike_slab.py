"""Spike-and-slab linear regression, as a scikit-learn estimator."""

import numpy as np
from sklearn.base import RegressorMixin
from sklearn.utils.validation import check_is_fitted

from fastmf._common.arguments import row_weights
from fastmf._common.warning import warn_user
from fastmf.estimators._data import checked_data, complete_target
from fastmf.estimators._spike_slab import (
    SpikeSlabEstimator,
    by_blocks,
    check_variances,
    mean_and_deviation,
)
from fastmf.inference.gaussian import gaussian_side
from fastmf.learning.evidence import Hyperparameters, Regression
from fastmf.special import sigmoid


class SpikeSlabRegressor(RegressorMixin, SpikeSlabEstimator):
    """Linear regression in which most coefficients are exactly zero, by expectation propagation.

    Parameters
    ----------
    noise_variance : float or None
        Variance of the noise, in units of y^2. None: learned by maximising the evidence, as are
        the next two.
    slab_variance : float or None
        Prior variance of a non-zero coefficient, in units of y^2 (per unit of the features squared,
        after `standardize`).
    inclusion_probability : float or None
        Prior probability of a non-zero coefficient, between 0 and 1.
    expected_model_size : float or None
        Prior expected number of non-zero coefficients, in place of `inclusion_probability`, which
        is then this over the number of features; between 0 and that number.
    groups : array of shape (n_features,) or None
        Labels; features with the same label share an inclusion probability, learned for each group.
    fit_intercept : bool
        Whether to fit a constant, with a flat prior.
    standardize : bool
        Whether to scale all features to standard deviation 1 first, so that one slab suits all.
        Leave out features that are constant but for a row or two: in new rows they may be
        hundreds of deviations away.
    solver : {"auto", "convergent", "parallel", "sequential"}
        Schedule of `fastmf.expectation_propagation`.
    damping : float or None
    tol : float
        Largest difference in a mean or variance at a fixed point, in standard deviations of y.
    max_iter : int
        Iterations of expectation propagation.
    max_evidence_iter : int
        Largest number of fixed points in the search for the largest evidence, after the first.
    n_threads : int or None
        Threads of the compiled kernels: results do not depend on it. The last bits of a large
        regression, of 1000 rows and features, depend on the number of BLAS's threads, as in all of
        NumPy; for equal bits, fix it (`OPENBLAS_NUM_THREADS=1`, or
        `threadpoolctl.threadpool_limits(1)` around `fit`).

    Attributes
    ----------
    coef_, coef_var_ : array of shape (n_features,) or (n_targets, n_features)
        Posterior means and variances of the coefficients.
    intercept_ : float or array of shape (n_targets,)
    inclusion_probability_ : array of the shape of `coef_`
        Posterior probabilities of a non-zero coefficient.
    log_evidence_ : float or array of shape (n_targets,)
        Of the centred data; scale and hyper-parameters included.
    noise_variance_, slab_variance_ : float or array of shape (n_targets,)
    prior_inclusion_ : array of shape (n_groups,) or (n_targets, n_groups)
        Prior inclusion probabilities, in the order of the sorted labels.
    sites_ : array of shape (2, n_features) or (n_targets, 2, n_features)
        Sites, for the standardised features and y.
    n_iter_ : int or array of shape (n_targets,)
    n_features_in_ : int

    Notes
    -----
    Hernández-Lobato & Hernández-Lobato (2011). Where the solver does not converge, it is run again
    with positive site precisions, and a warning is given if that does not converge either. Several
    targets are fitted one by one. X is copied to be centred and scaled, in its own precision
    (float32 or float64).

    Examples
    --------
    >>> import numpy as np, fastmf as mf
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(40, 100))
    >>> y = 2 * X[:, 3] - X[:, 7] + 0.1 * rng.normal(size=40)
    >>> model = mf.SpikeSlabRegressor().fit(X, y)
    >>> np.flatnonzero(model.inclusion_probability_ > 0.5)
    array([3, 7])
    """

    _learned = (
        "coef_", "coef_var_", "intercept_", "inclusion_probability_", "log_evidence_",
        "noise_variance_", "slab_variance_", "prior_inclusion_", "sites_", "n_iter_", "_unit",
        "_rows", "_offset", "_scale", "_n_noises",
    )  # fmt: skip
    _advice = (
        "raise max_iter, take solver='convergent', or give noise_variance, slab_variance or "
        "expected_model_size, of which one may have gone to its bound"
    )

    def __init__(
        self,
        *,
        noise_variance=None,
        slab_variance=None,
        inclusion_probability=None,
        expected_model_size=None,
        groups=None,
        fit_intercept=True,
        standardize=True,
        solver="auto",
        damping=None,
        tol=1e-6,
        max_iter=1000,
        max_evidence_iter=50,
        n_threads=None,
    ):
        super().__init__(
            slab_variance=slab_variance,
            inclusion_probability=inclusion_probability,
            expected_model_size=expected_model_size,
            groups=groups,
            fit_intercept=fit_intercept,
            standardize=standardize,
            solver=solver,
            damping=damping,
            tol=tol,
            max_iter=max_iter,
            max_evidence_iter=max_evidence_iter,
            n_threads=n_threads,
        )
        self.noise_variance = noise_variance

    def __sklearn_tags__(self):
        """Tags: several targets are allowed."""
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags

    def fit(self, X, y, sample_weight=None):
        """Learn from data.

        Parameters
        ----------
        X : array of shape (n_samples, n_features)
        y : array of shape (n_samples,) or (n_samples, n_targets)
        sample_weight : array of shape (n_samples,), optional
            How many rows each row stands for: the noise of a row has the variance of the noise over
            its weight, and the evidence is that of repeated rows. Rows of weight 0 are left out.

        Returns
        -------
        self

        Examples
        --------
        >>> import numpy as np, fastmf as mf
        >>> rng = np.random.default_rng(0)
        >>> X = rng.normal(size=(40, 60))
        >>> y = 2 * X[:, 3] - X[:, 7] + 0.1 * rng.normal(size=40)
        >>> model = mf.SpikeSlabRegressor().fit(X, y)
        >>> model.coef_[[3, 7]].round(1)
        array([ 2., -1.])
        """
        X, y = self._training_data(X, y, multi_output=True, y_numeric=True)
        self._check("noise_variance", "slab_variance")
        groups = self._groups(X.shape[1])
        targets = np.asarray(y, np.float64).reshape(len(y), -1)
        weights = row_weights(sample_weight, len(X))
        if weights is not None:
            present = weights > 0
            X, targets, weights = X[present], targets[present], weights[present]
        if self.noise_variance is None and len(X) < 2 + self.fit_intercept:
            warn_user(
                f"the noise of {len(X)} rows cannot be told from what coefficients explain: give "
                "noise_variance, or more rows."
            )
        n_rows = len(X) if weights is None else float(weights.sum())
        X = self._standardised(X, weights)
        if weights is not None:
            X *= np.sqrt(weights)[:, None].astype(X.dtype)
        fits = [self._fit_one(X, column, groups, weights) for column in targets.T]
        one = np.ndim(y) == 1
        for name in fits[0]:
            values = [fit[name] for fit in fits]
            setattr(self, name, values[0] if one else np.array(values))
        self._rows = X
        # Of a prediction: noise variances of the observation and of the intercept.
        self._n_noises = 1 + (1 / n_rows if self.fit_intercept else 0)
        return self

    def _fit_one(self, X, y, groups, weights):
        """The fitted attributes for one target; X is multiplied by the roots of the weights."""
        groups, n_groups = groups
        center, deviation = mean_and_deviation("y", y, self.fit_intercept, weights)
        unit = float(deviation) or 1.0
        check_variances("y over X", unit / self._scale)
        y = (y - center) / unit if deviation else 0 * y
        task = Regression(X, y, groups)
        if weights is not None:
            task = Regression(X, y * np.sqrt(weights), groups, float(weights.sum()))
        n_rows = task.n_rows or len(y)
        best, model, result = self._solution(
            task, *self._hyperparameters((n_rows, X.shape[1]), unit, n_groups)
        )
        log_evidence = task.log_evidence(result, best.noise_variance)
        ratio = unit / self._scale
        coefficients = result.mean * ratio
        return {
            "coef_": coefficients,
            "coef_var_": result.var * ratio**2,
            "intercept_": float(center - self._offset @ coefficients),
            "inclusion_probability_": sigmoid(model.prior.tilted_log_odds(result.b, result.a)),
            "log_evidence_": float(log_evidence - n_rows * np.log(unit)),
            "noise_variance_": best.noise_variance * unit**2,
            "slab_variance_": best.slab_variance * unit**2,
            "prior_inclusion_": sigmoid(np.asarray(best.log_odds)),
            "sites_": result.sites,
            "n_iter_": max(1, result.n_iter),
            "_unit": unit,
        }

    def predict(self, X, return_std=False):
        """Posterior mean of y, and its predictive standard deviation.

        Parameters
        ----------
        X : array of shape (n_samples, n_features)
        return_std : bool

        Returns
        -------
        array of shape (n_samples,) or (n_samples, n_targets)
            And, with `return_std`, another one: noise, coefficients and intercept together.

        Examples
        --------
        >>> import numpy as np, fastmf as mf
        >>> rng = np.random.default_rng(0)
        >>> X = rng.normal(size=(40, 60))
        >>> y = 2 * X[:, 3] - X[:, 7] + 0.1 * rng.normal(size=40)
        >>> model = mf.SpikeSlabRegressor().fit(X, y)
        >>> mean, deviation = model.predict(X, return_std=True)
        >>> mean.shape, bool((deviation > 0.05).all())
        ((40,), True)
        """
        check_is_fitted(self)
        X = checked_data(self, X, dtype=[np.float64, np.float32], reset=False)
        mean = by_blocks(lambda rows: self.coef_ @ rows.T, X).T + self.intercept_
        if not return_std:
            return mean
        if self.coef_.ndim == 1:
            return mean, self._deviation(X, self.noise_variance_, self.sites_, self._unit)
        each = zip(self.noise_variance_, self.sites_, self._unit, strict=True)
        return mean, np.stack([self._deviation(X, *values) for values in each], axis=1)

    def score(self, X, y, sample_weight=None):
        """Coefficient of determination, R^2, of the predictions.

        Parameters
        ----------
        X : array of shape (n_samples, n_features)
        y : array of shape (n_samples,) or (n_samples, n_targets)
        sample_weight : array of shape (n_samples,), float or None

        Returns
        -------
        float

        Examples
        --------
        >>> import numpy as np, fastmf as mf
        >>> rng = np.random.default_rng(0)
        >>> X = rng.normal(size=(40, 60))
        >>> y = 2 * X[:, 3] - X[:, 7] + 0.1 * rng.normal(size=40)
        >>> model = mf.SpikeSlabRegressor().fit(X, y)
        >>> model.score(X, y) > 0.99
        True
        """
        check_is_fitted(self)
        y = complete_target(y)
        return super().score(X, y, row_weights(sample_weight, np.shape(y)[0] if np.ndim(y) else 1))

    def _deviation(self, X, noise_variance, sites, unit):
        """Predictive standard deviations of rows, for one target."""
        start = Hyperparameters(noise_variance / unit**2, 1.0, np.zeros(1))
        zeros = np.zeros(len(self._rows)), np.zeros(len(sites[0]), int)
        model = Regression(self._rows, *zeros).model(start)
        inverse = gaussian_side(model).inverse(sites[1])
        variance = by_blocks(lambda rows: inverse.variance_along(self._rescaled(rows)), X)
        return np.sqrt(noise_variance * self._n_noises + variance * unit**2)

    def _hyperparameters(self, shape, unit, n_groups):
        """Where the search starts, for y of variance 1, and what is fixed."""
        inclusion, slab = self._first_inclusion(shape), self.slab_variance
        slab = min(1.0, 1 / (inclusion * shape[1])) if slab is None else slab / unit**2
        noise = 0.3 if self.noise_variance is None else self.noise_variance / unit**2
        fixed = Hyperparameters(
            self.noise_variance is not None,
            self.slab_variance is not None,
            self._inclusion() is not None,
        )
        log_odds = np.full(n_groups, np.log(inclusion / (1 - inclusion)))
        return Hyperparameters(noise, slab, log_odds), fixed
