"""Potts machines by maximum pseudo-likelihood (direct coupling analysis)."""

from functools import partial

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from fastmf._common.arguments import number, one_of, row_weights
from fastmf._common.progress import reported
from fastmf._common.warning import warn_user
from fastmf.estimators.common.categories import checked_table, declared_categories
from fastmf.estimators.common.labels import coded_labels, position_categories
from fastmf.estimators.common.missing_codes import CODES, warn_of_missing_codes
from fastmf.estimators.pseudo_likelihood._observed import check_terms, summable
from fastmf.estimators.pseudo_likelihood._potts_machine import BasePottsMachine
from fastmf.learning.pseudo_likelihood.available import available
from fastmf.learning.pseudo_likelihood.existence import Existence, decided
from fastmf.learning.pseudo_likelihood.graph import absent_pairs
from fastmf.learning.pseudo_likelihood.missing import Completions
from fastmf.learning.pseudo_likelihood.newton import MAX_NEWTON_ITER, newton
from fastmf.learning.pseudo_likelihood.potts import fitting
from fastmf.learning.pseudo_likelihood.potts.couplings import DenseCouplings
from fastmf.learning.pseudo_likelihood.potts.dense import MAX_PARAMETERS
from fastmf.learning.pseudo_likelihood.potts.mean_field import naive_mean_field
from fastmf.learning.pseudo_likelihood.potts.objective import PottsData
from fastmf.learning.pseudo_likelihood.rows import distinct

_POTTS_SOLVERS = ("auto", "lbfgs", "newton", "naive_mean_field")


class PottsMachine(BasePottsMachine):
    """Categorical positions, all pairs coupled: p(x) ~ exp(sum_ij J_ij(x_i, x_j) + sum_i h_i(x_i)).

    Fitted by maximum pseudo-likelihood: the sum over positions of the log-probability of each given
    all others. With sequences it is what direct coupling analysis fits.

    Parameters
    ----------
    n_states : int, sequence of int of length n_groups, or None
        States of all or of each position, whose labels are 0, 1, ... None: labels up to the largest
        one of all positions, from 0, or from 1 if no label is 0; of other numbers and of strings,
        the values in the data (see `categories_`). For an alignment give the number of its letters,
        as one may not occur.
    l2, l2_field : float
        Penalty per unit of weight, ``(l2 sum_{i<j} |J_ij|^2 + l2_field sum_i |h_i|^2) / 2``. plmc
        penalises the whole data without the half: for its lambda_e (``-le``) and lambda_h (``-lh``)
        give ``l2 = 2 * lambda_e / sum(weights)`` and ``l2_field = 2 * lambda_h / sum(weights)``.
        Both are 0 by default. Without `l2` real alignments have no maximum; ``l2_field = l2`` is a
        good start, as contacts are found worse where fields are hardly penalised.
    solver : {"auto", "lbfgs", "newton", "naive_mean_field"}
        - "lbfgs" ("auto" is the same): beyond 500,000 parameters in single precision.
        - "newton": in double precision, to high accuracy, for up to 4,000 parameters.
        - "naive_mean_field": no maximisation, the inverse of the covariance matrix (mean-field
          DCA), to whose diagonal `l2` is added. Missing labels are left out of each pair's
          frequencies.
    symmetric : bool
        False: each position is fitted alone, with couplings of its own and half the penalty
        (PlmDCA's asymmetric objective), and the two estimates of each coupling are averaged. It
        takes less memory.
    pseudocount : float
        Fraction of a uniform distribution, in [0, 1), that is mixed with frequencies; for the
        solver "naive_mean_field" only. Morcos et al. take 0.5.
    tol : float
        Ends when the rise of the log-pseudo-likelihood of 100,000 rows, less penalties, that is
        predicted for the next step is less, or too small to be told from rounding errors. With as
        many rows a parameter that is wrong by its standard error costs about half a unit. How many
        rows there are makes no difference, and neither does a factor of all weights.
    max_iter : int or None
        None: 1,000 for "lbfgs", 100 for "newton".
    graph : array, SciPy sparse matrix, list of pairs, or graph of networkx, optional
        Positions that may be coupled: an adjacency matrix of shape (n_groups, n_groups), pairs of
        shape (n_edges, 2), or a graph with `nodes` and `edges`, whose positions are numbers of
        columns or their names; a data frame must name them in their order. All other couplings are
        exactly 0, and errors and tests are those of the couplings that are there. It needs
        `symmetric`.
    missing : {"absent", "available", "em"}
        "absent" leaves missing labels out: such a position has no term of its own, and no part in
        the probabilities of others, which is biased where the graph has loops. "available" takes
        available cases, the terms of positions that were seen in a row together with all their
        neighbours in `graph`, which without `graph` are all others, so that rows are complete ones:
        it is right where labels are missing completely at random, for up to 4,000 parameters by
        Newton's method, and `symmetric`. "em", for the same, sums over what they may be, by
        expectation and maximisation, which is right where labels are missing at random, and errors
        take what is missing into account: see `FullyVisibleBoltzmannMachine`. Rows with more than
        4,096 completions are left out, with a warning.
    n_threads : int or None
        Threads of the compiled kernels; results do not depend on it.
    verbose : bool
        Whether the iteration of L-BFGS is shown on stderr every few seconds.

    Attributes
    ----------
    couplings_ : array of shape (n_groups, q, n_groups, q)
        J as estimated, symmetric, zero within positions; (n_states, n_states) if positions have
        different numbers of states. Made at each access where there are few rows.
    field_ : array of shape (n_groups, q), or (n_states,)
    categories_ : list of arrays
        The values that the states of each position stand for. For strings, and numbers that begin
        neither with 0 nor with 1, the sorted values in the data, together of all positions that
        have one in common, such as the letters of sequences; of columns of pandas' categorical
        type, its categories.
    sizes_ : int array of shape (n_groups,)
        States of each position.
    model_ : BoltzmannMachine
        The same with `Categorical` units, for `fastmf.tap` and other solvers.
    log_pseudo_likelihood_ : float
        Log-pseudo-likelihood of the data, per unit of weight and without penalties.
    existence_ : Existence
        `exists` (True: proved; False: disproved; None: not decided), the separated `units`, and a
        `message`.
    history_ : array of shape (n_iter,)
        Log-pseudo-likelihood of the data less penalties after each iteration.
    n_iter_ : int
    converged_ : bool
        Whether the solver stopped by its own rule, and the maximum is not disproved.
    graph_ : int array of shape (n_edges, 2)
        The pairs of positions of `graph`; only with it.
    n_missing_, n_dropped_ : int
        Missing labels, and rows that "em" left out for them, of which nothing is "available", or
        without any label.
    n_available_ : array of shape (n_groups,)
        Weight of the rows that have a part in the conditional probability of each position.
    n_features_in_ : int
        Number of positions.

    Warns
    -----
    ConvergenceWarning
        If the maximum does not exist, if that could not be decided, or if iterations ran out.

    Notes
    -----
    Memory of the symmetric fit is some ten matrices of n_states^2 numbers, where n_states counts
    the states of all positions. Where there are fewer than a quarter as many distinct rows, and
    `l2` is positive, couplings have the form of sums over rows, and nothing of that size is made:
    `contact_scores`, `score_samples`, `energy` and `mutants` make the couplings of a position at a
    time or none; `couplings_`, `model_`, `sample`, `impute` and `in_gauge` all of them.

    References: Ekeberg et al., "Improved contact prediction in proteins: using pseudolikelihoods to
    infer Potts models", Physical Review E 87 (2013); Morcos et al., PNAS 108 (2011).

    Examples
    --------
    >>> import numpy as np, fastmf as mf
    >>> rng = np.random.default_rng(0)
    >>> X = rng.integers(0, 3, (500, 5))
    >>> X[:, 3] = np.where(rng.random(500) < 0.7, X[:, 1], X[:, 3])
    >>> machine = mf.PottsMachine(l2=0.01, l2_field=0.01).fit(X)
    >>> scores = machine.contact_scores()
    >>> [int(i) for i in np.unravel_index(scores.argmax(), scores.shape)]
    [1, 3]
    """

    def __init__(
        self, *, n_states=None, l2=0.0, l2_field=0.0, solver="auto", symmetric=True,
        pseudocount=0.0, tol=1e-4, max_iter=None, graph=None, missing="absent",
        n_threads=None, verbose=False,
    ):  # fmt: skip
        self._store(locals())

    def fit(self, X, y=None, sample_weight=None):
        """Estimate couplings and field.

        Parameters
        ----------
        X : array or data frame of shape (n_samples, n_groups)
            Labels, of which negative ones, or NaN, are missing, or strings, with None where they
            are.
        y : ignored
        sample_weight : array of shape (n_samples,), optional
            Such as `fastmf.datasets.sequence_weights` gives.

        Returns
        -------
        self

        Examples
        --------
        >>> import numpy as np, fastmf as mf
        >>> X = np.random.default_rng(0).integers(0, 3, (200, 4))
        >>> machine = mf.PottsMachine(l2=0.1, l2_field=0.1).fit(X)
        >>> machine.couplings_.shape, machine.converged_
        ((4, 3, 4, 3), True)
        """
        self._check_options()
        declared = declared_categories(X)
        X = checked_table(self, X, reset=True, missing=True)
        if not declared:
            # Negative labels are missing.
            warn_of_missing_codes(self, X, codes=[code for code in CODES if code > 0])
        self.categories_ = position_categories(self, X, self.n_states, declared)
        labels = coded_labels(self, X, self.categories_)
        weights = row_weights(1.0 if sample_weight is None else sample_weight, len(labels))
        self.sizes_ = np.array([len(known) for known in self.categories_])
        self._first = np.cumsum(self.sizes_) - self.sizes_
        self.n_missing_ = int((labels < 0).sum())
        self._observe(labels, weights)
        self._model = None
        if self.solver == "naive_mean_field":
            self._invert(PottsData(self._labels, self._weights, self.sizes_, self.n_threads))
        else:
            self._maximise()
        self.n_iter_ = len(self.history_)
        return self

    def _observe(self, labels, weights):
        """Keep the rows of the fit, or what they may be."""
        self._labels, self._weights, self.n_dropped_ = labels, weights, 0
        self._sampling = self._completions = None
        if not self.n_missing_:
            return
        if self.missing == "available":
            terms = available(labels, self._edges())
            check_terms(self, terms[weights > 0].any(0))
            kept = terms.any(1)
        elif self.missing == "em":
            kept = summable(labels, self.sizes_, self._edges())
        else:
            kept = (labels >= 0).any(1)
        self.n_dropped_ = int((~kept).sum())
        kept &= weights > 0
        if not kept.any():
            if self.missing == "absent":
                return
            raise ValueError("X must have a row with labels, of positive weight.")
        self._labels, self._weights = labels[kept], weights[kept]
        if self.missing == "em":
            self._completions = Completions.of(
                self._labels, self._weights, self.sizes_, seen_only=not self.l2_field
            )
            self._labels, self._weights = self._completions.states, self._completions.weights

    def _check_options(self):
        one_of("solver", self.solver, _POTTS_SOLVERS)
        one_of("missing", self.missing, ("absent", "available", "em"))
        if not isinstance(self.symmetric, bool | np.bool_):
            raise TypeError(f"symmetric must be True or False, got {self.symmetric!r:.40}.")
        by_newton = self.solver in ("auto", "newton") and self.symmetric
        if self.missing != "absent" and not by_newton:
            raise ValueError(
                f"missing={self.missing!r} needs solver 'auto' or 'newton', and symmetric=True, "
                f"got {self.solver!r} and symmetric={self.symmetric!r}."
            )
        self._check_numbers("l2", "l2_field")
        number("pseudocount", self.pseudocount, 0, 1, below=True)
        if self.pseudocount and self.solver != "naive_mean_field":
            raise ValueError("pseudocount is for solver='naive_mean_field'; give l2 instead.")
        if self.graph is not None and (self.solver == "naive_mean_field" or not self.symmetric):
            raise ValueError(
                "graph needs a maximum of the symmetric pseudo-likelihood: symmetric=True and "
                f"solver 'auto', 'lbfgs' or 'newton', got {self.solver!r} and symmetric="
                f"{self.symmetric}."
            )
        if not self.symmetric and self.solver == "newton":
            raise ValueError("solver 'newton' is for symmetric=True: take 'lbfgs'.")

    def _maximise(self):
        rows = self._labels, self._weights
        if self._completions is None:
            rows = distinct(*rows)[:2]
        self._objective = self._dense_objective(*rows)
        incomplete = self._objective.targets is not self._objective.labels
        if self.solver == "newton" or incomplete or self._completions is not None:
            stopped = self._by_newton()
        else:
            stopped = self._by_lbfgs(*rows)
        self._objective = None
        self.converged_ = stopped and self.existence_.exists is not False
        self._warn(stopped)

    def _by_newton(self):
        """Fit by Newton's method in all parameters; return whether it stopped."""
        self._objective.check_size()
        solve = partial(
            newton, tol=min(float(self.tol), 1e-5), max_iter=self.max_iter or MAX_NEWTON_ITER
        )
        fit = self._maximised(solve, self._objective.independent())
        if self._completions is not None:
            self._weights = self._completions.weights
        couplings, self._field = self._objective.unpacked(fit.parameters)
        self._couplings = DenseCouplings(couplings, self.sizes_)
        self.history_ = np.array(fit.history)
        value = self._objective.log_likelihood(fit.parameters)
        self.log_pseudo_likelihood_ = float(value / self._objective.total)
        self.existence_ = self._existence(fit.parameters)
        return fit.stopped

    def _by_lbfgs(self, labels, weights):
        """Fit by L-BFGS in scaled coordinates; return whether it stopped."""
        data = PottsData(labels, weights, self.sizes_, self.n_threads)
        options = fitting.Options(
            float(self.l2), float(self.l2_field), bool(self.symmetric), float(self.tol),
            self.max_iter, report=reported(self.verbose),
        )  # fmt: skip
        absent = None if self.graph is None else absent_pairs(self._edges(), len(self.sizes_))
        fit = fitting.fit(data, options, absent)
        self._couplings, self._field, self.history_ = fit.couplings, fit.field, fit.history
        value = fitting.log_pseudo_likelihood(data, fit.couplings, fit.field)
        self.log_pseudo_likelihood_ = value / data.total
        objective, point, refine = self._objective, None, None

        def better(_):
            exact = options._replace(tol=1e-9, max_iter=None, single=False)
            fit = fitting.fit(data, exact, absent)
            return objective.packed(fit.couplings.dense(), fit.field)

        if not self.l2 and self.symmetric:
            point = objective.packed(fit.couplings.dense(), fit.field)
            refine = better if objective.n_parameters > MAX_PARAMETERS else None
        self.existence_ = decided(objective, point, refine=refine)
        return fit.converged

    def _warn(self, stopped):
        message = self.existence_.message
        if self.existence_.units and self.n_missing_ and self.missing == "absent":
            message += (
                f"; {self.n_missing_} labels are missing, and rows without a label are told from "
                "others: missing='em' takes them as unknown"
            )
        elif not self.existence_.units and not stopped:
            message = (
                f"stopped after {len(self.history_)} iterations before `tol` was reached: raise "
                "max_iter or give a larger tol" + (f"; {message}" if message else "")
            )
        if message:
            warn_user(f"{message}.", ConvergenceWarning)

    def _invert(self, data):
        couplings, self._field = naive_mean_field(
            data.labels, data.weights / data.total, self.sizes_, float(self.pseudocount),
            float(self.l2),
        )  # fmt: skip
        self._couplings = DenseCouplings(couplings, self.sizes_)
        self.existence_, self.converged_ = Existence(None), True
        value = fitting.log_pseudo_likelihood(data, self._couplings, self._field)
        self.history_, self.log_pseudo_likelihood_ = np.array([value]), value / data.total
