"""How estimators of layered machines learn: whole runs, and one step at a time."""

import numpy as np
from sklearn.utils.validation import validate_data

from fastmf.estimators._layered import TrainedMachine
from fastmf.estimators._runs import run, seed_of, settings_of, split
from fastmf.estimators._units import check_support
from fastmf.learning.layered.settings import Settings, rate
from fastmf.learning.layered.step import initial_state, step
from fastmf.learning.training.trainer import monitor_rows, stream
from fastmf.priors._domain import independent_units


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
        seed, validation = seed_of(self.random_state), None
        X, model = self._first_data(X, seed or 0)
        if validation_data is not None:
            validation = self._data(validation_data, model=model)
        elif self.early_stopping:
            rows, others = split(len(X), self.validation_fraction, seed or 0)
            X, validation = X[rows], X[others]
        model = self._pretrained(model, X, settings, seed or 0)
        run(self, model, X, settings, seed, validation)
        self._remember(X, settings)
        self.__dict__.pop("_state", None)
        return self

    def partial_fit(self, X, y=None):
        """Take one step of learning on a batch of data, at the rate of the first epoch.

        The first call initialises the model as `fit` does, but without pre-training.

        Parameters
        ----------
        X : array of shape (n_samples, n_features)
        y : ignored

        Returns
        -------
        self
        """
        settings = self._settings()
        if hasattr(self, "model_"):
            X = self._data(X)
        if not hasattr(self, "_state"):
            self._state_seed = seed_of(self.random_state) or 0
            if not hasattr(self, "model_"):
                X, self.model_ = self._first_data(X, self._state_seed)
                self.n_iter_, self.history_ = 0, {}
                self._remember(X, settings)
            self._state = initial_state(self.model_)
        rng = stream(self._state_seed, self.n_iter_)
        step(self._state, X, settings, rate(settings, 0), rng, self.n_threads)
        self.model_, self.n_iter_ = self._state.model, self.n_iter_ + 1
        return self

    def _first_data(self, X, seed):
        """Checked data, and the model before it has learned from them."""
        X = validate_data(self, X, dtype=[np.float64, np.float32], order="C")
        model = self._initial_model(X, seed)
        check_support(model.layers[0], X)
        return X, model

    def _pretrained(self, model, X, settings, seed):
        """The model from which `fit` starts."""
        return model

    def _settings(self):
        return settings_of(self, Settings)

    def _remember(self, X, settings):
        self.pointwise_ = independent_units(self.visible_, X)
        self.starts_ = monitor_rows(X, settings, 0)
