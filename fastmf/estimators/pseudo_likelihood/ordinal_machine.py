"""Machines of ordinal items by maximum pseudo-likelihood, as a scikit-learn estimator."""

from functools import partial

import numpy as np

from fastmf._common.arguments import one_of, row_weights
from fastmf.estimators.common.categories import checked_table, codes, declared_categories
from fastmf.estimators.common.data import missing_entries
from fastmf.estimators.common.frames import feature_names
from fastmf.estimators.common.missing_codes import warn_of_missing_codes
from fastmf.estimators.pseudo_likelihood._item_categories import item_categories
from fastmf.estimators.pseudo_likelihood._observed import observed
from fastmf.estimators.pseudo_likelihood._ordinal_machine import BaseOrdinalMachine
from fastmf.learning.pseudo_likelihood.fit import few_blas_threads
from fastmf.learning.pseudo_likelihood.lbfgs import MAX_LBFGS_ITER, lbfgs
from fastmf.learning.pseudo_likelihood.newton import MAX_NEWTON_ITER, newton
from fastmf.learning.pseudo_likelihood.ordinal.thresholds import KINDS

# Categories that a message names.
_MAX_NAMED = 3


class OrdinalMachine(BaseOrdinalMachine):
    """Ordinal items with all pairs coupled, p(x) ~ exp(sum_ij sigma_ij x_i x_j + sum_i mu_i(x_i)).

    Items have the scores x_i = 0..m_i, which may differ in number, and the first sum is over pairs
    i < j (Marsman et al. 2025). Fitted by maximum pseudo-likelihood: the sum over items of the
    log-probability of each given all others. Items of two categories alone are the Ising model in
    {0, 1} coding.

    Parameters
    ----------
    n_categories : int, sequence of int of length n_features, or None
        Categories of all or of each item, whose codes are 0, 1, ... if any entry of the table is
        0, and else 1, 2, .... None: all integers from the smallest to the
        largest of each column, but -1 and 1 where these are all its values; strings in alphabetical
        order (which warns if there are more than two), or in that of their numbers; the categories
        of pandas' categorical columns.
    thresholds : {"free", "blume_capel"}
        One threshold mu_i(c) for each category c > 0, or mu_i(c) = alpha_i c + beta_i ((c - r)^2 -
        r^2).
    reference : int or sequence of int of length n_features
        The score r of "blume_capel".
    l1 : float, "ebic" or "cv"
        Penalty ``l1 sum |sigma_ij|`` per unit of weight, or how couplings are selected: see
        `FullyVisibleBoltzmannMachine`.
    l2, l2_field : float
        Penalties ``(l2 sum sigma_ij^2 + l2_field sum theta_k^2) / 2`` of couplings and of the
        parameters theta of thresholds. With both the maximum always exists.
    missing : {"error", "drop", "available", "em"}
        Whether `fit` refuses missing values; leaves out rows that have some, which is right where
        values are missing completely at random ("available" is the same, as all pairs of items may
        be coupled); or sums over what they may be, by expectation and maximisation, which is right
        where they are missing at random, and whose errors take what is missing into account: see
        `FullyVisibleBoltzmannMachine`. Rows with more than 4,096 completions are left out, with a
        warning.
    weights : {"counts", "sampling"}
        Whether weights say how many rows each row stands for, or are those of a survey: each row is
        then one observation, whose score is multiplied by its weight.
    ebic_gamma : float
        Weight of the number of items in "ebic": 0 is BIC, and more leaves out more couplings.
    rule : {None, "and", "or"}
        With `l1="ebic"`, None selects all couplings together. "and" and "or" regress each item on
        all others along a path of penalties of its own, and couple two if each is chosen for the
        other, or if one is: the procedure of IsingFit (van Borkulo et al. 2014), but for a fit of
        the chosen couplings together, without a penalty. Penalties `l2` are those of that fit.
    solver : {"auto", "newton", "lbfgs"}
        "newton" takes few steps to machine precision; "lbfgs" is for many parameters, or `l1`.
    tol : float
        Newton's method stops when the predicted rise of the log-pseudo-likelihood of 100,000 rows
        is below tol^2, L-BFGS below tol / 100.
    max_iter : int or None
        None: 100 for "newton", 1,000 for "lbfgs".
    n_threads : int or None
        Threads of the compiled kernels; results do not depend on it.
    verbose : bool
        Whether a selection of couplings by `l1` shows on stderr how far it is.

    Attributes
    ----------
    couplings_ : array of shape (n_features, n_features)
        sigma, symmetric with zero diagonal, for the scores 0, 1, ...
    thresholds_ : list of arrays of shape (m_i,)
        mu_i(1), ..., mu_i(m_i) of each item; mu_i(0) = 0.
    categories_ : list of arrays of shape (m_i + 1,)
        The values that the scores of each item stand for.
    n_categories_ : int array of shape (n_features,)
    model_ : BoltzmannMachine
        The same with `Ordinal` units, for `fastmf.tap` and other solvers.
    log_pseudo_likelihood_ : float
        Value for the data, per unit of weight and without penalties.
    existence_ : Existence
        `exists` (True: proved; False: disproved; None: not decided), the separated `units`, and a
        `message`, which names categories that nobody is in.
    history_ : array of shape (n_iter,)
        Log-pseudo-likelihood of all rows together, less penalties, after each iteration.
    n_iter_ : int
    n_missing_, n_dropped_ : int
        Missing values, and rows that were left out for them.
    path_ : SelectionPath
        With `l1="ebic"` or "cv" (not in files): penalties, numbers of couplings,
        log-pseudo-likelihoods and criteria of the path, and which graph was `chosen`; with `rule`
        a column for each item, of the regression on the others.
    converged_ : bool
        Whether the solver stopped by its own rule, and the maximum is not disproved.
    n_features_in_ : int

    Warns
    -----
    ConvergenceWarning
        If the maximum does not exist, if that could not be decided, or if iterations ran out.
    UserWarning
        If strings are taken in alphabetical order, or rows with too many missing values are left
        out.

    Notes
    -----
    An item of two categories in {0, 1} has sigma = 4 J of `FullyVisibleBoltzmannMachine`, and
    mu = 2 h_i - 2 sum_j J_ij. A shift of all codes of an item changes thresholds alone.

    References: Marsman et al., "Bayesian analysis of the ordinal Markov random field",
    Psychometrika 90 (2025).

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

    def __init__(
        self, *, n_categories=None, thresholds="free", reference=0, l1=0.0, l2=0.0, l2_field=0.0,
        missing="error", weights="counts", ebic_gamma=0.25, rule=None, solver="auto", tol=1e-5,
        max_iter=None, n_threads=None, verbose=False,
    ):  # fmt: skip
        self._store(locals())

    def fit(self, X, y=None, sample_weight=None, clusters=None):
        """Estimate couplings and thresholds.

        Parameters
        ----------
        X : array or data frame of shape (n_samples, n_features)
            Integer codes, strings or pandas' categories; NaN or None where missing.
        y : ignored
        sample_weight : array of shape (n_samples,), optional
            How many rows each row stands for.
        clusters : array of shape (n_samples,), optional
            Labels of what was sampled independently, such as persons with several rows each: for
            errors, tests and bootstraps.

        Returns
        -------
        self

        Examples
        --------
        >>> import numpy as np, fastmf as mf
        >>> X = np.random.default_rng(0).integers(0, 3, (300, 4))
        >>> machine = mf.OrdinalMachine().fit(X)
        >>> machine.couplings_.shape, [len(mu) for mu in machine.thresholds_]
        ((4, 4), [2, 2, 2, 2])
        """
        self._check_options()
        declared = declared_categories(X)
        X = checked_table(self, X, reset=True, missing=self.missing != "error")
        if not declared:
            warn_of_missing_codes(self, X)
        weights = row_weights(1.0 if sample_weight is None else sample_weight, len(X))
        used = weights > 0
        if self.missing in ("drop", "available"):
            used &= ~missing_entries(X).any(1)
        if not used.any():
            raise ValueError("X must have a row without missing values, of positive weight.")
        self.categories_ = item_categories(self, X[used], self.n_categories, declared)
        self.n_categories_ = np.array([len(known) for known in self.categories_])
        # Rows that are not used may have categories of their own.
        scores = np.full(X.shape, -1)
        scores[used] = codes(self, X[used], self.categories_)
        options = self.missing, self.weights
        seen_only = self.thresholds == "free" and not self.l2_field
        found = observed(
            scores, weights, self.n_categories_, options, clusters, seen_only=seen_only
        )
        self._rows, self._weights = found.labels, found.weights
        self._sampling, self._completions = found.sampling, found.completions
        self.n_missing_, self.n_dropped_ = int(missing_entries(X).sum()), found.n_dropped
        self._objective = self._made_objective()
        with few_blas_threads(self._objective.n_parameters):
            self._maximise()
        return self

    def _check_options(self):
        one_of("thresholds", self.thresholds, KINDS)
        self._check_selection()
        one_of("solver", self.solver, ("auto", "newton", "lbfgs"))
        self._check_numbers("l2", "l2_field")
        if self._penalty_l1 and self.solver == "newton":
            raise ValueError("l1 needs solver 'auto' or 'lbfgs', got 'newton'.")

    def _maximise(self):
        if isinstance(self.l1, str):
            self._select_couplings()
        if self._chosen_solver(self.solver) == "newton":
            max_iter = self.max_iter or MAX_NEWTON_ITER
            solve = partial(newton, tol=self._tol, max_iter=max_iter)
        else:
            max_iter = self.max_iter or MAX_LBFGS_ITER
            solve = partial(lbfgs, l1=self._penalty_l1, tol=self._tol, max_iter=max_iter)
        found = self._maximised(solve, self._objective.independent())
        self._set_parameters(found.parameters)
        value = self._objective.log_likelihood(found.parameters)
        self.log_pseudo_likelihood_ = value / self._objective.total
        self._keep_fit(found, max_iter)

    def _existence(self, parameters):
        found = super()._existence(parameters)
        thresholds, frequencies = self._objective.thresholds, self._objective.frequencies
        there = np.arange(thresholds.width)[:, None] < thresholds.n_categories
        empty = np.argwhere((there & (frequencies == 0)).T)
        if found.exists is False and self.thresholds == "free" and len(empty):
            if not self.l2_field:
                found = found._replace(message=self._empty_categories(empty))
        return found

    def _empty_categories(self, empty):
        names = feature_names(self)
        named = [
            f"category {self.categories_[i][c].item()!r} of item {names[i]}"
            for i, c in empty[:_MAX_NAMED]
        ]
        more = f" and {len(empty) - _MAX_NAMED} more" if len(empty) > _MAX_NAMED else ""
        return (
            f"no maximum exists: nobody is in {', '.join(named)}{more}, whose thresholds fall "
            "without end; replace codes of missing values, such as 9 above 1 to 6, by NaN, merge "
            "categories, or give a ridge penalty l2_field"
        )
