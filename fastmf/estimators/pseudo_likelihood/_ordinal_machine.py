"""Inference with a fitted machine of ordinal items: conditionals, samples, errors, tests."""

import numpy as np
from sklearn.utils.validation import check_is_fitted

from fastmf._common.arguments import real_array
from fastmf.estimators.common.categories import checked_table, codes
from fastmf.estimators.common.labels import check_sizes, labels_from
from fastmf.estimators.pseudo_likelihood._composite import CompositeMachine
from fastmf.estimators.pseudo_likelihood._observed import restored_rows
from fastmf.learning.pseudo_likelihood.ordinal.objective import OrdinalLikelihood
from fastmf.learning.pseudo_likelihood.ordinal.thresholds import Thresholds
from fastmf.models import BoltzmannMachine
from fastmf.priors import Categorical, Ordinal


class BaseOrdinalMachine(CompositeMachine):
    """All methods of `OrdinalMachine` but `fit`."""

    _item_name = "items"

    def _made_objective(self):
        """The likelihood of the rows that the machine was fitted to."""
        reference = real_array("reference", self.reference)
        if reference.shape not in ((), self.n_categories_.shape):
            raise ValueError(
                "reference must be a number or have one entry for each of "
                f"{len(self.n_categories_)} items, got shape {reference.shape}."
            )
        thresholds = Thresholds(self.n_categories_, self.thresholds, reference)
        return OrdinalLikelihood(
            self._rows, self._weights, thresholds, l2=float(self.l2),
            l2_field=float(self.l2_field), n_threads=self.n_threads,
        )  # fmt: skip

    def _items(self):
        """The rows, and the thresholds of their items."""
        return self._rows, self._objective.thresholds

    def _set_parameters(self, parameters):
        """Couplings and thresholds from the vector of all parameters."""
        self._parameters, self._models = parameters, {}
        self.couplings_, self._of_thresholds = self._objective.unpacked(parameters)
        self.thresholds_ = self._by_item(self._objective.thresholds.matrix @ self._of_thresholds)

    def _by_item(self, values):
        """Values of the thresholds of all items, item by item."""
        return np.split(values, np.cumsum(self.n_categories_ - 1)[:-1])

    # --- models ---------------------------------------------------------------------------------

    @property
    def model_(self):
        """The machine as a `BoltzmannMachine` with `Ordinal` units, for `fastmf.tap`."""
        check_is_fitted(self)
        if "scores" not in self._models:
            table = self._objective.thresholds.table(self._of_thresholds, -np.inf).T
            self._models["scores"] = BoltzmannMachine(self.couplings_, Ordinal(table))
        return self._models["scores"]

    def _categorical_model(self):
        """The machine with one state for each category of each item."""
        if "categories" not in self._models:
            score = np.concatenate([np.arange(float(q)) for q in self.n_categories_])
            item = np.repeat(np.arange(len(self.n_categories_)), self.n_categories_)
            couplings = self.couplings_[np.ix_(item, item)] * np.outer(score, score)
            field = [np.append(0.0, mu) for mu in self.thresholds_]
            self._models["categories"] = BoltzmannMachine(couplings, Categorical(field))
        return self._models["categories"]

    def blume_capel(self):
        """Parameters of thresholds of the form of Blume and Capel.

        Returns
        -------
        alpha, beta : array of shape (n_features,)
            mu_i(c) = alpha_i c + beta_i ((c - r)^2 - r^2); beta is NaN for items of two categories,
            whose threshold is alpha.

        Raises
        ------
        ValueError
            If the machine has free thresholds.
        """
        check_is_fitted(self)
        if self.thresholds != "blume_capel":
            raise ValueError("alpha and beta are parameters of thresholds='blume_capel'.")
        alpha, beta = np.full((2, len(self.n_categories_)), np.nan)
        for i in range(len(alpha)):
            own = self._of_thresholds[self._objective.thresholds.item_of_parameter == i]
            alpha[i], beta[i] = own[0], own[1] if len(own) > 1 else np.nan
        return alpha, beta

    # --- rows -----------------------------------------------------------------------------------

    def _labels_of(self, X, missing=False):
        """Scores of rows, -1 where missing."""
        check_is_fitted(self)
        X = checked_table(self, X, reset=False, missing=missing)
        return codes(self, X, self.categories_)

    def _conditionals(self, X):
        """Result of `OrdinalLikelihood.conditionals` for rows."""
        scores, fitted = self._labels_of(X), self._objective
        rows = OrdinalLikelihood(
            scores, np.ones(len(scores)), fitted.thresholds, pairs=fitted.pairs,
            n_threads=self.n_threads,
        )  # fmt: skip
        return rows.conditionals(self._parameters)

    def score_samples(self, X):
        """Log-pseudo-likelihood of each row.

        Parameters
        ----------
        X : array or data frame of shape (n_samples, n_features)

        Returns
        -------
        array of shape (n_samples,)
            Nats.
        """
        return self._conditionals(X)[2]

    def conditional_proba(self, X):
        """Probabilities of the categories of each item given all others.

        Parameters
        ----------
        X : array or data frame of shape (n_samples, n_features)
            Without missing values.

        Returns
        -------
        array of shape (n_samples, n_categories)
            Flat: the categories of all items side by side.
        """
        p = self._conditionals(X)[0]
        return np.hstack([p[:size, :, i].T for i, size in enumerate(self.n_categories_)])

    # --- files ----------------------------------------------------------------------------------

    def _model_arrays(self):
        return {}  # the model is made of parameters

    def _restore_model(self, arrays):
        pass

    def _saved(self):
        fitted, arrays = self._saved_fit("log_pseudo_likelihood_", "n_dropped_", "n_missing_")
        return fitted, arrays | {
            "rows": self._rows.astype(np.int16),
            "sizes": self.n_categories_,
            "weights": self._row_weights(),
            "pairs": np.stack(self._objective.pairs, axis=1),
            "parameters": self._parameters,
        }

    def _restore(self, arrays):
        self._restore_fit(arrays)
        most = np.iinfo(np.int16).max
        shape = (self.n_features_in_,)
        self.n_categories_ = arrays.member("sizes", "iu", shape, low=2, high=most).astype(np.int64)
        check_sizes(self.categories_, self.n_categories_)
        self._rows = labels_from("rows", arrays, self.n_categories_).astype(np.int64)
        if (self._rows < 0).any():
            raise ValueError("member 'rows' must have no missing values.")
        self._weights = arrays.member("weights", "f", (len(self._rows),), low=0)
        restored_rows(self, arrays, self._rows)
        d = self.n_features_in_
        pairs = arrays.member("pairs", "iu", (None, 2), low=0, high=d - 1)
        place = pairs[:, 0] * d + pairs[:, 1]
        if (pairs[:, 0] >= pairs[:, 1]).any() or (np.diff(place) <= 0).any():
            raise ValueError("member 'pairs' must be pairs i < j of items, in their order.")
        self._objective = self._made_objective().restricted(pairs)
        shape = (self._objective.n_parameters,)
        self._set_parameters(arrays.member("parameters", "f", shape, low=-np.inf))

    # --- errors ---------------------------------------------------------------------------------

    def coupling_estimate(self):
        """Couplings of all pairs of items, and their sandwich covariance.

        Returns
        -------
        couplings : array of shape (n_pairs,)
            sigma_ij, i < j, row by row.
        covariance : array of shape (n_pairs, n_pairs)

        Raises
        ------
        ValueError
            As `covariance`.
        """
        godambe = self._godambe()
        covariance, n = godambe.covariance(), godambe.objective.n_fields
        return godambe.parameters[n:].copy(), covariance[n:, n:]

    def _errors_of_all(self, godambe):
        thresholds, n = self._objective.thresholds, godambe.objective.n_fields
        if self.thresholds == "free":
            couplings, fields = godambe.objective.unpacked(godambe.standard_errors())
        else:
            covariance = godambe.covariance()
            couplings, _ = godambe.objective.unpacked(np.sqrt(covariance.diagonal()))
            of_fields = thresholds.matrix @ covariance[:n, :n]
            fields = np.sqrt((of_fields * thresholds.matrix).sum(1))
        return couplings, self._by_item(fields)

    def _fields_of(self, parameters):
        return self._by_item(self._objective.thresholds.matrix @ parameters)

    def _fields_frame(self, fields, name):
        return fields
