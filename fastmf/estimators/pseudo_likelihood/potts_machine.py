"""Potts machines by maximum pseudo-likelihood (direct coupling analysis)."""

from functools import partial

import numpy as np
from scipy import sparse

from fastmf._common.arguments import count, flag, one_of
from fastmf._common.progress import reported
from fastmf.estimators.common.categories import checked_table, coded_labels, position_categories
from fastmf.estimators.common.data import CODES, warn_of_missing_codes
from fastmf.estimators.common.runs import warn_of_convergence
from fastmf.estimators.networks.network import Network
from fastmf.estimators.pseudo_likelihood._base import ItemMachine, labels_from
from fastmf.evaluation.contacts import contact_scores
from fastmf.learning import chains
from fastmf.learning.pseudo_likelihood.existence import Existence, decided
from fastmf.learning.pseudo_likelihood.fit import MAX_HESSIAN_PARAMETERS, MAX_ITER, newton
from fastmf.learning.pseudo_likelihood.potts import fitting
from fastmf.learning.pseudo_likelihood.potts.couplings import (
    naive_mean_field,
    of_coefficients,
    one_hot,
)
from fastmf.learning.pseudo_likelihood.potts.dense import DenseObjective
from fastmf.learning.pseudo_likelihood.potts.objective import PottsData
from fastmf.learning.pseudo_likelihood.rows import distinct, target_labels
from fastmf.models import BoltzmannMachine
from fastmf.models._gauge import GAUGES, PositionStates, in_gauge
from fastmf.models._io import model_to_arrays
from fastmf.priors import Categorical


class PottsMachine(Network, ItemMachine):
    """Categorical positions, all pairs coupled: p(x) ~ exp(sum_ij J_ij(x_i, x_j) + sum_i h_i(x_i)).

    Fitted by maximum pseudo-likelihood, the sum over positions of the log-probability of each
    position given all other positions. For sequences this is direct coupling analysis (Ekeberg et
    al., Physical Review E 87, 2013).

    Parameters
    ----------
    n_states : int, sequence of int of length n_groups, or None
        Number of states of all or of each position, with labels 0, 1, ... None: integer labels from
        0, or from 1 if no label is 0, to the largest one; other numbers and strings: the values in
        the data. For an alignment, give the size of its alphabet, as a letter may be absent.
    l2, l2_field : float
        Penalty per unit of weight, ``(l2 sum_{i<j} |J_ij|^2 + l2_field sum_i |h_i|^2) / 2``. plmc's
        penalty refers to the sum over the data, without the factor 1/2: its lambda_e (``-le``) is
        ``l2 = 2 * lambda_e / sum(weights)``, and its lambda_h (``-lh``) is ``l2_field = 2 *
        lambda_h / sum(weights)``. Alignments need `l2`; ``l2_field = l2`` is a good start.
    solver : {"auto", "lbfgs", "newton", "asymmetric", "naive_mean_field", "likelihood"}
        "lbfgs" (also "auto") uses single precision beyond 500,000 parameters. "newton" is more
        precise, for up to 6,000 parameters. "asymmetric" fits each position separately, with half
        the penalty, and averages the two estimates of each coupling (PlmDCA); it needs less memory.
        "naive_mean_field" inverts a covariance matrix, to whose diagonal `l2` is added (Morcos et
        al., PNAS 108, 2011); its pseudocount of 1/2 halves weak couplings, but keeps their order.
        "likelihood" is for generating samples: it starts at the pseudo-likelihood estimate and
        maximises the likelihood with 1,000 persistent Gibbs chains (bmDCA; Figliuzzi et al. 2018).
    tol : float
        Stop if the predicted gain of the penalised log-pseudo-likelihood of 100,000 rows is less,
        or within rounding errors.
    max_iter : int or None
        None: 1,000 for "lbfgs" and "asymmetric", 300 steps for "likelihood", 100 for "newton".
    graph : array, SciPy sparse matrix, list of pairs, or graph of networkx, optional
        Pairs of positions that may be coupled, by numbers or names of columns; default all. For
        "lbfgs", "newton" and "likelihood".
    missing : {"absent", "available", "em"}
        "absent" omits missing labels from all terms, which is biased if the graph has loops.
        "available" and "em" are as in `FullyVisibleBoltzmannMachine`, by Newton's method; "em" is
        for rows with up to 4,096 completions.
    n_threads : int or None
        Threads of the compiled kernels; results do not depend on it.
    verbose : bool
        Show the iteration of L-BFGS on stderr every few seconds.

    Attributes
    ----------
    couplings_ : array of shape (n_groups, q, n_groups, q)
        J as estimated, symmetric, zero within positions; (n_states, n_states) if positions have
        different numbers of states.
    field_ : array of shape (n_groups, q), or (n_states,)
    categories_ : list of arrays
        The values of the states of each position. For strings and other numbers, positions with a
        common value share the sorted list of their values; or the categories of a pandas column.
    sizes_ : int array of shape (n_groups,)
        States of each position.
    model_ : BoltzmannMachine
        The machine with `Categorical` units, for `fastmf.tap` and other solvers.
    log_pseudo_likelihood_ : float
        Log-pseudo-likelihood of the data, per unit of weight and without penalties.
    memory_ : float or None
        With "likelihood", the fraction of positions at which a chain is the same half-way and at
        the end of the fit, in excess of different chains: near 0 if chains decorrelate; `fit` warns
        above 1/e. `history_` has the correlations between the covariances of chains and data.
    existence_, history_, n_iter_, converged_, graph_, n_missing_, n_dropped_, n_available_
        As in `FullyVisibleBoltzmannMachine`.

    Examples
    --------
    >>> import numpy as np, fastmf as mf
    >>> rng = np.random.default_rng(0)
    >>> X = rng.integers(0, 3, (500, 5))
    >>> X[:, 3] = np.where(rng.random(500) < 0.7, X[:, 1], X[:, 3])
    >>> scores = mf.PottsMachine(l2=0.01, l2_field=0.01).fit(X).contact_scores()
    >>> [int(i) for i in np.unravel_index(scores.argmax(), scores.shape)]
    [1, 3]
    """

    _models = ("BoltzmannMachine",)
    # The log-odds ratio of two states of either position has twice the deviation of a contrast.
    _prior_factor = 2.0
    _item_name = "positions"
    _solvers = ("auto", "lbfgs", "newton", "asymmetric", "naive_mean_field", "likelihood")
    _missing = ("absent", "available", "em")
    _member = "labels"
    memory_ = None  # of files of earlier versions

    def __init__(
        self, *, n_states=None, l2=0.0, l2_field=0.0, solver="auto", tol=1e-4,
        max_iter=None, graph=None, missing="absent", n_threads=None, verbose=False,
    ):  # fmt: skip
        self._store(locals())

    def fit(self, X, y=None, sample_weight=None):
        """Estimate couplings and field.

        Parameters
        ----------
        X : array or data frame of shape (n_samples, n_groups)
            Labels, negative or NaN if missing, or strings, None if missing.
        y : ignored
        sample_weight : array of shape (n_samples,), optional
            For example, the result of `fastmf.datasets.sequence_weights`.
        """
        self.memory_ = None
        rows = self._labels, self._weights = self._observed(X, sample_weight, merge=False)
        if self._completions is None:
            rows = distinct(*rows)[:2]
        self._objective = self._objective_of(*rows)
        solver = "lbfgs" if self.solver == "auto" else self.solver
        if self._objective.incomplete or self._completions is not None:
            solver = "newton"
        max_iter = self._iterations(solver)
        if solver == "newton":
            fit, existence = self._by_newton(max_iter)
        else:
            data = PottsData(*rows, self.sizes_, self.n_threads)
            fit, existence = self._without_hessian(solver, data, max_iter)
            J, h = fit.couplings, fit.field
            if solver == "lbfgs":
                penalty = self.l2 / 4 * np.vdot(J, J) + self.l2_field / 2 * (h @ h)
                self.log_pseudo_likelihood_ = float(fit.history[-1] / data.total + penalty)
            else:
                self.log_pseudo_likelihood_ = fitting.log_pseudo_likelihood(data, J, h)
        self._couplings, self._field, self._objective = fit.couplings, fit.field, None
        self._keep_fit(fit, existence, max_iter)
        self.converged_ &= self.memory_ is None or self.memory_ <= np.exp(-1)
        return self

    def _learned_labels(self, X, used, declared):
        if not declared:
            # Negative labels are missing.
            warn_of_missing_codes(self, X, codes=[code for code in CODES if code > 0])
        self.categories_ = position_categories(self, X, self.n_states, declared)
        return coded_labels(self, X, self.categories_)

    @property
    def _seen_only(self):
        return not self.l2_field

    def _check_options(self):
        super()._check_options()
        if self.missing != "absent" and self.solver not in ("auto", "newton"):
            raise ValueError(
                f"missing={self.missing!r} needs solver 'auto' or 'newton', got {self.solver!r}."
            )
        flag("verbose", self.verbose)
        if self.graph is not None and self.solver in ("asymmetric", "naive_mean_field"):
            raise ValueError(
                f"graph needs solver 'auto', 'lbfgs', 'newton', 'likelihood', got {self.solver!r}."
            )

    @property
    def _tol(self):
        """Tolerance of Newton's method."""
        return min(float(self.tol), 1e-5)

    @property
    def _symmetric(self):
        """Whether the fit has one coupling matrix, rather than one for each position."""
        return self.solver != "asymmetric"

    def _by_newton(self, max_iter):
        """Fit all parameters by Newton's method; return the fit and its `Existence`."""
        self._objective.check_size()
        solve = partial(newton, tol=self._tol, max_iter=max_iter)
        fit = self._maximised(solve, self._objective.independent())
        if self._completions is not None:
            self._weights = self._completions.weights
        couplings, field = self._objective.unpacked(fit.parameters)
        value = self._objective.log_likelihood(fit.parameters)
        self.log_pseudo_likelihood_ = float(value / self._objective.total)
        fit = fitting.PottsFit(couplings, field, *fit[1:])
        return fit, self._existence(self._objective.packed(couplings, field))

    def _without_hessian(self, solver, data, max_iter):
        """Fit by a solver other than Newton's method; return the fit and its `Existence`."""
        if solver == "naive_mean_field":
            shares = data.weights / data.total
            couplings, field = naive_mean_field(
                data.labels, shares, self.sizes_, 0.5, float(self.l2)
            )
            value = fitting.log_pseudo_likelihood(data, couplings, field)
            history = np.array([value * data.total])
            return fitting.PottsFit(couplings, field, history, True), Existence(None)
        by_chains = solver == "likelihood"
        options = fitting.Options(
            float(self.l2), float(self.l2_field), self._symmetric, float(self.tol),
            MAX_ITER if by_chains else max_iter, report=reported(self.verbose),
        )  # fmt: skip
        edges, objective, point, refine = self._edges(), self._objective, None, None
        fit = fitting.fit(data, options, edges)

        def better(_):
            exact = options._replace(tol=1e-9, max_iter=MAX_ITER, single=False)
            fit = fitting.fit(data, exact, edges)
            return objective.packed(fit.couplings, fit.field)

        if not self.l2 and self._symmetric:
            point = objective.packed(fit.couplings, fit.field)
            refine = better if objective.n_parameters > MAX_HESSIAN_PARAMETERS else None
        existence = decided(objective, point, refine=refine)
        if not by_chains:
            return fit, existence
        options = options._replace(report=reported(self.verbose, chains.ChainSteps.label))
        model = self._model_of(fit.couplings, fit.field)
        fit, self.memory_ = chains.fit(model, data, options, max_iter, edges)
        if self.memory_ > np.exp(-1):
            warn_of_convergence(
                f"chains have not renewed: half-way they have {self.memory_:.0%} of their end in "
                "common. Raise max_iter, or l2."
            )
        return fit, existence

    # --- parameters -----------------------------------------------------------------------------

    @property
    def couplings_(self):
        """Couplings as estimated; (n_groups, q, n_groups, q), or flat if sizes are unequal."""
        return self._by_position(self._couplings, 2)

    @property
    def field_(self):
        """Fields as estimated; (n_groups, q), or flat if sizes are unequal."""
        return self._by_position(self._field, 1)

    @property
    def model_(self):
        """The machine as a `BoltzmannMachine` with `Categorical` units, for `fastmf.tap`."""
        return self._model_of(self._couplings, self._field)

    def _model_of(self, couplings, field):
        state = np.concatenate([np.arange(q) for q in self.sizes_])
        return BoltzmannMachine(couplings, Categorical(field, state))

    @property
    def sizes_(self):
        """States of each position."""
        return self._sizes

    def _by_position(self, array, n_axes):
        """Split the last axes into positions and states if all positions have one size."""
        sizes = self.sizes_
        if (sizes != sizes[0]).any():
            return array
        return array.reshape(*array.shape[: array.ndim - n_axes], *(len(sizes), sizes[0]) * n_axes)

    def in_gauge(self, gauge, reference=0):
        """Transform couplings and field to a gauge, which leaves probabilities unchanged.

        Parameters
        ----------
        gauge : {"zero-sum", "lattice"}
            "zero-sum": means over the states of a position are zero. "lattice": all parameters of
            a reference state are zero.
        reference : int, default 0
            The reference state of "lattice": its index in `categories_`.

        Returns
        -------
        couplings : array of shape (n_groups, q, n_groups, q)
            Flat, (n_states, n_states), if positions have different numbers of states.
        field : array of shape (n_groups, q)
        """
        one_of("gauge", gauge, GAUGES)
        count("reference", reference, 0)
        result = in_gauge(self._couplings, self._field, self.sizes_, gauge, reference)
        return self._by_position(result[0], 2), self._by_position(result[1], 1)

    def contact_scores(self, gauge="zero-sum", ignore=None, apc=True):
        """Compute the Frobenius norms of the couplings of all pairs of positions.

        Parameters
        ----------
        gauge : {"zero-sum", None}, default "zero-sum"
            None: couplings as estimated, as in plmc.
        ignore : int, optional
            Index of a state, such as the gap, that is omitted from the norms.
        apc : bool, default True
            Average product correction: subtract ``F_i. F_.j / F_..`` (Dunn, Wahl & Gloor 2008).

        Returns
        -------
        array of shape (n_groups, n_groups)
            Symmetric, with zero diagonal.
        """
        return contact_scores(self._couplings, gauge, ignore, apc, sizes=self.sizes_)

    # --- rows of the fit ------------------------------------------------------------------------

    def _objective_of(self, labels, weights):
        """Return the objective of rows as a function of all fields and couplings."""
        edges, targets = self._edges(), None
        if self.missing == "available" and (labels < 0).any():
            targets = target_labels(labels, edges)
        return DenseObjective(
            labels, weights, self.sizes_, float(self.l2), float(self.l2_field), edges, targets,
            self._symmetric,
        )  # fmt: skip

    @property
    def n_available_(self):
        """Weight of the rows that have a term for the conditional probability of each position."""
        return self._weights @ (self._objective_of(self._labels, self._weights).targets >= 0)

    # --- errors, tests and edges ----------------------------------------------------------------

    def _at_maximum(self):
        if self.solver in ("asymmetric", "naive_mean_field", "likelihood"):
            raise ValueError(
                "standard errors are for the symmetric pseudo-likelihood: fit with another solver."
            )
        objective = self._objective_of(self._labels, self._weights)
        objective.check_size()
        parameters = objective.packed(self._couplings, self._field)
        if self._completions is None:
            sampling = np.square(objective.weights)
        else:
            sampling = sparse.diags_array(self._completions.row_weights / objective.total)
        return objective, parameters, sampling

    def standard_errors(self, gauge="zero-sum"):
        """Compute standard errors from the sandwich (Godambe) covariance.

        Parameters
        ----------
        gauge : {"zero-sum", "lattice", None}, default "zero-sum"
            The gauge of the parameters ("lattice" has the reference state 0); None: the parameters
            as estimated.

        Returns
        -------
        couplings : array of shape (n_groups, q, n_groups, q)
        field : array of shape (n_groups, q)
            Both flat if positions have different numbers of states.

        Raises
        ------
        ValueError
            If there is no maximum, the solver is "asymmetric", "naive_mean_field" or "likelihood",
            or there are more than 6,000 parameters.

        Notes
        -----
        A row of weight w counts as one observation whose score is multiplied by w, which is right
        for weights of similar sequences. For frequency weights, repeat the rows instead.
        """
        one_of("gauge", gauge, (*GAUGES, None))
        godambe = self._godambe()
        couplings, field = godambe.objective.errors_in_gauge(godambe.covariance(), gauge)
        return self._by_position(couplings, 2), self._by_position(field, 1)

    def _counted_rows(self):
        """Return labels, counts (all 1) and weights of the rows of the fit."""
        if self._completions is not None:
            raise ValueError(
                "a permutation test is for rows as they were seen: fit with missing='absent' or "
                "'available'."
            )
        return np.maximum(self._labels, -1), np.ones(len(self._labels), int), self._weights

    def _unpacked_contrasts(self, objective, contrasts):
        """Return a function from contrasts to couplings in the zero-sum gauge."""

        def unpacked(values):
            return self._by_position(objective.unpacked(contrasts.T @ values)[0], 2)

        return unpacked

    # --- probabilities --------------------------------------------------------------------------

    def _labels_of(self, X, missing=True):
        X = checked_table(self, X, reset=False, missing=True)
        labels = coded_labels(self, X, self.categories_)
        if not missing and (labels < 0).any():
            raise ValueError("X must have no missing labels here: `impute` them first.")
        return labels

    def _at_labels(self, array, labels):
        """Select the entries of flat rows at the labels; zero for missing labels."""
        states = PositionStates(self.sizes_).first + np.maximum(labels, 0)
        return np.where(labels >= 0, np.take_along_axis(array, states, axis=1), 0.0)

    def _local_fields(self, labels):
        return one_hot(labels, self.sizes_) @ self._couplings + self._field

    def _log_conditionals(self, labels):
        return fitting.score_of(self._local_fields(labels), labels, self.sizes_)

    def _probabilities(self, labels):
        return PositionStates(self.sizes_).softmax(self._local_fields(labels))

    def energy(self, X):
        """Compute the energy -x'Jx / 2 - h'x; missing positions contribute nothing.

        Parameters
        ----------
        X : int array of shape (n_samples, n_groups)

        Returns
        -------
        array of shape (n_samples,)
        """
        labels = self._labels_of(X)
        halves = one_hot(labels, self.sizes_) @ self._couplings / 2 + self._field
        return -self._at_labels(halves, labels).sum(1)

    def mutants(self, X):
        """Compute the changes of log-probability by all substitutions at a single position.

        Parameters
        ----------
        X : int array of shape (n_groups,) or (n_samples, n_groups)
            Without missing labels.

        Returns
        -------
        array of shape (n_groups, q) or (n_samples, n_groups, q)
            log p(x with state b at position i) - log p(x). The last two axes are merged into one
            if positions have different numbers of states.
        """
        single = np.ndim(X) == 1
        labels = self._labels_of(np.asarray(X)[None] if single else X, missing=False)
        fields = self._local_fields(labels)
        change = fields - np.repeat(self._at_labels(fields, labels), self.sizes_, axis=1)
        change = self._by_position(change, 1)
        return change[0] if single else change

    # --- files ----------------------------------------------------------------------------------

    def _saved(self):
        fitted, arrays = self._saved_fit("log_pseudo_likelihood_", "memory_")
        arrays |= {
            "labels": self._labels.astype(np.int16),
            "weights": self._weights,
            "flat_field": self._field,
        }
        return fitted, arrays | model_to_arrays(self.model_)

    def _restore(self, arrays):
        self._labels, self._weights = self._restored_fit(arrays)
        n_states = int(self.sizes_.sum())
        self._field = arrays.member("flat_field", "f", (n_states,), low=-np.inf)
        if "coefficients" in arrays:  # of earlier versions
            rows = labels_from("coefficient_rows", arrays, self.sizes_)
            coefficients = arrays.member("coefficients", "f", (len(rows), n_states), low=-np.inf)
            self._couplings = of_coefficients(coefficients, rows, self.sizes_)
            return
        model = self._model_from(arrays)
        if model.n_units != n_states:
            raise ValueError(f"its model must have {n_states} units, got {model.n_units}.")
        self._couplings = model.couplings
