"""Inference with a fitted fully visible machine: probabilities, samples, standard errors, tests."""

import numpy as np
from scipy.special import expit
from sklearn.utils.validation import check_is_fitted

from fastmf._common.arguments import one_of, row_weights
from fastmf.estimators.common.categories import checked_table
from fastmf.estimators.common.files import check_n_features
from fastmf.estimators.common.frames import like_frame
from fastmf.estimators.common.imputing import means_of_missing
from fastmf.estimators.pseudo_likelihood._composite import CompositeMachine
from fastmf.estimators.pseudo_likelihood._observed import restored_rows
from fastmf.estimators.pseudo_likelihood._spins import from_spins, to_spins
from fastmf.inference.sampling import spins
from fastmf.learning.pseudo_likelihood.binary.distinct_rows import WeightedRows
from fastmf.learning.pseudo_likelihood.binary.objective import PseudoLikelihood
from fastmf.learning.pseudo_likelihood.ordinal.thresholds import Thresholds

CODINGS = ("01", "-1+1")


class BaseFullyVisibleBoltzmannMachine(CompositeMachine):
    """All methods of `FullyVisibleBoltzmannMachine` but `fit`."""

    _models = ("BoltzmannMachine",)
    # {0, 1} coding: x = 2 y - 1.
    _coupling_factor = 4.0
    _item_name = "units"

    # --- probabilities --------------------------------------------------------------------------

    def _rows(self, X, missing=False):
        check_is_fitted(self)
        X = checked_table(self, X, reset=False, missing=missing)
        return to_spins(self, X, self.categories_, self.threshold)

    @property
    def values_(self):
        """The two values of the data, a tuple, or None if columns have different ones."""
        check_is_fitted(self)
        values = self.categories_[0]
        same = all(np.array_equal(values, other) for other in self.categories_)
        return tuple(values.tolist()) if same else None

    def score_samples(self, X):
        """Log-pseudo-likelihood of each row.

        Parameters
        ----------
        X : array of shape (n_samples, n_features)

        Returns
        -------
        array of shape (n_samples,)
            Nats.
        """
        states = self._rows(X)
        rows = PseudoLikelihood(
            WeightedRows(states, np.ones(len(states))), n_threads=self.n_threads
        )
        return rows.residuals(self.couplings_, self.field_)[1] * len(states)

    def log_pseudo_likelihood(self, X, sample_weight=None):
        """Log-pseudo-likelihood of all rows together (Eq. 2.1), without penalties.

        Parameters
        ----------
        X : array of shape (n_samples, n_features)
        sample_weight : array of shape (n_samples,), optional

        Returns
        -------
        float
            Nats.

        Examples
        --------
        >>> import numpy as np, fastmf as mf
        >>> rng = np.random.default_rng(0)
        >>> X = np.cumprod(np.where(rng.random((500, 4)) < 0.75, 1, -1), axis=1)  # a Markov chain
        >>> machine = mf.FullyVisibleBoltzmannMachine().fit(X)
        >>> np.isclose(machine.log_pseudo_likelihood(X), machine.score_samples(X).sum())
        np.True_
        """
        values = self.score_samples(X)
        weights = row_weights(1.0 if sample_weight is None else sample_weight, len(values))
        return float(values @ weights)

    def conditional_proba(self, X):
        """Probability of the higher value of each unit given all others.

        Parameters
        ----------
        X : array of shape (n_samples, n_features)

        Returns
        -------
        array of shape (n_samples, n_features)
        """
        return expit(2 * (self._rows(X) @ self.couplings_ + self.field_))

    def pmf(self, X=None):
        """Probabilities of rows, by enumeration of all states; up to 20 units.

        Parameters
        ----------
        X : array of shape (n_samples, n_features), optional
            Default all 2^n_features rows, the first unit alternating fastest.

        Returns
        -------
        array of shape (n_samples,) or (2^n_features,)

        Examples
        --------
        >>> import numpy as np, fastmf as mf
        >>> rng = np.random.default_rng(0)
        >>> X = np.cumprod(np.where(rng.random((500, 4)) < 0.75, 1, -1), axis=1)  # a Markov chain
        >>> machine = mf.FullyVisibleBoltzmannMachine().fit(X)
        >>> probabilities = machine.pmf()
        >>> probabilities.shape, np.isclose(probabilities.sum(), 1)
        ((16,), np.True_)
        """
        check_is_fitted(self)
        if self.n_features_in_ > spins.MAX_ENUMERATED_UNITS:
            raise ValueError(
                f"pmf enumerates all states: at most {spins.MAX_ENUMERATED_UNITS} units, got "
                f"{self.n_features_in_}."
            )
        probabilities = spins.probabilities(self.model_)
        if X is None:
            return probabilities
        return probabilities[(self._rows(X) > 0) @ (1 << np.arange(self.n_features_in_))]

    def _drawn(self, n_samples, rng, n_sweeps):
        return from_spins(spins.sample(self.model_, n_samples, rng, n_sweeps), self.categories_)

    def impute(self, X, *, method="auto", random_state=0):
        """Fill in missing values by their means given the others.

        Parameters
        ----------
        X : array or data frame of shape (n_samples, n_features)
            With NaN for missing values, or None.
        method : {"auto", "exact", "annealing", "tap"}, default "auto"
            - "exact": the sum over all states of a row's missing values, which are at most 2^20.
            - "annealing": sequential Monte Carlo from the spanning tree of the strongest couplings
              (`fastmf.kernels.sampling.tree_annealing`), with standard errors of about 0.003 of a
              probability; exact where couplings are a tree. Each of several phases has its weight.
            - "tap": the mean-field solution that `fastmf.tap` reaches from uncoupled units. It is
              fast for hundreds of missing values, but wrong for strong couplings, and of several
              phases only one.
            - "auto": "exact" for rows that it takes, "annealing" for all others.
        random_state : int, RandomState or None, default 0
            Random state of annealing. Equal rows have equal results, in any company.

        Returns
        -------
        array or data frame of shape (n_samples, n_features)
            Means between the two values of the data if these are numbers, else the more probable
            values. A data frame if `X` is one.

        Raises
        ------
        ValueError
            With "exact", if a row has more than 20 missing values.

        Warns
        -----
        ConvergenceWarning
            If standard errors of some rows are above 0.01, or their solutions have not converged.
        """
        states = self._rows(X, missing=True)
        means = means_of_missing(self.model_, states, method, random_state, self.n_threads)
        return like_frame(X, from_spins(means, self.categories_))

    # --- files ----------------------------------------------------------------------------------

    def _saved(self):
        rows = self._objective.rows
        # For standard errors.
        bits = np.packbits(rows.states > 0, axis=1)
        arrays = {"rows": bits, "weights": rows.weights}
        if rows.targets is not None:
            arrays["seen"] = np.packbits(rows.states != 0, axis=1)
        arrays["missing"] = np.array([self.n_missing_, self.n_dropped_])
        fitted, more = self._saved_fit("gradient_norm_")
        return fitted, arrays | more

    def _restore(self, arrays):
        self._restore_fit(arrays)
        if [len(values) for values in self.categories_] != [2] * self.n_features_in_:
            raise ValueError("categories_ must have two values for each column.")
        check_n_features(self, {self.model_.n_units})
        self.couplings_, self.field_ = self.model_.couplings, self.model_.prior.field
        shape = None, -(-self.n_features_in_ // 8)
        bits = arrays.member("rows", "iu", shape, np.uint8)
        weights = arrays.member("weights", "f", (len(bits),), low=0)
        labels = np.unpackbits(bits, axis=1, count=self.n_features_in_).astype(np.int64)
        if "seen" in arrays:
            seen = arrays.member("seen", "iu", bits.shape, np.uint8)
            labels[np.unpackbits(seen, axis=1, count=self.n_features_in_) == 0] = -1
        rows = WeightedRows.of_labels(labels, weights, self._edges())
        restored_rows(self, arrays, labels)
        self._restore_missing(arrays)
        chosen = np.argwhere(np.triu(self.couplings_)) if isinstance(self.l1, str) else None
        self._objective = self._objective_of(rows, chosen)
        self._parameters = self._objective.packed(self.couplings_, self.field_)

    def _objective_of(self, rows, edges=None):
        """The objective of rows, with the couplings of `graph` or of these edges alone."""
        edges = self._edges() if edges is None else edges
        return PseudoLikelihood(rows, float(self.l2), self.n_threads, edges)

    @property
    def n_available_(self):
        """Weight of the rows that have a part in the conditional probability of each unit."""
        check_is_fitted(self)
        rows = self._objective.rows
        return rows.weights @ (rows.own != 0)

    def _items(self):
        """The rows as items with the categories 0 and 1, and their thresholds."""
        states = self._objective.rows.states > 0
        return states, Thresholds(np.full(states.shape[1], 2))

    def _check_errors(self):
        if self.solver == "tap_inversion":
            raise ValueError("standard errors are for maxima: fit with another solver.")

    # --- codings --------------------------------------------------------------------------------

    def in_coding(self, coding):
        """Couplings and field of units in other values.

        Parameters
        ----------
        coding : {"01", "-1+1"}
            "01": p(y) ~ exp(y'Sy / 2 + m'y) for y in {0, 1}, with S = 4 J and
            m_i = 2 h_i - 2 sum_j J_ij. "-1+1": J and h, as they are in `couplings_` and `field_`.

        Returns
        -------
        couplings : array of shape (n_features, n_features)
        field : array of shape (n_features,)

        Examples
        --------
        >>> import numpy as np, fastmf as mf
        >>> rng = np.random.default_rng(0)
        >>> X = np.cumprod(np.where(rng.random((500, 4)) < 0.75, 1, -1), axis=1)  # a Markov chain
        >>> machine = mf.FullyVisibleBoltzmannMachine().fit(X)
        >>> couplings, field = machine.in_coding("01")
        >>> probability = 1 / (1 + np.exp(-field - couplings @ [0, 0, 0, 0]))  # all others are 0
        >>> np.allclose(probability, machine.conditional_proba(np.full((1, 4), -1))[0])
        True
        """
        check_is_fitted(self)
        one_of("coding", coding, CODINGS)
        if coding == "-1+1":
            return self.couplings_.copy(), self.field_.copy()
        return 4 * self.couplings_, 2 * self.field_ - 2 * self.couplings_.sum(1)
