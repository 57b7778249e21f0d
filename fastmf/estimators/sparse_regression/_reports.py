"""Reports of a fitted spike-and-slab model, beside its coefficients."""

import numpy as np
from sklearn.utils.validation import check_is_fitted

from fastmf._common.arguments import count, generator, proper_fraction, row_weights
from fastmf.estimators.common.data import complete_target
from fastmf.estimators.common.slabs import quantile, slab_moments
from fastmf.estimators.sparse_regression._credible_sets import (
    components_of,
    credible_sets,
    joint_patterns,
    linked,
    probability_of_any,
)
from fastmf.estimators.sparse_regression._unpenalised import columns_of
from fastmf.inference.ep.posterior_check import MAX_CHAINS, Comparison, compared, reason_of
from fastmf.inference.sampling.spike_slab import SparsePosterior, draw_coefficients
from fastmf.models import SparseLinearModel
from fastmf.priors import GaussBernoulli
from fastmf.priors.spike_and_slab import ALWAYS

# Weights of values of the hyper-parameters, relative to the largest, of those that are left out.
MIN_REPORTED_WEIGHT = 0.03
# Smallest number of chains at one value of the hyper-parameters.
FEWEST_CHAINS = 20


class Reports:
    """Intervals, credible sets, joint inclusion and draws of spike-and-slab estimators.

    Estimators return the fit by `_fitted_parts`, and convert draws to the units of the data by
    `_in_units_of_data`.
    """

    @property
    def reliable_(self):
        """Whether inclusion probabilities agree with chains over models.

        bool, or bool array (n_targets,), or None if that cannot be checked: for classes, for more
        than 40 effects, or where more than one is among features beyond the 400 likeliest. False:
        a probability differs by more than 0.1; `message_` says which. The chains visit the
        inclusion patterns themselves, at the parameters that were learned, and are run when this
        is first read, from a fixed seed; that takes less than a second for each target and each
        block of `fit_moments` or `fit_summary`, and longer with `average_parameters`.
        """
        reasons = self._reasons()
        if None in reasons and not any(reasons):
            return None
        passed = np.array([not why for why in reasons])
        return passed if self.inclusion_probability_.ndim > 1 else bool(passed[0])

    @property
    def message_(self):
        """Why the inclusion probabilities are not reliable, or "": str, or array (n_targets,)."""
        messages = np.array([why or "" for why in self._reasons()])
        return messages if self.inclusion_probability_.ndim > 1 else str(messages[0])

    def _reasons(self):
        """Why each target is not reliable, "" if it is, None if that cannot be checked."""
        check_is_fitted(self)
        cached = self.__dict__.get("_known_reasons")
        if cached is None or cached[0] is not self.inclusion_probability_:
            reasons = [
                _reason_of_parts(*self._values(target), included, self._unpenalised)
                for target, included in enumerate(np.atleast_2d(self.inclusion_probability_))
            ]
            self._known_reasons = cached = self.inclusion_probability_, reasons
        return cached[1]

    def score(self, X, y, sample_weight=None):
        """R^2 of the predictions, or for classes the fraction of correct ones.

        Parameters
        ----------
        X : array of shape (n_samples, n_features)
        y : array of shape (n_samples,) or (n_samples, n_targets)
        sample_weight : array of shape (n_samples,), float or None

        Returns
        -------
        float
        """
        check_is_fitted(self)
        y = complete_target(y)
        return super().score(X, y, row_weights(sample_weight, np.shape(y)[0] if np.ndim(y) else 1))

    def coefficient_interval(self, coverage=0.95):
        """Equal-tailed credible intervals of the coefficients.

        Parameters
        ----------
        coverage : float in (0, 1), default 0.95

        Returns
        -------
        low, high : array of the shape of `coef_`
            Quantiles (1 - coverage) / 2 and (1 + coverage) / 2, with the mass at zero: the smallest
            value at which the distribution function reaches that. So an interval ends at 0, or is
            only 0, where the coefficient is so likely to be zero.

        Notes
        -----
        The posterior of a coefficient is taken as a mass at zero and a Gaussian, of the mean and
        variance that coefficients other than zero have. For single sites at given parameters that
        is what expectation propagation says.

        Examples
        --------
        >>> import numpy as np, fastmf as mf
        >>> rng = np.random.default_rng(0)
        >>> X = rng.normal(size=(40, 60))
        >>> y = 2 * X[:, 3] - X[:, 7] + 0.1 * rng.normal(size=40)
        >>> low, high = mf.SpikeSlabRegressor().fit(X, y).coefficient_interval()
        >>> low[3] < 2 < high[3], float(low[0]), float(high[0])
        (np.True_, 0.0, 0.0)
        """
        check_is_fitted(self)
        coverage = proper_fraction("coverage", coverage)
        included = np.broadcast_to(self.inclusion_probability_, self.coef_.shape)
        moments = slab_moments(self.coef_, self.coef_var_, included)
        tails = (1 - coverage) / 2, (1 + coverage) / 2
        return tuple(quantile(tail, included, *moments) for tail in tails)

    def group_inclusion_probability(self, features):
        """Posterior probability that at least one of some features is not zero.

        Parameters
        ----------
        features : sequence of int, str or bool
            Numbers or names of features, or a mask: a gene, say, or copies of a feature.

        Returns
        -------
        float or array of shape (n_targets,)

        Notes
        -----
        From joint probabilities of the features that correlate by more than 0.5, or share a block;
        others are independent at the fixed point of expectation propagation. It is at least the
        largest of their inclusion probabilities, and at most the sum.

        Examples
        --------
        >>> import numpy as np, fastmf as mf
        >>> rng = np.random.default_rng(0)
        >>> X = rng.normal(size=(50, 4))[:, [0, 0, 1, 2, 3]]
        >>> y = X[:, 0] + 0.3 * rng.normal(size=50)
        >>> model = mf.SpikeSlabRegressor(expected_model_size=0.2).fit(X, y)
        >>> model.inclusion_probability_[:2].round(1)
        array([0.5, 0.5])
        >>> round(model.group_inclusion_probability([0, 1]), 2)
        1.0
        """
        check_is_fitted(self)
        names, n = getattr(self, "feature_names_in_", None), self.n_features_in_
        wanted = columns_of(names, features, n, "features")
        if not len(wanted):
            raise ValueError("features must name at least one feature.")
        return self._for_targets(lambda target, included: self._any(target, included, wanted))

    def credible_sets(self, coverage=0.95):
        """The smallest sets of correlated features that hold an effect with this probability.

        Parameters
        ----------
        coverage : float in (0, 1), default 0.95

        Returns
        -------
        list
            Tuples with the fields `features` (int array, the most probable first), `probability`
            (that at least one of them is not zero), `coverage` (the same, given that there is an
            effect among them or features correlated with them) and `purity` (the smallest absolute
            correlation of two of them). For several targets, a list of such lists.

        Notes
        -----
        Maller et al. (2012); Wang, Sarkar, Carbonetto & Stephens (2020). Sets follow from joint
        probabilities of inclusion patterns, not from sums of inclusion probabilities: features
        that correlate by more than 0.5 may share an effect, and each effect has its own set. One
        whose probability is below the coverage, wherever it is, has none. The probability of a set
        is at most the sum of its inclusion probabilities. Unpenalised features, and features with
        prior inclusion 1, are in no set.

        Examples
        --------
        >>> import numpy as np, fastmf as mf
        >>> rng = np.random.default_rng(0)
        >>> X = rng.normal(size=(60, 20))
        >>> X[:, 1] = X[:, 0] + 0.05 * rng.normal(size=60)
        >>> y = X[:, 0] - X[:, 7] + 0.5 * rng.normal(size=60)
        >>> for found in mf.SpikeSlabRegressor().fit(X, y).credible_sets():
        ...     print(np.sort(found.features), round(found.purity, 2))
        [0 1] 1.0
        [7] 1.0
        """
        check_is_fitted(self)
        coverage = proper_fraction("coverage", coverage)
        return self._for_targets(lambda target, included: self._sets(target, included, coverage))

    def sample_coefficients(self, n, rng, n_sweeps=None):
        """Joint draws of the coefficients from their posterior.

        Parameters
        ----------
        n : int
        rng : numpy.random.Generator or int
        n_sweeps : int, optional
            Sweeps of the chain of each draw. Default: 30, and 150 for classes, whose latent
            variables are drawn, too.

        Returns
        -------
        array of shape (n, n_features), or (n_targets, n, n_features)

        Notes
        -----
        Gibbs sampling of the model itself, by chains that start at draws from expectation
        propagation's marginals, one for each draw: so draws are independent, and nearer to the
        exact posterior than those marginals. A sweep visits each feature, together with one that
        correlates with it, and moves one effect among all features. The parameters have the
        values that were learned, or with `average_parameters` values on the grid, as often as
        their weights say. For predictions alone, `predict` is faster.

        Examples
        --------
        >>> import numpy as np, fastmf as mf
        >>> rng = np.random.default_rng(0)
        >>> X = rng.normal(size=(50, 4))[:, [0, 0, 1, 2, 3]]
        >>> y = X[:, 0] + 0.3 * rng.normal(size=50)
        >>> model = mf.SpikeSlabRegressor(expected_model_size=1).fit(X, y)
        >>> draws = model.sample_coefficients(1000, rng)
        >>> (draws[:, :2] != 0).any(axis=1).mean().round(2)
        np.float64(1.0)
        """
        check_is_fitted(self)
        n, rng = count("n", n), generator(rng)
        n_sweeps = self._n_sweeps if n_sweeps is None else count("n_sweeps", n_sweeps)
        draws = self._for_targets(lambda target, _: self._draws(target, n, rng, n_sweeps))
        return np.array(draws)

    # Sweeps of a chain.
    _n_sweeps = 30

    def _for_targets(self, function):
        """Values of a function of targets and their inclusion probabilities; one as it is."""
        included = np.atleast_2d(self.inclusion_probability_)
        values = [function(target, row) for target, row in enumerate(included)]
        if self.inclusion_probability_.ndim == 1:
            return values[0]
        return values if isinstance(values[0], list) else np.array(values)

    def _values(self, target):
        """Parts at the values of the hyper-parameters that have weight, and weights of sum 1."""
        values = [(weight, parts) for weight, parts in self._fitted_parts(target)]
        weights = np.array([weight for weight, _ in values])
        return [parts for _, parts in values], weights / weights.sum()

    def _components(self, target, included, worth):
        """The part, units, patterns and inclusion probabilities of components that are worth it."""
        values, weights = self._values(target)
        free = np.setdiff1d(linked(included), self._unpenalised)
        for parts in zip(*values, strict=True):
            part, rests = parts[0], None
            probabilities, n = included[part.units], len(part.units)
            chosen = np.isin(part.units, free) & (part.log_odds[:n] < ALWAYS)
            for units in components_of(part, np.flatnonzero(chosen)):
                if worth(part.units[units]):
                    rests = rests or [value.rest() for value in parts]
                    members = joint_patterns(parts, rests, weights, probabilities, units)
                    yield part, units, members, probabilities

    def _any(self, target, included, wanted):
        """Probability that one of these features is not zero."""
        if included[wanted].max() >= 1:
            return 1.0
        none, alone = 1.0, np.isin(np.arange(len(included)), wanted)

        def worth(features):
            return alone[features].sum() > 1

        for part, units, members, probabilities in self._components(target, included, worth):
            chosen = np.flatnonzero(alone[part.units[units]])
            none *= 1 - probability_of_any(members, chosen, probabilities[units])
            alone[part.units[units]] = False
        return float(1 - none * np.prod(1 - included[alone]))

    def _sets(self, target, included, coverage):
        """The credible sets of a target."""

        def worth(features):
            return included[features].sum() >= coverage

        sets = []
        for part, units, members, probabilities in self._components(target, included, worth):
            sets += credible_sets(part, units, members, probabilities, coverage)
        return sorted(sets, key=lambda found: int(found.features.min()))

    def _draws(self, target, n, rng, n_sweeps):
        """Draws of the coefficients of a target."""
        values, weights = self._values(target)
        included = np.atleast_2d(self.inclusion_probability_)[target]
        draws = []
        for parts, k in zip(values, rng.multinomial(n, weights), strict=True):
            if not k:
                continue
            drawn_rows = np.zeros((k, self.n_features_in_))
            for part in parts:
                n_own = len(part.units)
                start = np.append(included[part.units], np.ones(len(part.mean) - n_own))
                moments = slab_moments(part.mean, part.var, start)
                posterior = SparsePosterior(
                    part.X, part.y, part.noise_variance, part.log_odds, part.precision
                )
                order = np.argsort(part.labels, kind="stable")
                drawn = draw_coefficients(posterior, start, moments, k, rng, n_sweeps, order)
                drawn_rows[:, part.units] = drawn[:, :n_own]
                columns = drawn[:, n_own:]
            draws.append(self._in_units_of_data(target, parts[0], drawn_rows, columns, rng))
        return rng.permutation(np.concatenate(draws))


def _reason_of_parts(values, weights, included, without):
    """Why inclusion probabilities are not reliable, "" if they are; None if that is not known."""
    is_checked = True
    for parts in zip(*values, strict=True):
        units = parts[0].units
        compares = ~np.isin(units, without)
        if not compares.any():
            continue
        comparison = _averaged(parts, weights, np.where(compares, included[units], 0.0))
        if comparison is None:
            is_checked = False
            continue
        mask = compares[comparison.features]
        features, inclusion, error = (part[mask] for part in comparison[:3])
        comparison = Comparison(units[features], inclusion, error, comparison.log_weight)
        if len(features) and (reason := reason_of(comparison, included)):
            return reason
    return "" if is_checked else None


def _averaged(parts, weights, included):
    """A `Comparison` for one part, averaged over its values; None if that is not known."""
    inclusion, variance = 0.0, 0.0
    for part, weight in zip(parts, weights, strict=True):
        if part.y is None:
            return None
        prior = GaussBernoulli(np.zeros(len(included)), part.precision, part.log_odds)
        model = SparseLinearModel(part.X, part.y, part.noise_variance, prior)
        n_chains = max(FEWEST_CHAINS, 2 * int(MAX_CHAINS * weight / 2))
        comparison = compared(model, included, n_chains)
        if comparison is None:
            return None
        inclusion = inclusion + weight * comparison.inclusion
        variance = variance + (weight * comparison.error) ** 2
    return Comparison(comparison.features, inclusion, np.sqrt(variance), np.nan)
