"""Machines of binary units and of ordinal items by maximum pseudo-likelihood."""

from functools import partial

import numpy as np
from scipy.special import expit

from fastmf._common.arguments import number, one_of
from fastmf._common.warning import listed
from fastmf.estimators.common.categories import (
    checked_table,
    codes,
    from_spins,
    item_categories,
    two_categories,
)
from fastmf.estimators.common.data import missing_entries, warn_of_missing_codes
from fastmf.estimators.common.files import check_n_features
from fastmf.estimators.common.reports import feature_names
from fastmf.estimators.networks.network import CouplingNetwork
from fastmf.estimators.pseudo_likelihood._base import ItemMachine
from fastmf.inference.sampling import discrete
from fastmf.learning.pseudo_likelihood.binary import (
    PseudoLikelihood,
    bslm,
    firth,
    unique_with_firth,
)
from fastmf.learning.pseudo_likelihood.fit import (
    MAX_HESSIAN_PARAMETERS,
    MAX_NEWTON_PARAMETERS,
    few_blas_threads,
    lbfgs,
    newton,
)
from fastmf.learning.pseudo_likelihood.ordinal import KINDS, OrdinalLikelihood, Thresholds
from fastmf.learning.pseudo_likelihood.selection import (
    RULES,
    Regressions,
    cross_validated_path,
    ebic_path,
    nodewise_path,
)
from fastmf.models import BoltzmannMachine
from fastmf.priors import Categorical, Ising, Ordinal

CODINGS = ("01", "-1+1")
SELECTIONS = ("ebic", *RULES, "cv")
MISSING = ("error", "drop", "available", "em")


class PairwiseMachine(CouplingNetwork, ItemMachine):
    """Base class of machines whose `_objective` is a `PairwiseLikelihood`.

    In addition to the methods named in `ItemMachine`, a subclass defines `_objective_of`,
    `_set_parameters`, and `_items`: rows as scores, negative where missing, and their thresholds.
    """

    _missing = MISSING

    def fit(self, X, y=None, sample_weight=None, clusters=None):
        """Estimate couplings, and fields or thresholds.

        Parameters
        ----------
        X : array or data frame of shape (n_samples, n_features)
            For a `FullyVisibleBoltzmannMachine`, two values in each column: -1 and +1, 0 and 1, two
            other numbers, booleans, two strings, or pandas categories. Categories keep their order;
            all other values are sorted. A constant column gets its second value from columns that
            contain the same value. For an `OrdinalMachine`, integer codes, strings or pandas
            categories. NaN and None are missing values.
        y : ignored
        sample_weight : array of shape (n_samples,), optional
            Frequency weights: the number of equal rows that each row represents. A common factor
            divides the variances of estimates; it changes estimates only with Firth's penalty.
        clusters : array of shape (n_samples,), optional
            Labels of independently sampled clusters, such as persons with several rows each, used
            for errors, tests and bootstraps. With ``range(n_samples)``, weights are sampling
            weights of single observations, as in surveys, instead of numbers of rows.
        """
        rows = self._observed(X, sample_weight, clusters)
        with few_blas_threads():
            self._objective = self._objective_of(*rows)
            if isinstance(self.l1, str):
                self._select_couplings()
        solver, n = self._chosen_solver(self.solver), self._objective.n_parameters
        max_iter = self._iterations(solver)
        # Newton's method factorises a matrix with a row for each parameter.
        with few_blas_threads(n if solver == "newton" else 0):
            fit = self._solved(solver, max_iter)
            self._set_parameters(fit.parameters)
            self._keep_fit(fit, self._existence(fit.parameters), max_iter)
        return self

    def _solved(self, solver, max_iter):
        """Maximise the objective by a solver; return the `Fit`."""
        objective, solve = self._objective, partial(newton, tol=self._tol, max_iter=max_iter)
        start = objective.correlated()
        if solver == "lbfgs":
            solve = partial(lbfgs, l1=self._penalty_l1, tol=self._tol, max_iter=max_iter)
        elif self._completions is None:
            # For speed alone: near the maximum, a Hessian, for the time of n_units / 4 gradients,
            # serves more steps. Half or twice this number takes 0.9 to 1.1 of the time.
            start, *_ = lbfgs(objective, start, tol=self._tol, max_iter=objective.n_units // 4)
        return self._maximised(solve, start)

    def _check_options(self):
        super()._check_options()
        if not isinstance(self.l1, str):
            number("l1", self.l1, 0, np.inf, below=True)
            if self._penalty_l1 and self.solver == "newton":
                raise ValueError("l1 needs another solver than 'newton', such as 'lbfgs'.")
            return
        one_of("l1", self.l1, SELECTIONS)
        if self.missing in ("em", "available"):
            raise ValueError(f"l1={self.l1!r} needs complete rows: missing='error' or 'drop'.")

    def _select_couplings(self):
        """Restrict the objective to the couplings selected by `l1`; store the path."""
        objective, gamma, tol = self._objective, float(self.ebic_gamma), self._tol
        if self.l1 in RULES:
            states, thresholds = self._items()
            regressions = Regressions(
                states, self._row_weights(), thresholds, objective.pairs, self.n_threads
            )
            path, edges = nodewise_path(regressions, gamma, self.l1, tol)
        else:
            select = ebic_path if self.l1 == "ebic" else cross_validated_path
            path, edges = select(objective, gamma, tol)
        self.path_, self._objective = path, objective.restricted(edges)

    def _chosen_solver(self, solver):
        """Resolve solver "auto" to Newton's method or L-BFGS."""
        n = self._objective.n_parameters
        if solver == "auto":
            small = n <= MAX_NEWTON_PARAMETERS
            solver = "newton" if small and not self._penalty_l1 else "lbfgs"
        if solver in ("newton", "firth") and n > MAX_HESSIAN_PARAMETERS:
            raise ValueError(
                f"Newton's method is for up to {MAX_HESSIAN_PARAMETERS} parameters (109 binary "
                f"units), got {n}: take solver 'lbfgs'."
            )
        return solver

    def _labels_of(self, X, missing=False):
        """Encode rows as category numbers, -1 where missing."""
        X = checked_table(self, X, reset=False, missing=missing)
        return codes(self, X, self.categories_)

    # --- files ----------------------------------------------------------------------------------

    def _saved(self):
        fitted, arrays = self._saved_fit()
        return fitted, arrays | {
            "rows": self._items()[0].astype(np.int16),
            "weights": self._row_weights(),
            "pairs": np.stack(self._objective.pairs, axis=1),
            "parameters": self._parameters,
        }

    def _restore(self, arrays):
        rows, d = self._restored_fit(arrays), self.n_features_in_
        pairs, parameters = self._parameters_in(arrays)
        place = pairs[:, 0] * d + pairs[:, 1]
        if (pairs[:, 0] >= pairs[:, 1]).any() or (np.diff(place) <= 0).any():
            raise ValueError("member 'pairs' must be pairs i < j of items, in their order.")
        self._objective = self._objective_of(*rows)
        if isinstance(self.l1, str):
            self._objective = self._objective.restricted(pairs)
        if len(parameters) != self._objective.n_parameters:
            raise ValueError(
                f"member 'parameters' must have {self._objective.n_parameters} numbers, got "
                f"{len(parameters)}."
            )
        self._set_parameters(parameters)

    def _parameters_in(self, arrays):
        pairs = arrays.member("pairs", "iu", (None, 2), low=0, high=self.n_features_in_ - 1)
        return pairs, arrays.member("parameters", "f", (None,), low=-np.inf)


class FullyVisibleBoltzmannMachine(PairwiseMachine):
    """Binary units with pairwise couplings, p(x) ~ exp(x'Jx / 2 + h'x) for x in {-1, +1}.

    Fitted by maximum pseudo-likelihood, the sum over units of the log-probability of each unit
    given all other units. A warning is issued if no maximum exists because the data are separable.

    Parameters
    ----------
    solver : {"auto", "newton", "lbfgs", "bslm", "firth"}
        "newton" converges in few iterations, "lbfgs" is for many units or `l1`, and "auto" chooses
        one of these. "bslm" uses the coordinate updates of Nguyen & Wood (2016). "firth" adds half
        the log-determinant of the Hessian to the objective (Firth 1993), for up to about 50 units;
        estimates are then finite under separation, unless units are linearly dependent.
    l1 : float, "ebic", "and", "or" or "cv"
        Penalty ``l1 sum |J_jk|`` per row, or selection of couplings along a path of penalties.
        "ebic": by the extended Bayesian information criterion for all couplings jointly. "and",
        "or": by this criterion for the regression of each unit on all other units, with couplings
        selected by both of their units or by at least one (van Borkulo et al. 2014). "cv": by
        ten-fold cross-validation. Selected couplings are refitted without `l1`; standard errors
        ignore the selection.
    l2 : float
        Penalty ``l2 (sum J_jk^2 + sum h_j^2) / 2`` per row. If positive, the maximum always exists.
    tol : float
        Tolerance in nats for 100,000 rows. The solver stops if the gain of an iteration is below
        tol ("bslm"), or the predicted gain below tol^2 ("newton") or tol / 100 ("lbfgs").
    max_iter : int or None
        None: 100 for "newton", 10,000 for "bslm", 1,000 for "lbfgs" and "firth".
    graph : array, SciPy sparse matrix, list of pairs, or graph of networkx, optional
        Pairs of units that may be coupled, by numbers or names of columns; default all. For the
        solvers "newton" and "lbfgs".
    ebic_gamma : float
        Weight of the number of units in the criterion of `l1`. With 0 it is the BIC; larger values
        select fewer couplings.
    missing : {"error", "drop", "available", "em"}
        "drop" omits rows with missing values. "available" uses the conditional probabilities of
        units that are observed together with all their neighbours in `graph`. Both are valid if
        values are missing completely at random. "em" sums over missing values by expectation
        maximisation, which is valid if values are missing at random, for up to 12 in a row.
    n_threads : int or None
        Threads of the compiled kernels; results do not depend on it.

    Attributes
    ----------
    couplings_ : array of shape (n_features, n_features)
        J for units in {-1, +1}, whatever the values of the data; symmetric with zero diagonal.
    field_ : array of shape (n_features,)
    model_ : BoltzmannMachine
        The machine with Ising units, for `fastmf.tap` and other solvers.
    categories_ : list of arrays of shape (2,)
        The two values of each column; the second is +1.
    existence_ : Existence
        `exists` (True: proved; False: disproved; None: not decided), the separated `units`, and a
        `message`.
    history_, n_iter_, converged_
        Penalised log-pseudo-likelihood after each iteration, number of iterations, and whether the
        stopping rule was met and the existence of the maximum is not disproved.
    graph_, path_
        Pairs of `graph`; `SelectionPath` of a selection by `l1` (not saved in files).
    n_missing_, n_dropped_, n_available_
        Number of missing values, number of rows omitted for them, and, for each unit, the weight of
        the rows that have a term for it.
    gradient_norm_ : float
        Largest absolute derivative per row at the estimate.

    Examples
    --------
    >>> import numpy as np, fastmf as mf
    >>> X = np.where(np.random.default_rng(0).random((200, 4)) < 0.3, 1, -1)
    >>> mf.FullyVisibleBoltzmannMachine().fit(X).couplings_.shape
    (4, 4)
    """

    # {0, 1} coding: x = 2 y - 1.
    _coupling_factor = 4.0
    _item_name = "units"
    _solvers = ("auto", "newton", "lbfgs", "bslm", "firth")

    def __init__(
        self, *, solver="auto", l1=0.0, l2=0.0, tol=1e-5, max_iter=None, graph=None,
        ebic_gamma=0.25, missing="error", n_threads=None,
    ):  # fmt: skip
        self._store(locals())

    # --- fitting --------------------------------------------------------------------------------

    def _learned_labels(self, X, used, declared):
        self.categories_ = two_categories(self, X, declared)
        return codes(self, X, self.categories_)

    @property
    def _seen_only(self):
        return not self.l2

    def _check_options(self):
        super()._check_options()
        solver = self.solver
        if solver == "firth" and (self.l1 or self.l2):
            raise ValueError("solver='firth' has a penalty of its own: it needs l1=0 and l2=0.")
        wrong = {
            f"missing={self.missing!r}": self.missing in ("em", "available"),
            "graph": self.graph is not None,
            f"l1={self.l1!r}": isinstance(self.l1, str),
        }
        if solver in ("bslm", "firth") and any(wrong.values()):
            raise ValueError(
                f"{max(wrong, key=wrong.get)} needs solver 'auto', 'newton' or 'lbfgs', got "
                f"{solver!r}: take solver='newton', with a small l2 where there is no maximum."
            )

    def _solved(self, solver, max_iter):
        objective, options = self._objective, {"tol": self._tol, "max_iter": max_iter}
        if solver == "bslm":
            return bslm(objective, [objective.independent()], l1=self._penalty_l1, **options)[0]
        if solver == "firth":
            return firth(objective, objective.independent(objective.total), **options)
        return super()._solved(solver, max_iter)

    def _set_parameters(self, parameters):
        """Set couplings, field and model from a vector of parameters."""
        self._parameters = parameters
        self.couplings_, self.field_ = self._objective.unpacked(parameters)
        self.model_ = BoltzmannMachine(self.couplings_, Ising(self.field_))
        self.gradient_norm_ = float(abs(self._objective.value_and_gradient(parameters)[1]).max())

    def _existence(self, parameters):
        if self.solver == "firth":
            return unique_with_firth(self._likely_objective())
        return super()._existence(parameters)

    # --- probabilities --------------------------------------------------------------------------

    def _log_conditionals(self, labels):
        rows = PseudoLikelihood(2.0 * labels - 1, n_threads=self.n_threads)
        return rows.residuals(self.couplings_, self.field_)[1] * len(labels)

    def _probabilities(self, labels):
        return expit(2 * ((2.0 * labels - 1) @ self.couplings_ + self.field_))

    def pmf(self, X=None):
        """Compute probabilities of rows by enumeration of all states; for up to 20 units.

        Parameters
        ----------
        X : array of shape (n_samples, n_features), optional
            Default: all 2^n_features rows, in which the first unit varies fastest.

        Returns
        -------
        array of shape (n_samples,) or (2^n_features,)
        """
        if 2**self.n_features_in_ > discrete.MAX_ENUMERATED_STATES:
            most = discrete.MAX_ENUMERATED_STATES.bit_length() - 1
            raise ValueError(
                f"pmf enumerates all states: at most {most} units, got {self.n_features_in_}."
            )
        probabilities = discrete.probabilities(self.model_)
        if X is None:
            return probabilities
        return probabilities[self._labels_of(X) @ (1 << np.arange(self.n_features_in_))]

    def _units_of(self, prior, labels):
        return np.where(labels < 0, np.nan, 2.0 * labels - 1)

    def _values_of(self, prior, means):
        return from_spins(means, self.categories_)

    def _rows_in(self, arrays):
        """Read labels of the rows; files of earlier versions hold a model, and rows as bits."""
        if "model" not in arrays:
            return super()._rows_in(arrays)
        n = self.n_features_in_
        bits = arrays.member("rows", "iu", (None, -(-n // 8)), np.uint8)
        seen = (
            arrays.member("seen", "iu", bits.shape, np.uint8) if "seen" in arrays else ~(0 * bits)
        )
        labels, seen = (np.unpackbits(b, axis=1, count=n).astype(np.int64) for b in (bits, seen))
        return np.where(seen == 1, labels, -1)

    def _parameters_in(self, arrays):
        if "model" not in arrays:
            return super()._parameters_in(arrays)
        couplings, field = self._model_from(arrays).couplings, arrays["prior.field"]
        check_n_features(self, {len(field)})
        chosen, edges = isinstance(self.l1, str), self._edges()
        pairs = np.argwhere(np.triu(couplings)) if chosen else edges
        pairs = np.transpose(np.triu_indices(len(field), 1)) if pairs is None else pairs
        return pairs, np.concatenate([field, couplings[tuple(np.transpose(pairs))]])

    def _objective_of(self, labels, weights):
        states = np.array([-1.0, 1.0, 0.0])[labels]  # labels of missing values are -1
        return PseudoLikelihood(states, weights, float(self.l2), self.n_threads, self._edges())

    @property
    def n_available_(self):
        """Weight of the rows that have a term for the conditional probability of each unit."""
        return self._row_weights() @ (self._objective.targets != 0)

    def _items(self):
        """Return the rows as items with the categories 0 and 1, and their thresholds."""
        states = self._objective.states
        return np.where(states == 0, -1, states > 0), Thresholds(np.full(states.shape[1], 2))

    # --- codings --------------------------------------------------------------------------------

    def in_coding(self, coding):
        """Convert couplings and field to a coding of the units.

        Parameters
        ----------
        coding : {"01", "-1+1"}
            "01": p(y) ~ exp(y'Sy / 2 + m'y) for y in {0, 1}, with S = 4 J and
            m_i = 2 h_i - 2 sum_j J_ij. "-1+1": J and h, as in `couplings_` and `field_`.

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
        one_of("coding", coding, CODINGS)
        if coding == "-1+1":
            return self.couplings_.copy(), self.field_.copy()
        return 4 * self.couplings_, 2 * self.field_ - 2 * self.couplings_.sum(1)


class OrdinalMachine(PairwiseMachine):
    """Ordinal items with all pairs coupled, p(x) ~ exp(sum_ij sigma_ij x_i x_j + sum_i mu_i(x_i)).

    Items have the scores x_i = 0..m_i, and the first sum is over pairs i < j (Marsman et al.,
    Psychometrika 90, 2025). Fitted by maximum pseudo-likelihood, the sum over items of the
    log-probability of each item given all other items. With two categories it is the Ising model in
    {0, 1} coding: sigma = 4 J and mu = 2 h_i - 2 sum_j J_ij of `FullyVisibleBoltzmannMachine`.

    Parameters
    ----------
    n_categories : int, sequence of int of length n_features, or None
        Number of categories of all items or of each item. Codes are 0, 1, ... if any entry of the
        table is 0, otherwise 1, 2, .... None: all integers from the smallest to the largest of each
        column; strings in numerical order if they are numbers, otherwise in alphabetical order,
        or the listed order of categorical columns (with a warning if there are more than two
        categories and the column is not declared as ordered).
    thresholds : {"free", "blume_capel"}
        One threshold mu_i(c) for each category c > 0, or mu_i(c) = alpha_i c + beta_i c^2.
    l1 : float, "ebic", "and", "or" or "cv"
        Penalty ``l1 sum |sigma_ij|`` per row, or selection of couplings, as in
        `FullyVisibleBoltzmannMachine`.
    l2, l2_field : float
        Penalties ``(l2 sum sigma_ij^2 + l2_field sum theta_k^2) / 2`` per row, on couplings and on
        the parameters theta of thresholds. If both are positive, the maximum always exists.
    missing : {"error", "drop", "available", "em"}
        As in `FullyVisibleBoltzmannMachine`, with all pairs coupled, so that "available" is "drop".
        "em" is for rows with up to 4,096 completions.
    ebic_gamma : float
        As in `FullyVisibleBoltzmannMachine`.
    solver : {"auto", "newton", "lbfgs"}
        "newton" converges in few iterations; "lbfgs" is for many parameters, or `l1`.
    tol : float
        The solver stops if the predicted gain of the log-pseudo-likelihood of 100,000 rows is below
        tol^2 ("newton") or tol / 100 ("lbfgs"), in nats.
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
        The values of each item, in the order of their scores.
    n_categories_ : int array of shape (n_features,)
    model_ : BoltzmannMachine
        The machine with `Ordinal` units, for `fastmf.tap` and other solvers.
    log_pseudo_likelihood_ : float
        Log-pseudo-likelihood of the data, per unit of weight and without penalties.
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
        # Unused rows may have further categories, which are ignored.
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
        """Return the objective for rows of labels."""
        thresholds = Thresholds(self.n_categories_, self.thresholds)
        return OrdinalLikelihood(
            rows, weights, thresholds, l2=float(self.l2), l2_field=float(self.l2_field),
            n_threads=self.n_threads,
        )  # fmt: skip

    def _items(self):
        """Return the rows and the thresholds of their items."""
        return self._objective.states, self._objective.thresholds

    def _set_parameters(self, parameters):
        """Set couplings and thresholds from the vector of all parameters."""
        self._parameters = parameters
        self.couplings_, fields = self._objective.unpacked(parameters)
        self.thresholds_ = self._fields_of(fields)
        value = self._objective.log_likelihood(parameters)
        self.log_pseudo_likelihood_ = value / self._objective.total

    def _by_item(self, values):
        """Split values of all thresholds by item."""
        return np.split(values, np.cumsum(self.n_categories_ - 1)[:-1])

    @property
    def n_categories_(self):
        """Number of categories of each item."""
        return self._sizes

    # --- models ---------------------------------------------------------------------------------

    @property
    def model_(self):
        """The machine as a `BoltzmannMachine` with `Ordinal` units, for `fastmf.tap`."""
        fields = self._parameters[: self._objective.n_fields]
        table = self._objective.thresholds.table(fields, -np.inf).T
        return BoltzmannMachine(self.couplings_, Ordinal(table))

    def _unit_model(self):
        """Return the machine with one state for each category of each item."""
        score = np.concatenate([np.arange(float(q)) for q in self.n_categories_])
        item = np.repeat(np.arange(len(self.n_categories_)), self.n_categories_)
        couplings = self.couplings_[np.ix_(item, item)] * np.outer(score, score)
        field = [np.append(0.0, mu) for mu in self.thresholds_]
        return BoltzmannMachine(couplings, Categorical(field))

    # --- rows -----------------------------------------------------------------------------------

    def _conditionals(self, scores):
        """Call `OrdinalLikelihood.conditionals` for rows of scores."""
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
