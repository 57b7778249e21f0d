"""Conditional restricted Boltzmann machine, a multi-label classifier."""

from dataclasses import replace
from typing import NamedTuple

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import column_or_1d
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_array

from fastmf._common.arguments import count, flag, one_of, row_weights
from fastmf._common.rows import canonical, is_sparse, row_blocks
from fastmf._common.warning import listed
from fastmf._threads.workers import one_blas_thread
from fastmf.estimators.common import runs
from fastmf.estimators.common.data import (
    check_squares,
    checked_data,
    complete_target,
    dense_frame,
    mean_and_deviation,
    missing_entries,
    warn_of_missing_codes,
    with_nan,
)
from fastmf.estimators.common.files import Saved, check_n_features
from fastmf.learning import conditional
from fastmf.models import CRBM
from fastmf.models._io import model_to_arrays
from fastmf.priors._scaling import FARTHEST_MEAN


class ConditionalRBM(ClassifierMixin, Saved, BaseEstimator):
    """Conditional RBM for structured and multi-label prediction.

    Parameters
    ----------
    n_components : int
        Hidden units; none are used by objective="logistic".
    objective : {"likelihood", "logistic", "cd", "perceptron", "latent_svm", "marginal_svm", \
    "marginal_svm_beliefs"}
        Maximum likelihood with moments from `inference`; independent logistic regressions;
        contrastive divergence; CD-PercLoss; latent and marginal structured support vector machine
        (Hamming loss), the latter with labels or with pseudo-marginals of mixed-product.
    inference : {"bp", "bp_uniform", "mean_field", "max_product", "mixed_product"} or None
        Method of prediction, and with objective="likelihood" also of learning. None: sum-product
        belief propagation for "likelihood", max-product for "latent_svm", mixed-product for
        marginal support vector machines, mean field otherwise. The initial messages of "bp" favour
        neither value of a unit; the initial messages of "bp_uniform" are 1/2, as in the paper,
        which favours one value if couplings are strong.
    n_gibbs : int
        Gibbs sweeps of "cd" (CD-k) and "perceptron" (10 in the paper).
    gibbs_start : {"data", "logistic", "random"}
        Start of the chains of "cd". With "data", learning from small weights is very slow.
    n_sweeps : int or None
        Iterations of inference, undamped; None for 7 + epoch, as in the paper. In training, a row
        stops earlier if its beliefs have converged to floating-point precision.
    learning_rate, momentum, l2, n_epochs, batch_size, early_stopping
        As for `GeneralizedRBM`. Weight decay applies to all three weight matrices, and early
        stopping is by the error of validation data.
    weight_scale : float
        Standard deviation of the initial `weights`; all other parameters are initially 0. Larger
        weights, such as 0.1, let the hidden units of support vector machines differ sooner.
    standardize : bool
        Standardise features for training (divide sparse ones by their root mean squares), so that
        rates, `weight_scale` and weight decay suit features on any scale. `model_`, `init` and the
        models passed to `callbacks` refer to the original features; checkpoints do not.
    init : CRBM or None
        Initial model. Without hidden units (a logistic regression) it gives the weights and biases
        of the labels only.
    callbacks, n_threads, random_state, verbose
        As for `GeneralizedRBM`.

    Attributes
    ----------
    model_ : CRBM
    values_ : array of shape (2,)
        The two values of the labels.
    classes_ : array of shape (2,) or (n_labels, 2)
        `values_`, repeated for each label if `y` had two axes; `predict_proba` then returns one
        array.
    history_ : dict of lists
        Values of each epoch: "accuracy" (fraction of correct labels) and "converged" (fraction of
        rows whose beliefs, and log-odds relative to their size, change by at most 1e-3 in the last
        sweep), both for 100 rows of data, and "validation_accuracy".
    n_iter_, n_features_in_ : int
    n_sweeps_ : int
        Number of iterations of inference in prediction, the number in the epoch of `model_`.

    Notes
    -----
    Ping & Ihler (2017). float32 features are processed in float32, except in predictions if means
    are many standard deviations from zero; all others are processed in float64.

    Examples
    --------
    >>> import numpy as np, fastmf as mf
    >>> from sklearn.datasets import make_multilabel_classification
    >>> X, Y = make_multilabel_classification(600, n_classes=8, random_state=0)
    >>> crbm = mf.ConditionalRBM(16, n_epochs=30, batch_size=20, random_state=0)
    >>> bool(crbm.fit(X[:400], Y[:400]).score(X[400:], Y[400:]) > 0.65)
    True
    """

    _forgotten = (*Saved._forgotten, "init")
    _models = ("CRBM",)

    def __init__(
        self, n_components=256, *, objective="likelihood", inference=None, n_gibbs=1,
        gibbs_start="data", n_sweeps=None, learning_rate=0.05, momentum=0.0, l2=0.0,
        n_epochs=50, batch_size=20, early_stopping=False, weight_scale=0.01,
        standardize=True, init=None, callbacks=None, n_threads=None, random_state=None,
        verbose=0,
    ):  # fmt: skip
        self._store(locals())

    def fit(self, X, y, validation_data=None, sample_weight=None):
        """Learn from features and labels.

        Parameters
        ----------
        X : array or sparse matrix of shape (n_samples, n_features)
        y : array or sparse matrix of shape (n_samples, n_labels), or array of shape (n_samples,)
            Labels with two values, the same two in all columns; the last in sorted order is the
            positive class. With several labels, NaN, None and NA are unknown labels; they are drawn
            from the model before each epoch (for support vector machines, the most probable labels
            are used); objective "perceptron" does not accept them.
        validation_data : tuple (X, y) or None
            Data for early stopping.
        sample_weight : array of shape (n_samples,), float or None
            In each epoch, rows are resampled in proportion to their weights; rows of weight 0 are
            not used.

        Raises
        ------
        FloatingPointError
            If learning diverges.

        Warns
        -----
        ConvergenceWarning
            If the final likelihood of the labels is lower than for labels drawn uniformly at random
            (objectives "likelihood", "logistic" and "cd").
        """
        settings = self._settings()
        X = self._features(X)
        Y = self._labels(y, X)
        weights = row_weights(sample_weight, X.shape[0])
        if weights is not None:
            present = weights > 0
            X, Y, weights = X[present], Y[present], weights[present]
        self._check_known(Y)
        seed = runs.seed_of(self.random_state)
        validation = None
        if validation_data is not None:
            if not isinstance(validation_data, tuple | list) or len(validation_data) != 2:
                got = type(validation_data).__name__
                raise TypeError(f"validation_data must be a tuple (X, y), got {got}.")
            X_v = self._features(validation_data[0], X.dtype)
            validation = self._labels(validation_data[1], X_v, Y.shape[1]), X_v
        elif self.early_stopping:
            rows, held_out = runs.split(len(Y), seed or 0, weights)
            X, Y, validation = X[rows], Y[rows], (Y[held_out], X[held_out])
            weights = weights if weights is None else weights[rows]
        model = self._initial_model(X, Y, seed or 0)
        state = self._run(model, Y, X, settings, seed, validation, weights)
        last_epoch = state.epoch - (state.waited if self.early_stopping else 0)
        self.n_sweeps_ = conditional.sweeps(settings, max(last_epoch - 1, 0))
        if self.objective in conditional.PROBABILISTIC and self.history_:
            rows = np.linspace(0, len(Y) - 1, min(settings.monitor_rows, len(Y))).astype(int)
            values = self._log_likelihood(X[rows], Y[rows])
            weights = None if weights is None else weights[rows]
            runs.warn_if_below_uniform(np.average(values, weights=weights), Y.shape[1])
        return self

    def _check_known(self, Y):
        """Raise for rows without known labels, and for unknown labels with "perceptron"."""
        unknown = np.isnan(Y)
        if unknown.all(1).any():
            raise ValueError(
                "y contains missing values (NaN or None) in place of all labels of "
                f"{np.count_nonzero(unknown.all(1))} rows: leave such rows out."
            )
        if self.objective == "perceptron" and unknown.any():
            raise ValueError(
                "y contains missing values (NaN or None), which objective='perceptron' does not "
                "take: leave such rows out, or use another objective."
            )

    def _run(self, model, Y, X, settings, seed, validation, weights):
        """Train the model, on standardised features if asked for; return the last state."""
        self._scale, start = None, model
        if flag("standardize", self.standardize):
            self._scale = FeatureScale.of(X, weights)
            start, X = self._scale.model(model), self._scale.standardised(X)
            if validation is not None:
                validation = validation[0], self._scale.standardised(validation[1])
        options = {"weights": weights, "raw": self._scale and self._scale.undone}
        steps = conditional.ConditionalSteps(settings, self.n_threads)
        state = runs.run(self, start, (Y, X), steps, seed, validation, **options)
        if self._scale is not None:
            # A model without any epoch of training is kept without rounding errors.
            self.model_ = model if self.model_ is start else self._scale.undone(self.model_)
        return state

    def _settings(self):
        settings = runs.settings_of(self, conditional.ConditionalSettings)
        count("n_components", self.n_components)
        return settings

    def _features(self, X, dtype=None):
        """Check rows; without a `dtype` they are training data and set the features' number."""
        reset = dtype is None
        dtype = [np.float64, np.float32] if reset else dtype
        X = checked_data(self, X, reset=reset, dtype=dtype, order="C", accept_sparse="csr")
        if reset:
            warn_of_missing_codes(self, X)
        return X

    def _labels(self, Y, X, n_labels=None):
        """Return labels as 0 and 1, NaN if unknown; without `n_labels`, learn their values."""
        Y, unknown = partly_known_labels(Y)
        if len(Y) != X.shape[0]:
            raise ValueError(f"X has {X.shape[0]} rows and y has {len(Y)}.")
        if Y.ndim == 1 or Y.shape[1] == 1:
            check_classification_targets(Y)
        if n_labels is None:
            values = np.unique(Y[~unknown])
            if len(values) > 2:
                raise ValueError(
                    "Only binary classification is supported: labels must have two values, the "
                    f"same in all columns, got {len(values)} classes ({listed(values, 4)})."
                )
            if values.dtype.kind in "fiub" and np.isin(values, [0, 1]).all():
                values = np.array([0, 1], values.dtype)
            if len(values) < 2:
                raise ValueError(f"labels must have two values, got one class: {values[0]!r}.")
            self.values_, self._one_column = values, Y.ndim == 1
        elif not np.isin(Y[~unknown], self.values_).all():
            raise ValueError(f"labels must be among {self.values_}.")
        Y = column_or_1d(Y)[:, None] if Y.ndim == 1 else Y
        if n_labels not in (None, Y.shape[1]):
            raise ValueError(f"y must have {n_labels} columns, got {Y.shape[1]}.")
        labels = (Y == self.values_[1]).astype(X.dtype)
        if unknown.any():
            labels[unknown] = np.nan
        return labels

    def _initial_model(self, X, Y, seed):
        n, f, dtype = Y.shape[1], X.shape[1], Y.dtype
        m = 0 if self.objective == "logistic" else self.n_components
        start = self.init
        if start is not None:
            if not isinstance(start, CRBM):
                raise TypeError(f"init must be a CRBM or None, got {type(start).__name__}.")
            if (start.n_visible, start.n_features) != (n, f) or start.n_hidden not in (0, m):
                raise ValueError(f"init must have {n} labels, {f} features and {m} hidden units.")
            if start.n_hidden == m:
                return start
        rng = np.random.default_rng([seed, 0, 3])
        weights = rng.normal(scale=self.weight_scale, size=(n, m)).astype(dtype)
        visible, bias = np.zeros((n, f), dtype), np.zeros(n, dtype)
        if start is not None:
            visible, bias = start.visible_weights, start.visible_bias
        return CRBM(weights, visible, np.zeros((m, f), dtype), bias, np.zeros(m, dtype))

    @property
    def classes_(self):
        """The two values of the labels, repeated for each label if `y` had two axes."""
        return (
            self.values_ if self._one_column else np.tile(self.values_, (self.model_.n_visible, 1))
        )

    def predict(self, X, decode=None):
        """Predict the labels of each row.

        Parameters
        ----------
        X : array or sparse matrix of shape (n_samples, n_features)
        decode : {"marginal_modes", "marginal_map", "joint_map"} or None
            "marginal_modes": the most probable value of each label, which minimises the expected
            number of wrong labels (mean field or sum-product). "marginal_map": the most probable
            set of labels, with the hidden units summed out (mixed-product), which minimises the
            probability of a wrong row. "joint_map": the labels in the most probable state of labels
            and hidden units together (max-product), as in structured perceptrons and latent support
            vector machines. None: determined by `inference`. MAP labels are the best of nine
            searches, eight of which start from random labels.

        Returns
        -------
        array of shape (n_samples, n_labels) or (n_samples,)
        """
        inference = self._settings().prediction_inference
        if decode is not None:
            by_name = {
                "marginal_modes": self._marginal_inference(),
                "joint_map": "max_product",
                "marginal_map": "mixed_product",
            }
            inference = by_name[one_of("decode", decode, tuple(by_name))]
        search = {}
        if inference not in conditional.MARGINAL:
            # The same random labels for each row.
            search = {"rng": runs.seed_of(self.random_state) or 0, "n_starts": 9}
        labels = self._infer(self._features(X, self.model_.dtype), inference, **search).visible
        predicted = self.values_[(labels > 0.5).astype(int)]
        return predicted[:, 0] if self._one_column else predicted

    def predict_proba(self, X):
        """Compute the marginal probability of the second value of each label.

        The method is mean field with inference="mean_field", otherwise sum-product.

        Parameters
        ----------
        X : array or sparse matrix of shape (n_samples, n_features)

        Returns
        -------
        array of shape (n_samples, n_labels)
            If `y` had one axis, shape (n_samples, 2): the probabilities of both values.
        """
        mean = self._infer(self._features(X, self.model_.dtype), self._marginal_inference()).visible
        return np.column_stack([1 - mean, mean]) if self._one_column else mean

    def score_samples(self, X, y=None):
        """Compute log p(y | x) of each row in nats, exactly if labels or hidden units are few.

        Parameters
        ----------
        X : array or sparse matrix of shape (n_samples, n_features)
        y : array of shape (n_samples, n_labels) or (n_samples,), or None
            None: the labels that `predict` returns. The probability is summed over unknown labels,
            exactly if these or the hidden units are few, otherwise by mean field.

        Returns
        -------
        array of shape (n_samples,)
            Exact if the number of states of the labels, or of the hidden units, times the number of
            units of the other side is at most 2^19; for example, 12 hidden units and 128 labels.
            Otherwise the log-partition is a mean-field or Bethe approximation.

        Warns
        -----
        ConvergenceWarning
            If the approximate log-partitions of ten rows differ by more than 0.1 nats on average
            from estimates by annealing.
        """
        X = self._features(X, self.model_.dtype)
        Y = self._labels(self.predict(X) if y is None else y, X, self.model_.n_visible)
        return self._log_likelihood(X, Y, check=True)

    def _log_likelihood(self, X, Y, check=False):
        """Return the log-probabilities of rows of labels 0 and 1."""
        log_partition = conditional.exact_log_partitions(self.model_, X)
        if log_partition is None:
            inference = self._marginal_inference()
            log_partition = self._infer(X, inference, log_partition=True).log_partition
            if check and self.model_.n_hidden:
                rows = np.linspace(0, len(Y) - 1, min(10, len(Y))).astype(int)
                values, errors = conditional.annealed_log_partitions(
                    self.model_, X[rows], self.n_threads
                )
                what = "by mean field" if inference == "mean_field" else "by belief propagation"
                runs.warn_of_approximation(what, -log_partition[rows], -values, errors)
        return conditional.log_weights_of_known(self.model_, Y, X) - log_partition

    def score(self, X, y, sample_weight=None):
        """Compute the fraction of correct labels, averaged over labels and rows.

        Parameters
        ----------
        X : array or sparse matrix of shape (n_samples, n_features)
        y : array or sparse matrix of shape (n_samples, n_labels), or array of shape (n_samples,)
        sample_weight : array of shape (n_samples,), float or None

        Returns
        -------
        float
        """
        predicted, (y, unknown) = self.predict(X), partly_known_labels(y)
        if y.shape != predicted.shape:
            raise ValueError(f"y must have shape {predicted.shape}, got {y.shape}.")
        counted = ~unknown.reshape(len(y), -1)
        right = (predicted == y).reshape(len(y), -1) & counted
        correct = right.sum(1) / np.maximum(counted.sum(1), 1)
        return float(np.average(correct, weights=row_weights(sample_weight, len(correct))))

    def _saved(self):
        names = "n_iter_", "n_sweeps_", "n_features_in_", "history_", "_one_column"
        # Strings in object arrays, as passed by pandas, are stored as arrays of strings.
        classes = np.array(self.values_.tolist()) if self.values_.dtype.hasobject else self.values_
        arrays = model_to_arrays(self.model_) | {"classes": classes}
        return {name: getattr(self, name) for name in names}, arrays

    def _restore(self, arrays):
        self.model_ = self._model_from(arrays)
        check_n_features(self, {self.model_.n_features})
        self.values_ = arrays.member("classes", "fiubU", (2,))
        low, high = self.values_.tolist()
        if not low < high:
            raise ValueError("member 'classes' must hold two different labels, in order.")

    def _marginal_inference(self):
        inference = self._settings().prediction_inference
        return inference if inference in conditional.MARGINAL else "bp"

    @one_blas_thread()
    def _infer(self, X, inference, log_partition=False, rows=500, **search):
        """Compute beliefs, `rows` rows at a time to limit memory."""
        fixed = inference, self.n_sweeps_, self.n_threads
        search["log_partition"] = log_partition
        parts = [
            conditional.infer(
                self.model_, self.model_.fields(X[first : first + rows]), *fixed, **search
            )
            for first in range(0, X.shape[0], rows)
        ]
        joined = {
            name: np.concatenate([getattr(part, name) for part in parts])
            for name in ("visible", "hidden", "log_partition", "residual")
        }
        return parts[0]._replace(**joined)

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.classifier_tags.multi_class = False
        tags.classifier_tags.multi_label = True
        tags.target_tags.multi_output = True
        return tags


class FeatureScale(NamedTuple):
    """Standardisation of features, (x - offset) / scale, in float64."""

    offset: np.ndarray
    scale: np.ndarray

    @classmethod
    def of(cls, X, weights=None):
        """Compute mean and standard deviation of columns; of sparse ones the root mean square."""
        if is_sparse(X):
            counts = np.ones(X.shape[0]) if weights is None else weights
            squares = X.astype(np.float64)
            with np.errstate(over="ignore"):
                squares.data = squares.data**2
            offset, scale = np.zeros(X.shape[1]), np.sqrt(counts @ squares / counts.sum())
            check_squares("X", scale)
        else:
            offset, scale = mean_and_deviation("X", X, True, weights)
        return cls(offset, np.where(scale == 0, 1.0, scale))

    def standardised(self, X):
        """Return standardised rows in their dtype."""
        if is_sparse(X):
            out = X.copy()
            out.data /= self.scale[X.indices].astype(X.dtype)
            return out
        out = np.empty_like(X)
        for rows in row_blocks(X):
            out[rows] = (X[rows] - self.offset) / self.scale
        return out

    def model(self, model, dtype=None):
        """Convert a model of the original features to a model of the standardised features."""
        changes = {"weights": model.weights.astype(dtype or model.dtype)}
        for layer in ("visible", "hidden"):
            weights, bias = (getattr(model, f"{layer}_{part}") for part in ("weights", "bias"))
            changes[f"{layer}_weights"] = weights * self.scale
            changes[f"{layer}_bias"] = bias + weights @ self.offset
        return replace(model, **changes)

    def undone(self, model):
        """Convert a model of the standardised features to a model of the original features."""
        # The terms of features far from zero cancel.
        dtype = np.float64 if (abs(self.offset) > FARTHEST_MEAN * self.scale).any() else None
        return FeatureScale(-self.offset / self.scale, 1 / self.scale).model(model, dtype)


def partly_known_labels(y):
    """Return labels of any type as a dense array, and a mask of the unknown ones."""
    if y is None:
        raise ValueError("ConditionalRBM requires y to be passed, but the target y is None.")
    if is_sparse(y):
        complete_target(y)
        y = canonical(y).toarray() if y.ndim == 2 else canonical(y.reshape(1, -1)).toarray()[0]
        return y, np.zeros(y.shape, bool)
    y = dense_frame(y)
    shape = y.shape if hasattr(y, "shape") else np.asarray(y, object).shape
    unknown = np.zeros(shape, bool)
    if len(shape) == 2 and shape[1] > 1:
        y = with_nan(y)
        given = y.to_numpy() if hasattr(y, "to_numpy") else np.asarray(y)
        absent = missing_entries(given)
        if absent.any() and not absent.all():
            unknown = absent
            y = np.array(np.where(absent, given[~absent][0], given).tolist())
    return check_array(complete_target(y), ensure_2d=False, dtype=None, input_name="y"), unknown
