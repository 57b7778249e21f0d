"""Prediction, scores and model files of a trained conditional RBM."""

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import check_array, check_is_fitted

from fastmf._common.arguments import count, one_of, row_weights, unmasked
from fastmf._common.rows import canonical, is_sparse
from fastmf._threads.workers import one_blas_thread
from fastmf.estimators.common.convergence import warn_of_approximation
from fastmf.estimators.common.data import complete_target, dense_frame, missing_entries
from fastmf.estimators.common.files import Saved, check_n_features
from fastmf.estimators.common.runs import seed_of
from fastmf.learning.conditional import (
    annealed_log_partitions,
    exact_log_partitions,
    infer,
    log_weights_of_known,
)

# Default number of restarts of joint and marginal MAP: see the notes of `predict` for their cost.
DEFAULT_N_STARTS = 9


class TrainedCRBM(ClassifierMixin, Saved, BaseEstimator):
    """`ConditionalRBM` without `fit`."""

    _forgotten = (*Saved._forgotten, "init")
    _models = ("CRBM",)

    @property
    def classes_(self):
        """The two values of the labels, or one row of them for each label."""
        return (
            self.values_ if self._one_column else np.tile(self.values_, (self.model_.n_visible, 1))
        )

    def predict(self, X, decode=None, *, n_starts=None):
        """Labels of each row.

        Parameters
        ----------
        X : array or sparse matrix of shape (n_samples, n_features)
        decode : {"marginal_modes", "marginal_map", "joint_map"} or None
            - "marginal_modes": the most probable value of each label by itself, with the fewest
              wrong labels on average (mean field or sum-product).
            - "marginal_map": the most probable set of labels, with the hidden units summed out
              (mixed-product). Take it where a row counts as right only as a whole.
            - "joint_map": the labels in the most probable state of labels and hidden units
              together (max-product), as structured perceptrons and latent support vector machines
              predict. It is not the most probable set of labels.
            - None: the one that `inference` gives, which is "marginal_modes" unless it is
              "mixed_product" ("marginal_map") or "max_product" ("joint_map").
        n_starts : int, optional
            Number of runs of the search for joint or marginal MAP labels, all but the first from
            random labels; the best result is returned. Default 9.

        Returns
        -------
        array of shape (n_samples, n_labels) or (n_samples,)

        Raises
        ------
        ValueError
            For another `decode`, or `n_starts` with marginal modes.

        Notes
        -----
        The search is that of `most_probable`. Each run takes about as long as the first, and few
        of them find the most probable labels of nearly all rows.
        """
        check_is_fitted(self)
        inference = self._prediction_inference
        if decode is not None:
            modes = inference if inference in ("bp", "mean_field") else "bp"
            by_name = {
                "marginal_modes": modes,
                "joint_map": "max_product",
                "marginal_map": "mixed_product",
            }
            inference = by_name[one_of("decode", decode, tuple(by_name))]
        n_starts, search = count("n_starts", n_starts, optional=True), {}
        if inference not in ("bp", "mean_field"):
            # The same random labels for each row.
            search["rng"] = seed_of(self.random_state) or 0
            search["n_starts"] = n_starts or DEFAULT_N_STARTS
        elif n_starts is not None:
            raise ValueError(
                "n_starts needs decode='joint_map' or 'marginal_map': the modes of marginals are "
                "not found by a search."
            )
        labels = self._infer(self._features(X), inference, **search).visible
        predicted = self.values_[(labels > 0.5).astype(int)]
        return predicted[:, 0] if self._one_column else predicted

    def predict_proba(self, X):
        """Marginal probability of the second value of each label.

        By mean field if that is the inference, otherwise by sum-product belief propagation.

        Parameters
        ----------
        X : array or sparse matrix of shape (n_samples, n_features)

        Returns
        -------
        array of shape (n_samples, n_labels)
            Or (n_samples, 2), the probabilities of both values, if `y` had one axis.

        Examples
        --------
        >>> import numpy as np, fastmf as mf
        >>> rng = np.random.default_rng(0)
        >>> X = rng.normal(size=(200, 3))
        >>> Y = (X @ rng.normal(size=(3, 4)) > 0).astype(int)
        >>> crbm = mf.ConditionalRBM(2, n_epochs=5, random_state=0).fit(X, Y)
        >>> probability = crbm.predict_proba(X)
        >>> bool(((probability > 0.5) == crbm.predict(X)).all())
        True
        """
        check_is_fitted(self)
        inference = "mean_field" if self._prediction_inference == "mean_field" else "bp"
        mean = self._infer(self._features(X), inference).visible
        return np.column_stack([1 - mean, mean]) if self._one_column else mean

    def score_samples(self, X, y=None):
        """Log p(y | x) of each row, in nats: exact where labels or hidden units are few.

        Parameters
        ----------
        X : array or sparse matrix of shape (n_samples, n_features)
        y : array of shape (n_samples, n_labels) or (n_samples,), or None
            None for the labels that `predict` gives. Unknown labels, as in `fit`, are summed over:
            exactly where they or the hidden units are few, and else by mean field.

        Returns
        -------
        array of shape (n_samples,)
            Exact if the states of the labels, or of the hidden units, times the units of the other
            side are at most 2^19, such as 12 hidden units next to 128 labels. Otherwise with the
            mean-field log-partition if that is the inference, which makes it an upper bound at
            convergence, or with the Bethe log-partition.

        Warns
        -----
        ConvergenceWarning
            If the approximate log-partitions of ten rows differ by more than 0.1 nats on average
            from values by annealing; the message says how much.

        Examples
        --------
        >>> import numpy as np, fastmf as mf
        >>> rng = np.random.default_rng(0)
        >>> X = rng.normal(size=(200, 3))
        >>> Y = (X @ rng.normal(size=(3, 4)) > 0).astype(int)
        >>> crbm = mf.ConditionalRBM(2, n_epochs=5, random_state=0).fit(X, Y)
        >>> crbm.score_samples(X, Y).shape, bool((crbm.score_samples(X, Y) < 0).all())
        ((200,), True)
        """
        check_is_fitted(self)
        X = self._features(X)
        Y = self._labels(self.predict(X) if y is None else y, X, self.model_.n_visible)
        return self._log_likelihood(X, Y, check=True)

    def _log_likelihood(self, X, Y, check=False):
        """Log-probabilities of rows of labels 0 and 1."""
        log_partition = exact_log_partitions(self.model_, X)
        if log_partition is None:
            inference = "mean_field" if self._prediction_inference == "mean_field" else "bp"
            log_partition = self._infer(X, inference, log_partition=True).log_partition
            if check and self.model_.n_hidden:
                rows = np.linspace(0, len(Y) - 1, min(10, len(Y))).astype(int)
                values, errors = annealed_log_partitions(self.model_, X[rows], self.n_threads)
                what = "by mean field" if inference == "mean_field" else "by belief propagation"
                warn_of_approximation(what, -log_partition[rows], (-values, errors))
        return log_weights_of_known(self.model_, Y, X) - log_partition

    def score(self, X, y, sample_weight=None):
        """Fraction of correct labels, averaged over labels and rows.

        Parameters
        ----------
        X : array or sparse matrix of shape (n_samples, n_features)
        y : array or sparse matrix of shape (n_samples, n_labels), or array of shape (n_samples,)
        sample_weight : array of shape (n_samples,), float or None

        Returns
        -------
        float

        Examples
        --------
        >>> import numpy as np, fastmf as mf
        >>> rng = np.random.default_rng(0)
        >>> X = rng.normal(size=(200, 3))
        >>> Y = (X @ rng.normal(size=(3, 4)) > 0).astype(int)
        >>> crbm = mf.ConditionalRBM(2, n_epochs=5, random_state=0).fit(X, Y)
        >>> np.isclose(crbm.score(X, Y), (crbm.predict(X) == Y).mean())
        np.True_
        """
        predicted, (y, unknown) = self.predict(X), partly_known_labels(y)
        if y.shape != predicted.shape:
            raise ValueError(f"y must have shape {predicted.shape}, got {y.shape}.")
        right = (predicted == y).reshape(len(y), -1)
        correct = right.mean(1)
        if unknown.any():  # of a row of unknown labels, none counts
            known = ~unknown
            correct = (right & known).sum(1) / np.maximum(known.sum(1), 1)
        return float(np.average(correct, weights=row_weights(sample_weight, len(correct))))

    def _saved(self):
        names = "n_iter_", "n_sweeps_", "n_features_in_", "history_", "_one_column"
        # Strings in arrays of objects, as pandas passes them, are stored as arrays of strings.
        classes = np.array(self.values_.tolist()) if self.values_.dtype.hasobject else self.values_
        return {name: getattr(self, name) for name in names}, {"classes": classes}

    def _restore(self, arrays):
        check_n_features(self, {self.model_.n_features})
        self.values_ = arrays.member("classes", "fiubU", (2,))
        low, high = self.values_.tolist()
        if not low < high:
            raise ValueError("member 'classes' must hold two different labels, in order.")

    @property
    def _prediction_inference(self):
        return self._settings().prediction_inference

    @one_blas_thread()
    def _infer(self, X, inference, log_partition=False, rows=500, **search):
        """Beliefs, `rows` rows at a time to bound the memory."""
        parts = []
        for first in range(0, X.shape[0], rows):
            fields = self.model_.fields(X[first : first + rows])
            parts.append(
                infer(
                    self.model_,
                    fields,
                    inference,
                    self.n_sweeps_,
                    self.n_threads,
                    log_partition=log_partition,
                    **search,
                )
            )
        joined = {
            name: np.concatenate([getattr(part, name) for part in parts])
            for name in ("visible", "hidden", "log_partition", "residual")
        }
        return parts[0]._replace(**joined)

    def __sklearn_is_fitted__(self):
        return hasattr(self, "model_")

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.classifier_tags.multi_class = False
        tags.classifier_tags.multi_label = True
        tags.target_tags.multi_output = True
        return tags


def checked_labels(y):
    """Labels of any type, dense and complete."""
    if y is None:
        raise ValueError("ConditionalRBM requires y to be passed, but the target y is None.")
    if is_sparse(y):
        return canonical(y).toarray() if y.ndim == 2 else canonical(y.reshape(1, -1)).toarray()[0]
    return check_array(complete_target(y), ensure_2d=False, dtype=None, input_name="y")


def partly_known_labels(y):
    """Labels of any type, dense, and which of them are not known."""
    given = y = dense_frame(y)
    if y is not None and not is_sparse(y):
        given = unmasked("y", y, missing=True) if np.ma.isMaskedArray(y) else y
        given = _array_of(given.to_numpy() if hasattr(given, "to_numpy") else given)
    if not isinstance(given, np.ndarray) or given.ndim != 2 or given.shape[1] < 2:
        y = checked_labels(y)
        return y, np.zeros(y.shape, bool)
    unknown = missing_entries(given)
    if unknown.all() or not unknown.any():
        return checked_labels(y), unknown
    known = given[~unknown].tolist()
    filled = np.where(unknown, np.array(known[:1], given.dtype), given)
    return checked_labels(np.array(filled.tolist())), unknown


def _array_of(y):
    """Labels as an array; None if rows have unequal lengths."""
    try:
        return np.asarray(y)
    except ValueError:
        return None
