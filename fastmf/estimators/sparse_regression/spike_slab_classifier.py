"""Spike-and-slab classification with a probit likelihood, as a scikit-learn estimator."""

import numpy as np
from scipy.special import ndtr
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets, type_of_target

from fastmf._common.arguments import row_weights
from fastmf._common.memory import check_available
from fastmf.estimators.common.data import checked_data
from fastmf.estimators.common.rows import check_counts, class_factors
from fastmf.estimators.sparse_regression._credible_sets import FittedPart
from fastmf.estimators.sparse_regression._rows import as_floats
from fastmf.estimators.sparse_regression._spike_slab import (
    SpikeSlabEstimator,
    by_blocks,
    matrices_of,
    moments_of,
)
from fastmf.learning.evidence import NEVER_ZERO, Classification, Task
from fastmf.learning.evidence.blocks import labels_of_task

# Precisions of the priors of the constant, and of coefficients of unpenalised columns: with none
# they would be infinite where a column separates the classes.
INTERCEPT_PRECISION, UNPENALISED_PRECISION = 0.01, 1e-4


class SpikeSlabClassifier(SpikeSlabEstimator, ClassifierMixin, BaseEstimator):
    """Probit classification with mostly zero coefficients, by expectation propagation.

    The second class has probability Phi(x'w + intercept): a probit likelihood.

    Parameters
    ----------
    slab_variance : float or None
        Prior variance of a non-zero coefficient, for noise of variance 1 (per unit of the features
        squared, after `standardize`). None: learned, as is `inclusion_probability`, with the weak
        priors of `SpikeSlabRegressor`.
    inclusion_probability, groups, standardize, blocks
        As in `SpikeSlabRegressor`.
    unpenalised : sequence of int, str or bool, or None
        Columns, by their numbers or names or as a mask, whose coefficients are never zero. Their
        prior is Gaussian of standard deviation 100 (per standard deviation of the column), flat but
        for columns that separate the classes.
    class_weight : None, "balanced" or dict
        Factors of the weights of the rows of each class, as everywhere in scikit-learn.
        Probabilities and evidence refer to the weighted data.
    fit_intercept : bool
        Whether to fit a constant, with a Gaussian prior of standard deviation 10.
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
    The class of a row is the sign of its latent variable. Latent variables are units of the linear
    model like the coefficients, so that the algorithm is the same as for regression. For more than
    two classes use scikit-learn's OneVsRestClassifier. X becomes an array of floats, of small
    integers and sparse matrices of more than some megabytes one of float32.

    Inclusion probabilities near 0 or 1 are less extreme than the exact ones, which draws of
    `sample_coefficients` have. The evidence may have several maxima, with few coefficients and with
    nearly all: to see the latter, fit with `inclusion_probability=0.9` and compare `log_evidence_`.
    Give `slab_variance` (1, say) where few features separate the classes.

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
    _advice = (
        "give slab_variance (1, say), which may have gone to its bound, or inclusion_probability; "
        "or take blocks=None"
    )

    def __init__(
        self, *, slab_variance=None, inclusion_probability=None, groups=None,
        fit_intercept=True, standardize=True, blocks="auto", unpenalised=None,
        solver="auto", parameter_prior="weak", class_weight=None, n_threads=None,
        verbose=False,
    ):  # fmt: skip
        self._store(locals())

    def __sklearn_tags__(self):
        """Tags: two classes."""
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
            Number of repetitions of each row, which may be a fraction, as of `class_weight`: each
            row has a site to the power of its weight (power expectation propagation), so that for
            whole numbers the fixed point is the one of repeated rows. Rows of weight 0 are left
            out.

        Raises
        ------
        ValueError
            If weights meet a solver other than "auto" or "parallel".
        """
        X, y = self._training_data(X, y)
        X = as_floats(X)
        self._check("slab_variance")
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
        part = Classification.of(rows, signs, groups, precisions, weights)
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
        self._rows, self._group_of, self._others, _, self._row_weights = part
        return self

    def _weighted(self, X, y, sample_weight):
        """Rows of positive weight, and their weights or 1 if all are."""
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
        """-1 and 1 for the two classes."""
        check_classification_targets(y)
        if (kind := type_of_target(y, input_name="y", raise_unknown=True)) != "binary":
            raise ValueError(
                f"Only binary classification is supported. The type of the target is {kind}."
            )
        self.classes_, which = np.unique(y, return_inverse=True)
        if len(self.classes_) < 2:
            raise ValueError("SpikeSlabClassifier needs two classes, got 1 class.")
        return 2.0 * which - 1

    def decision_function(self, X):
        """Posterior mean of x'w + intercept, over a standard deviation.

        Parameters
        ----------
        X : array of shape (n_samples, n_features)

        Returns
        -------
        array of shape (n_samples,)
            The deviation includes noise and coefficients, so that Phi of the result is
            the probability of the second class.
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
            return mean / np.sqrt(1 + inverse.variance_along(standardised))

        return by_blocks(scores, X)

    def _values(self):
        """The model alone."""
        return [[self._part()]], np.ones(1)

    def _part(self):
        """The model of the coefficients, without the latent variables."""
        # Rows have the roots of their weights as factors, with which the same sites give the same
        # Gaussian of the coefficients: see `fastmf.inference.gaussian.bipartite`.
        n_others, n = len(self._others), self.n_features_in_
        odds = self.prior_inclusion_[self._group_of]
        odds = np.clip(np.log(odds) - np.log1p(-odds), -NEVER_ZERO, NEVER_ZERO)
        odds[self.inclusion_probability_ == 0] = -NEVER_ZERO
        moments = np.stack([self.coef_[0] * self._scale, self.coef_var_[0] * self._scale**2])
        moments[:, self._unpenalised] = 0
        labels = np.append(self.blocks_, self.blocks_.max() + 1 + np.arange(n_others))
        # A latent variable with the site exp(t u - T u^2 / 2) and noise of variance 1.
        t, T = self.sites_[:, n + n_others :]
        T = np.maximum(T, np.finfo(float).tiny)
        y = np.sqrt(self._row_weights / (T * (1 + T))) * t
        likelihood = self._rows * np.sqrt(T / (1 + T))[:, None], y
        return FittedPart(
            np.arange(n), self._rows, None, 1.0, np.append(odds, np.full(n_others, NEVER_ZERO)),
            np.append(np.full(n, 1 / self.slab_variance_), self._others),
            *np.concatenate([moments, self._flat_moments], axis=1), labels,
            self.sites_[:, : n + n_others], self._site_matrices, likelihood,
        )  # fmt: skip

    def _in_units_of_data(self, part, draws, columns, rng):
        """Draws of the coefficients, unpenalised features included."""
        draws[:, self._unpenalised] = columns[:, : len(self._unpenalised)]
        return draws / self._scale

    def _repeated(self, rows):
        """Rows as often as their weights say, each with a latent variable of its own."""
        copies = np.broadcast_to(self._row_weights, len(rows)).astype(np.int64)
        if (copies != self._row_weights).any():
            raise ValueError(
                "sample_coefficients needs weights that are whole numbers of rows: multiply "
                "sample_weight and class_weight by a common denominator, or round them."
            )
        n_bytes = copies.sum(dtype=float) * rows[0].nbytes
        check_available(n_bytes, "drawing", "divide the weights by a common factor")
        return np.repeat(rows / np.sqrt(copies)[:, None].astype(rows.dtype), copies, axis=0)

    # Sweeps of latent variables are slow.
    _n_sweeps = 150

    def predict_proba(self, X):
        """Posterior predictive probabilities of the two classes.

        Parameters
        ----------
        X : array of shape (n_samples, n_features)

        Returns
        -------
        array of shape (n_samples, 2)
            Uncertain coefficients make them less extreme than the posterior mean would.
        """
        score = self.decision_function(X)
        return np.stack([ndtr(-score), ndtr(score)], axis=1)

    def predict(self, X):
        """The more probable class.

        Parameters
        ----------
        X : array of shape (n_samples, n_features)

        Returns
        -------
        array of shape (n_samples,)
        """
        return self.classes_[(self.decision_function(X) > 0).astype(int)]
