"""Fully visible Boltzmann machines by maximum pseudo-likelihood."""

import numpy as np
from scipy.special import expit

from fastmf._common.arguments import one_of
from fastmf.estimators.common.categories import codes, from_spins, two_categories
from fastmf.estimators.common.files import check_n_features
from fastmf.estimators.pseudo_likelihood._base import PairwiseMachine
from fastmf.inference.sampling import discrete
from fastmf.learning.pseudo_likelihood.binary import (
    PseudoLikelihood,
    bslm,
    firth,
    unique_with_firth,
)
from fastmf.learning.pseudo_likelihood.ordinal import Thresholds
from fastmf.models import BoltzmannMachine
from fastmf.priors import Ising

CODINGS = ("01", "-1+1")


class FullyVisibleBoltzmannMachine(PairwiseMachine):
    """Binary units with pairwise couplings, p(x) ~ exp(x'Jx / 2 + h'x) for x in {-1, +1}.

    Fitted by maximum pseudo-likelihood: the sum over units of the log-probability of each given all
    others. A fit warns where the data separate units, so that no maximum exists.

    Parameters
    ----------
    solver : {"auto", "newton", "lbfgs", "bslm", "firth"}
        "newton" takes few steps to machine precision, "lbfgs" is for many units or `l1`, and "auto"
        chooses between the two. "bslm" makes the coordinate updates of Nguyen & Wood (2016).
        "firth" adds half the log-determinant of the Hessian to the objective (Firth 1993), for up
        to some 50 units: estimates are then finite under separation, unless units depend on each
        other linearly.
    l1 : float, "ebic", "and", "or" or "cv"
        Penalty ``l1 sum |J_jk|`` per row, or selection of couplings along a path of penalties: by
        the extended Bayesian information criterion of all couplings together ("ebic") or of the
        regressions of each unit on all others, where both units of a coupling must select it
        ("and"), or one of them ("or"; van Borkulo et al. 2014); or by ten-fold cross-validation.
        Selected couplings are fitted again without `l1`. Errors treat the selection as known.
    l2 : float
        Penalty ``l2 (sum J_jk^2 + sum h_j^2) / 2`` per row. With it the maximum always exists.
    tol : float
        Tolerance in nats of 100,000 rows: of the gain of an iteration ("bslm"), or of the predicted
        gain, below tol^2 ("newton") or tol / 100 ("lbfgs").
    max_iter : int or None
        None: 100 for "newton", 10,000 for "bslm", 1,000 for "lbfgs" and "firth".
    graph : array, SciPy sparse matrix, list of pairs, or graph of networkx, optional
        Pairs of units that may be coupled, by numbers or names of columns; default all. For the
        solvers "newton" and "lbfgs".
    ebic_gamma : float
        Weight of the number of units in the criterion of `l1`: 0 is BIC, and more leaves out more
        couplings.
    missing : {"error", "drop", "available", "em"}
        "drop" leaves out rows with missing values. "available" keeps the conditional probabilities
        of units seen together with all their neighbours in `graph`. Both are right where values
        are missing completely at random. "em" sums over the missing values by expectation and
        maximisation, right where they are missing at random, for up to 12 in a row.
    n_threads : int or None
        Threads of the compiled kernels; results do not depend on it.

    Attributes
    ----------
    couplings_ : array of shape (n_features, n_features)
        J, symmetric with zero diagonal, of units in {-1, +1} whatever the data's values.
    field_ : array of shape (n_features,)
    model_ : BoltzmannMachine
        The same with Ising units, for `fastmf.tap` and other solvers.
    categories_ : list of arrays of shape (2,)
        The two values of each column; the second is +1.
    existence_ : Existence
        `exists` (True: proved; False: disproved; None: not decided), the separated `units`, and a
        `message`.
    history_, n_iter_, converged_
        Penalised log-pseudo-likelihood after each iteration, their number, and whether the solver
        stopped by its own rule at a maximum that is not disproved.
    graph_, path_
        Pairs of `graph`; `SelectionPath` of a selection by `l1` (not in files).
    n_missing_, n_dropped_, n_available_
        Missing values, rows that were left out for them, and weight of the rows with a term of each
        unit.
    gradient_norm_ : float
        Largest absolute derivative per row where the solver stopped.

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
            start = objective.independent()
            return bslm(objective, [start], l1=self._penalty_l1, **options)[0]
        if solver == "firth":
            return firth(objective, objective.independent(objective.total), **options)
        return super()._solved(solver, max_iter)

    def _set_parameters(self, parameters):
        """Couplings and field, and the model, of a vector of parameters."""
        self._parameters = parameters
        self.couplings_, self.field_ = self._objective.unpacked(parameters)
        self.model_ = BoltzmannMachine(self.couplings_, Ising(self.field_))
        gradient = self._objective.value_and_gradient(parameters)[1]
        self.gradient_norm_ = float(abs(gradient).max())

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
        """Probabilities of rows, by enumeration of all states; up to 20 units.

        Parameters
        ----------
        X : array of shape (n_samples, n_features), optional
            Default all 2^n_features rows, the first unit alternating fastest.

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
        """Labels of the rows; files of earlier versions have a model, and rows as bits."""
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
        states = np.where(labels < 0, 0, 2.0 * labels - 1)
        return PseudoLikelihood(states, weights, float(self.l2), self.n_threads, self._edges())

    @property
    def n_available_(self):
        """Weight of the rows that have a part in the conditional probability of each unit."""
        return self._row_weights() @ (self._objective.targets != 0)

    def _items(self):
        """The rows as items with the categories 0 and 1, and their thresholds."""
        states = self._objective.states
        return np.where(states == 0, -1, states > 0), Thresholds(np.full(states.shape[1], 2))

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
        one_of("coding", coding, CODINGS)
        if coding == "-1+1":
            return self.couplings_.copy(), self.field_.copy()
        return 4 * self.couplings_, 2 * self.field_ - 2 * self.couplings_.sum(1)
