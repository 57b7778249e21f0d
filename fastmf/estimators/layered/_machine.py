"""Base class of the RBM and DBM estimators: likelihoods, sampling, imputation, denoising, files.

An observation y of visible units x through a noisy channel acts on them as a tilt
exp(b x - a x^2 / 2):

    binary symmetric channel, flip probability p    b = +-log((1 - p) / p) / (high - low), a = 0
    additive Gaussian noise of variance s2          b = y / s2, a = 1 / s2

(Tramel et al. 2018, Eqs. 43 and 44; the sign of Eq. 44 is corrected.) The denoised estimate of x
is the mean of the visible units of the tilted model.
"""

from copy import copy
from numbers import Integral

import numpy as np
from scipy.special import softmax
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import validate_data

from fastmf import models
from fastmf._common.arguments import count, number, one_of, positive
from fastmf._common.names import pandas
from fastmf._common.rows import blocks, is_incomplete, is_sparse
from fastmf.estimators.common import runs
from fastmf.estimators.common.data import checked_rows, warn_of_missing_codes, with_nan_labels
from fastmf.estimators.common.files import Saved, check_n_features
from fastmf.estimators.common.reports import coded_frame, decoded_frame, feature_names, is_frame
from fastmf.estimators.layered._learning import Learning, given_layers, hidden_prior, visible_prior
from fastmf.evaluation.denoising import nearest_rows
from fastmf.evaluation.log_partition import estimated_log_partition
from fastmf.inference.fixed_point import some_rows
from fastmf.inference.mean_field.gaussian_layers import collapsed_tap
from fastmf.inference.mean_field.likelihood import ESTIMATES, log_partition_estimate, posterior
from fastmf.inference.mean_field.lower_bound import lacking, lower_bound, starts_at
from fastmf.inference.mean_field.solutions import distinct, distinct_solutions, without_dimension
from fastmf.inference.missing.layered import (
    MAX_WORK_OF_ROW,
    annealed_given_seen,
    average_of_phases,
    enumerable,
    exact_given,
    log_likelihood_of_seen,
    log_likelihoods,
    log_prob_of_seen,
    means_given_seen,
    nearest_states,
    promising_starts,
)
from fastmf.inference.sampling.gibbs import MIN_ANNEALED, annealed_samples, even_layers, gibbs
from fastmf.learning.layered.data import scaling_of
from fastmf.learning.layered.gradients import ORDER_OF_GRADIENT
from fastmf.learning.layered.settings import weight_scale_for
from fastmf.models import exact
from fastmf.models._io import field_to_arrays, model_to_arrays, prior_from_arrays
from fastmf.models.layered import machine_of
from fastmf.priors._groups import as_labels, column_sizes
from fastmf.priors._protocol import as_dtype, can_draw, can_sample, is_unit_prior, n_units, sample
from fastmf.priors._queries import common_support, two_values
from fastmf.priors._registry import floating_type
from fastmf.priors._values import checked_values, data_fields, states


def noise_tilt(Y, noise_variance):
    """Return the field and precision of observations with Gaussian noise; 0 where y is missing."""
    limit = float(np.finfo(Y.dtype).max) ** 0.5  # beyond it there is no noise, or no observation
    variance = positive("noise_variance", noise_variance)
    variance = Y.dtype.type(min(max(variance, 1 / limit), limit))
    field, precision = Y / variance, np.full_like(Y, 1 / variance)
    field[np.isnan(Y)] = precision[np.isnan(Y)] = 0
    return field, precision


def flip_field(Y, prior, flip_probability):
    """Return the field of observations through a binary symmetric channel; 0 where y is missing."""
    p = number("flip_probability", flip_probability, 0, 1)
    if not two_values(prior):
        raise ValueError(
            f"flip_probability needs two-valued visible units, got {type(prior).__name__}; "
            "real units take noise_variance."
        )
    low, high = two_values(prior)
    smallest = np.finfo(np.float64).eps  # a flip probability of 0 would be an infinite field
    p = min(max(p, smallest), 1 - smallest)
    field = np.log((1 - p) / p) / (high - low)
    fields = np.where(Y == high, Y.dtype.type(field), Y.dtype.type(-field))
    fields[np.isnan(Y)] = 0
    return fields


def denoising_starts(Y, pointwise, candidates, n_starts, field, precision, rng):
    """Return the starts of all rows of `Y`, row by row: (n_rows * n_starts, n_units).

    At high noise, iterations from the pointwise optimal estimate (Eq. 46, corrected) end in a
    solution unlike all data. Better starts are the candidate rows under which the observation is
    most probable; draws from the pointwise posterior are added if these are too few. Solutions are
    averaged with equal weights, because log-partitions favour solutions that fit the noise.
    """
    a = field.dtype.type(0) if precision is None else precision
    if candidates is None:
        rows = [pointwise.moments(field, a)[0]]
    else:
        fields, values = field, candidates
        if precision is not None:
            fields, values = np.hstack([field, -precision / 2]), np.hstack([values, values**2])
        nearest = nearest_rows(fields, values, 0, min(n_starts, len(candidates)))
        rows = list(candidates[nearest.T])
    rows += [sample(pointwise, field, a, rng) for _ in range(n_starts - len(rows))]
    return np.stack(rows, axis=1).reshape(-1, Y.shape[1]).astype(Y.dtype, copy=False)


# --- machines -------------------------------------------------------------------------------------


class LayeredMachine(
    Learning, ClassNamePrefixFeaturesOutMixin, TransformerMixin, Saved, BaseEstimator
):
    """Base of `GeneralizedRBM` and `DeepBoltzmannMachine`; subclasses define `_layers_above`."""

    _forgotten = (*Saved._forgotten, "init")
    # For a data frame with inferred kinds: the categories of each column, None if it is numeric.
    categories_ = None

    @property
    def visible_(self):
        """Prior of the visible units."""
        return self.model_.layers[0]

    @property
    def _n_features_out(self):
        return n_units(self.model_.layers[-1])

    def _seed(self):
        return runs.seed_of(self.random_state)

    @property
    def _order(self):
        return ORDER_OF_GRADIENT.get(self.gradient, 2)

    def _initial_model(self, X, seed, rows=None, online=True):
        """Return the initial model: `init`, with added layers of small random weights above it."""
        rng, dtype = np.random.default_rng([seed, 0, 3]), floating_type(X)
        if self.init is None:
            options = rows, online, self.categories_
            weights, layers = (), (visible_prior(self.visible, X, *options),)
        else:
            kinds = [getattr(models, name) for name in self._models]
            weights, layers = given_layers(self.init, X, *kinds)
        for kind, size in self._layers_above(layers[1:]):
            shape = n_units(layers[-1]), count("n_components", size)
            hidden, scale = hidden_prior(kind, size, dtype), self.weight_scale
            if scale is None:
                given = bool(weights) or is_unit_prior(self.visible) or not self.centred
                scale = weight_scale_for(layers[-1], hidden, given)
            weights += (rng.normal(scale=scale, size=shape).astype(dtype),)
            layers += (hidden,)
        return machine_of(weights, layers)

    def transform(self, X):
        """Compute means of the top layer given the data, by mean field in deep machines.

        Parameters
        ----------
        X : array or sparse matrix of shape (n_samples, n_features)
            NaN, or a negative label, is a missing value: see `score_samples`.

        Returns
        -------
        array of shape (n_samples, n_units)

        Warns
        -----
        ConvergenceWarning
            If the mean-field solutions of some rows have not converged.
        """
        X, model = self._data(X, missing=True), self._centred()[0].model_
        if not model.deep and not is_incomplete(X):
            b = data_fields(model.visible, X, model.weights, self.n_threads)
            return model.hidden.moments(b, b.dtype.type(0))[0].astype(self.model_.dtype, copy=False)
        if is_incomplete(X):
            rows = states(model.layers[0], X, model.dtype)
            solutions = means_given_seen(model, rows, **self._options)
        else:
            solutions = posterior(model, X, **self._options).solutions
        runs.warn_unless_converged(solutions.converged)
        return solutions.mean[-1].astype(self.model_.dtype, copy=False)

    # --- likelihoods and solutions ------------------------------------------------------------

    def score_samples(self, X, log_partition="auto"):
        """Compute the log-likelihood of each row.

        Parameters
        ----------
        X : array or sparse matrix of shape (n_samples, n_features)
            NaN, or a negative label, is a missing value; observed values alone are scored then.
        log_partition : {"auto", "exact", "log_sum_exp", "mean"} or float
            Method, as for `log_partition`, or the value of the log-partition.

        Returns
        -------
        array of shape (n_samples,)
            In nats.

        Notes
        -----
        The sum over hidden states given the data is exact for one hidden layer and for small deep
        machines. For larger deep machines it is a mean-field approximation; a warning is issued if
        annealing of ten rows differs from it by more than 0.1 nats on average. Missing and hidden
        units are summed together, exactly where `impute` is exact and otherwise by sampling; a
        warning is issued if the standard errors exceed 0.2 nats on average.
        """
        return self._scores(X, self._log_partition_of_centred(log_partition))

    def _scores(self, X, log_partition):
        """Do as `score_samples`, given the log-partition of the machine `_centred`."""
        (double, scaling), X = self._centred(double=True), self._given(X, missing=True)
        model, X = double.model_, scaling.data(X, double.model_.dtype)
        if not is_incomplete(X):
            values = log_likelihoods(model, X, log_partition, **self._options)
            if model.deep and all(map(can_draw, model.layers)):
                double._warn_of_mean_field(X, values + log_partition)
            return values
        values, errors = log_likelihood_of_seen(
            model, X, log_partition, anneal=True, **double._options
        )
        if not errors.mean() <= 2 * runs.MAX_ERROR:
            size = "unknown size" if np.isnan(errors).any() else f"{errors.mean():.2g} nats"
            runs.warn_of_convergence(
                f"log-likelihoods of rows with missing values have standard errors of {size} on "
                "average, and are too low by part of it: `impute` with method='exact' says which "
                "rows have too many states to be summed."
            )
        return values

    def _warn_of_mean_field(self, X, approximate):
        """Warn if annealing of ten rows contradicts their mean-field log-likelihoods."""
        rows = np.linspace(0, X.shape[0] - 1, min(10, X.shape[0])).astype(int)
        scored = states(self.visible_, X[rows], self.model_.dtype)
        if exact_given(self.model_, scored[:1]).exact.all():
            return
        values, errors = annealed_given_seen(self.model_, scored, self.n_threads)
        values += log_prob_of_seen(self.visible_, scored)
        what = "of this deep machine, with hidden layers given data by mean field,"
        runs.warn_of_approximation(what, approximate[rows], values, errors)

    def _centred(self, double=False):
        """Return the machine without columns far from zero, and the `Scaling` of its rows.

        It is in float64 if means are subtracted, or if `double` and values are unbounded.
        """
        model, dtype, cached = self.model_, np.float64, vars(self).get("_centring")
        if cached is None or cached[0] is not model:
            scaling = scaling_of(self.pointwise_, model, sparse=True)
            scale, *hidden = map(np.ones_like, (scaling.scale, *scaling.hidden_scales))
            scaling = scaling._replace(scale=scale, hidden_scales=tuple(hidden))
            cached = self._centring = model, scaling, {}
        _, scaling, changes = cached
        machine, unbounded = copy(self), common_support(self.visible_) is None
        if scaling.of_data or (double and model.dtype != dtype and unbounded):
            if not changes:
                pointwise = scaling.units(as_dtype(self.pointwise_, dtype))
                changed, starts = scaling.model(model, dtype), scaling.data(self.starts_, dtype)
                changes |= {"model_": changed, "pointwise_": pointwise, "starts_": starts}
            vars(machine).update(changes)
        return machine, scaling

    def _log_factor(self):
        """Return the log-ratio of the partition functions of the model and of `_centred`."""
        units = self.visible_, self._centred()[0].visible_
        logs = (as_dtype(prior, np.float64).log_partition(0.0, 0.0).sum() for prior in units)
        return float(np.subtract(*logs)) if units[0] is not units[1] else 0.0

    def log_partition(self, how="auto"):
        """Compute the log-partition of the model.

        Parameters
        ----------
        how : {"auto", "exact", "log_sum_exp", "mean"}, default "auto"
            "auto": `log_partition_`, exact or annealed, with error `log_partition_error_`. "exact":
            `fastmf.exact`, by enumeration. "log_sum_exp": log of the summed weights of the distinct
            mean-field solutions reached from `starts_` (solutions not separated by a barrier count
            once); low by a nat or two for machines trained by mean field. "mean": the mean of their
            log-partitions, as in the figures of Tramel et al. (2018).

        Returns
        -------
        float

        Raises
        ------
        FloatingPointError
            With "auto", if annealing diverges.

        Warns
        -----
        ConvergenceWarning
            If the error of the annealed value exceeds 0.1 nats, or if the mean-field value is
            unknown, or below a lower bound of the log-partition by 0.1 nats.
        """
        one_of("how", how, ("auto", "exact", *ESTIMATES))
        return self._log_partition_of_centred(how) + self._log_factor()

    def _log_partition_of_centred(self, how):
        """Return the log-partition of the machine `_centred`, by a method or from a value."""
        if not isinstance(how, str):
            return number("log_partition", how, -np.inf, np.inf) - self._log_factor()
        one_of("log_partition", how, ("auto", "exact", *ESTIMATES))
        machine, _ = self._centred()
        if how == "exact":
            return exact(machine.model_, averages=False).log_partition
        if how == "auto":
            value, error = self._estimated_log_partition()
            if not error <= runs.MAX_ERROR:
                size = "unknown error" if np.isnan(error) else f"error of about {error:.2g} nats"
                runs.warn_of_convergence(
                    f"the log-partition {value:.6g}, and with it each log-likelihood, has an "
                    f"{size}. Pass to score_samples the log_partition of "
                    "`fastmf.evaluation.annealed_importance_sampling` with more steps."
                )
            return value
        solved = machine._solve(machine.starts_)
        value = log_partition_estimate(machine.model_, solved, how, self._order)
        if not np.isfinite(value):
            runs.warn_of_convergence(
                f"the log-partition is unknown, {value}: mean-field iterations of this machine "
                "have no moments. Use how='auto' or "
                "`fastmf.evaluation.annealed_importance_sampling`."
            )
        if not np.isfinite(value) or how != ESTIMATES[0]:
            return value
        bound = lower_bound(machine.model_.bipartite(), [starts_at(solved)]).value
        if shortfall := lacking(value, bound, self.model_.dtype, runs.MAX_ERROR):
            runs.warn_of_convergence(
                f"the log-partition {value:.6g} is at least {shortfall:.3g} nats too low, and "
                "log-likelihoods too high: the mean-field solutions from starts_ miss the states "
                "of most weight, as happens where training has diverged. Train with a smaller "
                "learning_rate, or take log_partition='auto'."
            )
        return value

    @property
    def log_partition_(self):
        """Log-partition, exact for small or Gaussian models, else annealed; cached for `model_`."""
        return self._estimated_log_partition()[0] + self._log_factor()

    @property
    def log_partition_error_(self):
        """Standard error of `log_partition_` in nats: 0 if exact, NaN if unknown."""
        return self._estimated_log_partition()[1]

    def _estimated_log_partition(self):
        """Return the log-partition of `_centred`, cached until `model_` changes, and its error."""
        estimate = vars(self).get("_log_partition")
        if estimate is None or estimate[0] is not self.model_:
            double, _ = self._centred(double=True)
            model, starts = double.model_, double.starts_
            if enumerable(model):
                value = exact(model, averages=False).log_partition, 0.0
            elif model.gaussian.all() or not all(map(can_sample, model.layers)):
                error = 0.0 if model.gaussian.all() else np.nan  # integrated out: exact
                value = log_partition_estimate(model, double._solve(starts)), error
            else:
                seed = int(self.random_state) if isinstance(self.random_state, Integral) else 0
                data = nearest_states(double.visible_, starts)
                value = estimated_log_partition(model, data, runs.MAX_ERROR, self.n_threads, seed)
            estimate = self._log_partition = (self.model_, *value)
        return estimate[1:]

    def score(self, X, y=None):
        """Compute the average of `score_samples`.

        Parameters
        ----------
        X : array or sparse matrix of shape (n_samples, n_features)
        y : ignored

        Returns
        -------
        float
        """
        return float(np.mean(self.score_samples(X)))

    def solutions(self, X=None, merge_tol=1e-2):
        """Find the distinct mean-field solutions reached from data.

        Parameters
        ----------
        X : array of shape (n_starts, n_features) or None
            Starts of the iterations; None: `starts_`.
        merge_tol : float
            As in `fastmf.evaluation.solutions`.

        Returns
        -------
        Solutions
            With `visible` and `hidden` means, `free_energy`, `log_partition`, `converged`, one row
            per solution, lowest free energy first, and `members`, the solution of each start.

        Raises
        ------
        ValueError, TypeError, FloatingPointError
            For starts of wrong shapes or types, and overflow.
        """
        machine, scaling = self._centred()
        solved = machine._solve(machine.starts_ if X is None else self._dense_data(X))
        solved = distinct_solutions(machine.visible_, solved, merge_tol)
        visible = scaling.values(solved.visible, self.model_.dtype)
        logs = solved.log_partition + self._log_factor()
        return solved._replace(visible=visible, log_partition=logs, free_energy=-logs)

    @property
    def _options(self):
        """Options of mean-field solutions."""
        return {"order": self._order, "n_threads": self.n_threads}

    def _solve(self, starts, **options):
        return collapsed_tap(self.model_, starts, **self._options, **options)

    # --- restoring --------------------------------------------------------------------------------

    def impute(self, X, *, method="auto", n_starts=8, labels="mode"):
        """Fill in missing values by their posterior means given the observed values of the row.

        Parameters
        ----------
        X : array of shape (n_samples, n_features)
            NaN, or a negative label of a categorical unit, is a missing value.
        method : {"auto", "exact", "tap"}, default "auto"
            - "exact": enumeration of the states of the hidden layer (up to about 12 binary units
              next to 784 visible units) or of the missing units of a row; the units of the other
              side are summed analytically. The sides of a deep machine are its even and odd layers.
            - "tap": the means of the distinct mean-field solutions reached from `n_starts` starts,
              weighted by their log-partitions.
            - "auto": "exact" for rows with few enough states, "tap" for all other rows.
        n_starts : int, default 8
            Number of starts of "tap": the means of independent units, the distinct
            `solutions` under which the observed values are most probable, and the nearest rows of
            `starts_`. With 1, a single solution is used, which may be one of several phases.
        labels : {"mode", "mean", "probabilities"}, default "mode"
            Values of categorical units: the most probable label, which minimises the error rate;
            the mean label, which minimises the squared error of ordered scores, such as ratings;
            or the probabilities of all states. All other units have their means.

        Returns
        -------
        array of shape (n_samples, n_features)
            The completed rows, with "mode" a data frame if `X` is one; with "probabilities", one
            column for each state.

        Warns
        -----
        ConvergenceWarning
            If the solutions of some rows do not converge.
        """
        one_of("method", method, ("auto", "exact", "tap"))
        one_of("labels", labels, ("mode", "mean", "probabilities"))
        n_starts = count("n_starts", n_starts)
        if is_sparse(X):
            raise TypeError(
                "X must be a dense array with NaN for missing values, got a sparse matrix, whose "
                "zeros that are not stored are values: use X.toarray(), and set NaN."
            )
        frame = X if is_frame(X) else None
        given, (machine, scaling) = self._given(X, missing=True), self._centred()
        given = states(self.visible_, given, floating_type(given))
        X = scaling.data(given, machine.model_.dtype)
        mean, converged = X.copy(), np.ones(len(X), bool)
        incomplete = np.flatnonzero(np.isnan(X).any(1))
        if method != "tap":
            incomplete = machine._fill_exactly(mean, incomplete)
        if method == "exact" and len(incomplete):
            raise ValueError(
                "method 'exact' takes rows for which the states of one side times the units of the "
                f"other are at most 2^{np.log2(MAX_WORK_OF_ROW):g}: {len(incomplete)} of {len(X)} "
                f"rows, among them row {incomplete[0]}, have more; take 'tap' or 'auto'."
            )
        phases = machine._phases() if len(incomplete) and n_starts > 1 else None
        for rows in blocks(len(incomplete), len(incomplete) * X.shape[1] * n_starts):
            rows = incomplete[rows]
            mean[rows], converged[rows] = machine._average_of_solutions(X[rows], phases, n_starts)
        runs.warn_unless_converged(converged)
        filled = np.where(np.isnan(given), scaling.values(mean, given.dtype), given)
        filled = filled if labels == "probabilities" else self._as_given(filled, labels == "mean")
        if frame is not None and labels == "mode":
            return decoded_frame(frame, filled, self.categories_ or [])
        return filled

    def _fill_exactly(self, X, incomplete):
        """Fill in rows with few enough states, in place; return the other incomplete rows."""
        unfilled = []
        for rows in blocks(len(incomplete), len(incomplete) * X.shape[1]):
            rows = incomplete[rows]
            result = exact_given(self.model_, X[rows])
            X[rows[result.exact]] = result.mean[result.exact]
            unfilled.append(rows[~result.exact])
        return np.concatenate(unfilled) if unfilled else incomplete

    def _phases(self):
        """Return the distinct mean-field solutions of the model that have finite log-partitions."""
        solutions = self._solve(self.starts_)
        rows = distinct(self.visible_, solutions)[0]
        rows = rows[np.isfinite(solutions.log_partition[rows])]
        return some_rows(solutions, rows)

    def _average_of_solutions(self, X, phases, n_starts):
        """Return the weighted mean of each row's solutions, and whether one has converged."""
        zero, prior = X.dtype.type(0), self.visible_
        starts = np.broadcast_to(self.pointwise_.moments(zero, zero)[0], X.shape)[:, None]
        if phases is not None:
            from_phases = promising_starts(prior, X, phases, self.starts_, n_starts - 1)
            starts = np.concatenate([starts, from_phases], axis=1).astype(X.dtype)
        shape, missing = starts.shape, np.isnan(X)[:, None]
        starts = np.where(missing, starts, X[:, None]).reshape(-1, X.shape[1])
        seen = np.broadcast_to(X[:, None], shape).reshape(starts.shape)
        solutions = self._solve(starts, clamp=seen, log_partition=shape[1] > 1)
        logs = np.zeros(len(starts)) if solutions.log_partition is None else solutions.log_partition
        by_row = (part.reshape(shape[:2]) for part in (logs, solutions.converged))
        compared = without_dimension(prior, solutions.mean[0], solutions.var[0])[0]
        means = (part.reshape(shape) for part in (solutions.mean[0], compared))
        mean, converged = average_of_phases(*means, *by_row)
        return np.where(missing[:, 0], mean, X), converged

    def denoise(
        self, Y, *, flip_probability=None, noise_variance=None, n_starts=1, candidates=None,
        random_state=None,
    ):  # fmt: skip
        """Compute mean-field posterior means of the visible units given noisy observations.

        Parameters
        ----------
        Y : array of shape (n_samples, n_features)
            Observations: states of two-valued units, any numbers for real units. NaN is a missing
            observation.
        flip_probability : float
            Flip probability of the binary symmetric channel, in [0, 1].
        noise_variance : float
            Variance of additive Gaussian noise, positive. If it differs between columns, fit to
            columns that are divided by the standard deviation of their noise.
        n_starts : int, default 1
            Number of starts for each row, whose solutions are averaged. Without `candidates`, a
            single start is the pointwise estimate, as in the paper; otherwise the starts are the
            `candidates` under which the observation is most probable. Use five to ten starts at
            high noise (for example, flip probabilities above 0.2).
        candidates : array of shape (n_candidates, n_features), optional
            Rows of clean data to start from, for example all training data at high noise. The
            default is `starts_` if `n_starts` is above 1.
        random_state : int, RandomState or None

        Returns
        -------
        array of shape (n_samples, n_features)

        Warns
        -----
        ConvergenceWarning
            If none of the solutions of some row converges.
        """
        n_starts, (machine, scaling) = count("n_starts", n_starts), self._centred()
        if (flip_probability is None) == (noise_variance is None):
            raise ValueError("denoise needs either flip_probability or noise_variance, not both.")
        if noise_variance is None:
            Y = self._dense_data(Y, soft=False, missing=True)
            b, a = flip_field(Y, self.visible_, flip_probability), None
        else:
            Y = checked_rows(self, Y, reset=False, dtype=[np.float64, np.float32], missing=True)
            # Unlike `Scaling.data`, leave observations outside the bounds where they are.
            Y = (states(self.visible_, Y, np.float64) - scaling.offset).astype(machine.model_.dtype)
            b, a = noise_tilt(Y, noise_variance)
        if candidates is not None:
            candidates = self._dense_data(candidates)
        elif n_starts != 1:
            candidates = machine.starts_
        rng = runs.generator_of(random_state)
        starts = denoising_starts(Y, machine.pointwise_, candidates, n_starts, b, a, rng)
        b, a = (x if x is None else np.repeat(x, n_starts, axis=0) for x in (b, a))
        solutions = machine._solve(starts, field=b, precision=a, log_partition=False)
        means, by_row = solutions.mean[0].reshape(len(Y), n_starts, -1), (len(Y), n_starts)
        all_solutions = means, means, np.zeros(by_row), solutions.converged.reshape(by_row)
        mean, converged = average_of_phases(*all_solutions, merge_tol=-1)  # equal weights
        runs.warn_unless_converged(converged)
        return scaling.values(mean, self.model_.dtype)

    # --- samples ----------------------------------------------------------------------------------

    def sample(self, n_samples=1, *, n_sweeps=100, start="annealed", init=None, random_state=None):
        """Draw samples from the model by Gibbs sampling.

        Parameters
        ----------
        n_samples : int
        n_sweeps : int
            Number of sweeps of each chain. Chains do not move between well separated phases, so
            the starts determine the phases' weights (see `fastmf.evaluation.gibbs_chains`).
        start : {"annealed", "independent", "data", "solutions"}, default "annealed"
            Starts of the chains; ignored if `init` is given. "annealed": the ends of 100 chains, or
            `n_samples` if that is more, annealed from independent units in `n_sweeps` steps and
            resampled by their importance weights, so that phases have the weights of the model.
            "independent": draws from independent units fitted to the data. "data": rows of
            `starts_`. "solutions": draws from the distinct mean-field `solutions`, with weights
            proportional to their partition functions.
        init : array of shape (n_samples, n_features) or None
            Rows at which the chains start; replaces `start`.
        random_state : int, RandomState or None

        Returns
        -------
        array of shape (n_samples, n_features)

        Raises
        ------
        FloatingPointError
            With "annealed", if an intermediate distribution cannot be normalised.
        """
        n_samples, n_sweeps = count("n_samples", n_samples), count("n_sweeps", n_sweeps, 0)
        one_of("start", start, ("independent", "data", "solutions", "annealed"))
        rng, (machine, scaling) = runs.generator_of(random_state), self._centred()
        if init is None:
            init = getattr(machine, f"_{start}_starts")(n_samples, n_sweeps, rng)
        else:
            init = self._dense_data(init)
            if len(init) != n_samples:
                raise ValueError(f"init must have {n_samples} rows, one a sample, got {len(init)}.")
        even = even_layers(machine.model_, init, rng)
        even, _ = gibbs(machine.model_.bipartite(), even, n_sweeps, rng, self.n_threads)
        drawn = self._as_given(scaling.values(even[:, : init.shape[1]], self.model_.dtype))
        if self.categories_ is None:
            return drawn
        frame = pandas().DataFrame(drawn, columns=feature_names(self))
        return decoded_frame(frame, drawn, self.categories_)

    def _as_given(self, x, means=False):
        """Return values of the visible units in the format of the training data."""
        labelled = self.n_features_in_ != n_units(self.visible_)
        return as_labels(self.visible_, x, means) if labelled else x

    def _independent_starts(self, n_samples, n_sweeps, rng):
        zero = np.zeros((n_samples, n_units(self.visible_)), self.model_.dtype)
        return sample(self.pointwise_, zero, zero, rng)

    def _data_starts(self, n_samples, n_sweeps, rng):
        """Draw rows of `starts_`; none is drawn again before all others have been drawn."""
        n_rounds = -(-n_samples // len(self.starts_))
        rows = [rng.permutation(len(self.starts_)) for _ in range(n_rounds)]
        return self.starts_[np.concatenate(rows)[:n_samples]]

    def _solutions_starts(self, n_samples, n_sweeps, rng):
        """Draw from mean-field solutions, or from independent units if there are none."""
        phases = self._phases()
        if not len(phases.log_partition):
            return self._independent_starts(n_samples, n_sweeps, rng)
        rows = rng.choice(len(phases.log_partition), n_samples, p=softmax(phases.log_partition))
        return sample(self.visible_, phases.b[0][rows], phases.a[0][rows], rng)

    def _annealed_starts(self, n_samples, n_sweeps, rng):
        """Draw ends of annealed chains without replacement."""
        n_chains = max(n_samples, MIN_ANNEALED)
        data = self._data_starts(n_chains, 0, rng)
        samples, _ = annealed_samples(self.model_, data, rng, n_sweeps, self.n_threads)
        return samples[rng.permutation(n_chains)[:n_samples]]

    # --- files ----------------------------------------------------------------------------------

    def _saved(self):
        names = ("n_iter_", "n_features_in_", "history_", "categories_")
        arrays = model_to_arrays(self.model_) | field_to_arrays("pointwise", self.pointwise_)
        arrays["starts_"] = self.starts_
        estimate = vars(self).get("_log_partition")
        if estimate is not None and estimate[0] is self.model_:
            arrays[self._name_of_estimate()] = np.array(estimate[1:])
        return {name: getattr(self, name) for name in names}, arrays

    def _name_of_estimate(self):
        """Return the name in files of the log-partition of the machine `_centred`."""
        return "centred_log_partition" if self._centred()[1].of_data else "log_partition"

    def _restore(self, arrays):
        self.model_ = self._model_from(arrays)
        visible, dtype = self.visible_, self.model_.dtype
        n_visible = n_units(visible)
        check_n_features(self, {len(column_sizes(visible)), n_visible})
        self.pointwise_ = prior_from_arrays("pointwise", arrays)
        if n_units(self.pointwise_) != n_visible:
            n = n_units(self.pointwise_)
            raise ValueError(f"pointwise must have {n_visible} units, got {n}.")
        starts = arrays.member("starts_", "f", (None, n_visible), dtype, -np.inf)
        self.starts_ = checked_values(visible, starts, dtype)
        name = self._name_of_estimate()
        if name in arrays:
            estimate = arrays.member(name, "f", (2,), np.float64)
            self._log_partition = (self.model_, *estimate.tolist())

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = tags.input_tags.allow_nan = True
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags

    def _data(self, X, **options):
        """Check rows of any type for the machine `_centred`."""
        machine, scaling = self._centred()
        return scaling.data(self._given(X, **options), machine.model_.dtype)

    def _given(self, X, *, missing=False, soft=True, model=None):
        """Check rows of any type for a model, by default `model_`; keep their floating type."""
        seen = None
        if model is None:
            model, seen = self.model_, self.starts_
        if self.categories_ and is_frame(X):
            validate_data(self, X, reset=False, skip_check_array=True)  # names of columns
            X, _ = coded_frame(X, self.categories_)
        X = checked_rows(self, X, reset=False, dtype=[np.float64, np.float32], missing=missing)
        if missing:
            X = with_nan_labels(model.layers[0], X)
        alike = seen is not None and seen.shape[1] == X.shape[1]
        if alike and common_support(model.layers[0]) is None:
            warn_of_missing_codes(self, X, seen=seen)
        return checked_values(model.layers[0], X, model.dtype, missing=missing, means=soft)

    def _dense_data(self, X, **options):
        """Check rows; return them as a dense array with the values of all units."""
        return states(self.visible_, self._data(X, **options), self._centred()[0].model_.dtype)
