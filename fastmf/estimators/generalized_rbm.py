"""Restricted Boltzmann machines with any units, as a scikit-learn estimator."""

import numpy as np
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from fastmf.estimators import _files, denoising
from fastmf.estimators._units import (
    check_support,
    hidden_prior,
    independent_units,
    visible_prior,
)
from fastmf.inference import tap
from fastmf.learning.gibbs import gibbs
from fastmf.learning.gradients import ORDERS
from fastmf.learning.likelihood import distinct, log_likelihood, log_partition_estimate
from fastmf.learning.settings import Settings, rate
from fastmf.learning.step import initial_state, step
from fastmf.learning.trainer import monitor_rows, stream, train
from fastmf.models import RBM

_DTYPES = [np.float64, np.float32]


class GeneralizedRBM(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """Restricted Boltzmann machine with any unit priors, trained by mean-field solutions.

    Parameters
    ----------
    n_components : int
        Number of hidden units.
    visible, hidden : str, class or unit prior
        A name such as "bernoulli", "ising", "gaussian", "truncated_gaussian", "gauss_bernoulli" or
        "truncated_gauss_bernoulli"; visible units given by name or class are fitted to the columns
        of the data first. Bernoulli units accept values in [0, 1], as probabilities.
    gradient : {"tap", "mean_field", "tap3", "cd", "pcd"}
        How averages over the model are computed; see `fastmf.learning.settings.Settings`, which
        documents the following options up to `patience` in detail.
    learning_rate : float, (start, end), (start, end, "linear") or callable
    momentum, l2, l1 : float
    n_epochs, batch_size : int
    n_starts : int or None
        Mean-field solutions or Gibbs chains per step (None: the batch size).
    n_sweeps : int
        TAP sweeps from each start, or Gibbs sweeps, per step.
    starts : {"data", "noise", "persistent", "random"}
    noise : float
    monitor_rows : int
        Rows of data from which the log-partition is estimated, after each epoch and in
        `score_samples`.
    early_stopping : bool
        Stop when the log-likelihood of validation data no longer rises, and keep the best model.
    validation_fraction : float
        Share of the data set aside for early stopping, unless `fit` is given validation data.
    patience : int
    weight_scale : float
        Standard deviation of the weights before learning.
    callbacks : sequence of callable or None
        Called as `callback(state)` after each epoch, with `state.model`, `state.epoch` and
        `state.history`; training stops when one returns True.
    checkpoint : str, path or None
        File written after each epoch (and each `checkpoint_every` batches). `fit` resumes from it,
        to bitwise the same result as without interruption; remove it to start afresh.
    checkpoint_every : int or None
    n_threads : int or None
        Threads of the compiled kernels; results do not depend on it.
    random_state : int, RandomState or None
    verbose : int
        1 for a progress bar (with tqdm installed) or a line an epoch (without).

    Attributes
    ----------
    model_ : RBM
    weights_ : array of shape (n_features, n_components)
    components_ : array of shape (n_components, n_features)
        The same, transposed, as scikit-learn has it.
    visible_, hidden_ : unit prior
    pointwise_ : unit prior
        Independent units fitted to the data: the baseline of `denoise`, and where it starts.
    starts_ : array of shape (n_rows, n_features)
        Rows of data from which `score_samples` looks for solutions.
    history_ : dict of lists
        By epoch: "epoch", "learning_rate", "log_likelihood" and "validation_log_likelihood" (nats
        per unit, visible and hidden).
    n_iter_ : int
        Epochs (`fit`) or steps (`partial_fit`) done.
    n_features_in_ : int

    Notes
    -----
    Tramel, Gabrie, Manoel, Caltagirone & Krzakala (2018), Algorithm 2, with the corrections noted in
    `fastmf.learning`. float32 data are computed in float32, all other in float64.

    Examples
    --------
    >>> import numpy as np, fastmf as mf
    >>> X = (np.random.default_rng(0).random((200, 16)) < 0.3).astype(float)
    >>> rbm = mf.GeneralizedRBM(8, n_epochs=5, random_state=0).fit(X)
    >>> rbm.transform(X).shape
    (200, 8)
    """

    def __init__(
        self,
        n_components=256,
        *,
        visible="bernoulli",
        hidden="bernoulli",
        gradient="tap",
        learning_rate=0.05,
        momentum=0.5,
        l2=0.001,
        l1=0.0,
        n_epochs=20,
        batch_size=100,
        n_starts=None,
        n_sweeps=3,
        starts="data",
        noise=0.1,
        monitor_rows=100,
        early_stopping=False,
        validation_fraction=0.1,
        patience=5,
        weight_scale=1e-3,
        callbacks=None,
        checkpoint=None,
        checkpoint_every=None,
        n_threads=None,
        random_state=None,
        verbose=0,
    ):
        self.n_components = n_components
        self.visible = visible
        self.hidden = hidden
        self.gradient = gradient
        self.learning_rate = learning_rate
        self.momentum = momentum
        self.l2 = l2
        self.l1 = l1
        self.n_epochs = n_epochs
        self.batch_size = batch_size
        self.n_starts = n_starts
        self.n_sweeps = n_sweeps
        self.starts = starts
        self.noise = noise
        self.monitor_rows = monitor_rows
        self.early_stopping = early_stopping
        self.validation_fraction = validation_fraction
        self.patience = patience
        self.weight_scale = weight_scale
        self.callbacks = callbacks
        self.checkpoint = checkpoint
        self.checkpoint_every = checkpoint_every
        self.n_threads = n_threads
        self.random_state = random_state
        self.verbose = verbose

    # --- learning -------------------------------------------------------------------------------

    def fit(self, X, y=None, validation_data=None):
        """Learn from data.

        Parameters
        ----------
        X : array of shape (n_samples, n_features)
        y : ignored
        validation_data : array of shape (n_rows, n_features) or None
            Data whose log-likelihood is followed and decides on early stopping.

        Returns
        -------
        self

        Raises
        ------
        ValueError, TypeError
            For data outside the support of the visible units, options out of range, or a
            checkpoint of another run.
        FloatingPointError
            If learning diverges.
        """
        settings = self._settings()
        X = self._data(X, reset=True)
        seed = self._seed()
        validation = None if validation_data is None else self._data(validation_data)
        if validation is None and self.early_stopping:
            X, validation = self._split(X, 0 if seed is None else seed)
        model = self._initial_model(X, 0 if seed is None else seed)
        state = train(
            model,
            X,
            settings,
            seed=seed,
            validation=validation,
            callbacks=self.callbacks or (),
            checkpoint=self.checkpoint,
            checkpoint_every=self.checkpoint_every,
            n_threads=self.n_threads,
            verbose=self.verbose,
        )
        self.model_, self.history_, self.n_iter_ = state.model, state.history, state.epoch
        self._remember(X, settings)
        self.__dict__.pop("_state", None)
        return self

    def partial_fit(self, X, y=None):
        """Take one step of learning on a batch of data.

        Parameters
        ----------
        X : array of shape (n_samples, n_features)
        y : ignored

        Returns
        -------
        self
        """
        settings = self._settings()
        first = not hasattr(self, "model_")
        X = self._data(X, reset=first)
        if first:
            self.model_, self.n_iter_, self.history_ = self._initial_model(X, 0), 0, {}
        else:
            X = X.astype(self.model_.dtype, copy=False)
        if not hasattr(self, "_state"):
            self._state = initial_state(self.model_)
            self._state_seed = self._seed() or 0
            self._remember(X, settings)
        rng = stream(self._state_seed, self.n_iter_)
        step(self._state, X, settings, rate(settings, 0), rng, self.n_threads)
        self.model_, self.n_iter_ = self._state.model, self.n_iter_ + 1
        return self

    def _settings(self):
        names = Settings.__dataclass_fields__
        settings = Settings(**{name: getattr(self, name) for name in names})
        settings._integer("n_components", self.n_components, 1)
        settings._real("weight_scale", self.weight_scale)
        return settings

    def _data(self, X, *, reset=False, missing=False, soft=True):
        """Checked data in the type of the model."""
        X = validate_data(
            self,
            X,
            reset=reset,
            dtype=_DTYPES if reset else self.model_.dtype if hasattr(self, "model_") else _DTYPES,
            order="C",
            ensure_all_finite="allow-nan" if missing else True,
        )
        prior = visible_prior(self.visible, X) if reset else getattr(self, "visible_", None)
        if prior is not None:
            check_support(prior, X, soft)
        return X

    def _seed(self):
        if self.random_state is None:
            return None
        return int(check_random_state(self.random_state).randint(2**31 - 1))

    def _split(self, X, seed):
        if not 0 < self.validation_fraction < 1:
            raise ValueError(
                f"validation_fraction must be between 0 and 1, got {self.validation_fraction!r}."
            )
        n = max(1, round(self.validation_fraction * len(X)))
        if n >= len(X):
            raise ValueError(f"early_stopping needs more than {len(X)} sample to set some aside.")
        order = np.random.default_rng([seed, 0, 2]).permutation(len(X))
        return X[order[n:]], X[order[:n]]

    def _initial_model(self, X, seed):
        rng = np.random.default_rng([seed, 0, 3])
        weights = rng.normal(scale=self.weight_scale, size=(X.shape[1], self.n_components))
        return RBM(
            weights.astype(X.dtype),
            visible_prior(self.visible, X),
            hidden_prior(self.hidden, self.n_components, X.dtype),
        )

    def _remember(self, X, settings):
        self.pointwise_ = independent_units(self.model_.visible, X)
        self.starts_ = monitor_rows(X, settings, 0)

    # --- what has been learned ------------------------------------------------------------------

    @property
    def weights_(self):
        return self.model_.weights

    @property
    def components_(self):
        return self.model_.weights.T

    @property
    def visible_(self):
        return self.model_.visible

    @property
    def hidden_(self):
        return self.model_.hidden

    @property
    def _n_features_out(self):
        return self.model_.n_hidden

    @property
    def _order(self):
        return ORDERS.get(self.gradient, 2)

    def transform(self, X):
        """Mean of the hidden units given the visible ones.

        Parameters
        ----------
        X : array of shape (n_samples, n_features)

        Returns
        -------
        array of shape (n_samples, n_components)
        """
        check_is_fitted(self)
        X = self._data(X)
        return self.hidden_.moments(X @ self.weights_, X.dtype.type(0))[0]

    def score_samples(self, X, log_partition="log_sum_exp"):
        """Mean-field log-likelihood of each row.

        Parameters
        ----------
        X : array of shape (n_samples, n_features)
        log_partition : {"log_sum_exp", "mean"} or float
            How the log-partition follows from the distinct solutions reached from `starts_`:
            the log of the sum of their weights, which is by far the better estimate, or the mean of
            their log-partitions, as in the figures of Tramel et al. (2018). A number is taken as
            the log-partition itself.

        Returns
        -------
        array of shape (n_samples,)
            Nats.
        """
        check_is_fitted(self)
        X = self._data(X)
        if isinstance(log_partition, str):
            log_partition = log_partition_estimate(self._solve(self.starts_), log_partition)
        # Values between the two of a binary unit are means of the row, not states.
        return log_likelihood(self.model_, X, log_partition)

    def score(self, X, y=None):
        """Average of `score_samples`.

        Parameters
        ----------
        X : array of shape (n_samples, n_features)
        y : ignored

        Returns
        -------
        float
        """
        return float(np.mean(self.score_samples(X)))

    def solutions(self, X=None, merge_tol=1e-2):
        """The distinct mean-field solutions reached from data.

        Parameters
        ----------
        X : array of shape (n_starts, n_features) or None
            Starts (None: `starts_`).
        merge_tol : float
            Solutions whose visible means differ nowhere by more are the same.

        Returns
        -------
        Solutions
            With `visible` and `hidden` means, `free_energy`, `log_partition`, `converged`, one row
            a solution, lowest free energy first, and `members`, for each start its solution.
        """
        check_is_fitted(self)
        reached = self._solve(self.starts_ if X is None else self._data(X))
        rows, members = distinct(reached, merge_tol)
        log_partition = np.asarray(reached.log_partition)[rows]
        return denoising.Solutions(
            visible=reached.mean[0][rows],
            hidden=reached.mean[1][rows],
            free_energy=-log_partition,
            log_partition=log_partition,
            converged=np.asarray(reached.converged)[rows],
            members=members,
        )

    def _solve(self, starts, **options):
        return tap(self.model_, starts, order=self._order, n_threads=self.n_threads, **options)

    # --- sampling and restoring -----------------------------------------------------------------

    def sample(self, n_samples=1, *, n_sweeps=100, init=None, random_state=None):
        """Draw from the model by Gibbs sampling.

        Parameters
        ----------
        n_samples : int
        n_sweeps : int
            Sweeps from the start of each chain.
        init : array of shape (n_samples, n_features) or None
            Where the chains start (None: draws from independent units fitted to the data).
        random_state : int, RandomState or None

        Returns
        -------
        array of shape (n_samples, n_features)
        """
        check_is_fitted(self)
        rng = np.random.default_rng(check_random_state(random_state).randint(2**31 - 1))
        if init is None:
            zero = np.zeros((n_samples, self.n_features_in_), self.model_.dtype)
            init = self.pointwise_.sample(zero, zero, rng)
        else:
            init = self._data(init)
        return gibbs(self.model_, init, n_sweeps, rng, self.n_threads)[0]

    def denoise(self, Y, *, flip_probability=None, noise_variance=None, **options):
        """Posterior means of the visible units given noisy observations of them.

        Parameters
        ----------
        Y : array of shape (n_samples, n_features)
            Observations: states of two-valued units, any numbers for real units.
        flip_probability : float
            Of the binary symmetric channel, in [0, 1].
        noise_variance : float
            Of additive Gaussian noise, positive.
        n_starts : int
            Starts of the mean-field solution, averaged with their weights. More than one helps
            where much noise leaves many solutions.
        anneal : sequence of float or None
            Noise levels, in the order in which they are gone through before the actual one.
        random_state : int, RandomState or None

        Returns
        -------
        array of shape (n_samples, n_features)
        """
        check_is_fitted(self)
        binary = noise_variance is None
        Y = self._data(Y, soft=False) if binary else self._numbers(Y)
        return denoising.denoise(
            self._solve,
            self.model_.visible,
            self.pointwise_,
            Y,
            flip_probability=flip_probability,
            noise_variance=noise_variance,
            **options,
        )

    def impute(self, X):
        """Fill in missing values by their means given the others.

        Parameters
        ----------
        X : array of shape (n_samples, n_features)
            With NaN for missing values.

        Returns
        -------
        array of shape (n_samples, n_features)
        """
        check_is_fitted(self)
        X = self._data(X, missing=True)
        missing = np.isnan(X)
        if not missing.any():
            return X.copy()
        zero = X.dtype.type(0)
        start = np.where(missing, self.pointwise_.moments(zero, zero)[0], X)
        return np.where(missing, self._solve(start, clamp=~missing).mean[0], X)

    def _numbers(self, Y):
        return validate_data(self, Y, reset=False, dtype=self.model_.dtype, order="C")

    # --- files ----------------------------------------------------------------------------------

    def save(self, path):
        """Write the fitted estimator to `path` (.npz, without pickles, atomically).

        Parameters
        ----------
        path : str or path

        Raises
        ------
        TypeError
            If an option or a prior cannot be written without a pickle.
        """
        check_is_fitted(self)
        _files.save(path, self)

    @classmethod
    def load(cls, path):
        """Read an estimator that was written by `save`.

        Parameters
        ----------
        path : str or path

        Returns
        -------
        GeneralizedRBM

        Raises
        ------
        ValueError
            If the file is damaged or not such an estimator.
        """
        return _files.load(path, cls)

    def __sklearn_is_fitted__(self):
        return hasattr(self, "model_")

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags
