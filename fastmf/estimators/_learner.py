"""How estimators of layered machines learn: whole runs, and one step at a time."""

import numpy as np
from sklearn.utils import check_random_state

from fastmf.estimators._trained import TrainedMachine
from fastmf.estimators._units import independent_units
from fastmf.learning.settings import Settings, rate
from fastmf.learning.step import initial_state, step
from fastmf.learning.trainer import monitor_rows, stream, train


class Learner(TrainedMachine):
    """`fit` and `partial_fit`, from the options of the estimator and its initial model."""

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
        model = self._pretrained(X, settings, 0 if seed is None else seed)
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

    def _pretrained(self, X, settings, seed):
        """The model from which `fit` starts."""
        return self._initial_model(X, seed)

    def _settings(self):
        names = Settings.__dataclass_fields__
        settings = Settings(**{name: getattr(self, name) for name in names})
        settings._real("weight_scale", self.weight_scale)
        return settings

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

    def _remember(self, X, settings):
        self.pointwise_ = independent_units(self.visible_, X)
        self.starts_ = monitor_rows(X, settings, 0)
