"""Learning of the estimators of RBMs and DBMs: initial units, standardised columns, row weights."""

import warnings
from dataclasses import replace
from functools import partial
from itertools import groupby

import numpy as np

from fastmf._common import arguments as check
from fastmf._common.rows import is_incomplete, is_sparse, present_rows
from fastmf.estimators.common import runs
from fastmf.estimators.common.data import (
    check_seen,
    check_squares,
    checked_rows,
    warn_of_missing_codes,
    with_nan_labels,
)
from fastmf.estimators.common.reports import coded_frame, is_frame
from fastmf.inference.mean_field.lower_bound import lower_bound
from fastmf.inference.missing.layered import log_likelihoods, log_prob_of_seen
from fastmf.learning.layered.data import (
    completed_once,
    independent_of_seen,
    scaling_of,
    with_values_of_columns,
)
from fastmf.learning.layered.domain import check_exists
from fastmf.learning.layered.exact_averages import MAX_SUMMED_STATES, is_exact
from fastmf.learning.layered.quasi_newton_steps import QuasiNewtonSteps, gain_of_one_unit
from fastmf.learning.layered.settings import (
    FEW_ROWS,
    GRADIENTS,
    MANY_ROWS,
    LayeredSettings,
    gradient_for,
    min_batch_size,
    steps_for,
)
from fastmf.learning.layered.step import Plan
from fastmf.learning.training.ascent import initial_state, learning_rate
from fastmf.learning.training.trainer import monitor_rows, resampled_rows, stream, within_range
from fastmf.models._checks import unit_prior
from fastmf.models.exact import missing_columns
from fastmf.priors import Bernoulli, Categorical, Gaussian, Ordinal
from fastmf.priors._groups import column_sizes, has_groups, has_groups_of_states
from fastmf.priors._protocol import as_dtype, is_unit_prior, n_units, repeated
from fastmf.priors._queries import (
    can_be_fitted,
    common_support,
    fitted,
    hidden_unit,
    independent_units,
    is_discrete,
)
from fastmf.priors._registry import REGISTRY, floating_type
from fastmf.priors._values import check_part, checked_values, log_prob_of_rows, states
from fastmf.priors.categorical import MAX_STATES
from fastmf.priors.concatenated import concatenate
from fastmf.priors.ordinal import MAX_SCORE


def _class(name, spec):
    """Return the class that `spec` names or is; None if it is an instance."""
    if isinstance(spec, str):
        if spec not in REGISTRY:
            raise ValueError(f"{name} must be one of {sorted(REGISTRY)} or a prior, got {spec!r}.")
        return REGISTRY[spec]
    return spec if isinstance(spec, type) else None


def _instance(name, prior, n, dtype):
    """Return the prior with `n` units; a single unit is repeated."""
    if is_unit_prior(prior):
        prior = repeated(prior, n)
    return unit_prior(name, prior, n, dtype)


def visible_prior(spec, X, rows=None, online=False, categories=None):
    """Return the initial visible prior, fitted to the columns if `spec` is a name or class."""
    if categories is not None:
        prior = _of_kinds(X, categories)
        return prior if rows is None else independent_units(prior, X[rows])
    spec = "bernoulli" if isinstance(spec, str) and spec == "auto" else spec
    class_, dtype = _class("visible", spec), floating_type(X)
    if class_ is None:
        n = n_units(spec) if is_unit_prior(spec) and has_groups(spec) else X.shape[1]
        return _instance("visible", spec, n, dtype)
    if not can_be_fitted(class_):
        raise TypeError(f"visible: {class_.__name__} has no from_data; give an instance.")
    if has_groups_of_states(class_):
        labels = _labels(X)
        # Later batches may hold labels that are absent from this one.
        prior = class_.from_data(labels, sizes=max(int(labels.max()), 1) + 1 if online else None)
    else:
        if common_support(class_):
            check_part(class_, X)
        else:
            sizes = abs(X).max(0).toarray() if is_sparse(X) else np.nanmax(abs(X), axis=0)
            check_squares("X", sizes, dtype)
        prior = unit_prior("visible", fitted(class_, X), X.shape[1], dtype)
    return prior if rows is None else independent_units(prior, X[rows])


def _of_kinds(X, categories):
    """Return units for columns of mixed kinds; `categories` is None for numeric columns."""
    kinds = [_kind(X[:, [j]], listed) for j, listed in enumerate(categories)]
    parts = []
    for kind, numbers in groupby(range(len(kinds)), kinds.__getitem__):
        columns, options = list(numbers), {}
        if kind is Categorical:
            options["sizes"] = np.array([max(2, len(categories[j])) for j in columns])
        parts.append(kind.from_data(X[:, columns], **options))
    return concatenate(parts)


def _kind(column, categories):
    """Return the class of unit for a column.

    Non-negative integers are ordinal if that has a better BIC than a normal density.
    """
    if categories is not None:
        return Categorical
    if np.isin(column, (0, 1)).all():
        return Bernoulli
    n, largest = len(column), column.max()
    if (column != np.rint(column)).any() or column.min() < 0 or largest > MAX_SCORE:
        return Gaussian

    def criterion(kind, n_parameters):
        prior = kind.from_data(column)
        logs = prior.log_prob(column) - prior.log_partition(0.0, 0.0)
        return logs.sum() - n_parameters / 2 * np.log(n)

    return Ordinal if criterion(Ordinal, largest) > criterion(Gaussian, 2) else Gaussian


def _labels(X):
    """Return `X` if it holds labels of categorical units; raise an error otherwise."""
    if is_sparse(X):
        raise ValueError(
            "X must be a dense array of labels of categorical units, got a sparse matrix: use "
            "X.toarray(), or for sparse one-hot rows pass visible=mf.Categorical(field)."
        )
    integers = np.isfinite(X) & (X == np.round(X))
    if not integers.all() or (X < 0).any() or X.max() >= MAX_STATES:
        raise ValueError(
            "X must hold one label for each categorical unit, an integer from 0 to "
            f"{MAX_STATES - 1}, or NaN or a negative one where it is missing; for one-hot rows "
            "pass visible=mf.Categorical(field)."
        )
    return X


def hidden_prior(spec, n_components, dtype):
    """Return the initial hidden prior; centred units if `spec` is a name or class."""
    class_ = _class("hidden", spec)
    if class_ is None:
        return _instance("hidden", spec, n_components, dtype)
    prior = hidden_unit(class_)
    if prior is None:
        raise TypeError(f"hidden: no default parameters for {class_.__name__}; give an instance.")
    return _instance("hidden", prior, n_components, dtype)


def given_layers(init, X, *kinds):
    """Return the couplings, in the dtype of the data, and the layers of the option `init`."""
    if not isinstance(init, kinds):
        names = " or ".join(kind.__name__ for kind in kinds)
        raise TypeError(f"init must be of type {names}, or None, got {type(init).__name__}.")
    if any(weights.size == 0 for weights in init.couplings):
        raise ValueError(f"init must have hidden units, got {init}: there is nothing to train.")
    visible = init.layers[0]
    n_columns = len(column_sizes(visible))  # labels, or the states of categorical units
    if X.shape[1] not in (n_columns, n_units(visible)):
        raise ValueError(
            f"init must have a visible unit for each column of X, got {n_columns} units and "
            f"{X.shape[1]} columns."
        )
    return tuple(weights.astype(floating_type(X)) for weights in init.couplings), init.layers


# --- learning -------------------------------------------------------------------------------------


class Learning:
    """The methods `fit` and `partial_fit` of `LayeredMachine`."""

    def fit(self, X, y=None, validation_data=None, sample_weight=None):
        """Learn from data.

        Parameters
        ----------
        X : array, data frame, sparse matrix or Dask array of shape (n_samples, n_features)
            Categorical units have one label each. Sparse rows and integers are made dense and
            floating point a batch at a time; integers count as float64. NaN, or a negative label
            of a categorical unit, is a missing value. A Dask array is processed block by block;
            see `fastmf.distributed.fit` for how results may differ.
        y : ignored
        validation_data : array or sparse matrix of shape (n_rows, n_features) or None
            Data whose log-likelihood is recorded and used for early stopping.
        sample_weight : array of shape (n_samples,) or None
            In each epoch, rows are resampled in proportion to their weights; rows of weight 0 are
            not used.

        Raises
        ------
        FloatingPointError
            If learning diverges and the couplings overflow.

        Warns
        -----
        ConvergenceWarning
            If the final log-likelihood is lower than for independent units, or if more than half
            of the gain of the best epoch has been lost.
        UserWarning
            If mean-field iterations yield no finite moments, so that training continues with "pcd".

        Notes
        -----
        The likelihood of the observed entries is maximised, which is valid for values missing at
        random. Its gradient is exact with gradient "exact" if `l1` and `preconditioning` are not
        used; otherwise missing values are resampled before each epoch, by Gibbs sampling of the
        model given the observed entries.
        """
        if hasattr(X, "to_delayed"):
            from fastmf.distributed import fit

            return fit(self, X, validation_data=validation_data, sample_weight=sample_weight)
        settings = self._settings()
        seed, validation = runs.seed_of(self.random_state), None
        X = self._checked_rows(X)
        weights = check.row_weights(sample_weight, X.shape[0])
        check_seen(self, X, weights)
        X, weights = present_rows(X, weights)
        raw, scaled, model, scaling, independent = self._begin(X, seed or 0, weights, online=False)
        first = scaling.undone(model)
        if validation_data is not None:
            validation = self._given(validation_data, missing=True, model=first)
        elif self.early_stopping:
            rows, held_out = runs.split(raw.shape[0], seed or 0, weights)
            validation, raw = raw[held_out], raw[rows]
            weights = weights if weights is None else weights[rows]
            scaled = scaled[rows]
        if validation is not None:
            validation = scaling.data(validation, model.dtype)
        settings = self._with_steps(settings, model, scaled, weights, scaled.shape[0])
        model = self._pretrained(model, scaled, settings, seed or 0, weights)
        steps = self._steps(model, settings, scaled, weights, scaling)
        options = {"weights": weights, "raw": scaling.undone}
        state = runs.run(self, model, scaled, steps, seed, validation, **options)
        self.model_ = scaling.undone(self.model_)
        self._remember(raw, settings, weights, seed)
        epoch = self.n_iter_
        if self.early_stopping and epoch:  # `model_` is the best model
            epoch = int(np.argmax(self.history_["validation_log_likelihood"])) + 1
        # Independent units: fitted to the data, and those of the initial model.
        units, scored = (independent, first.layers[0]), partial(scored_rows, raw, weights)
        monitored = monitor_rows(raw, settings, state.seed, weights)
        baseline = min(self._score_of_units(prior, *monitored) for prior in units)
        runs.warn_of_likelihood(
            self.model_, self.history_, baseline, epoch, lambda low: self._score_of(*scored(), low)
        )
        # The gain of one binary hidden unit is no yardstick for real-valued hidden units.
        if is_discrete(self.model_.layers[1]) and epoch >= LayeredSettings.n_epochs:
            value = self.history_["log_likelihood"][epoch - 1] * sum(self.model_.sizes)
            runs.warn_of_little_gain(
                value - baseline,
                lambda: self._score_of(*scored()) - self._score_of_units(independent, *scored()),
                self.model_.sizes[0],
                lambda: gain_of_one_unit(
                    scaling.units(independent), *scored_rows(scaled, weights), settings.l2
                ),
            )
        self.__dict__.pop("_state", None)
        return self

    def partial_fit(self, X, y=None):
        """Take one gradient step on a batch of data, with the learning rate of the first epoch.

        The first call initialises the model as `fit` does, but without pre-training.

        Parameters
        ----------
        X : array or sparse matrix of shape (n_samples, n_features)
        y : ignored

        Returns
        -------
        self

        Raises
        ------
        ValueError, TypeError, FloatingPointError
            For invalid data or options, and if learning diverges or numbers overflow.
        """
        settings = self._settings()
        if not hasattr(self, "model_"):
            self._state_seed = runs.seed_of(self.random_state) or 0
            X = self._checked_rows(X)
            check_seen(self, X)
            raw, X, model, self._scaling, _ = self._begin(X, self._state_seed)
            self._state, self.n_iter_, self.history_ = initial_state(model), 0, {}
            self.model_ = self._scaling.undone(model)
            self._remember(raw, settings)
        else:
            X = self._given(X, missing=True)
            check_seen(self, X, columns=False)
            if not hasattr(self, "_state"):
                self._state_seed = runs.seed_of(self.random_state) or 0
                self._scaling = scaling_of(self.pointwise_, self.model_, is_sparse(X), self.centred)
                self._state = initial_state(self._scaling.model(self.model_))
            X = self._scaling.data(X, self.model_.dtype)
        model, n_rows = self._state.model, X.shape[0]
        settings = self._with_steps(settings, model, X, None, n_rows, batches=False)
        state, plan = self._state, Plan(self._state.model, settings, self.n_threads)
        every = plan.n_between
        if every and (self.n_iter_ % every == 0 or not state.preconditioners):
            plan.prepare(state, X)
        rng = stream(self._state_seed, self.n_iter_)
        X = completed_once(state.model, X, [self._state_seed, self.n_iter_], self.n_threads)
        with within_range(state):
            plan(state, X, learning_rate(settings, 0), rng)
        model, self.n_iter_ = state.model, self.n_iter_ + 1
        self.model_ = self._scaling.undone(model)
        return self

    def _checked_rows(self, X):
        self.categories_ = None
        if is_frame(X) and self._kind_of_visible() == "auto":
            coded, categories = coded_frame(X)
            values = checked_rows(self, coded, reset=True, dtype=np.float64, missing=True)
            if any(categories) or not (np.isnan(values) | (values >= 0) & (values <= 1)).all():
                X, self.categories_ = coded, categories
        X = checked_rows(self, X, reset=True, dtype=[np.float64, np.float32], missing=True)
        X = with_nan_labels(self._kind_of_visible(), X)
        warn_of_missing_codes(self, X)
        return X

    def _kind_of_visible(self):
        """Return the visible prior of `init`, or the option `visible` without `init`."""
        return self.visible if self.init is None else getattr(self.init, "layers", (None,))[0]

    def _begin(self, X, seed, weights=None, online=True):
        """Return raw data, scaled data, initial scaled model, scaling and independent units."""
        rows = None if weights is None else _repeated_rows(weights)
        incomplete = is_incomplete(X)
        values = with_values_of_columns(X) if incomplete else X
        model = self._initial_model(values, seed, rows, online)
        X = checked_values(model.layers[0], X, model.dtype, missing=incomplete)
        independent = independent_of_seen(model.layers[0], X if rows is None else X[rows])
        if incomplete and not is_unit_prior(self._kind_of_visible()):  # refit to observed values
            model = model.rebuilt(model.couplings, (independent, *model.layers[1:]))
        scaling = scaling_of(independent, model, is_sparse(X), self.centred)
        if self.init is None:
            # The scale of the random couplings refers to standardised columns.
            model = model.rebuilt(model.couplings, scaling.of_layers(model.layers))
        else:
            model = scaling.model(model)
        check_exists(model)
        return X, scaling.data(X, model.dtype), model, scaling, independent

    def _with_steps(self, settings, model, X, weights, n_rows, batches=True):
        """Return settings with the gradient, batch size and rate chosen for `n_rows` rows.

        Without `batches`, correlations of columns do not affect the batch size and the rate.
        """
        gradient = self.gradient
        if gradient == "auto":
            gradient = gradient_for(model, n_rows, self.l2)
        if gradient == "exact" and not is_exact(model):
            raise ValueError(
                "gradient='exact' needs a machine with one hidden layer, and at most "
                f"{MAX_SUMMED_STATES} states of its visible or of its hidden units, "
                f"got {model}; use 'tap' or 'pcd'."
            )
        self.gradient_ = gradient
        settings = replace(settings, gradient=gradient)
        chosen = steps_for(model, settings, 1 - np.isnan(X).mean() if is_incomplete(X) else 1.0)
        if batches and (self.batch_size is None or self.learning_rate is None):
            least = min_batch_size(model, *scored_rows(X, weights))
            if chosen["batch_size"] == FEW_ROWS["batch_size"]:
                chosen["learning_rate"] *= max(1.0, FEW_ROWS["batch_size"] / least)
            chosen["batch_size"] = max(chosen["batch_size"], int(least))
        return replace(settings, **self._where_not_given(chosen))

    def _where_not_given(self, defaults):
        return {name: value for name, value in defaults.items() if getattr(self, name) is None}

    def _steps(self, model, settings, X, weights, scaling):
        """Return the callable that takes the steps of an epoch."""
        first_order = settings.l1 or settings.preconditioning is not None
        if settings.gradient != "exact" or first_order:
            return Plan(model, settings, self.n_threads, scaling)
        return QuasiNewtonSteps(settings, X, weights, scaling, self.n_threads)

    def _pretrained(self, model, X, settings, seed, row_weights):
        """Return the model at which `fit` starts."""
        return model

    def _settings(self):
        check.one_of("gradient", self.gradient, ("auto", *GRADIENTS))
        chosen = {"gradient": "tap"} if self.gradient == "auto" else {}
        chosen |= self._where_not_given(MANY_ROWS)
        return runs.settings_of(self, LayeredSettings, **chosen)

    def _score_of(self, X, weights, threshold=-np.inf):
        """Return the average of `score_samples`, or an upper bound of it below the threshold."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of solutions that do not converge
            try:
                double, scaling = self._centred(double=True)
                X = scaling.data(X, double.model_.dtype)
                values = log_likelihoods(double.model_, X, 0.0, **self._options)
                value, log_partition = np.average(values, weights=weights), -np.inf
                if threshold > -np.inf:
                    log_partition = lower_bound(double.model_.bipartite(), [double.starts_]).value
                if not value - log_partition < threshold:
                    log_partition = self._estimated_log_partition()[0]
            except FloatingPointError:  # annealing diverges
                return -np.inf
        return float(value - log_partition)

    def _score_of_units(self, prior, X, weights=None):
        """Return the average log-likelihood of rows under uncoupled units of this prior."""
        _, scaling = self._centred()
        X, prior = scaling.data(X, np.float64), scaling.units(as_dtype(prior, np.float64))
        log_partition = prior.log_partition(0.0, 0.0)
        if is_incomplete(X):
            logs = log_prob_of_seen(prior, X) - ~missing_columns(prior, X) @ log_partition
        else:
            logs = log_prob_of_rows(prior, X, np.float64) - log_partition.sum()
        return float(np.average(logs, weights=weights))

    def _remember(self, X, settings, weights=None, seed=None):
        rows = slice(None) if weights is None else _repeated_rows(weights)
        self.pointwise_ = independent_of_seen(self.visible_, X[rows])
        starts = monitor_rows(X, settings, 0, weights)[0]
        starts = completed_once(self.model_, starts, [seed or 0, 0], self.n_threads)
        self.starts_ = np.array(states(self.visible_, starts, self.model_.dtype))


def scored_rows(X, weights, max_rows=2000):
    """Return at most `max_rows` random rows, and their weights, to score after learning."""
    if X.shape[0] <= max_rows:
        return X, weights
    rows = np.random.default_rng(0).choice(X.shape[0], max_rows, replace=False)
    return X[rows], weights if weights is None else weights[rows]


def _repeated_rows(weights):
    """Return indices of 50,000 or more rows, resampled in proportion to their weights."""
    return resampled_rows(weights, max(len(weights), 50_000), 0.5)
