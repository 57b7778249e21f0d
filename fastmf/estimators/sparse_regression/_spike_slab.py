"""The base class of spike-and-slab regression and classification: fits, reports and files.

Credible sets are the smallest sets of features that contain an effect with a given probability.
Features that correlate, or share a block, form a component. Given the Gaussian approximation of all
other features by expectation propagation, a component is a sparse linear model. Its inclusion
patterns are enumerated or sampled (`fastmf.inference.ep.inclusion_patterns`). Signals are then
separated one after another: the lead is the feature with the largest inclusion probability, and in
each pattern the signal is at the feature that correlates most with the lead, by more than
`MIN_LINK`; the next signal is found among the remaining features of the patterns.
"""

from itertools import product
from typing import NamedTuple

import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components

from fastmf._common.arguments import count, generator, one_of, positive, proper_fraction, real_array
from fastmf._common.names import check_order
from fastmf._common.progress import reported
from fastmf._common.stored_columns import StoredColumns
from fastmf._common.warning import warn_user
from fastmf.estimators.common.data import checked_data, mean_and_deviation, with_nan
from fastmf.estimators.common.files import Saved
from fastmf.estimators.common.reports import feature_names, pandas, slab_interval, slab_moments
from fastmf.estimators.common.runs import warn_of_convergence
from fastmf.estimators.sparse_regression._rows import MIN_LINK, as_array, columns_of, is_stored
from fastmf.inference.ep.inclusion_patterns import Patterns, inclusion_patterns
from fastmf.inference.ep.partition import FoundBlocks, full_blocks, unit_columns
from fastmf.inference.ep.posterior_check import Comparison, compared, reason_of
from fastmf.inference.ep.schedules import SCHEDULES
from fastmf.inference.gaussian.blocks import Blocks, inverse_with, members_of
from fastmf.inference.sampling.spike_slab import SparsePosterior, draw_coefficients
from fastmf.learning.evidence import (
    NEVER_ZERO,
    FixedPoints,
    Hyperparameters,
    is_possible,
    robust_solution,
    search_tolerance,
)
from fastmf.learning.evidence.blocks import (
    with_blocks,
    with_blocks_of,
    with_found_blocks,
    with_grams,
)
from fastmf.learning.evidence.likely import likely_start
from fastmf.learning.evidence.parameter_priors import NOISE_CENTER, ParameterPriors
from fastmf.learning.evidence.search import averaged_points, free_mask, maximise_evidence, on_bounds
from fastmf.models import SparseLinearModel
from fastmf.models.boltzmann import MAX_DENSE_UNITS
from fastmf.priors import GaussBernoulli
from fastmf.priors.spike_and_slab import ALWAYS
from fastmf.special import sigmoid

# Largest sum of the inclusion probabilities of features that are treated as independent.
MAX_UNLINKED_SUM = 1e-3


class CredibleSet(NamedTuple):
    """Set of features that contains an effect; see `credible_sets` of an estimator."""

    features: np.ndarray
    probability: float
    coverage: float
    purity: float


class FittedPart(NamedTuple):
    """An independent part of a fitted model, at one value of the hyper-parameters."""

    units: np.ndarray  # int (n_features,)
    X: np.ndarray  # (n_rows, n_units): features, followed by columns without a spike
    y: np.ndarray | None  # (n_rows,)
    noise_variance: float
    log_odds: np.ndarray  # (n_units,), of the prior
    precision: np.ndarray  # (n_units,), of the prior
    mean: np.ndarray  # (n_units,), of the posterior
    var: np.ndarray  # (n_units,): averages over all values of the hyper-parameters
    labels: np.ndarray  # int (n_units,): blocks
    sites: np.ndarray  # (2, n_units)
    matrices: np.ndarray  # elements of the matrices of sites, in the order of `Blocks`, and more
    # Rows (X, y) of noise variance 1, a Gaussian approximation that replaces latent variables.
    likelihood: tuple | None = None

    def model(self):
        """Return the sparse linear model of the part."""
        X, y = self.likelihood or (self.X, self.y)
        prior = GaussBernoulli(np.zeros(len(self.mean)), self.precision, self.log_odds)
        return SparseLinearModel(X, y, self.noise_variance, prior)

    def inverse(self):
        """Return the posterior covariance of the units, computed from the sites."""
        return inverse_with(self.model(), self.labels, self.sites, self.matrices)

    def components(self):
        """Return a function that makes the sparse linear model of a component of the units.

        The function takes the units of the component's blocks, and the active units among these;
        inactive ones are zero. Units of all other blocks are Gaussian.
        """
        model, precision = self.model(), np.maximum(self.sites[1], self.precision)
        blocks = Blocks(members_of(self.labels), len(self.labels))
        elements = self.matrices[: blocks.squares[-1]].copy()
        # Sites of negative precision make cavities of other blocks improper: limit the variance of
        # sites to the variance of the slab.
        for T, units in zip(blocks.matrices(elements), blocks.by_size, strict=True):
            values, vectors = np.linalg.eigh(T)
            values = np.maximum(values, self.precision[units])
            T[:] = vectors * values[:, None] @ np.swapaxes(vectors, 1, 2)
        inverse = inverse_with(model, self.labels, np.stack([self.sites[0], precision]), elements)
        # Compute the linear term at the mean, without cancellation of large sites.
        residual = (model.y - model.prediction(self.mean)) / self.noise_variance
        sites = blocks.sparse(elements, precision[blocks.singles])

        def component(units, active):
            P = np.linalg.inv(inverse.covariance(units)) - sites[units][:, units].toarray()
            linear = P @ self.mean[units]
            linear += np.asarray(model.X[:, units].T @ residual, np.float64)
            place = np.searchsorted(units, active)
            values, vectors = np.linalg.eigh(P[np.ix_(place, place)])
            proper = values > len(values) * np.finfo(float).eps * values[-1]
            roots, vectors = np.sqrt(values[proper]), vectors[:, proper]
            slabs = self.precision[active], self.log_odds[active]
            y = vectors.T @ linear[place] / roots
            prior = GaussBernoulli(np.zeros(len(active)), *slabs)
            return SparseLinearModel((vectors * roots).T, y, 1.0, prior)

        return component

    def correlations(self, units):
        """Return the correlation matrix of the columns of some units."""
        columns = unit_columns(np.asarray(self.X[:, units], np.float64))
        return columns.T @ columns


def linked(included):
    """Return the most probable features; the sum of the other probabilities is small."""
    order = np.argsort(-included, kind="stable")
    tail = np.cumsum(included[order][::-1])[::-1]
    return np.sort(order[tail > MAX_UNLINKED_SUM][:MAX_DENSE_UNITS])


def components_of(part, units):
    """Yield units that correlate or share a block, with their absolute correlations."""
    labels, correlations = part.labels[units], abs(part.correlations(units))
    joined = (correlations > MIN_LINK) | (labels == labels[:, None])
    n, component = connected_components(csr_array(joined), directed=False)
    for k in range(n):
        members = np.flatnonzero(component == k)
        yield units[members], correlations[np.ix_(members, members)]


def is_settled(point):
    """Whether `FixedPoints` have converged, without blocks of more effects than are summed over."""
    return point.converged and not any(map(full_blocks, point.results))


class Component(NamedTuple):
    """Features that correlate or share a block, and their inclusion patterns."""

    features: np.ndarray  # int (n,): indices in the model
    correlations: np.ndarray  # (n, n): absolute values
    included: np.ndarray  # (n,): inclusion probabilities
    members: list  # pairs: the weight of a value of the hyper-parameters, and its patterns

    def probability_of_any(self, chosen):
        """Return the probability that any chosen feature is included, bounded by `included`."""
        probability = sum(weight * patterns.any_of(chosen) for weight, patterns in self.members)
        marginal = self.included[chosen]
        return float(np.clip(probability, marginal.max(), min(marginal.sum(), 1.0)))

    def signals(self, min_probability):
        """Yield, for each effect, the probabilities that it is at each feature.

        Effects are ordered by the probability of their lead, down to `min_probability`.
        """
        residual = [patterns.included.copy() for _, patterns in self.members]

        def average(f, *arguments):
            members = zip(self.members, residual, strict=True)
            return sum(
                weight * f(patterns, mask, *arguments) for (weight, patterns), mask in members
            )

        while True:
            marginal = average(lambda patterns, mask: patterns.probability @ mask)
            lead = int(np.argmax(marginal))
            likeness = np.where(self.correlations[lead] > MIN_LINK, self.correlations[lead], -1.0)
            likeness[lead] = 2.0
            location = average(Patterns.places, likeness)
            if not location.sum() >= min_probability:
                return
            yield location

    def credible_sets(self, coverage):
        """Yield the credible sets."""
        for location in self.signals(coverage):
            order = np.argsort(-np.round(location, 6), kind="stable")  # copies keep their order
            covered = np.minimum(np.cumsum(location[order]), np.cumsum(self.included[order]))
            size = int(np.searchsorted(covered, coverage - 1e-9)) + 1
            if size > np.count_nonzero(location):
                continue
            chosen = order[:size]
            yield CredibleSet(
                features=self.features[chosen],
                probability=self.probability_of_any(chosen),
                coverage=min(float(location[chosen].sum() / location.sum()), 1.0),
                purity=float(self.correlations[np.ix_(chosen, chosen)].min()) if size > 1 else 1.0,
            )


# --- estimators --------------------------------------------------------------------------------


# Tolerance of the last fixed point.
FINAL_TOL = 1e-6

# Advice for an optimum at a bound of the search.
BOUND_ADVICE = {
    "noise variance": "give noise_variance, as features explain all of y, or nothing",
    "slab variance": "give slab_variance, or inclusion_probability, as effects are not visible",
    "prior inclusion": (
        "give inclusion_probability, as weak data cannot tell whether all features matter or none"
    ),
}


class Colocalisation(NamedTuple):
    """Two effects that may be due to one feature; see `colocalisation` of an estimator."""

    probability: float
    features: np.ndarray
    first: float
    second: float


class SpikeSlabEstimator(Saved):
    """Base class of `SpikeSlabRegressor` and `SpikeSlabClassifier`.

    Subclasses define `_values`, which returns the fitted parts at each value of the
    hyper-parameters, and the weights of these values; and `_in_units_of_data`, which converts
    posterior draws from standardised units to units of the data.
    """

    # Attributes saved in files: numbers and arrays, and values that are stored as JSON.
    _learned: tuple
    _fitted: tuple = ("n_features_in_",)

    # Advice if expectation propagation does not converge at the final hyper-parameters.
    _advice: str
    # Default number of sweeps of a chain.
    _n_sweeps = 30

    def as_frame(self):
        """Return the coefficients as a pandas data frame, one row for each feature.

        Returns
        -------
        pandas.DataFrame
            Columns "coef", "standard_deviation" and "inclusion_probability" (posterior); the index
            contains the names of the features, or x0, x1, ... if X had none.
        """
        columns = {
            "coef": self.coef_,
            "standard_deviation": np.sqrt(self.coef_var_),
            "inclusion_probability": self.inclusion_probability_,
        }
        columns = {name: np.ravel(values) for name, values in columns.items()}
        return pandas().DataFrame(columns, feature_names(self))

    # --- files ----------------------------------------------------------------------------------

    def _saved(self):
        arrays = {}
        for name in self._learned:
            value = getattr(self, name)
            if isinstance(value, StoredColumns):
                arrays |= {f"stored.{key}": part for key, part in value.arrays().items()}
                continue
            value = np.asarray(value)
            # Strings in object arrays, as passed by pandas, are stored as arrays of strings.
            arrays[f"learned.{name}"] = np.array(value.tolist()) if value.dtype.hasobject else value
        return {name: getattr(self, name) for name in self._fitted}, arrays

    def _restore(self, arrays):
        stored = {
            name.removeprefix("stored."): arrays[name] for name in list(arrays) if "stored." in name
        }
        for name in self._learned:
            if stored and name == "_rows":
                self._rows = StoredColumns.from_arrays(stored)
                continue
            value = arrays[f"learned.{name}"]
            setattr(self, name, value if value.ndim else value.item())

    # --- fitting --------------------------------------------------------------------------------

    def _training_data(self, X, y, **options):
        """Check features, which keep their precision, and targets."""
        options |= {"reset": True, "ensure_min_samples": 2, **self._kinds_of(X)}
        X, y = checked_data(self, X, y, **options)
        return as_array(self, X), y

    @staticmethod
    def _kinds_of(X):
        """Return the types of X that checks of data accept without conversion."""
        dtype = None if is_stored(X) and X.dtype.kind in "iub" else [np.float64, np.float32]
        return {"dtype": dtype, "accept_sparse": ["csr", "csc"]}

    def __sklearn_tags__(self):
        """Return scikit-learn's tags: sparse features are accepted."""
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    def _set_scale(self, X, weights):
        """Set the offsets and scales of features; return a mask of the constant ones."""
        self._offset, deviation = mean_and_deviation("X", X, self.fit_intercept, weights)
        constant = (deviation == 0) & bool(self.standardize)
        self._scale = np.where(constant | (not self.standardize), 1.0, deviation)
        return constant

    def _standardised(self, X, constant):
        """Return centred and scaled features, in the precision of X."""
        dtype = np.float32 if X.dtype == np.float32 else np.float64
        return np.where(constant, 0.0, self._rescaled(X)).astype(dtype, copy=False)

    def _rescaled(self, X):
        """Centre and scale rows with the offsets and scales of the training data."""
        return (X - self._offset) / self._scale

    def _solution(self, task, start, fixed, *, centred=False, average=False):
        """Learn hyper-parameters; return the task, fixed points, the best first, and weights."""
        priors = None
        if self.parameter_prior is not None:
            priors = ParameterPriors.of(task, int(centred))
            candidates = np.ones(len(task.groups))
            candidates[self._columns()] = 0
            n_of_groups = np.bincount(task.groups, candidates, len(priors.n_of_groups))
            priors = priors._replace(n_of_groups=n_of_groups)
        options = {"priors": priors, "n_threads": self.n_threads}
        options["report"] = reported(self.verbose, "log-evidence with priors")
        task, leads = with_blocks(with_grams(task), self.blocks, start, self.n_threads)
        end = self._searched(task, start, fixed, leads, options)
        if getattr(self, "noise_variance", None) is not None and not is_settled(end[1]):
            # At small noise, fixed points are found more easily from fixed points at larger noise.
            larger = start._replace(noise_variance=NOISE_CENTER)
            free = fixed._replace(noise_variance=False)
            task, point = self._searched(task, larger, free, leads, options)
            start = point.hyperparameters._replace(noise_variance=start.noise_variance)
            second = self._searched(task, start, fixed, point.results, options)
            end = max(end, second, key=lambda pair: (pair[1].converged, pair[1].log_density))
        task, best = end
        if any(map(full_blocks, best.results)):
            warn_user(
                "A block of correlated features has more effects than are summed over: give "
                "smaller blocks, or fewer features."
            )
        for result in best.results:
            if not result.converged:
                # The rest of the message refers to arguments of the solver, not of the estimator.
                reason = result.message.partition(";")[0]
                warn_of_convergence(
                    f"Expectation propagation has {reason} (residual {result.residual:.2g}): "
                    f"{self._advice}."
                )
        # The bounds are relative to the scale of y, which is arbitrary if y is constant.
        if task.square > 0:
            for name, side in on_bounds(task, best.hyperparameters, fixed):
                warn_of_convergence(
                    f"The {name} is on the {side} of its search: {BOUND_ADVICE[name]}."
                )
        if not average:
            return task, [best], np.ones(1)
        task = with_found_blocks(task, lambda blocks: blocks.labels)
        points, weights = averaged_points(task, best, fixed, **options)
        return task, [best, *points[1:]], weights

    def _searched(self, task, start, fixed, leads, options):
        """Learn hyper-parameters; return the task with the final blocks, and the fixed points."""
        nearby = FixedPoints(start, leads, -np.inf)
        if free_mask(fixed, len(start.log_odds)).any():
            task, start, leads = likely_start(task, start, fixed, leads, **options)
            nearby = maximise_evidence(task, start, fixed, results=leads, **options)
            task = with_blocks_of(task, nearby.results)
        best = self._final(with_found_blocks(task, lambda b: b._replace(shares=True)), nearby)
        return with_blocks_of(task, best.results), best

    def _final(self, task, nearby):
        """Return the fixed points at the learned hyper-parameters, or the solver's last state."""
        values, results = nearby.hyperparameters, []
        for part, start in zip(task.parts, nearby.results, strict=True):
            options = {"schedule": self.solver, "blocks": part.blocks, "n_threads": self.n_threads}
            options["tol"] = min(FINAL_TOL, search_tolerance(part.X, values.noise_variance))
            model = part.model(values)
            result = robust_solution(model, start, **options)
            if isinstance(part.blocks, FoundBlocks) and not is_possible(model, result):
                # A state without a possible evidence is of no use: solve without blocks.
                result = robust_solution(model, **options | {"blocks": None})
            results.append(result)
        return FixedPoints(values, tuple(results), task.log_evidence(results))

    def _check(self, *variances):
        """Raise unless the named variances are None or positive, and all other options valid."""
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
        one_of("parameter_prior", self.parameter_prior, ("weak", None))
        count("n_threads", self.n_threads, optional=True)

    def _check_inclusions(self):
        """Raise unless `inclusion_probability` has a valid value for each feature."""
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

    # --- unpenalised and excluded features ------------------------------------------------------

    def _columns(self):
        """Return the indices of the unpenalised features."""
        return columns_of(self, self.unpenalised)

    def _excluded(self):
        """Return a mask of the features with prior inclusion probability 0."""
        given = np.asarray(self.inclusion_probability, float)  # NaN for None
        excluded = np.full(self.n_features_in_, given == 0)
        excluded[self._columns()] = False
        return excluded

    # --- prior inclusion ------------------------------------------------------------------------

    def _groups(self, n_features):
        """Return the index of the group of each feature."""
        # `unpenalised` has one entry for each feature only if it is a mask.
        dtype = getattr(self.unpenalised, "dtype", None)
        masks = ["unpenalised"] if getattr(dtype, "kind", "") == "b" else []
        names = getattr(self, "feature_names_in_", None)
        for name in ("inclusion_probability", "groups", "blocks", *masks):
            check_order(name, [getattr(self, name)], names, "X")
        if _is_array(self.inclusion_probability):
            return np.arange(n_features)
        if self.groups is None:
            return np.zeros(n_features, np.int64)
        try:
            labels, groups = np.unique(np.asarray(with_nan(self.groups)), return_inverse=True)
        except TypeError as error:
            raise TypeError(f"groups must be labels of one kind: {error}.") from error
        if (labels != labels).any():
            raise ValueError("groups must name the group of every feature, got NaN.")
        if groups.shape != (n_features,):
            raise ValueError(f"groups must have shape ({n_features},), got {groups.shape}.")
        return groups

    def _start(self, shape, groups, unit=1.0):
        """Return initial hyper-parameters, for y divided by `unit`, and flags of fixed ones."""
        # Initially include one feature for ten rows.
        (n, d), given = shape, self.inclusion_probability
        inclusion = min(0.5, max(1.0, n / 10) / d) if given is None else np.asarray(given, float)
        with np.errstate(divide="ignore"):
            log_odds = np.full(groups.max() + 1, np.log(inclusion) - np.log1p(-inclusion))
        if np.ndim(inclusion):
            # Sites at more extreme log-odds are lost in rounding; excluded columns are zero anyway.
            log_odds = np.clip(log_odds, -ALWAYS, NEVER_ZERO)
        noise, slab = getattr(self, "noise_variance", 1.0), self.slab_variance
        fixed = Hyperparameters(noise is not None, slab is not None, given is not None)
        noise = NOISE_CENTER if noise is None else noise / unit**2
        n_included = max(float(sigmoid(log_odds).mean()) * d, 1.0)
        slab = 1 / n_included if slab is None else slab / unit**2
        return Hyperparameters(noise, slab, log_odds), fixed

    def _prior_inclusion(self, log_odds):
        """Return the prior inclusion probabilities, learned or given."""
        inclusion = sigmoid(np.asarray(log_odds))
        if _is_array(self.inclusion_probability):
            inclusion[self._excluded()] = 0.0
        return inclusion

    # --- reports --------------------------------------------------------------------------------

    @property
    def reliable_(self):
        """Whether inclusion probabilities agree with MCMC over inclusion patterns.

        False if a probability differs by more than 0.1; `message_` names the feature. None if this
        cannot be checked: for classification, for more than 40 effects, or if more than one effect
        is expected outside the 400 most probable features. The chains use the learned parameters
        and a fixed seed, and run when the property is first read. They take less than a second for
        each block of `fit_moments` or `fit_summary`, and longer with `average_parameters`.
        """
        reason = self._reason()
        return None if reason is None else not reason

    @property
    def message_(self):
        """Reason why the inclusion probabilities are not reliable, or ""."""
        return self._reason() or ""

    def _reason(self):
        """Return why probabilities are unreliable; "" if reliable, None if not checked."""
        included, cached = self.inclusion_probability_, self.__dict__.get("_checked")
        if cached is None or cached[0] is not included:
            reason = _reason_of_parts(*self._values(), included, self._unpenalised)
            self._checked = cached = included, reason
        return cached[1]

    def coefficient_interval(self, coverage=0.95):
        """Compute equal-tailed credible intervals of the coefficients.

        Parameters
        ----------
        coverage : float in (0, 1), default 0.95

        Returns
        -------
        low, high : array of the shape of `coef_`
            Quantiles (1 - coverage) / 2 and (1 + coverage) / 2 of the mixture of a point mass at
            zero and a Gaussian with the moments of the coefficient if it is not zero. A limit may
            be 0, or both may be.
        """
        coverage = proper_fraction("coverage", coverage)
        included = np.broadcast_to(self.inclusion_probability_, self.coef_.shape)
        return tuple(slab_interval(coverage, included, self.coef_, self.coef_var_))

    def group_inclusion_probability(self, features):
        """Compute the posterior probability that at least one feature of a group is included.

        Parameters
        ----------
        features : sequence of int, str or bool
            Indices or names of features, or a mask: for example, a gene, or copies of a feature.

        Returns
        -------
        float

        Notes
        -----
        Joint probabilities are used for features that correlate by more than 0.5, or share a block;
        all other features are treated as independent.
        """
        chosen = columns_of(self, features, "features")
        if not len(chosen):
            raise ValueError("features must name at least one feature.")
        included = self.inclusion_probability_
        if included[chosen].max() >= 1:
            return 1.0
        absent, pending = 1.0, np.isin(np.arange(self.n_features_in_), chosen)
        for component in self._components(pending.copy(), 2):
            absent *= 1 - component.probability_of_any(np.flatnonzero(pending[component.features]))
            pending[component.features] = False
        return float(1 - absent * np.prod(1 - included[pending]))

    def credible_sets(self, coverage=0.95):
        """Find the smallest sets of correlated features that contain an effect.

        Parameters
        ----------
        coverage : float in (0, 1), default 0.95
            Probability with which a set contains its effect.

        Returns
        -------
        list
            Tuples with the fields `features` (int array, the most probable first), `probability`
            (that at least one of them is not zero), `coverage` (the probability that the set
            contains the effect, given that the effect exists) and `purity` (the smallest absolute
            correlation of two of its features).

        Notes
        -----
        Maller et al. (2012); Wang, Sarkar, Carbonetto & Stephens (2020). Sets are computed from
        joint probabilities of inclusion patterns. Features that correlate by more than 0.5 may
        share an effect, and each effect whose probability is at least the coverage has a set.
        Unpenalised features, and features with prior inclusion 1, are in no set.

        Examples
        --------
        >>> import numpy as np, fastmf as mf
        >>> rng = np.random.default_rng(0)
        >>> X = rng.normal(size=(60, 20))
        >>> X[:, 1] = X[:, 0] + 0.05 * rng.normal(size=60)
        >>> y = X[:, 0] - X[:, 7] + 0.5 * rng.normal(size=60)
        >>> for credible in mf.SpikeSlabRegressor().fit(X, y).credible_sets():
        ...     print(np.sort(credible.features), round(credible.purity, 2))
        [0 1] 1.0
        [7] 1.0
        """
        coverage = proper_fraction("coverage", coverage)
        components = self._components(self.inclusion_probability_, coverage)
        sets = (each for component in components for each in component.credible_sets(coverage))
        return sorted(sets, key=lambda credible: int(credible.features.min()))

    def colocalisation(self, model, *, shared=0.1, min_probability=0.05):
        """Compute probabilities that effects on two targets are due to the same feature.

        Parameters
        ----------
        model : SpikeSlabRegressor or SpikeSlabClassifier
            Fit of another target to the same features, possibly from other rows or a summary.
        shared : float in (0, 1), default 0.1
            Prior probability that a feature with an effect on one target affects the other, too.
        min_probability : float in (0, 1), default 0.05
            Effects with a smaller posterior probability are ignored.

        Returns
        -------
        list
            Tuples for pairs of effects, the most probable first: `probability` (that one feature
            has both effects), `features` (int array: those with 95 % of this probability, the most
            probable first), `first` and `second` (the probability of each effect in its fit).

        Raises
        ------
        ValueError
            If the models have different features.

        Notes
        -----
        Giambartolomei et al. (2014), for each pair of effects (Wallace 2021). Let s be the sum over
        features of the product of the probabilities that each effect is at this feature, and p the
        geometric mean of both mean prior inclusions: the odds are shared s / (p (1 - s)).

        Examples
        --------
        >>> import numpy as np, fastmf as mf
        >>> R = 0.9 ** abs(np.subtract.outer(np.arange(9), np.arange(9)))
        >>> one, two = (mf.SpikeSlabRegressor().fit_summary(z * R[3], R, 5000) for z in (9, 7))
        >>> one.colocalisation(two)[0].features
        array([3])
        """
        for fit in (self, model):
            if not isinstance(fit, SpikeSlabEstimator):
                raise TypeError(f"model must be a spike-and-slab fit, got {type(fit).__name__}.")
        names = (getattr(fit, "feature_names_in_", None) for fit in (self, model))
        if self.n_features_in_ != model.n_features_in_ or not np.array_equal(*names):
            raise ValueError("model must be a fit to the same features, in the same order.")
        shared = proper_fraction("shared", shared)
        threshold = proper_fraction("min_probability", min_probability)
        ratio = shared / np.sqrt(self.prior_inclusion_.mean() * model.prior_inclusion_.mean())
        pairs = []
        for first, second in product(self._signals(threshold), list(model._signals(threshold))):
            both = first * second
            order, total = np.argsort(-both, kind="stable"), min(both.sum(), 1.0)
            size = int(np.searchsorted(np.cumsum(both[order]), 0.95 * total)) + 1
            probability = float(ratio * total / (ratio * total + 1 - total))
            totals = (min(float(effect.sum()), 1.0) for effect in (first, second))
            pairs.append(Colocalisation(probability, order[:size], *totals))
        return sorted(
            (pair for pair in pairs if pair.probability), key=lambda pair: -pair.probability
        )

    def _signals(self, min_probability):
        """Yield, for each effect, the probabilities that it is at each feature of the model."""
        for component in self._components(self.inclusion_probability_, min_probability):
            for location in component.signals(min_probability):
                probabilities = np.zeros(self.n_features_in_)
                probabilities[component.features] = location
                yield probabilities

    def sample_coefficients(self, n, rng, n_sweeps=None):
        """Draw coefficients from their joint posterior.

        Parameters
        ----------
        n : int
        rng : numpy.random.Generator or int
        n_sweeps : int, optional
            Sweeps of the chain of each draw. Default: 30 for regression; 150 for classification,
            where latent variables are drawn as well.

        Returns
        -------
        array of shape (n, n_features)

        Notes
        -----
        Each draw is the end of a Gibbs chain of the exact model that starts at a draw from the
        marginals of expectation propagation. Hyper-parameters have their learned values, or with
        `average_parameters` values drawn in proportion to their weights. A classifier with
        fractional weights raises a ValueError, since its rows have no latent variables.
        """
        n, rng = count("n", n), generator(rng)
        n_sweeps = self._n_sweeps if n_sweeps is None else count("n_sweeps", n_sweeps)
        values, weights = self._values()
        included, draws = self.inclusion_probability_, []
        for parts, k in zip(values, rng.multinomial(n, weights), strict=True):
            if not k:
                continue
            drawn_rows = np.zeros((k, self.n_features_in_))
            for part in parts:
                n_units_of_part = len(part.units)
                ones = np.ones(len(part.mean) - n_units_of_part)
                start = np.append(included[part.units], ones)
                moments = slab_moments(part.mean, part.var, start)
                order = np.argsort(part.labels, kind="stable")
                posterior = self._posterior(part)
                drawn = draw_coefficients(posterior, start, moments, k, rng, n_sweeps, order)
                drawn_rows[:, part.units] = drawn[:, :n_units_of_part]
                columns = drawn[:, n_units_of_part:]
            draws.append(self._in_units_of_data(parts[0], drawn_rows, columns, rng))
        return rng.permutation(np.concatenate(draws))

    def _posterior(self, part):
        """Return the posterior that chains sample; its likelihood includes weights of rows."""
        return SparsePosterior(part.X, part.y, part.noise_variance, part.log_odds, part.precision)

    def _components(self, scores, min_score):
        """Yield each `Component` whose features have a sum of `scores` of at least `min_score`."""
        values, weights = self._values()
        free = np.setdiff1d(linked(self.inclusion_probability_), self._unpenalised)
        for parts in zip(*values, strict=True):
            part, models = parts[0], None
            chosen = np.isin(part.units, free) & (part.log_odds[: len(part.units)] < ALWAYS)
            for units, correlations in components_of(part, np.flatnonzero(chosen)):
                features = part.units[units]
                if scores[features].sum() < min_score:
                    continue
                models = models or [value.components() for value in parts]
                in_blocks = np.flatnonzero(np.isin(part.labels, part.labels[units]))
                included = self.inclusion_probability_[features]
                members = [
                    (weight, inclusion_patterns(model(in_blocks, units), included, weight))
                    for model, weight in zip(models, weights, strict=True)
                ]
                yield Component(features, correlations, included, members)


def _is_array(given):
    """Whether an option is a sequence rather than a scalar or None."""
    return isinstance(given, list | tuple) or np.ndim(given) > 0


def _reason_of_parts(values, weights, included, unpenalised):
    """Return why inclusion probabilities are unreliable; "" if reliable, None if not checked."""
    is_checked = True
    for parts in zip(*values, strict=True):
        units = parts[0].units
        compares = ~np.isin(units, unpenalised)
        likely = np.where(compares, included[units], 0.0)
        at_values = [
            compared(part.model(), likely, weight)
            for part, weight in zip(parts, weights, strict=True)
            if part.y is not None and compares.any()
        ]
        if not at_values or None in at_values:
            is_checked &= not compares.any()
            continue
        features, inclusions, errors, _ = zip(*at_values, strict=True)
        inclusion, error = weights @ inclusions, np.sqrt(weights**2 @ np.square(errors))
        chosen = compares[features[0]]
        comparison = Comparison(units[features[0]][chosen], inclusion[chosen], error[chosen], 0.0)
        if chosen.any() and (reason := reason_of(comparison, included)):
            return reason
    return "" if is_checked else None
