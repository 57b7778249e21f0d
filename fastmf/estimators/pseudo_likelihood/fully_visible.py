"""Fully visible Boltzmann machines by maximum pseudo-likelihood, as a scikit-learn estimator."""

from functools import partial

import numpy as np

from fastmf._common.arguments import number, one_of, row_weights
from fastmf.estimators.common.categories import checked_table, declared_categories
from fastmf.estimators.common.missing_codes import warn_of_missing_codes
from fastmf.estimators.pseudo_likelihood._fully_visible import BaseFullyVisibleBoltzmannMachine
from fastmf.estimators.pseudo_likelihood._observed import check_terms, observed
from fastmf.estimators.pseudo_likelihood._spins import to_spins, two_categories
from fastmf.learning.pseudo_likelihood import lbfgs, newton
from fastmf.learning.pseudo_likelihood.binary import firth, solvers
from fastmf.learning.pseudo_likelihood.binary.distinct_rows import WeightedRows, distinct_rows
from fastmf.learning.pseudo_likelihood.binary.inverse_ising import tap_inversion
from fastmf.learning.pseudo_likelihood.existence import Existence
from fastmf.learning.pseudo_likelihood.fit import (
    TOLERANCE_ROWS,
    few_blas_threads,
)
from fastmf.models import BoltzmannMachine
from fastmf.priors import Ising

_SOLVERS = ("auto", "bslm", "gradient", "newton", "lbfgs", "tap_inversion")
_SOLVERS_OF_GRAPHS = ("auto", "newton", "lbfgs", "gradient")
_MAX_ITER_OF_SOLVER = dict.fromkeys(("bslm", "gradient"), solvers.MAX_ASCENT_ITER) | {
    "newton": newton.MAX_NEWTON_ITER,
    "lbfgs": lbfgs.MAX_LBFGS_ITER,
}


class FullyVisibleBoltzmannMachine(BaseFullyVisibleBoltzmannMachine):
    """Binary units with all pairs coupled, p(x) ~ exp(x'Jx / 2 + h'x) for x in {-1, +1}.

    Fitted by maximum pseudo-likelihood: the sum over units of the log-probability of each given all
    others. Equal rows are counted, not repeated, and whether the maximum exists is decided: where
    data separate units (some are determined by the others) it does not, and the fit warns.

    Parameters
    ----------
    solver : str
        - "newton": few steps to machine precision; "lbfgs": for many units, or with `l1`; "auto"
          chooses between the two.
        - "bslm": the coordinate updates of Nguyen & Wood (2016), in their order.
        - "gradient": all coordinates at once, 1 / n_features times the updates of "bslm".
        - "tap_inversion": no maximisation, but the inversion of the TAP equations, which needs
          means and covariances only (to whose diagonal `l2` is added).
    penalty : {None, "firth"}
        "firth" adds half the log-determinant of the Hessian (Firth 1993), which keeps estimates
        finite under separation, unless units depend on each other linearly, as in very few rows;
        for up to some 50 units, by scoring with quasi-Newton corrections. Where data are separated
        the penalised function can have several maxima, of which `init` selects one.
    l1 : float, "ebic" or "cv"
        Penalty ``l1 sum |J_jk|`` per row; errors and tests are then those of a fit of the non-zero
        couplings without it. "ebic" chooses couplings along a path of penalties by the extended
        Bayesian information criterion, "cv" by cross-validation in ten parts, which keeps more;
        both fit the chosen couplings again without `l1`. Errors and tests treat chosen couplings as
        known, so that errors are too small.
    l2 : float
        Penalty ``l2 (sum J_jk^2 + sum h_j^2) / 2`` per row, over pairs jk and units j. With it the
        maximum always exists.
    init : "auto" or (couplings, field)
        Where to start; "auto" is at uncoupled units. For coordinate updates from zero, as is usual
        with Nguyen & Wood's, give `(np.zeros((d, d)), np.zeros(d))`.
    tol : float
        "bslm" and "gradient" stop when an iteration raises the log-pseudo-likelihood of 100,000
        rows by no more (the paper's tau for that many; not a bound on the distance to the maximum).
        "newton" stops when the predicted rise is below tol^2, "lbfgs" below tol / 100. How many
        rows there are makes no difference, and neither does a factor of all weights.
    max_iter : int or None
        None: 10,000 for "bslm" and "gradient", 100 for "newton", 1,000 for "lbfgs".
    threshold : float or None
        Numbers above become +1, all others -1. None refuses data that have more than two values.
    graph : array, SciPy sparse matrix, list of pairs, or graph of networkx, optional
        Units that may be coupled: an adjacency matrix of shape (n_features, n_features), pairs of
        shape (n_edges, 2), or a graph with `nodes` and `edges`, whose units are numbers of columns
        or their names; a data frame must name them in their order. All other couplings are exactly
        0, and errors and tests are those of the couplings that are there. For the solvers "newton",
        "lbfgs" and "gradient".
    ebic_gamma : float
        Weight of the number of units in "ebic": 0 is BIC, and more leaves out more couplings.
    rule : {None, "and", "or"}
        With `l1="ebic"`, None selects all couplings together. "and" and "or" regress each unit on
        all others along a path of penalties of its own, and couple two if each is chosen for the
        other, or if one is: the procedure of IsingFit (van Borkulo et al. 2014), but for a fit of
        the chosen couplings together, without a penalty. Penalties `l2` are those of that fit.
    missing : {"error", "drop", "available", "em"}
        Whether `fit` refuses missing values; leaves out rows that have some; takes available cases,
        the conditional probabilities of the units that were seen in a row together with all their
        neighbours in `graph`, which without `graph` are all others, so that it is "drop"; or sums
        over what missing values may be, by expectation and maximisation (see Notes). "drop" and
        "available" are right where values are missing completely at random, "em" also where they
        are missing at random. Errors take what is missing into account. Rows of more than 12
        missing values are left out by "em", with a warning.
    weights : {"counts", "sampling"}
        Whether weights say how many rows each row stands for, or are those of a survey: each row is
        then one observation, whose score is multiplied by its weight.
    n_threads : int or None
        Threads of the compiled kernels and of products of matrices; results do not depend on it.
        BLAS has one thread, if threadpoolctl is installed, but for Hessians of 3,000 parameters (77
        units) or more.
    verbose : bool
        Whether a selection of couplings by `l1` shows on stderr how far it is.

    Attributes
    ----------
    couplings_ : array of shape (n_features, n_features)
        J, symmetric with zero diagonal, of units in {-1, +1} whatever the data's values.
    field_ : array of shape (n_features,)
    model_ : BoltzmannMachine
        The same with Ising units, for `fastmf.tap` and other solvers.
    categories_ : list of arrays of shape (2,)
        The two values of each column, of which the second is +1: data are converted, and results
        back.
    history_ : array of shape (n_iterations,)
        Log-pseudo-likelihood of all rows together, less penalties, after each iteration.
    n_iter_ : int
        At least 1: a start at the maximum is found to be there by one iteration.
    converged_ : bool
        Whether the solver stopped by its own rule, and the maximum is not disproved.
    existence_ : Existence
        `exists` (True: proved; False: disproved; None: not decided), the separated `units`, and a
        `message`.
    graph_ : int array of shape (n_edges, 2)
        The pairs of units of `graph`; only with it.
    n_missing_, n_dropped_ : int
        Missing values, and rows that were left out for them: of available cases, those without any.
    n_available_ : array of shape (n_features,)
        Weight of the rows that have a part in the conditional probability of each unit.
    path_ : SelectionPath
        With `l1="ebic"` or "cv" (not in files): penalties, numbers of couplings,
        log-pseudo-likelihoods and criteria of the path, and which graph was `chosen`; with `rule`
        a column for each unit, of the regression on the others.
    gradient_norm_ : float
        Largest absolute derivative per row of the log-pseudo-likelihood, less the penalty `l2`,
        where the solver stopped; not zero at the maximum with `l1` or Firth's penalty.
    n_features_in_ : int

    Warns
    -----
    ConvergenceWarning
        If the maximum does not exist, if that could not be decided, or if iterations ran out.
    UserWarning
        If rows with too many missing values are left out.

    Notes
    -----
    Computed in double precision. Memory is one copy of the distinct rows, beside the data; with
    "newton" also tables of at most 64 MB and some three matrices of n_parameters^2 numbers, where
    n_parameters is n_features (n_features + 1) / 2, and the same for `covariance` (6,000
    parameters, or 109 units, at most). All standard errors of larger machines take two such
    matrices, those of single couplings one more copy of the rows (`standard_errors`).

    With `missing="em"` the score of the pseudo-likelihood is zero in the mean over what incomplete
    rows may be, given what is seen of them: an unbiased equation, unlike the pseudo-likelihood of
    what is seen given what is seen. It takes all that was seen, available cases only what was seen
    together with all neighbours, at the cost of a complete fit, and with any number of missing
    values in a row. Penalties are per row that has an available case.

    Nguyen & Wood, "A block successive lower-bound maximization algorithm for the maximum
    pseudo-likelihood estimation of fully visible Boltzmann machines", Neural Computation 28 (2016).

    Examples
    --------
    >>> import numpy as np, fastmf as mf
    >>> X = np.where(np.random.default_rng(0).random((200, 4)) < 0.3, 1, -1)
    >>> machine = mf.FullyVisibleBoltzmannMachine().fit(X)
    >>> bool(machine.converged_), machine.couplings_.shape
    (True, (4, 4))
    """

    def __init__(
        self, *, solver="auto", penalty=None, l1=0.0, l2=0.0, init="auto", tol=1e-5,
        max_iter=None, threshold=None, graph=None, ebic_gamma=0.25, rule=None, missing="error",
        weights="counts", n_threads=None, verbose=False,
    ):  # fmt: skip
        self._store(locals())

    # --- fitting --------------------------------------------------------------------------------

    def fit(self, X, y=None, sample_weight=None, clusters=None):
        """Estimate couplings and field.

        Parameters
        ----------
        X : array of shape (n_samples, n_features)
            Two values in each column: -1 and +1, 0 and 1, two other numbers, booleans, two strings
            or pandas' categories, in their order (others are sorted). A column of a single value
            has both values of other columns in which it occurs.
        y : ignored
        sample_weight : array of shape (n_samples,), optional
            How many rows each row stands for. A factor of all weights changes no estimate but those
            with Firth's penalty, and divides the variances of errors.
        clusters : array of shape (n_samples,), optional
            Labels of what was sampled independently, such as persons with several rows each: for
            errors, tests and bootstraps.

        Returns
        -------
        self

        Examples
        --------
        >>> import numpy as np, fastmf as mf
        >>> rng = np.random.default_rng(0)
        >>> X = np.cumprod(np.where(rng.random((500, 4)) < 0.75, 1, -1), axis=1)  # a Markov chain
        >>> machine = mf.FullyVisibleBoltzmannMachine().fit(X)
        >>> bool(machine.converged_), abs(machine.couplings_[0, 1] - np.arctanh(0.5)) < 0.1
        (True, np.True_)
        """
        solver = self._checked_solver()
        declared = declared_categories(X)
        X = checked_table(self, X, reset=True, missing=self.missing != "error")
        if self.threshold is None:
            self.categories_ = two_categories(self, X, declared)
        else:
            self.categories_ = [np.array([-1.0, 1.0])] * X.shape[1]
            warn_of_missing_codes(self, X)
        states = to_spins(self, X, self.categories_, self.threshold)
        # The largest matrix that is factorised has a row for each field and coupling.
        n_units = states.shape[1]
        order = n_units * (n_units + 1) // 2 if solver == "newton" else 0
        with few_blas_threads(order):
            rows = self._observed(states, sample_weight, clusters)
            self._objective = self._objective_of(rows)
            if isinstance(self.l1, str):
                self._select_couplings()
            if solver == "tap_inversion":
                self._invert()
            else:
                self._maximise(solver)
            self._parameters = self._objective.packed(self.couplings_, self.field_)
            # Solvers that need gradients have left this one.
            gradient = self._objective.value_and_gradient(self._parameters, once=True)[1]
        self.gradient_norm_ = float(abs(gradient).max())
        self.model_ = BoltzmannMachine(self.couplings_, Ising(self.field_))
        return self

    def _observed(self, states, sample_weight, clusters):
        """Distinct rows, complete ones where values are missing."""
        self._sampling = self._completions = None
        self.n_missing_ = self.n_dropped_ = 0
        weights = row_weights(sample_weight, len(states))
        absent = np.isnan(states)
        if not absent.any() and clusters is None and self.weights == "counts":
            return distinct_rows(states, weights)
        labels = np.where(absent, -1, states > 0).astype(np.int64)
        weights = np.ones(len(states)) if weights is None else weights
        options, edges = (self.missing, self.weights), self._edges()
        sizes = np.full(states.shape[1], 2)
        found = observed(
            labels, weights, sizes, options, clusters, seen_only=not self.l2, edges=edges
        )
        self._sampling, self._completions = found.sampling, found.completions
        self.n_missing_, self.n_dropped_ = found.n_missing, found.n_dropped
        rows = WeightedRows.of_labels(found.labels, found.weights, edges)
        check_terms(self, (rows.own != 0).any(0))
        return rows

    def _checked_solver(self):
        solver = one_of("solver", self.solver, _SOLVERS)
        one_of("penalty", self.penalty, (None, "firth"))
        self._check_selection()
        self._check_numbers("l2")
        by_gradient = solver in ("auto", "newton", "lbfgs") and not self.penalty
        if self.missing in ("em", "available") and not by_gradient:
            raise ValueError(
                f"missing={self.missing!r} needs solver 'auto', 'newton' or 'lbfgs', and "
                f"penalty=None, got {solver!r} and penalty={self.penalty!r}."
            )
        if self.threshold is not None:
            number("threshold", self.threshold, -np.inf, np.inf)
        if isinstance(self.init, str):
            one_of("init", self.init, ("auto",))
        if self.penalty == "firth" and (solver not in ("auto", "newton") or self.l1 or self.l2):
            raise ValueError("penalty='firth' needs solver 'auto' or 'newton', without l1 and l2.")
        if self.graph is not None and (self.penalty or solver not in _SOLVERS_OF_GRAPHS):
            raise ValueError(
                f"graph needs solver {', '.join(map(repr, _SOLVERS_OF_GRAPHS))}, and penalty=None, "
                f"got {solver!r} and penalty={self.penalty!r}. Other solvers step in all pairs at "
                "once, and Firth's penalty is of all: take solver='newton', with a small l2 where "
                "there is no maximum."
            )
        if self._penalty_l1 and solver not in ("auto", "bslm", "lbfgs"):
            raise ValueError(f"l1 needs solver 'auto', 'bslm' or 'lbfgs', got {solver!r}.")
        if isinstance(self.l1, str) and solver not in _SOLVERS_OF_GRAPHS:
            raise ValueError(
                f"l1={self.l1!r} needs solver {', '.join(map(repr, _SOLVERS_OF_GRAPHS))}, "
                f"got {solver!r}."
            )
        return solver

    def _maximise(self, solver):
        objective = self._objective
        solver = self._chosen_solver(solver, by_newton=self.penalty == "firth")
        options = {
            "tol": self._tol,
            "max_iter": self.max_iter or _MAX_ITER_OF_SOLVER[solver],
        }
        start = self._start()
        if solver == "bslm":
            (found,) = solvers.bslm(objective, [start], l1=self._penalty_l1, **options)
        elif solver == "gradient":
            found = solvers.gradient_ascent(objective, start, **options)
        elif self.penalty == "firth":
            found = firth.firth_scoring(objective, start, **options)
        else:
            solve = partial(newton.newton, **options)
            if solver == "lbfgs":
                solve = partial(lbfgs.lbfgs, l1=self._penalty_l1, **options)
            found = self._maximised(solve, start)
        self.couplings_, self.field_ = objective.unpacked(found.parameters)
        self._keep_fit(found, options["max_iter"])

    def _existence(self, parameters):
        if self.penalty == "firth":
            return firth.unique_with_firth(self._likely_objective())
        return super()._existence(parameters)

    def _invert(self):
        objective = self._objective
        covariance = objective.second - np.outer(objective.mean, objective.mean)
        covariance[np.diag_indices_from(covariance)] += self.l2
        self.couplings_, self.field_ = tap_inversion(objective.mean, covariance)
        parameters = objective.packed(self.couplings_, self.field_)
        value = objective.value_and_gradient(parameters, once=True)[0]
        self.history_ = np.array([objective.total * value])
        self.n_iter_, self.converged_, self.existence_ = 1, True, Existence(None)

    def _start(self):
        if isinstance(self.init, str):
            n_rows = self._objective.total if self.penalty == "firth" else TOLERANCE_ROWS
            return self._objective.independent(n_rows)
        if not isinstance(self.init, tuple) or len(self.init) != 2:
            raise TypeError(f"init must be 'auto' or (couplings, field), got {self.init!r:.40}.")
        couplings, field = self.init
        d = self._objective.n_units
        field = np.asarray(field, float)
        if field.shape != (d,):
            raise ValueError(f"init: the field must have shape ({d},), got {field.shape}.")
        model = BoltzmannMachine(np.asarray(couplings, float), Ising(field))
        return self._objective.packed(model.couplings, model.prior.field)
