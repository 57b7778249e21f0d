"""Machines of ordinal items by maximum pseudo-likelihood."""

import numpy as np

from fastmf._common.arguments import one_of
from fastmf._common.warning import listed
from fastmf.estimators.common.categories import codes, item_categories
from fastmf.estimators.common.data import missing_entries
from fastmf.estimators.common.frames import feature_names
from fastmf.estimators.common.rows import warn_of_missing_codes
from fastmf.estimators.pseudo_likelihood._base import PairwiseMachine
from fastmf.learning.pseudo_likelihood.ordinal import KINDS, OrdinalLikelihood, Thresholds
from fastmf.models import BoltzmannMachine
from fastmf.priors import Categorical, Ordinal


class OrdinalMachine(PairwiseMachine):
    """Ordinal items with all pairs coupled, p(x) ~ exp(sum_ij sigma_ij x_i x_j + sum_i mu_i(x_i)).

    Items have the scores x_i = 0..m_i, and the first sum is over pairs i < j (Marsman et al.,
    Psychometrika 90, 2025). Fitted by maximum pseudo-likelihood: the sum over items of the
    log-probability of each given all others. Items of two categories are the Ising model in {0, 1}
    coding: sigma = 4 J and mu = 2 h_i - 2 sum_j J_ij of `FullyVisibleBoltzmannMachine`.

    Parameters
    ----------
    n_categories : int, sequence of int of length n_features, or None
        Categories of all or of each item, whose codes are 0, 1, ... if any entry of the table is
        0, and else 1, 2, .... None: all integers from the smallest to the largest of each column;
        strings in alphabetical order (which warns if there are more than two) or sorted by their
        numbers; the categories of pandas' categorical columns.
    thresholds : {"free", "blume_capel"}
        One threshold mu_i(c) for each category c > 0, or mu_i(c) = alpha_i c + beta_i c^2.
    l1 : float, "ebic", "and", "or" or "cv"
        Penalty ``l1 sum |sigma_ij|`` per row, or selection of couplings, as in
        `FullyVisibleBoltzmannMachine`.
    l2, l2_field : float
        Penalties ``(l2 sum sigma_ij^2 + l2_field sum theta_k^2) / 2`` per row of couplings and of
        the parameters theta of thresholds. With both the maximum always exists.
    missing : {"error", "drop", "available", "em"}
        As in `FullyVisibleBoltzmannMachine`, with all pairs coupled ("available" is "drop"). "em"
        is for rows of up to 4,096 completions.
    ebic_gamma : float
        As in `FullyVisibleBoltzmannMachine`.
    solver : {"auto", "newton", "lbfgs"}
        "newton" takes few steps to machine precision; "lbfgs" is for many parameters, or `l1`.
    tol : float
        Newton's method stops when the predicted rise of the log-pseudo-likelihood of 100,000 rows
        is below tol^2, L-BFGS below tol / 100.
    max_iter : int or None
        None: 100 for "newton", 1,000 for "lbfgs".
    n_threads : int or None
        Threads of the compiled kernels; results do not depend on it.

    Attributes
    ----------
    couplings_ : array of shape (n_features, n_features)
        sigma, symmetric with zero diagonal, for the scores 0, 1, ...
    thresholds_ : list of arrays of shape (m_i,)
        mu_i(1), ..., mu_i(m_i) of each item; mu_i(0) = 0.
    categories_ : list of arrays of shape (m_i + 1,)
        The values of the scores of each item.
    n_categories_ : int array of shape (n_features,)
    model_ : BoltzmannMachine
        The same with `Ordinal` units, for `fastmf.tap` and other solvers.
    log_pseudo_likelihood_ : float
        Value for the data, per unit of weight and without penalties.
    existence_, history_, n_iter_, converged_, path_, n_missing_, n_dropped_
        As in `FullyVisibleBoltzmannMachine`.

    Examples
    --------
    >>> import numpy as np, fastmf as mf
    >>> rng = np.random.default_rng(0)
    >>> factor = rng.normal(size=(500, 1))
    >>> X = np.digitize(factor + rng.normal(size=(500, 4)), [-1, 0, 1]) + 1  # codes 1 to 4
    >>> machine = mf.OrdinalMachine().fit(X)
    >>> bool((machine.couplings_[np.triu_indices(4, 1)] > 0).all())
    True
    """

    _item_name = "items"
    _solvers = ("auto", "newton", "lbfgs")

    def __init__(
        self, *, n_categories=None, thresholds="free", l1=0.0, l2=0.0, l2_field=0.0,
        missing="error", ebic_gamma=0.25, solver="auto", tol=1e-5,
        max_iter=None, n_threads=None,
    ):  # fmt: skip
        self._store(locals())

    def _learned_labels(self, X, used, declared):
        if not declared:
            warn_of_missing_codes(self, X)
        # Rows that are not used may have categories of their own.
        absent = missing_entries(X)
        if self.missing in ("drop", "available"):
            used = used & ~absent.any(1)
        if not used.any():
            raise ValueError("X must have a row without missing values, of positive weight.")
        self.categories_ = item_categories(self, X[used], self.n_categories, declared)
        scores = np.where(absent, -1, 0)
        scores[used] = codes(self, X[used], self.categories_)
        return scores

    @property
    def _seen_only(self):
        return self.thresholds == "free" and not self.l2_field

    def _check_options(self):
        super()._check_options()
        one_of("thresholds", self.thresholds, KINDS)

    def _existence(self, parameters):
        result = super()._existence(parameters)
        thresholds, frequencies = self._objective.thresholds, self._objective.frequencies
        present = np.arange(thresholds.width)[:, None] < thresholds.n_categories
        empty = np.argwhere((present & (frequencies == 0)).T)
        if result.exists is not False or not self._seen_only or not len(empty):
            return result
        names = feature_names(self)
        named = [f"category {self.categories_[i][c].item()!r} of item {names[i]}" for i, c in empty]
        message = (
            f"no maximum exists: nobody is in {listed(named)}, whose thresholds fall "
            "without end; replace codes of missing values, such as 9 above 1 to 6, by NaN, merge "
            "categories, or give a ridge penalty l2_field"
        )
        return result._replace(message=message)

    def _objective_of(self, rows, weights):
        """The likelihood of rows."""
        thresholds = Thresholds(self.n_categories_, self.thresholds)
        return OrdinalLikelihood(
            rows, weights, thresholds, l2=float(self.l2), l2_field=float(self.l2_field),
            n_threads=self.n_threads,
        )  # fmt: skip

    def _items(self):
        """The rows, and the thresholds of their items."""
        return self._objective.states, self._objective.thresholds

    def _set_parameters(self, parameters):
        """Couplings and thresholds from the vector of all parameters."""
        self._parameters = parameters
        self.couplings_, fields = self._objective.unpacked(parameters)
        self.thresholds_ = self._fields_of(fields)
        value = self._objective.log_likelihood(parameters)
        self.log_pseudo_likelihood_ = value / self._objective.total

    def _by_item(self, values):
        """Values of the thresholds of all items, item by item."""
        return np.split(values, np.cumsum(self.n_categories_ - 1)[:-1])

    @property
    def n_categories_(self):
        """Numbers of categories of the items."""
        return self._sizes

    # --- models ---------------------------------------------------------------------------------

    @property
    def model_(self):
        """The machine as a `BoltzmannMachine` with `Ordinal` units, for `fastmf.tap`."""
        fields = self._parameters[: self._objective.n_fields]
        table = self._objective.thresholds.table(fields, -np.inf).T
        return BoltzmannMachine(self.couplings_, Ordinal(table))

    def _unit_model(self):
        """The machine with one state for each category of each item."""
        score = np.concatenate([np.arange(float(q)) for q in self.n_categories_])
        item = np.repeat(np.arange(len(self.n_categories_)), self.n_categories_)
        couplings = self.couplings_[np.ix_(item, item)] * np.outer(score, score)
        field = [np.append(0.0, mu) for mu in self.thresholds_]
        return BoltzmannMachine(couplings, Categorical(field))

    # --- rows -----------------------------------------------------------------------------------

    def _conditionals(self, scores):
        """Result of `OrdinalLikelihood.conditionals` for rows."""
        fitted = self._objective
        rows = OrdinalLikelihood(
            scores, np.ones(len(scores)), fitted.thresholds, pairs=fitted.pairs,
            n_threads=self.n_threads,
        )  # fmt: skip
        return rows.conditionals(self._parameters)

    def _log_conditionals(self, labels):
        return self._conditionals(labels)[2]

    def _probabilities(self, labels):
        p = self._conditionals(labels)[0]
        return np.hstack([p[:size, :, i].T for i, size in enumerate(self.n_categories_)])

    # --- errors ---------------------------------------------------------------------------------

    def _errors_of_all(self, godambe):
        matrix, n = self._objective.thresholds.matrix, godambe.objective.n_fields
        covariance = godambe.covariance()
        couplings, _ = godambe.objective.unpacked(np.sqrt(covariance.diagonal()))
        variances = ((matrix @ covariance[:n, :n]) * matrix).sum(1)
        return couplings, self._by_item(np.sqrt(variances))

    def _fields_of(self, parameters):
        return self._by_item(self._objective.thresholds.matrix @ parameters)
