"""Conditional restricted Boltzmann machine, a multi-label classifier."""

from functools import partial

import numpy as np
from sklearn.utils import column_or_1d
from sklearn.utils.multiclass import check_classification_targets

from fastmf._common.arguments import count, flag, row_weights
from fastmf.estimators.common.convergence import warn_if_below_uniform
from fastmf.estimators.common.data import checked_data
from fastmf.estimators.common.missing_codes import warn_of_missing_codes
from fastmf.estimators.common.runs import run, seed_of, settings_of, split
from fastmf.estimators.layered._conditional_rbm import TrainedCRBM, partly_known_labels
from fastmf.estimators.layered._features import FeatureScale
from fastmf.learning.conditional import CRBM_FAMILY, ConditionalSettings, label_completion, sweeps
from fastmf.models import CRBM

# Objectives whose models are to give probabilities of labels.
PROBABILISTIC = ("likelihood", "logistic", "cd")


class ConditionalRBM(TrainedCRBM):
    """Conditional RBM for structured and multi-label prediction.

    Parameters
    ----------
    n_components : int
        Hidden units; none are used by objective="logistic".
    objective : {"likelihood", "logistic", "cd", "perceptron", "latent_svm", "marginal_svm"}
        Maximum likelihood with moments from `inference`; independent logistic regressions;
        contrastive divergence; CD-PercLoss; latent and marginal structured support vector machine
        (Hamming loss).
    inference : {"bp", "mean_field", "max_product", "mixed_product"} or None
        For prediction, and for objective="likelihood" also for learning. None: sum-product belief
        propagation for "likelihood", max-product for "latent_svm", mixed-product for
        "marginal_svm", mean field for the others.
    n_gibbs : int
        Gibbs sweeps of "cd" (CD-k) and "perceptron" (10 in the paper).
    gibbs_start : {"data", "logistic", "random"}
        Where the chains of "cd" start.
    n_sweeps : int or None
        Iterations of inference, undamped; None for 7 + epoch, as in the paper. In training, rows
        end before if their beliefs have stopped changing, to the precision of the type. Mean field
        has momentum where no mean changes by more than 0.005 (`acceleration` of `tap`).
    learning_rate, momentum, l2, l1, n_epochs, batch_size, monitor_rows, patience
        See `fastmf.learning.training.settings.AscentSettings`. Weight decay applies to all three
        weight matrices.
    early_stopping : bool
        Keep the model with the smallest error of validation data, and stop when it no longer falls.
    validation_fraction : float
        Fraction of the data held out for that, unless `fit` is given validation data.
    weight_scale : float
        Standard deviation of the initial `weights`; all other parameters are initially 0. With
        small ones hidden units are alike at first, and those of the support vector machines may
        stay so for many epochs: 0.1 was better there on noisy and occluded digits.
    standardize : bool
        Learn from features less their means and over their standard deviations (of sparse ones over
        their root mean squares), so that rates, `weight_scale` and weight decay suit features of
        any unit; constant ones count as 0. The weights of `model_`, of `init` and of the models
        that `callbacks` see are of the features as they are given; a checkpoint's are not.
    init : CRBM or None
        Initial model instead. Without hidden units (a logistic regression) it gives the weights and
        biases of the labels only.
    callbacks, checkpoint, n_threads, random_state, verbose
        As for `GeneralizedRBM`.

    Attributes
    ----------
    model_ : CRBM
    values_ : array of shape (2,)
        The two values of the labels.
    classes_ : array of shape (2,) or (n_labels, 2)
        The same, and for each label if `y` had two axes: `predict_proba` is one array then.
    history_ : dict of lists
        By epoch: "accuracy" (fraction of correct labels), "converged" (fraction of rows for which
        the last sweep of inference changes no belief by more than 1e-3, nor its log-odds relative
        to their size), both of `monitor_rows` rows of data, and "validation_accuracy".
    n_iter_ : int
        Epochs done.
    n_sweeps_ : int
        Iterations of inference in prediction: those of the epoch of the model.
    n_features_in_ : int

    Notes
    -----
    Ping & Ihler (2017). float32 features are computed in float32, all others in float64.

    On labels that are strongly dependent given the features, the lower halves of digits, the
    Hamming error was 0.185, and 0.218 for scikit-learn's ClassifierChain
    (`scripts/experiments/multilabel_digits.py`). On the synthetic labels below the chain is better
    (0.23 against 0.27).

    Examples
    --------
    >>> import numpy as np, fastmf as mf
    >>> from sklearn.datasets import make_multilabel_classification
    >>> from sklearn.linear_model import LogisticRegression
    >>> from sklearn.multioutput import ClassifierChain
    >>> X, Y = make_multilabel_classification(600, n_classes=8, random_state=0)
    >>> X = X / X.max()
    >>> crbm = mf.ConditionalRBM(16, n_epochs=30, batch_size=20, random_state=0)
    >>> wrong = (crbm.fit(X[:400], Y[:400]).predict(X[400:]) != Y[400:]).mean()
    >>> chain = ClassifierChain(LogisticRegression()).fit(X[:400], Y[:400])
    >>> bool(wrong < (chain.predict(X[400:]) != Y[400:]).mean() + 0.05)
    True
    """

    def __init__(
        self,
        n_components=256,
        *,
        objective="likelihood",
        inference=None,
        n_gibbs=1,
        gibbs_start="data",
        n_sweeps=None,
        learning_rate=0.05,
        momentum=0.0,
        l2=0.0,
        l1=0.0,
        n_epochs=50,
        batch_size=20,
        monitor_rows=100,
        early_stopping=False,
        validation_fraction=0.1,
        patience=5,
        weight_scale=0.01,
        standardize=True,
        init=None,
        callbacks=None,
        checkpoint=None,
        n_threads=None,
        random_state=None,
        verbose=0,
    ):
        self._store(locals())

    def fit(self, X, y, validation_data=None, sample_weight=None):
        """Learn from features and labels.

        Parameters
        ----------
        X : array or sparse matrix of shape (n_samples, n_features)
        y : array or sparse matrix of shape (n_samples, n_labels), or array of shape (n_samples,)
            Labels of two values, the same two in all columns: 0 and 1, -1 and 1, booleans or two
            strings, of which the second, in their order, is the positive one. Sparse labels are
            made dense, and predictions are. NaN, None or pandas' NA where a label is not known, in
            rows of several labels: unknown labels are drawn before each epoch, by Gibbs sampling of
            the model given the features and the labels of the row that are known. "latent_svm" and
            "marginal_svm" take the most probable ones given the hidden units, and "perceptron"
            takes no unknown labels.
        validation_data : tuple (X, y) or None
            Decides on early stopping.
        sample_weight : array of shape (n_samples,), float or None
            An epoch has each row as often as its weight says, on average, and as many rows in all
            as there are of positive weight; the others are left out, of early stopping, too.

        Returns
        -------
        self

        Raises
        ------
        ValueError, TypeError
            For labels of more than two values, options out of range, or a checkpoint of another
            run.
        FloatingPointError
            If learning diverges.

        Warns
        -----
        ConvergenceWarning
            If labels are in the end less probable than if they were drawn uniformly at random:
            learning has diverged (objectives "likelihood", "logistic" and "cd").

        Examples
        --------
        >>> import numpy as np, fastmf as mf
        >>> rng = np.random.default_rng(0)
        >>> X = rng.normal(size=(200, 3))
        >>> Y = (X @ rng.normal(size=(3, 4)) > 0).astype(int)
        >>> crbm = mf.ConditionalRBM(2, n_epochs=5, random_state=0).fit(X, Y)
        >>> crbm.n_iter_, crbm.score(X, Y) > 0.9
        (5, True)
        """
        settings = self._settings()
        X = self._features(X, reset=True)
        Y = self._labels(y, X)
        weights = row_weights(sample_weight, X.shape[0])
        if weights is not None:
            present = weights > 0
            X, Y, weights = X[present], Y[present], weights[present]
        self._check_known(Y)
        seed = seed_of(self.random_state)
        validation = None
        if validation_data is not None:
            if not isinstance(validation_data, tuple | list) or len(validation_data) != 2:
                got = type(validation_data).__name__
                raise TypeError(f"validation_data must be a tuple (X, y), got {got}.")
            X_v = self._features(validation_data[0])
            validation = self._labels(validation_data[1], X_v, Y.shape[1]), X_v
        elif self.early_stopping:
            rows, others = split(len(Y), self.validation_fraction, seed or 0)
            X, Y, validation = X[rows], Y[rows], (Y[others], X[others])
            weights = weights if weights is None else weights[rows]
        model = self._initial_model(X, Y, seed or 0)
        state = self._run(model, Y, X, settings, seed, validation, weights)
        from_epoch = state.epoch - (state.waited if self.early_stopping else 0)
        self.n_sweeps_ = sweeps(settings, max(from_epoch - 1, 0))
        if self.objective in PROBABILISTIC and self.history_:
            rows = np.linspace(0, len(Y) - 1, min(self.monitor_rows, len(Y))).astype(int)
            values = self._log_likelihood(X[rows], Y[rows])
            weights = None if weights is None else weights[rows]
            warn_if_below_uniform(np.average(values, weights=weights), Y.shape[1])
        return self

    def _check_known(self, Y):
        """Raise for rows without a known label, and for unknown ones where none may be."""
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
        """The last state of learning, in units of the features' deviations if so asked for."""
        self._scale, start = None, model
        if flag("standardize", self.standardize):
            self._scale = FeatureScale.of(X, weights)
            start, X = self._scale.of_standardised(model), self._scale.standardised(X)
            if validation is not None:
                validation = validation[0], self._scale.standardised(validation[1])
        options = {"weights": weights, "raw": self._scale and self._scale.of_raw}
        completion = partial(label_completion, draws=self.objective in PROBABILISTIC)
        family = CRBM_FAMILY._replace(completion=completion)
        state = run(self, start, (Y, X), settings, family, seed, validation, **options)
        if self._scale is not None:
            # A model that has not learned keeps its bits.
            self.model_ = model if self.model_ is start else self._scale.of_raw(self.model_)
        return state

    def _settings(self):
        settings = settings_of(self, ConditionalSettings)
        count("n_components", self.n_components)
        return settings

    def _features(self, X, reset=False):
        dtype = [np.float64, np.float32] if reset else self._dtype
        X = checked_data(self, X, reset=reset, dtype=dtype, order="C", accept_sparse="csr")
        if reset:
            self._dtype = X.dtype
            warn_of_missing_codes(self, X)
        return X

    @property
    def _dtype(self):
        return self.model_.dtype if hasattr(self, "model_") else self._first_dtype

    @_dtype.setter
    def _dtype(self, dtype):
        self.__dict__.pop("model_", None)
        self._first_dtype = dtype

    def _labels(self, Y, X, n_labels=None):
        """Labels as 0 and 1, one row each; those of `fit` determine their number and values."""
        Y, unknown = partly_known_labels(Y)
        if len(Y) != X.shape[0]:
            raise ValueError(f"X has {X.shape[0]} rows and y has {len(Y)}.")
        if Y.ndim == 1 or Y.shape[1] == 1:
            check_classification_targets(Y)
        if n_labels is None:
            values = np.unique(Y[~unknown])
            if len(values) > 2:
                shown = ", ".join(map(str, values[:4]))
                raise ValueError(
                    "Only binary classification is supported: labels must have two values, the "
                    f"same in all columns, got {len(values)} classes ({shown} ...)."
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
        labels = (Y == self.values_[1]).astype(self._dtype)
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
