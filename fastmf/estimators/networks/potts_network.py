"""Errors, tests and edges of a Potts machine."""

import numpy as np
from scipy import sparse
from sklearn.utils.validation import check_is_fitted

from fastmf._common.arguments import one_of
from fastmf.estimators.common.frames import feature_names
from fastmf.estimators.common.labels import checked_pairs
from fastmf.estimators.networks.covariances import (
    FEW_ROWS_RATIO,
    few_rows,
    raised,
    shrunk,
    singular,
    warn_of_penalty,
)
from fastmf.estimators.networks.edge_inclusion import PairEstimates, checked_prior
from fastmf.estimators.networks.network import ERRORS
from fastmf.estimators.networks.permutations import PooledRows
from fastmf.learning.pseudo_likelihood.expansion import expanded, mode_ridge, prior_shares
from fastmf.learning.pseudo_likelihood.godambe import Godambe
from fastmf.learning.pseudo_likelihood.missing import IncompleteGodambe
from fastmf.models._gauge import GAUGES


class PottsNetwork:
    """Errors, tests and edges of `PottsMachine`."""

    def _sandwich(self):
        check_is_fitted(self)
        if self.solver == "naive_mean_field" or not self.symmetric:
            raise ValueError(
                "standard errors are for the symmetric pseudo-likelihood: fit with another solver "
                "and symmetric=True."
            )
        if self.existence_.exists is False:
            raise ValueError(f"there are no standard errors: {self.existence_.message}.")
        objective = self._dense_objective(self._labels, self._weights)
        objective.check_size()
        parameters = objective.packed(self._couplings.dense(), self._field)
        if self._completions is None:
            return Godambe(objective, parameters, np.square(objective.weights))
        sampling = sparse.diags_array(self._completions.row_weights / objective.total)
        return IncompleteGodambe(objective, parameters, self._completions, sampling)

    def standard_errors(self, gauge="zero-sum"):
        """Standard errors by the sandwich (Godambe) covariance.

        Parameters
        ----------
        gauge : {"zero-sum", "lattice", None}, default "zero-sum"
            The gauge of the parameters whose errors they are (for "lattice", of reference state 0);
            None for parameters as estimated.

        Returns
        -------
        couplings : array of shape (n_groups, q, n_groups, q)
        field : array of shape (n_groups, q)
            Both flat if positions have different numbers of states.

        Raises
        ------
        ValueError
            If there is no maximum, the fit has no such errors (`symmetric=False`, naive mean
            field), or there are more than 4,000 parameters.

        Notes
        -----
        A row of weight w counts as one observation whose score is multiplied by w, as it should for
        weights of similar sequences; rows that were counted should be repeated instead.
        """
        one_of("gauge", gauge, (*GAUGES, None))
        sandwich = self._sandwich()
        couplings, field = sandwich.objective.errors_in_gauge(sandwich.covariance(), gauge)
        return self._by_position(couplings, 2), self._by_position(field, 1)

    def likelihood_ratio_test(self, pairs=None):
        """Composite likelihood ratio test of the couplings of some pairs of positions against zero.

        Parameters
        ----------
        pairs : int array of shape (n_pairs, 2), optional
            Positions that are not coupled under the hypothesis; default all, or all of `graph`:
            independent positions.

        Returns
        -------
        RatioTest
            `statistic`, `p_value`, the `weights` of the chi-squared variables whose sum has the
            distribution of the statistic, and the restricted `parameters`: flat fields, then the
            couplings of all pairs of states u < v of different positions.

        Raises
        ------
        ValueError
            If there is no maximum, or a penalty, or `pairs` are not pairs of positions.

        Notes
        -----
        See `FullyVisibleBoltzmannMachine.likelihood_ratio_test`.

        Examples
        --------
        >>> import numpy as np, fastmf as mf
        >>> X = np.random.default_rng(0).integers(0, 3, (200, 4))
        >>> machine = mf.PottsMachine().fit(X)
        >>> bool(machine.likelihood_ratio_test([[0, 1]]).p_value > 0.01)
        True
        """
        sandwich = self._sandwich()
        if self.l2 or self.l2_field:
            raise ValueError("likelihood ratios need maxima without penalties: fit without l2.")
        if sandwich.objective.targets is not sandwich.objective.labels:
            raise ValueError("likelihood ratio tests are for complete rows.")
        if pairs is not None:
            pairs = checked_pairs(pairs, len(self.sizes_))
        return sandwich.likelihood_ratio_test(pairs)

    def edge_inclusion(
        self, inclusion_probability=0.5, scale=1.0, slab="gaussian", errors="sandwich"
    ):
        """Posterior probability of each pair of positions that its couplings are not all zero.

        Parameters
        ----------
        inclusion_probability : float or None
            Prior probability that a pair of positions is coupled. None: that of the largest
            evidence times a uniform prior.
        scale : float or None
            Prior standard deviation of the log-odds ratio of two states of either position, if the
            positions are coupled; all couplings of a pair have a normal prior that is alike for all
            states. None: that of the largest evidence times a log-normal prior (median 1, deviation
            1).
        slab : {"gaussian", "cauchy"}
            Prior of the couplings of a pair that is coupled: normal, or Cauchy of that scale, in
            which all couplings of the pair are large together.
        errors : {"sandwich", "naive"}
            As in `FullyVisibleBoltzmannMachine.edge_inclusion`.

        Returns
        -------
        PairInclusion
            `probability`, `log_bayes_factor`, `mean`, `log_evidence`, `as_frame`, and the
            `sensitivity` to the scale.

        Raises
        ------
        ValueError
            If there is no maximum, or the fit has no standard errors.

        Notes
        -----
        The couplings of a pair of positions with q and r states have (q - 1) (r - 1) directions
        that no change of gauge moves; a pair is one set of these, which are all zero or none is.
        A penalty of the fit makes no difference, or stays where rows are few or completed, as in
        `FullyVisibleBoltzmannMachine.edge_inclusion`.

        Examples
        --------
        >>> import numpy as np, fastmf as mf
        >>> rng = np.random.default_rng(0)
        >>> X = rng.integers(0, 3, (500, 4))
        >>> X[:, 3] = np.where(rng.random(500) < 0.5, X[:, 1], X[:, 3])
        >>> found = mf.PottsMachine().fit(X).edge_inclusion()
        >>> np.argwhere(found.probability > 0.5).tolist()
        [[1, 3], [3, 1]]
        """
        checked_prior(inclusion_probability, scale)
        estimates = self._edge_estimates(errors, 1.0 if scale is None else scale)
        return estimates.inclusion(inclusion_probability, scale, slab)

    def _pooled_with(self, other):
        """`PooledRows` of this machine and another one, for permutations; rows keep weights."""
        if self._completions is not None or other._completions is not None:
            raise ValueError(
                "a permutation test is for rows as they were seen: fit with missing='absent' or "
                "'available'."
            )
        labels = np.maximum(np.concatenate([self._labels, other._labels]), -1)
        weights = np.concatenate([self._weights, other._weights])
        kept, of_self = weights > 0, np.arange(len(weights)) < len(self._weights)
        rows = np.column_stack([labels, weights])[kept]
        rows, own, counts = np.unique(rows, axis=0, return_inverse=True, return_counts=True)
        labels, weights = rows[:, :-1].astype(np.int64), rows[:, -1]
        of_first = np.bincount(own.ravel()[of_self[kept]], minlength=len(rows))
        objective = self._dense_objective(labels, counts * weights)
        contrasts, sets, pairs = objective.contrasts()
        starts = np.array([one[0] for one in sets])
        options = 0.0, min(float(self.tol), 1e-5)
        return PooledRows(
            objective, counts, of_first, weights, contrasts.dot, starts, pairs, *options
        )

    def _edge_estimates(self, errors, scale=None):
        """Contrasts of the couplings of pairs of positions, their covariance, as of `Network`."""
        one_of("errors", errors, ERRORS)
        sandwich, names = self._sandwich(), feature_names(self)
        if not len(sandwich.objective.pairs[0]):
            raise ValueError(
                "the fit has no couplings: there is one position, or its graph has none."
            )
        contrasts, of_pairs, pairs = sandwich.objective.contrasts()
        parameters, covariance, least = sandwich.parameters, None, 0.0
        if scale is not None and np.any(sandwich.objective.ridge) and self._completions is None:
            # Contrasts have half the scale, see `PairEstimates`.
            found = expanded(sandwich, mode_ridge(sandwich.objective, 2 / scale))
            covariance = contrasts @ found.inverse @ contrasts.T / sandwich.objective.total
            shares = prior_shares((2 / scale) ** 2, covariance.diagonal())
            if few_rows(shares) or singular(covariance):
                covariance, least = None, FEW_ROWS_RATIO
            else:
                parameters, sandwich = found.estimates, found.information
                warn_of_penalty(shares, "prior")
        if covariance is None:
            covariance = contrasts @ sandwich.naive_covariance() @ contrasts.T
            warn_of_penalty(float(self.l2) * sandwich.objective.total * covariance.diagonal())
        if errors == "sandwich":
            own = contrasts @ sandwich.covariance() @ contrasts.T
            own = raised(own, covariance, least, of_pairs)
            covariance = shrunk(own, covariance, sandwich.effective_rows, of_pairs)

        def unpacked(values):
            return self._by_position(sandwich.objective.unpacked(contrasts.T @ values)[0], 2)

        values = contrasts @ parameters
        return PairEstimates(values, covariance, pairs, names, of_pairs, unpacked)
