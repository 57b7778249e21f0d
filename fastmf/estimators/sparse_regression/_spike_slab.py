"""The base class of spike-and-slab regression and classification."""

from typing import ClassVar

import numpy as np
from scipy.sparse import csr_array, issparse
from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted

from fastmf._common.arguments import count, one_of, positive, real_array
from fastmf._common.progress import reported
from fastmf._common.rows import row_blocks
from fastmf._common.stored_columns import StoredColumns, column_squares
from fastmf._common.warning import warn_user
from fastmf.estimators.common.data import checked_data
from fastmf.estimators.common.files import Saved
from fastmf.estimators.common.frames import check_options, feature_names, pandas
from fastmf.estimators.common.rows import mean_and_deviation, some
from fastmf.estimators.sparse_regression._rows import as_array, is_stored
from fastmf.estimators.sparse_regression._unpenalised import Unpenalised, columns_of
from fastmf.inference.ep.partition import full_blocks
from fastmf.inference.ep.schedules import SCHEDULES
from fastmf.learning.evidence import (
    NEVER_ZERO,
    FixedPoints,
    robust_solution,
    search_tolerance,
)
from fastmf.learning.evidence.blocks import (
    with_blocks,
    with_blocks_of,
    with_found_blocks,
    with_grams,
)
from fastmf.learning.evidence.parameter_priors import ParameterPriors
from fastmf.learning.evidence.search import (
    averaged_points,
    free_mask,
    maximise_evidence,
    on_bounds,
)
from fastmf.priors._protocol import n_units, parts_of
from fastmf.special import sigmoid

# Tolerance of the last fixed point.
FINAL_TOL = 1e-6
# Smallest prior log-odds of a feature.
MIN_LOG_ODDS = -30.0

# Options to give where an optimum is at a bound of the search.
BOUND_ADVICE = {
    "noise variance": "give noise_variance, as features explain all of y, or nothing",
    "slab variance": "give slab_variance, or inclusion_probability, as effects are not visible",
    "prior inclusion": (
        "give inclusion_probability, as weak data cannot tell whether all features matter or none"
    ),
}


class SpikeSlabEstimator(Saved, BaseEstimator):
    """Parameters, standardised features, the search for hyper-parameters, and files."""

    _removed_options: ClassVar = dict.fromkeys(("expected_model_size", "parameter_prior"), ...)

    # Learned numbers and arrays, as they are saved in files.
    _learned: tuple

    # What to do if the fixed point of the last hyper-parameters is not found, and the scale of the
    # slab.
    _advice: str
    _slab_unit = "var(y)"

    def as_frame(self):
        """The coefficients as a pandas data frame, one line for each feature.

        Returns
        -------
        pandas.DataFrame
            Columns "coef", "standard_deviation" and "inclusion_probability" (posterior); the index
            holds the names of the features, or x0, x1, ... if X had none, and before them the
            number of the target if there are several.

        Raises
        ------
        ImportError
            If pandas is not installed.

        Examples
        --------
        >>> import numpy as np, fastmf as mf
        >>> rng = np.random.default_rng(0)
        >>> X = rng.normal(size=(40, 60))
        >>> y = 2 * X[:, 3] - X[:, 7] + 0.1 * rng.normal(size=40)
        >>> frame = mf.SpikeSlabRegressor().fit(X, y).as_frame()
        >>> list(frame.index[frame.inclusion_probability > 0.5])
        ['x3', 'x7']
        """
        check_is_fitted(self)
        names, n_targets = feature_names(self), len(self.coef_) if self.coef_.ndim > 1 else 1
        index = pandas().Index(names)
        if n_targets > 1:
            levels = range(n_targets), names
            index = pandas().MultiIndex.from_product(levels, names=["target", "feature"])
        columns = {
            "coef": self.coef_,
            "standard_deviation": np.sqrt(self.coef_var_),
            "inclusion_probability": self.inclusion_probability_,
        }
        return pandas().DataFrame({name: np.ravel(v) for name, v in columns.items()}, index)

    # --- files ----------------------------------------------------------------------------------

    def _model_arrays(self):
        return {}

    def _restore_model(self, arrays):
        """Nothing: what was learned are attributes."""

    def _saved(self):
        names, stored = self._learned, {}
        if isinstance(getattr(self, "_rows", None), StoredColumns):
            names, stored = [name for name in names if name != "_rows"], self._rows.arrays()
        values = {name: np.asarray(getattr(self, name)) for name in names}
        # Strings in arrays of objects, as pandas passes them, are stored as arrays of strings.
        arrays = {
            f"learned.{name}": np.array(value.tolist()) if value.dtype.hasobject else value
            for name, value in values.items()
        }
        arrays |= {f"stored.{name}": value for name, value in stored.items()}
        return {"n_features_in_": self.n_features_in_}, arrays

    def _restore(self, arrays):
        stored = {
            name.removeprefix("stored."): arrays[name] for name in list(arrays) if "stored." in name
        }
        if stored:
            self._rows = StoredColumns.from_arrays(stored)
        for name in self._learned:
            if stored and name == "_rows":
                continue
            value = arrays[f"learned.{name}"]
            setattr(self, name, value if value.ndim else value.item())

    # --- fitting --------------------------------------------------------------------------------

    def _training_data(self, X, y, **options):
        """Checked features, in their own precision, and targets."""
        options |= {"reset": True, "ensure_min_samples": 2, **self._kinds_of(X)}
        X, y = checked_data(self, X, y, **options)
        return as_array(self, X), y

    @staticmethod
    def _kinds_of(X):
        """Options of the checks of data: types that X is left in, or converted to."""
        dtype = None if is_stored(X) and X.dtype.kind in "iub" else [np.float64, np.float32]
        return {"dtype": dtype, "accept_sparse": ["csr", "csc"]}

    def __sklearn_tags__(self):
        """Tags: sparse features are taken."""
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    def _standardised(self, X, weights=None):
        """Centred and scaled features, in their own precision; sets the offsets and scales."""
        self._offset, deviation = mean_and_deviation("X", X, self.fit_intercept, weights)
        self._scale = np.ones(X.shape[1])
        dtype = np.float32 if X.dtype == np.float32 else np.float64
        if self.standardize:
            self._scale = np.where(deviation == 0, 1.0, deviation)
            X = np.where(deviation == 0, 0, X - self._offset) / self._scale
        else:
            X = X - self._offset
        return X.astype(dtype, copy=False)

    def _rescaled(self, X):
        """Other rows, centred and scaled likewise."""
        return (X - self._offset) / self._scale

    def _solution(self, task, start, fixed, *, centred=False, average=False):
        """Hyper-parameters with their fixed points, the best ones first, and their weights."""
        priors = ParameterPriors.of(task, int(centred))
        candidates = np.ones(len(task.groups))
        candidates[self._columns()] = 0
        n_of_groups = np.bincount(task.groups, candidates, len(priors.n_of_groups))
        priors = priors._replace(n_of_groups=n_of_groups)
        options = {"priors": priors, "n_threads": self.n_threads}
        options["report"] = reported(self.verbose, "log-evidence with priors")
        task, leads = with_blocks(with_grams(task), self.blocks, start, self.n_threads)
        nearby = FixedPoints(start, leads, -np.inf)
        if free_mask(fixed, len(start.log_odds)).any():
            nearby = maximise_evidence(task, start, fixed, results=leads, **options)
            task = with_blocks_of(task, nearby.results)
        task = with_found_blocks(task, lambda blocks: blocks._replace(shares=True))
        best = self._final(task, nearby)
        task = with_blocks_of(task, best.results)
        if any(map(full_blocks, best.results)):
            warn_user(
                "A block of correlated features has more effects than are summed over: give "
                "smaller blocks, or fewer features."
            )
        self._warn_of_ends(best.results)
        if task.scale_is_known:
            self._warn_of_bounds(on_bounds(task, best.hyperparameters, fixed))
        if not average:
            return task, [best], np.ones(1)
        task = with_found_blocks(task, lambda blocks: blocks.labels)
        points, weights = averaged_points(task, best, fixed, **options)
        return task, [best, *points[1:]], weights

    def _final(self, task, nearby):
        """The fixed points with the learned hyper-parameters, or where the solver ended."""
        values, results = nearby.hyperparameters, []
        for part, start in zip(task.parts, nearby.results, strict=True):
            tol = min(FINAL_TOL, search_tolerance(part.X, values.noise_variance))
            options = {"tol": tol, "n_threads": self.n_threads}
            options |= {"schedule": self.solver, "blocks": part.blocks}
            results.append(robust_solution(part.model(values), start, **options))
        return FixedPoints(values, tuple(results), task.log_evidence(results))

    def _warn_of_ends(self, results):
        """Warn of results that are no fixed points."""
        for result in results:
            if not result.converged:
                # What follows is advice by the solver's arguments: the estimator has others.
                reason = result.message.partition(";")[0]
                warn_user(
                    f"Expectation propagation has {reason} (residual {result.residual:.2g}): "
                    f"{self._advice}.",
                    ConvergenceWarning,
                )

    def _warn_of_bounds(self, names):
        """Warn of hyper-parameters at a bound of the search."""
        for name, side in names:
            warn_user(
                f"The {name} is on the {side} of its search: {BOUND_ADVICE[name]}.",
                ConvergenceWarning,
            )

    def __str__(self):
        """The options, and the priors of the hyper-parameters that are learned."""
        n = getattr(self, "n_features_in_", "n_features")
        n = n if self.groups is None else "n_features of the group"
        learned = {
            f"inclusion_probability ~ Beta(1/2, {n}/2)": self.inclusion_probability is None,
            f"slab_variance / {self._slab_unit} ~ log-normal(median 0.5, deviation 2)": (
                self.slab_variance is None
            ),
            "noise_variance / var(y) ~ log-Cauchy(median 0.6, width 0.5)": (
                getattr(self, "noise_variance", 1.0) is None
            ),
        }
        return "\n  ".join([repr(self), *(text for text, is_free in learned.items() if is_free)])

    def _check(self, *variances):
        """Raise unless these variances are None or positive, and the other options valid."""
        limits = dict.fromkeys(variances, np.inf)
        if _is_array(self.inclusion_probability):
            self._check_inclusions()
        else:
            limits["inclusion_probability"] = 1.0
        for name, high in limits.items():
            if getattr(self, name) is not None:
                positive(name, getattr(self, name), high)
        for name in ("fit_intercept", "standardize", "verbose"):
            one_of(name, getattr(self, name), (True, False))
        one_of("solver", self.solver, tuple(SCHEDULES))
        count("n_threads", self.n_threads, optional=True)

    def _check_inclusions(self):
        """Raise unless there is a prior inclusion probability of each feature."""
        given = real_array("inclusion_probability", self.inclusion_probability)
        if given.shape != (self.n_features_in_,):
            raise ValueError(
                f"inclusion_probability must be a number or have shape ({self.n_features_in_},), "
                f"one for each feature, got {given.shape}."
            )
        if not ((given >= 0) & (given <= 1)).all():
            raise ValueError("inclusion_probability must have values between 0 and 1.")
        if not np.delete(given, self._columns()).any():
            raise ValueError("inclusion_probability must be above 0 for some feature.")
        if self.groups is not None:
            raise ValueError(
                "groups are for inclusion probabilities that are learned: give them, or an array "
                "inclusion_probability."
            )

    # --- features that are always in, or never --------------------------------------------------

    def _columns(self):
        """The unpenalised features."""
        names = getattr(self, "feature_names_in_", None)
        return columns_of(names, self.unpenalised, self.n_features_in_)

    def _excluded(self):
        """A mask of the features of prior inclusion probability 0, which are left out."""
        if not _is_array(self.inclusion_probability):
            return np.zeros(self.n_features_in_, bool)
        excluded = np.asarray(self.inclusion_probability) == 0
        excluded[self._columns()] = False
        return excluded

    def _keep_unpenalised(self, found):
        """Arrays of the unpenalised features, for predictions."""
        self._unpenalised, self._gain, self._whiten = found

    def _unpenalised_features(self):
        """The same again."""
        return Unpenalised(self._unpenalised, self._gain, self._whiten)

    def _rows_left(self, n_rows, found):
        """The number of rows, less the number of unpenalised coefficients."""
        if n_rows - self.fit_intercept - found.rank < 1:
            raise ValueError(
                f"{n_rows:g} rows are explained by {found.rank} unpenalised columns alone: give "
                "fewer, or more rows."
            )
        return n_rows - found.rank

    def _set_known(self, flat, means, variances, included, excluded):
        """Fill in moments of unpenalised features, but for variances, and of those left out."""
        columns = self._unpenalised
        variances[:, excluded], included[:, excluded] = 0.0, 0.0
        means[:, columns] = 0
        means[:, columns] = flat - means @ self._gain.T
        variances[:, columns], included[:, columns] = 0.0, 1.0

    # --- prior inclusion ------------------------------------------------------------------------

    def _groups(self, n_features):
        """The number of the group of every feature, and the number of groups."""
        self._keep_unpenalised(Unpenalised.none(n_features))
        # Names of columns, unlike a mask, are not one entry for each feature.
        dtype = getattr(self.unpenalised, "dtype", None)
        masks = ["unpenalised"] if getattr(dtype, "kind", "") == "b" else []
        check_options(self, "inclusion_probability", "groups", "blocks", *masks)
        if _is_array(self.inclusion_probability):
            return np.arange(n_features), n_features
        if self.groups is None:
            return np.zeros(n_features, np.int64), 1
        try:
            labels, groups = np.unique(np.asarray(self.groups), return_inverse=True)
        except TypeError as error:
            raise TypeError(f"groups must be labels of one kind: {error}.") from error
        if (labels != labels).any():
            raise ValueError("groups must name the group of every feature, got NaN.")
        if groups.shape != (n_features,):
            raise ValueError(f"groups must have shape ({n_features},), got {groups.shape}.")
        return groups, len(labels)

    def _first_log_odds(self, shape, n_groups):
        """Log-odds from which the search starts: of one feature for ten rows, or as given."""
        (n, d), given = shape, self.inclusion_probability
        inclusion = min(0.5, max(1.0, n / 10) / d) if given is None else np.asarray(given, float)
        with np.errstate(divide="ignore"):
            log_odds = np.full(n_groups, np.log(inclusion) - np.log1p(-inclusion))
        # Smaller ones have sites that are lost in rounding; columns of features of none are 0.
        return np.clip(log_odds, MIN_LOG_ODDS, NEVER_ZERO) if np.ndim(inclusion) else log_odds

    def _prior_inclusion(self, log_odds):
        """The prior inclusion probabilities that were learned or given."""
        inclusion = sigmoid(np.asarray(log_odds))
        if _is_array(self.inclusion_probability):
            inclusion[self._excluded()] = 0.0
        return inclusion


def moments_of(task, point):
    """Means, variances and inclusion probabilities of the features at a `FixedPoints`."""
    moments = np.empty((3, len(task.groups)))
    for part, units, result in zip(task.parts, task.units, point.results, strict=True):
        prior, n = parts_of(part.model(point.hyperparameters).prior)[0], len(part.groups)
        included = result.inclusion_probability
        if included is None:
            features = slice(n_units(prior))
            included = sigmoid(prior.tilted_log_odds(result.b[features], result.a[features]))
        moments[:, units] = result.mean[:n], result.var[:n], included[:n]
    return moments


def zero_columns(task):
    """A mask of the features that are zero in all rows: constant, or left out."""
    zero = np.empty(len(task.groups), bool)
    for part, units in zip(task.parts, task.units, strict=True):
        zero[units] = column_squares(part.X)[: len(part.groups)] == 0
    return zero


def sites_of(task, point):
    """The sites at a `FixedPoints`, of all units."""
    results = point.results
    if len(results) == 1:
        return results[0].sites
    sites = np.empty((2, len(task.groups)))
    for units, result in zip(task.units, results, strict=True):
        sites[:, units] = result.sites
    return sites


def matrices_of(point):
    """The elements of the matrices of the sites of blocks at a `FixedPoints`, one after another."""
    of_parts = (result.block_sites or () for result in point.results)
    return np.concatenate([np.empty(0), *(T.ravel() for sites in of_parts for _, T in sites)])


def _is_array(given):
    """Whether it has elements: also a list that is no array."""
    return isinstance(given, list | tuple) or np.ndim(given) > 0


def by_blocks(function, X):
    """A function of rows, in float64, of some rows at a time, joined along the last axis."""
    X = csr_array(X) if issparse(X) else X
    parts = [function(some(X, rows)) for rows in row_blocks(X, dense=True)]
    return np.concatenate(parts, axis=-1)
