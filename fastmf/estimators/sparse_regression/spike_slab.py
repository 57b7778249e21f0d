"""Spike-and-slab linear regression, and classification with a probit or logit likelihood."""

from functools import partial

import numpy as np
from scipy.special import expit, ndtr
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.utils.multiclass import check_classification_targets, type_of_target

from fastmf._common.arguments import one_of, positive, row_weights
from fastmf._common.memory import check_available
from fastmf._common.names import check_order, names_along
from fastmf._common.stored_columns import column_squares
from fastmf._common.warning import warn_user
from fastmf.estimators.common.data import (
    check_counts,
    check_squares,
    checked_data,
    class_factors,
    mean_and_deviation,
    missing_entries,
    warn_of_missing_codes,
    with_nan,
)
from fastmf.estimators.sparse_regression import _rows
from fastmf.estimators.sparse_regression._spike_slab import FittedPart, SpikeSlabEstimator
from fastmf.inference.gaussian.blocks import n_elements
from fastmf.inference.sampling.spike_slab import SCALES, SparsePosterior
from fastmf.learning.evidence import LIKELIHOODS, NEVER_ZERO, Classification, Regression, Task
from fastmf.learning.evidence.blocks import labels_of_task
from fastmf.priors.logistic import Logistic
from fastmf.priors.spike_and_slab import ALWAYS

# Weight of a value of the hyper-parameters, relative to the largest, below which it is ignored.
MIN_REPORTED_WEIGHT = 0.03
# Prior precisions of the intercept and of unpenalised coefficients in classification: with flat
# priors, estimates would be infinite if a column separates the classes.
INTERCEPT_PRECISION, UNPENALISED_PRECISION = 0.01, 1e-4


class SpikeSlabRegressor(SpikeSlabEstimator, RegressorMixin, BaseEstimator):
    """Linear regression in which most coefficients are exactly zero, by expectation propagation.

    Parameters
    ----------
    noise_variance : float or None, default None
        Variance of the noise, in units of y^2. None: learned, like the following two parameters;
        the prior of noise_variance / var(y) is log-Cauchy (median 0.6, width 0.5). Without
        an intercept, var(y) is the mean of y^2.
    slab_variance : float or None, default None
        Prior variance of a non-zero coefficient, in units of y^2 (after `standardize`). None:
        learned; the prior of slab_variance / var(y) is log-normal (median 0.5, deviation 2).
    inclusion_probability : float, array of shape (n_features,) or None, default None
        Prior probability of a non-zero coefficient, for example 1 / n_features if one is expected,
        or an array with a value in [0, 1] for each feature. None: learned, with the prior
        Beta(1/2, n_features / 2).
    groups : array of shape (n_features,) or None, default None
        Features with the same label share an inclusion probability, learned for each group.
    fit_intercept : bool, default True
        Fit an intercept with a flat prior.
    standardize : bool, default True
        Scale all features to standard deviation 1 before fitting; without an intercept to root mean
        square 1, so that a column far from zero does not make all slabs narrow.
    blocks : "auto", None or array of shape (n_features,), default "auto"
        Features that share a site, as in `expectation_propagation`. "auto": correlated features, or
        all if there are at most 11; None: no blocks; an array: the label of each feature's block.
    unpenalised : sequence of int, str or bool, or None, default None
        Columns (indices, names or a mask) whose coefficients are never zero and have a flat prior,
        such as age and sex. They are projected out; their inclusion probability is 1.
    solver : {"auto", "convergent", "parallel", "sequential"}, default "auto"
        Schedule of `expectation_propagation` at the learned parameters.
    parameter_prior : {"weak", None}, default "weak"
        Priors of learned parameters. None: maximise the evidence without priors, as in the paper;
        with weak data the maximum may include all features with tiny coefficients.
    average_parameters : bool, default False
        Average results over the posterior of the parameters instead of using its maximum: for weak
        data, at two to ten times the cost. `log_evidence_`, `sites_` and the learned parameters
        refer to the maximum.
    n_threads : int or None, default None
        Threads of the compiled kernels; results do not depend on it.
    verbose : bool, default False
        Print the progress of the search every few seconds.

    Attributes
    ----------
    coef_, coef_var_ : array of shape (n_features,)
        Posterior means and variances of the coefficients.
    intercept_ : float
    inclusion_probability_ : array of shape (n_features,)
        Posterior probabilities of a non-zero coefficient.
    log_evidence_ : float
        Log-evidence of the centred data, after projection on the `unpenalised` columns.
    noise_variance_, slab_variance_ : float
    prior_inclusion_ : array of shape (n_groups,)
        In the order of the sorted group labels; one value per feature if probabilities are given
        by feature.
    blocks_ : int array of shape (n_features,)
        Block labels: features with the same label share a site.
    sites_ : array of shape (2, n_features)
        Site parameters for standardised data; for blocks their linear terms and diagonals.
    n_iter_ : int
    mismatch_ : float
        Share of the variance of z-scores that R does not explain (`fit_summary`); otherwise 0.

    Notes
    -----
    Hernández-Lobato & Hernández-Lobato (2011). X is copied in its precision, except for large
    arrays that are sparse, memory-mapped or of small integers: these are multiplied, or converted
    in blocks, and must not change while the model is used. A `ConvergenceWarning` is issued if a
    learned parameter is at a bound of the search. See the guide for correlated features.

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
        "noise_variance_", "slab_variance_", "prior_inclusion_", "sites_", "blocks_", "n_iter_",
        "_unit", "_rows", "_shapes", "_features", "mismatch_", "_offset", "_scale", "_n_noises",
        "_point_weights", "_point_noise", "_point_coef", "_point_sites",
        "_point_matrices", "_point_slab", "_point_odds", "_targets", "_mean_noise",
        "_unpenalised", "_gain", "_whiten",
    )  # fmt: skip
    _advice = (
        "give noise_variance, slab_variance or inclusion_probability, of which one may have gone "
        "to its bound"
    )

    def __init__(
        self, *, noise_variance=None, slab_variance=None, inclusion_probability=None,
        groups=None, fit_intercept=True, standardize=True, blocks="auto", unpenalised=None,
        solver="auto", parameter_prior="weak", average_parameters=False, n_threads=None,
        verbose=False,
    ):  # fmt: skip
        self._store(locals())

    def fit(self, X, y, sample_weight=None):
        """Learn from data.

        Parameters
        ----------
        X : array of shape (n_samples, n_features)
        y : array of shape (n_samples,)
            Rows with missing targets (NaN, None or masked) are omitted. For several targets fit a
            model for each, for example by `sklearn.multioutput.MultiOutputRegressor`.
        sample_weight : array of shape (n_samples,), optional
            Frequency weights: the noise variance of a row is divided by its weight, and the
            evidence is the one of repeated rows. Rows of weight 0 are omitted.
        """
        stored = _rows.is_stored(X)  # checks turn files into arrays
        values = np.asarray(with_nan(y))
        missing = missing_entries(values) if values.ndim == 1 else np.zeros(1, bool)
        if missing.any() and not missing.all():
            y = np.where(missing, 0, values)
        X, y = self._training_data(X, y, y_numeric=True)
        stored &= _rows.is_large(X)
        self._check_options()
        y = np.asarray(y, np.float64)
        warn_of_missing_codes(self, y[:, None], "y")
        weights = 1.0 if sample_weight is None else sample_weight
        weights = np.where(missing, 0, row_weights(weights, X.shape[0]))
        check_counts(weights.sum(), np.count_nonzero(weights))
        present = weights > 0
        if not (stored or present.all()):
            X, y, weights = X[present], y[present], weights[present]
        n_free = X.shape[0] - self.fit_intercept - len(self._columns())
        if self.noise_variance is None and n_free < 2:
            warn_user(
                f"the noise of {X.shape[0]} rows cannot be told from what coefficients explain: "
                "give noise_variance, or more rows."
            )
        constant = self._set_scale(X, weights)
        center, deviation = mean_and_deviation("y", y, self.fit_intercept, weights)
        unit, absent = float(deviation) or 1.0, 0.0
        check_squares("y over X", unit / self._scale)
        n_rows, roots = float(weights.sum()), np.sqrt(weights)
        y = roots * (y - center) / unit if deviation else 0 * y
        if stored:
            X, y, absent = _rows.rows_of_stored(X, y, weights, self._offset, self._scale, constant)
        else:
            X = self._standardised(X, constant)
            X *= roots[:, None].astype(X.dtype)
        self._fit_rows([(X, y)], [np.arange(X.shape[1])], n_rows, (n_rows, absent), unit, center)
        return self

    def fit_moments(self, gram, moment, y_square, n):
        """Learn from moments, the sufficient statistics of the posterior.

        Parameters
        ----------
        gram : array of shape (n_features, n_features), list of arrays, or SciPy sparse matrix
            X'X; `standardize` has no effect. A list contains the diagonal blocks of a
            block-diagonal matrix, which are detected in a sparse matrix.
        moment : array of shape (n_features,)
            X'y.
        y_square : float
            y'y.
        n : float
            Number of rows. With `fit_intercept`, columns and y are assumed to be centred.

        Raises
        ------
        ValueError
            If no data have these moments.
        """
        names, n = _names("gram", gram, "moment", moment), positive("n", n)
        units, rows = _rows.parts_of_moments(gram, moment, y_square)
        return self._fit_parts(units, rows, float(y_square), n, names)

    def fit_summary(self, z, R, n):
        """Learn from marginal z-scores of the features and their correlations.

        Parameters
        ----------
        z : array of shape (n_features,)
            z-scores (t-statistics) of the simple regressions on each feature, with an intercept.
        R : array of shape (n_features, n_features), list of arrays, or SciPy sparse matrix
            Correlations of the features. A list contains uncorrelated blocks, such as the loci of a
            genome, which are detected in a sparse matrix; blocks share only the hyper-parameters.
            Features are named by the index of a pandas series z or of data frames R, which must
            have the same order.
        n : float, or array of equal numbers of shape (n_features,)
            Number of rows.

        Returns
        -------
        self
            Coefficients and variances refer to standardised features and y.

        Warns
        -----
        UserWarning
            If R does not fit z, scores have the wrong sign (and are flipped), z are too small for
            z-scores (for example, p-values), R seems to be rounded to one decimal or squared, or a
            feature seems to have an effect although its z-score is explained by chance.

        Notes
        -----
        The noise of z has covariance (1 - s) R + s I, where `mismatch_` is the maximum-likelihood
        estimate of s, which includes rounding of z and R. Negative eigenvalues of R are dropped.

        Examples
        --------
        >>> import numpy as np, fastmf as mf
        >>> R = np.array([[1.0, 0.9, 0.0], [0.9, 1.0, 0.0], [0.0, 0.0, 1.0]])
        >>> model = mf.SpikeSlabRegressor().fit_summary([9.0, 8.1, 0.3], R, 1000)
        >>> model.inclusion_probability_.round()
        array([1., 0., 0.])
        """
        names = _names("R", R, "z", z)
        summary = _rows.summary_of(z, R, n, names)
        if (message := summary.message(names)) is not None:
            warn_user(message)
        n = float(np.max(n))
        self._fit_parts(summary.units, summary.rows, n, n, names)
        self.mismatch_ = summary.share
        included = self.inclusion_probability_.copy()
        included[self._unpenalised] = 0
        message = summary.message_of_hidden(included, self.noise_variance_, names)
        if message is not None:
            warn_user(message)
        return self

    def _fit_parts(self, units, rows, y_square, n, names):
        """Fit rows with the moments of the data, for independent parts of the features."""
        self.n_features_in_ = sum(map(len, units))
        self.__dict__.pop("feature_names_in_", None)
        if names is not None:
            self.feature_names_in_ = np.array(names, object)
        self._check_options()
        self._offset, self._scale = np.zeros(self.n_features_in_), np.ones(self.n_features_in_)
        unit = float(np.sqrt(y_square / n)) or 1.0
        rows = [(X, y / unit) for X, y in rows]
        total = _rows.unexplained_of([y for _, y in rows], y_square / unit**2, n)
        self._fit_rows(rows, units, n, total, unit)
        return self

    def _parts_at(self, point):
        """Return the parts of the model at a value of the hyper-parameters."""
        sizes, unit, labels = np.prod(self._shapes, axis=1), self._unit, self.blocks_
        y = np.split(self._targets, np.cumsum(self._shapes[:-1, 0]))
        features = np.split(self._features, np.cumsum(self._shapes[:-1, 1]))
        rows = [self._rows]
        if len(sizes) > 1:
            rows = np.split(self._rows, np.cumsum(sizes)[:-1])
            rows = [x.reshape(shape) for x, shape in zip(rows, self._shapes, strict=True)]
        mean = self._point_coef[point] * self._scale / unit
        mean[self._unpenalised] = 0
        var = self.coef_var_ * (self._scale / unit) ** 2
        parts, noise = [], self._point_noise[point] / unit**2
        first, precision = point * n_elements(labels), unit**2 / self._point_slab[point]
        for units, X, y_of_part in zip(features, rows, y, strict=True):
            last = first + n_elements(labels[units])
            part = FittedPart(
                units, X, y_of_part, noise, self._point_odds[point, units],
                np.full(len(units), precision), mean[units], var[units], labels[units],
                self._point_sites[point][:, units], self._point_matrices[first:last],
            )  # fmt: skip
            parts.append(part)
            first = last
        return parts

    def _values(self):
        """Return the parts at each value of the hyper-parameters, and normalised weights."""
        weights = self._point_weights
        points = np.flatnonzero(weights >= MIN_REPORTED_WEIGHT * weights.max())
        return [self._parts_at(k) for k in points], weights[points] / weights[points].sum()

    def _fit_rows(self, rows, units, n_rows, total, unit, center=0.0):
        """Fit standardised rows of independent parts, y = center + unit * (standardised y)."""
        # `total`: number of rows, and the unexplained part of y'y, which the first part gets.
        groups, excluded = self._groups(self.n_features_in_), self._excluded()
        columns = self._unpenalised = self._columns()
        rows, ranks, flat, self._gain, self._whiten = _rows.without_unpenalised(
            rows, units, columns, excluded
        )
        n_of_parts = [len(y) - rank for (_, y), rank in zip(rows, ranks, strict=True)]
        n_of_parts[0] = total[0] - sum(ranks) - sum(n_of_parts[1:])
        if len(columns) and total[0] - self.fit_intercept - sum(ranks) < 1:
            raise ValueError(
                f"{total[0]:g} rows are explained by {sum(ranks)} unpenalised columns alone: "
                "give fewer, or more rows."
            )
        parts = [
            Regression(X, y, groups[features], n, total[1] if k == 0 else 0.0)
            for k, ((X, y), features, n) in enumerate(zip(rows, units, n_of_parts, strict=True))
        ]
        task = Task(tuple(parts), tuple(units), groups)
        shape, rows = (task.total_rows, len(groups)), [part.X for part in parts]
        start, fixed = self._start(shape, groups, unit)
        task, points, weights = self._solution(
            task, start, fixed, centred=self.fit_intercept, average=self.average_parameters
        )
        values, ratio = (point.hyperparameters for point in points), unit / self._scale
        noise, slab, odds = map(np.array, zip(*values, strict=True))
        moments = np.stack([moments_of(task, point) for point in points], axis=1)
        means, variances, included = moments[:3]
        excluded = ~included.any(0)
        means[:, columns] = flat - means @ self._gain.T
        variances[:, columns], included[:, columns] = 0.0, 1.0
        mean = weights @ means
        spread = weights @ (means - mean) ** 2
        self.coef_ = mean * ratio
        self.coef_var_ = (weights @ variances + spread) * ratio**2
        self.intercept_ = float(center - self._offset @ self.coef_)
        self.inclusion_probability_ = weights @ included
        self.log_evidence_ = float(points[0].log_density - shape[0] * np.log(unit))
        self.prior_inclusion_ = self._prior_inclusion(odds[0])
        self._point_sites = np.swapaxes(moments[3:], 0, 1)
        self.sites_, self.blocks_ = self._point_sites[0], labels_of_task(task)
        self.n_iter_ = max(1, *(result.n_iter for result in points[0].results))
        self._unit, self._targets = unit, np.concatenate([part.y for part in task.parts])
        self._point_weights = weights
        self._point_noise, self._point_slab = noise * unit**2, slab * unit**2
        self.noise_variance_ = float(self._point_noise[0])
        self.slab_variance_ = float(self._point_slab[0])
        self._point_odds = odds[:, task.groups]
        self._point_odds[:, excluded] = -ALWAYS
        self._point_coef = means * ratio
        self._point_matrices = np.concatenate([matrices_of(point) for point in points])
        self._features = np.concatenate(units)
        self._shapes = np.array([X.shape for X in rows])
        self._rows = rows[0] if len(rows) == 1 else np.concatenate([np.ravel(X) for X in rows])
        self.mismatch_ = 0.0
        self._keep_noises(n_rows)

    def _keep_noises(self, n_rows):
        """Set the ratio of mean to modal noise, and variances of unpenalised coefficients."""
        self._mean_noise = 1.0
        if self.average_parameters and self.noise_variance is None and n_rows > 4:
            # mean over mode in ln s2 of an inverse gamma variable
            self._mean_noise = n_rows / (n_rows - 2)
        self._n_noises = self._mean_noise * (1 + (1 / n_rows if self.fit_intercept else 0))
        columns = self._unpenalised
        if not len(columns):
            return
        for k, weight in enumerate(self._point_weights):
            variance = self._mean_noise * self._point_noise[k] * (self._whiten**2).sum(1)
            for part in self._parts_at(k):
                spread = part.inverse().variance_along(self._gain[:, part.units])
                variance = variance + self._unit**2 * spread
            self.coef_var_[columns] += weight * variance / self._scale[columns] ** 2

    def predict(self, X, return_std=False):
        """Compute the posterior mean of y, and its predictive standard deviation.

        Parameters
        ----------
        X : array of shape (n_samples, n_features)
        return_std : bool

        Returns
        -------
        array of shape (n_samples,)
            With `return_std`, a pair of arrays; the deviations include noise and the uncertainty of
            coefficients and intercept.
        """
        X = checked_data(self, X, **self._kinds_of(X), reset=False)
        mean, variance = _rows.by_blocks(lambda rows: rows @ self.coef_, X) + self.intercept_, 0.0
        if not return_std:
            return mean
        for k, weight in enumerate(self._point_weights):
            inverses = [(part.units, part.inverse()) for part in self._parts_at(k)]
            variances = _rows.by_blocks(partial(self._variances, k, inverses), X)
            variance = variance + weight * variances
        return mean, np.sqrt(variance)

    def _variances(self, point, inverses, rows):
        """Compute E[(y - overall mean)^2] of rows at a value of the hyper-parameters."""
        standardised, noise = self._rescaled(rows), self._point_noise[point]
        columns = standardised[:, self._unpenalised]
        unpenalised = self._mean_noise * ((columns @ self._whiten) ** 2).sum(1)
        standardised -= columns @ self._gain
        standardised[:, self._unpenalised] = 0
        spread = sum(inverse.variance_along(standardised[:, units]) for units, inverse in inverses)
        change = (rows - self._offset) @ (self._point_coef[point] - self.coef_)
        return noise * (self._n_noises + unpenalised) + spread * self._unit**2 + change**2

    def _in_units_of_data(self, part, draws, columns, rng):
        """Convert draws to units of the data; add coefficients of unpenalised features."""
        columns, coefficients = self._unpenalised, self.coef_ * self._scale / self._unit
        center = coefficients[columns] + self._gain @ coefficients
        noise = rng.normal(size=(len(draws), self._whiten.shape[1])) @ self._whiten.T
        draws[:, columns] = center - draws @ self._gain.T + np.sqrt(part.noise_variance) * noise
        return draws * (self._unit / self._scale)

    def _restore(self, arrays):
        super()._restore(arrays)
        self._gain[:, self._unpenalised] = 0  # files of earlier versions hold the identity

    def _check_options(self):
        """Raise for invalid options."""
        self._check("noise_variance", "slab_variance")
        one_of("average_parameters", self.average_parameters, (True, False))
        if self.average_parameters and self.parameter_prior is None:
            raise ValueError(
                "average_parameters needs a parameter_prior: the evidence alone has no finite "
                "integral. Take parameter_prior='weak'."
            )


def _names(name, matrix, other, vector):
    """Return the names of features in the vector or the matrix; raise if they disagree."""
    parts = matrix if isinstance(matrix, list | tuple) else [matrix]
    names = names_along(other, [vector])
    check_order(name, parts, names, other)
    return names_along(name, parts) if names is None else names


class SpikeSlabClassifier(SpikeSlabEstimator, ClassifierMixin, BaseEstimator):
    """Probit or logit classification with mostly zero coefficients, by expectation propagation.

    Parameters
    ----------
    likelihood : {"probit", "logit"}, default "probit"
        Probability of the second class: Phi(x'w + intercept), or 1 / (1 + exp(-x'w - intercept)).
        Coefficients of the logit likelihood are log-odds ratios, and outliers have less influence.
    slab_variance : float or None
        Prior variance of a non-zero coefficient (per unit of the features squared, after
        `standardize`). None: learned, like `inclusion_probability`, with the weak priors of
        `SpikeSlabRegressor`, in which the noise has variance 1 (probit) or pi^2 / 3 (logit).
    inclusion_probability, groups, standardize, blocks
        As in `SpikeSlabRegressor`.
    unpenalised : sequence of int, str or bool, or None
        Columns (indices, names or a mask) whose coefficients are never zero. Their prior is
        Gaussian with standard deviation 100 (per standard deviation of the column), which matters
        only for columns that separate the classes.
    class_weight : None, "balanced" or dict
        Factors of the weights of rows by class, as in scikit-learn. Probabilities and evidence
        refer to the weighted data.
    fit_intercept : bool
        Fit an intercept with a Gaussian prior of standard deviation 10.
    solver, parameter_prior, n_threads, verbose
        As in `SpikeSlabRegressor`.

    Attributes
    ----------
    classes_ : array of shape (2,)
    coef_, coef_var_ : array of shape (1, n_features)
    intercept_ : array of shape (1,)
    inclusion_probability_, slab_variance_, prior_inclusion_, blocks_, n_iter_
        As in `SpikeSlabRegressor`.
    log_evidence_ : float
        Log-probability of the classes.
    sites_ : array of shape (2, n_features + n_samples) or one more for the intercept
        Sites of the standardised features, the intercept, and the latent variables of the rows.

    Notes
    -----
    Each row has a latent variable, whose sign is the class (probit). Latent variables are units of
    the linear model like the coefficients, so that the algorithm of the regressor applies. For more
    than two classes use scikit-learn's OneVsRestClassifier. X is converted to a dense array, of
    float32 if it is large and sparse or of small integers.

    Inclusion probabilities near 0 or 1 are less extreme than the exact ones, which draws of
    `sample_coefficients` reproduce. The evidence may have two maxima, with few or nearly all
    coefficients: to find the second, fit with `inclusion_probability=0.9` and compare
    `log_evidence_`. Set `slab_variance` (for example to 1) if few features separate the classes.

    Examples
    --------
    >>> import numpy as np, fastmf as mf
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(80, 100))
    >>> y = 2 * X[:, 3] - 2 * X[:, 7] + rng.normal(size=80) > 0
    >>> model = mf.SpikeSlabClassifier().fit(X, y)
    >>> np.flatnonzero(model.inclusion_probability_ > 0.5)
    array([3, 7])
    """

    _learned = (
        "classes_", "coef_", "coef_var_", "intercept_", "inclusion_probability_", "log_evidence_",
        "slab_variance_", "prior_inclusion_", "sites_", "blocks_", "n_iter_", "_rows", "_group_of",
        "_others", "_site_matrices", "_offset", "_scale", "_unpenalised",
        "_flat_moments", "_row_weights",
    )  # fmt: skip
    _likelihood = "probit"  # of files without it
    _fitted = ("n_features_in_", "_likelihood")
    _advice = (
        "give slab_variance (1, say), which may have gone to its bound, or inclusion_probability; "
        "or take blocks=None"
    )

    def __init__(
        self, *, likelihood="probit", slab_variance=None, inclusion_probability=None,
        groups=None, fit_intercept=True, standardize=True, blocks="auto", unpenalised=None,
        solver="auto", parameter_prior="weak", class_weight=None, n_threads=None,
        verbose=False,
    ):  # fmt: skip
        self._store(locals())

    def __sklearn_tags__(self):
        """Return scikit-learn's tags: binary classification only."""
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        return tags

    def fit(self, X, y, sample_weight=None):
        """Learn from data.

        Parameters
        ----------
        X : array of shape (n_samples, n_features)
        y : array of shape (n_samples,)
            Two classes, of any type.
        sample_weight : array of shape (n_samples,), optional
            Frequency weights, possibly fractional. The site of a row is raised to the power of its
            weight (power expectation propagation), so that integer weights give the fixed point of
            repeated rows. Rows of weight 0 are omitted.

        Raises
        ------
        ValueError
            If there are weights and the solver is neither "auto" nor "parallel".
        """
        X, y = self._training_data(X, y)
        X = _rows.as_floats(X)
        self._check("slab_variance")
        self._likelihood = one_of("likelihood", self.likelihood, tuple(LIKELIHOODS))
        X, y, weights = self._weighted(X, y, sample_weight)
        signs = self._signs(y)
        groups = self._groups(X.shape[1])
        X = self._standardised(X, self._set_scale(X, np.broadcast_to(weights, len(X))))
        X[:, self._excluded()] = 0
        columns = self._unpenalised = self._columns()
        unpenalised = X[:, columns]
        X[:, columns] = 0
        precisions = [UNPENALISED_PRECISION] * len(columns)
        if self.fit_intercept:
            unpenalised = np.concatenate([unpenalised, np.ones((len(X), 1), X.dtype)], axis=1)
            precisions.append(INTERCEPT_PRECISION)
        rows = np.concatenate([X, unpenalised], axis=1) if precisions else X
        likelihood = LIKELIHOODS[self._likelihood]
        part = Classification.of(rows, signs, groups, precisions, weights, likelihood)
        task = Task.of(part)
        start, fixed = self._start((task.total_rows, len(groups)), groups)
        task, (point, *_), _ = self._solution(task, start, fixed)
        best, (result,) = point.hyperparameters, point.results
        mean, variance, included = moments = moments_of(task, point)[:3]
        flat = slice(len(mean), len(mean) + len(columns))
        moments[:, columns] = result.mean[flat], result.var[flat], np.ones(len(columns))
        coefficients = mean / self._scale
        constant = result.mean[flat.stop] if self.fit_intercept else 0.0
        self.coef_ = coefficients[None]
        self.coef_var_ = (variance / self._scale**2)[None]
        self.intercept_ = np.array([constant - self._offset @ coefficients])
        self.inclusion_probability_ = included
        self.log_evidence_ = float(point.log_density)
        self.slab_variance_ = float(best.slab_variance)
        self.prior_inclusion_ = self._prior_inclusion(best.log_odds)
        self.sites_, self.n_iter_ = result.sites, max(1, result.n_iter)
        self.blocks_, self._site_matrices = labels_of_task(task), matrices_of(point)
        flat = slice(len(mean), part.X.shape[1])
        self._flat_moments = np.stack([result.mean[flat], result.var[flat]])
        self._rows, self._group_of, self._others, _, self._row_weights = part[:5]
        return self

    def _weighted(self, X, y, sample_weight):
        """Return the rows of positive weight, and their weights, or 1.0 if all weights are 1."""
        weights = row_weights(1.0 if sample_weight is None else sample_weight, len(X))
        if self.class_weight is not None:
            check_classification_targets(y)
            weights = row_weights(weights * class_factors(self.class_weight, y, weights), len(X))
        check_counts(weights.sum(), np.count_nonzero(weights))
        present = weights > 0
        if not present.all():
            X, y, weights = X[present], y[present], weights[present]
        if (weights == 1).all():
            return X, y, 1.0
        if self.solver not in ("auto", "parallel"):
            raise ValueError(
                f"solver must be 'auto' or 'parallel' for weights, got {self.solver!r}: repeat the "
                "rows, or take another solver."
            )
        return X, y, weights

    def _signs(self, y):
        """Encode the two classes as -1 and 1."""
        check_classification_targets(y)
        if (kind := type_of_target(y, input_name="y", raise_unknown=True)) != "binary":
            raise ValueError(
                f"Only binary classification is supported. The type of the target is {kind}."
            )
        self.classes_, index = np.unique(y, return_inverse=True)
        if len(self.classes_) < 2:
            raise ValueError("SpikeSlabClassifier needs two classes, got 1 class.")
        return 2.0 * index - 1

    def decision_function(self, X):
        """Compute the decision function, whose sign is the predicted class.

        Parameters
        ----------
        X : array of shape (n_samples, n_features)

        Returns
        -------
        array of shape (n_samples,)
            For a probit likelihood, the posterior mean of x'w + intercept over the standard
            deviation of noise and coefficients: Phi of it is the probability of the second class.
            For a logit likelihood, the log-odds of this probability.
        """
        X = checked_data(self, X, **self._kinds_of(X), reset=False)
        inverse, columns = self._part().inverse(), self._unpenalised
        n_constant = len(self._others) - len(columns)  # 1 for the intercept, if any

        def scores(rows):
            standardised = self._rescaled(rows)
            unpenalised = standardised[:, columns], np.ones((len(rows), n_constant))
            standardised[:, columns] = 0
            standardised = np.concatenate([standardised, *unpenalised], axis=1)
            mean = rows @ self.coef_[0] + self.intercept_[0]
            return self._score(mean, inverse.variance_along(standardised))

        return _rows.by_blocks(scores, X)

    def _score(self, mean, variance):
        """Return the score of rows given posterior mean and variance of x'w + intercept."""
        variance = LIKELIHOODS[self._likelihood].noise_variance + variance
        if self._likelihood == "probit":
            return mean / np.sqrt(variance)
        # The large terms mean^2 / (2 variance) of both log-partitions cancel.
        b, a, latent = mean / variance, 1 / variance, Logistic(np.zeros(1))
        return latent.log_partition(b, a) - latent.log_partition(-b, a)

    def _values(self):
        """Return the fitted part with weight 1."""
        return [[self._part()]], np.ones(1)

    def _part(self):
        """Return the model of the coefficients, with latent variables integrated out."""
        # Rows are multiplied by the square roots of their weights, so that the same sites give the
        # same Gaussian of the coefficients: see `fastmf.inference.gaussian.bipartite`.
        n_others, n = len(self._others), self.n_features_in_
        odds = self.prior_inclusion_[self._group_of]
        odds = np.clip(np.log(odds) - np.log1p(-odds), -NEVER_ZERO, NEVER_ZERO)
        odds[self.inclusion_probability_ == 0] = -NEVER_ZERO
        moments = np.stack([self.coef_[0] * self._scale, self.coef_var_[0] * self._scale**2])
        moments[:, self._unpenalised] = 0
        labels = np.append(self.blocks_, self.blocks_.max() + 1 + np.arange(n_others))
        # Integrate out a latent variable u with the site exp(t u - T u^2 / 2), and noise.
        t, T = self.sites_[:, n + n_others :]
        T = np.maximum(T, np.finfo(float).tiny)
        relative = 1 + LIKELIHOODS[self._likelihood].noise_variance * T
        y = np.sqrt(self._row_weights / (T * relative)) * t
        likelihood = self._rows * np.sqrt(T / relative)[:, None], y
        return FittedPart(
            np.arange(n), self._rows, None, 1.0, np.append(odds, np.full(n_others, NEVER_ZERO)),
            np.append(np.full(n, 1 / self.slab_variance_), self._others),
            *np.concatenate([moments, self._flat_moments], axis=1), labels,
            self.sites_[:, : n + n_others], self._site_matrices, likelihood,
        )  # fmt: skip

    def _in_units_of_data(self, part, draws, columns, rng):
        """Convert draws to units of the data; add coefficients of unpenalised features."""
        draws[:, self._unpenalised] = columns[:, : len(self._unpenalised)]
        return draws / self._scale

    def _posterior(self, part):
        """Return the posterior with a latent variable for each repetition of each row."""
        rows, is_logistic = part.X, self._likelihood == "logit"
        copies = np.broadcast_to(self._row_weights, len(rows)).astype(np.int64)
        if (copies != self._row_weights).any():
            raise ValueError(
                "sample_coefficients needs weights that are whole numbers of rows: multiply "
                "sample_weight and class_weight by a common denominator, or round them."
            )
        n_bytes = copies.sum(dtype=float) * rows[0].nbytes
        check_available(n_bytes, "drawing", "divide the weights by a common factor")
        rows = np.repeat(rows / np.sqrt(copies)[:, None].astype(rows.dtype), copies, axis=0)
        noise = SCALES[0] ** 2 if is_logistic else 1.0
        return SparsePosterior(rows, None, noise, part.log_odds, part.precision, is_logistic)

    # Chains with latent variables mix slowly.
    _n_sweeps = 150

    def predict_proba(self, X):
        """Compute posterior predictive probabilities of the two classes.

        Parameters
        ----------
        X : array of shape (n_samples, n_features)

        Returns
        -------
        array of shape (n_samples, 2)
            The probabilities account for the uncertainty of the coefficients.
        """
        score = self.decision_function(X)
        probability = ndtr if self._likelihood == "probit" else expit
        return np.stack([probability(-score), probability(score)], axis=1)

    def predict(self, X):
        """Predict the more probable class.

        Parameters
        ----------
        X : array of shape (n_samples, n_features)

        Returns
        -------
        array of shape (n_samples,)
        """
        return self.classes_[(self.decision_function(X) > 0).astype(int)]


def moments_of(task, point):
    """Return means, variances, inclusion probabilities and both site parameters, (5, n_features).

    Features that are zero in all rows (constant or excluded) have probability 0.
    """
    moments = np.empty((5, len(task.groups)))
    for part, units, result in zip(task.parts, task.units, point.results, strict=True):
        n = len(part.groups)
        values = result.mean[:n], result.var[:n], result.inclusion_probability[:n]
        moments[:3, units] = np.where(column_squares(part.X)[:n] == 0, 0, values)
        moments[3:, units] = result.sites[:, :n]
    return moments


def matrices_of(point):
    """Return the elements of the site matrices of all blocks, concatenated."""
    sites_of_parts = (result.block_sites or () for result in point.results)
    return np.concatenate([np.empty(0), *(T.ravel() for sites in sites_of_parts for _, T in sites)])
