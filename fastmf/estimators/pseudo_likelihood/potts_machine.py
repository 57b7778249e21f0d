"""Potts machines by maximum pseudo-likelihood (direct coupling analysis)."""

from functools import partial

import numpy as np
from scipy import sparse
from scipy.special import softmax
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted

from fastmf._common.arguments import count, flag, one_of, row_weights
from fastmf._common.progress import reported
from fastmf._common.warning import warn_user
from fastmf.estimators.common.categories import (
    checked_table,
    coded_labels,
    declared_categories,
    position_categories,
)
from fastmf.estimators.common.rows import CODES, warn_of_missing_codes
from fastmf.estimators.networks.network import Network
from fastmf.estimators.networks.resampling import PooledRows
from fastmf.estimators.pseudo_likelihood._base import (
    ItemMachine,
    labels_from,
    observe,
    restored_rows,
)
from fastmf.learning import chains
from fastmf.learning.pseudo_likelihood.existence import Existence, decided
from fastmf.learning.pseudo_likelihood.fit import MAX_HESSIAN_PARAMETERS, MAX_ITER
from fastmf.learning.pseudo_likelihood.graph import absent_pairs
from fastmf.learning.pseudo_likelihood.newton import newton
from fastmf.learning.pseudo_likelihood.potts import contacts, fitting
from fastmf.learning.pseudo_likelihood.potts.couplings import DenseCouplings, OfFewRows
from fastmf.learning.pseudo_likelihood.potts.dense import DenseObjective
from fastmf.learning.pseudo_likelihood.potts.mean_field import naive_mean_field
from fastmf.learning.pseudo_likelihood.potts.objective import PottsData
from fastmf.learning.pseudo_likelihood.rows import distinct, target_labels
from fastmf.models import BoltzmannMachine
from fastmf.models._gauge import GAUGES, in_gauge
from fastmf.models._io import model_to_arrays
from fastmf.priors import Categorical

_POTTS_SOLVERS = ("auto", "lbfgs", "newton", "asymmetric", "naive_mean_field", "likelihood")


class PottsMachine(Network, ItemMachine):
    """Categorical positions, all pairs coupled: p(x) ~ exp(sum_ij J_ij(x_i, x_j) + sum_i h_i(x_i)).

    Fitted by maximum pseudo-likelihood: the sum over positions of the log-probability of each given
    all others. With sequences it is what direct coupling analysis fits (Ekeberg et al., Physical
    Review E 87, 2013).

    Parameters
    ----------
    n_states : int, sequence of int of length n_groups, or None
        States of all or of each position, whose labels are 0, 1, ... None: labels up to the largest
        of all positions, from 0, or from 1 if no label is 0; of other numbers and of strings, the
        values in the data. For an alignment give the number of its letters, as one may not occur.
    l2, l2_field : float
        Penalty per unit of weight, ``(l2 sum_{i<j} |J_ij|^2 + l2_field sum_i |h_i|^2) / 2``. plmc
        penalises the whole data without the half: for its lambda_e (``-le``) and lambda_h (``-lh``)
        give ``l2 = 2 * lambda_e / sum(weights)`` and ``l2_field = 2 * lambda_h / sum(weights)``.
        Alignments need `l2`; ``l2_field = l2`` is a good start.
    solver : {"auto", "lbfgs", "newton", "asymmetric", "naive_mean_field", "likelihood"}
        "lbfgs" ("auto" is the same) computes in single precision beyond 500,000 parameters.
        "newton" is exact, for up to 6,000 parameters. "asymmetric" fits each position alone, with
        couplings of its own and half the penalty, and averages the two estimates of each coupling
        (PlmDCA); it takes less memory. "naive_mean_field" inverts a covariance matrix, to whose
        diagonal `l2` is added (Morcos et al., PNAS 108, 2011): half of its frequencies are uniform,
        which halves weak couplings and leaves the order of contacts. "likelihood" is for samples
        like the data: from the pseudo-likelihood it ascends the likelihood itself by 1,000
        persistent Gibbs chains, which start from rows (bmDCA; Figliuzzi et al. 2018).
    tol : float
        Ends when the predicted rise of the penalised log-pseudo-likelihood of 100,000 rows is less,
        or too small to be told from rounding errors.
    max_iter : int or None
        None: 1,000 for "lbfgs" and "asymmetric", 300 steps for "likelihood", 100 for "newton".
    graph : array, SciPy sparse matrix, list of pairs, or graph of networkx, optional
        Pairs of positions that may be coupled, by numbers or names of columns; default all. For
        "lbfgs", "newton" and "likelihood".
    missing : {"absent", "available", "em"}
        "absent" leaves missing labels out of all terms, which is biased where the graph has loops.
        "available" and "em" are as in `FullyVisibleBoltzmannMachine`, by Newton's method; "em" is
        for rows of up to 4,096 completions.
    n_threads : int or None
        Threads of the compiled kernels; results do not depend on it.
    verbose : bool
        Whether the iteration of L-BFGS is shown on stderr every few seconds.

    Attributes
    ----------
    couplings_ : array of shape (n_groups, q, n_groups, q)
        J as estimated, symmetric, zero within positions; (n_states, n_states) if positions have
        different numbers of states. With 20 times more states than rows, and `l2`, it is made at
        each access; `contact_scores`, `score_samples`, `energy` and `mutants` do not need it.
    field_ : array of shape (n_groups, q), or (n_states,)
    categories_ : list of arrays
        The values of the states of each position: of strings and other numbers the sorted values of
        all positions that have one in common, or the categories of a pandas column.
    sizes_ : int array of shape (n_groups,)
        States of each position.
    model_ : BoltzmannMachine
        The same with `Categorical` units, for `fastmf.tap` and other solvers.
    log_pseudo_likelihood_ : float
        Log-pseudo-likelihood of the data, per unit of weight and without penalties.
    memory_ : float or None
        With "likelihood", the share of equal positions of a chain half-way and at the end of the
        fit, beyond the share in different chains: near 0 where chains have renewed. Above 1/e
        `fit` warns. `history_` has the correlations of the covariances of chains and data.
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
            Labels, missing where negative or NaN, or strings, missing where None.
        y : ignored
        sample_weight : array of shape (n_samples,), optional
            Such as `fastmf.datasets.sequence_weights` gives.
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
        self.sizes_, self.memory_ = np.array([len(listed) for listed in self.categories_]), None
        self._first = np.cumsum(self.sizes_) - self.sizes_
        self._labels, self._weights = observe(
            self, labels, weights, self.sizes_, seen_only=not self.l2_field, edges=self._edges(),
            merge=False,
        )  # fmt: skip
        rows = self._labels, self._weights
        if self._completions is None:
            rows = distinct(*rows)[:2]
        self._objective, max_iter = self._dense_objective(*rows), self.max_iter or MAX_ITER
        data = PottsData(*rows, self.sizes_, self.n_threads)
        if self.solver == "naive_mean_field":
            fit, existence = self._inverted(data)
        elif self.solver == "likelihood":
            max_iter = self.max_iter or 300
            fit, existence = self._by_chains(data, max_iter)
        elif self.solver == "newton" or self._objective.incomplete or self._completions is not None:
            max_iter = self.max_iter or MAX_ITER // 10
            fit, existence = self._by_newton(max_iter)
        else:
            fit, existence = self._by_lbfgs(data, max_iter)
        self._couplings, self._field, self._objective = fit.couplings, fit.field, None
        self._keep_fit(fit, existence, max_iter)
        self.converged_ &= self.memory_ is None or self.memory_ <= np.exp(-1)
        return self

    def _check_options(self):
        one_of("solver", self.solver, _POTTS_SOLVERS)
        one_of("missing", self.missing, ("absent", "available", "em"))
        if self.missing != "absent" and self.solver not in ("auto", "newton"):
            raise ValueError(
                f"missing={self.missing!r} needs solver 'auto' or 'newton', got {self.solver!r}."
            )
        self._check_numbers("l2", "l2_field")
        flag("verbose", self.verbose)
        if self.graph is not None and self.solver in ("asymmetric", "naive_mean_field"):
            raise ValueError(
                f"graph needs solver 'auto', 'lbfgs', 'newton', 'likelihood', got {self.solver!r}."
            )

    @property
    def _symmetric(self):
        """Whether positions share their couplings in the fit."""
        return self.solver != "asymmetric"

    def _by_newton(self, max_iter):
        """Fit by Newton's method in all parameters, and `Existence` of the maximum."""
        self._objective.check_size()
        solve = partial(newton, tol=min(float(self.tol), 1e-5), max_iter=max_iter)
        fit = self._maximised(solve, self._objective.independent())
        if self._completions is not None:
            self._weights = self._completions.weights
        couplings, field = self._objective.unpacked(fit.parameters)
        value = self._objective.log_likelihood(fit.parameters)
        self.log_pseudo_likelihood_ = float(value / self._objective.total)
        fit = fitting.PottsFit(DenseCouplings(couplings, self.sizes_), field, *fit[1:])
        return fit, self._existence(self._objective.packed(couplings, field))

    def _by_lbfgs(self, data, max_iter):
        """Fit by L-BFGS in scaled coordinates, and `Existence` of the maximum."""
        options = fitting.Options(
            float(self.l2), float(self.l2_field), self._symmetric, float(self.tol), max_iter,
            report=reported(self.verbose),
        )  # fmt: skip
        absent = None if self.graph is None else absent_pairs(self._edges(), len(self.sizes_))
        fit = fitting.fit(data, options, absent)
        self.log_pseudo_likelihood_ = fitting.log_pseudo_likelihood(data, fit.couplings, fit.field)
        objective, point, refine = self._objective, None, None

        def better(_):
            exact = options._replace(tol=1e-9, max_iter=MAX_ITER, single=False)
            fit = fitting.fit(data, exact, absent)
            return objective.packed(fit.couplings.dense(), fit.field)

        if not self.l2 and self._symmetric:
            point = objective.packed(fit.couplings.dense(), fit.field)
            refine = better if objective.n_parameters > MAX_HESSIAN_PARAMETERS else None
        return fit, decided(objective, point, refine=refine)

    def _by_chains(self, data, max_iter):
        """Fit by persistent chains from the pseudo-likelihood, and `Existence` of its maximum."""
        start, existence = self._by_lbfgs(data, MAX_ITER)
        self._couplings, self._field = start.couplings, start.field
        report = reported(self.verbose, chains.ChainSteps.label)
        options = fitting.Options(float(self.l2), float(self.l2_field), report=report)
        absent = None if self.graph is None else absent_pairs(self._edges(), len(self.sizes_))
        fit, self.memory_ = chains.fit(self.model_, data, options, max_iter, absent)
        self.log_pseudo_likelihood_ = fitting.log_pseudo_likelihood(data, fit.couplings, fit.field)
        if self.memory_ > np.exp(-1):
            warn_user(
                f"chains have not renewed: half-way they have {self.memory_:.0%} of their end in "
                "common. Raise max_iter, or l2.",
                ConvergenceWarning,
            )
        return fit, existence

    def _inverted(self, data):
        """Fit by naive mean field, and unknown `Existence`."""
        couplings, field = naive_mean_field(
            data.labels, data.weights / data.total, self.sizes_, 0.5, float(self.l2)
        )
        couplings = DenseCouplings(couplings, self.sizes_)
        self.log_pseudo_likelihood_ = fitting.log_pseudo_likelihood(data, couplings, field)
        history = np.array([self.log_pseudo_likelihood_ * data.total])
        return fitting.PottsFit(couplings, field, history, True), Existence(None)

    # --- parameters -----------------------------------------------------------------------------

    @property
    def couplings_(self):
        """Couplings as estimated; (n_groups, q, n_groups, q), or flat if sizes are unequal."""
        check_is_fitted(self)
        return self._by_position(self._couplings.dense(), 2)

    @property
    def field_(self):
        """Fields as estimated; (n_groups, q), or flat if sizes are unequal."""
        check_is_fitted(self)
        return self._by_position(self._field, 1)

    @property
    def model_(self):
        """The machine as a `BoltzmannMachine` with `Categorical` units, for `fastmf.tap`."""
        check_is_fitted(self)
        state = np.concatenate([np.arange(q) for q in self.sizes_])
        return BoltzmannMachine(self._couplings.dense(), Categorical(self._field, state))

    def _by_position(self, array, n_axes):
        """A flat array with axes for positions and states, if all positions are of one size."""
        sizes = self.sizes_
        if (sizes != sizes[0]).any():
            return array
        return array.reshape((len(sizes), sizes[0]) * n_axes)

    def in_gauge(self, gauge, reference=0):
        """Couplings and field in a gauge, with the same probabilities.

        Parameters
        ----------
        gauge : {"zero-sum", "lattice"}
            Means over the states of a position are zero, or all parameters of one state are.
        reference : int, default 0
            Number of that state: its place in `categories_`.

        Returns
        -------
        couplings : array of shape (n_groups, q, n_groups, q)
            Flat, (n_states, n_states), if positions have different numbers of states.
        field : array of shape (n_groups, q)
        """
        check_is_fitted(self)
        one_of("gauge", gauge, GAUGES)
        if count("reference", reference, 0) >= self.sizes_.min():
            raise ValueError(f"reference must be a state of all positions, got {reference}.")
        result = in_gauge(self._couplings.dense(), self._field, self.sizes_, gauge, reference)
        return self._by_position(result[0], 2), self._by_position(result[1], 1)

    def contact_scores(self, gauge="zero-sum", ignore=None, apc=True):
        """Frobenius norms of the couplings of all pairs of positions, less their positions' means.

        Parameters
        ----------
        gauge : {"zero-sum", None}, default "zero-sum"
            None: couplings as estimated, as plmc scores them.
        ignore : int, optional
            Number of the state, such as the gap, that is left out of the norms.
        apc : bool, default True
            Average product correction: less ``F_i. F_.j / F_..`` (Dunn, Wahl & Gloor 2008).

        Returns
        -------
        array of shape (n_groups, n_groups)
            Symmetric, with zero diagonal.
        """
        check_is_fitted(self)
        one_of("gauge", gauge, ("zero-sum", None))
        if ignore is not None and count("ignore", ignore, 0) >= self.sizes_.max():
            raise ValueError(f"ignore must be a state, below {self.sizes_.max()}, got {ignore}.")
        scores = contacts.norms(self._couplings, gauge, ignore)
        return contacts.average_product_corrected(scores) if flag("apc", apc) else scores

    # --- rows of the fit ------------------------------------------------------------------------

    def _dense_objective(self, labels, weights):
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
        """Weight of the rows that have a part in the conditional probability of each position."""
        check_is_fitted(self)
        return self._weights @ (self._dense_objective(self._labels, self._weights).targets >= 0)

    # --- errors, tests and edges ----------------------------------------------------------------

    def _at_maximum(self):
        if self.solver in ("asymmetric", "naive_mean_field", "likelihood"):
            raise ValueError(
                "standard errors are for the symmetric pseudo-likelihood: fit with another solver."
            )
        objective = self._dense_objective(self._labels, self._weights)
        objective.check_size()
        parameters = objective.packed(self._couplings.dense(), self._field)
        if self._completions is None:
            sampling = np.square(objective.weights)
        else:
            sampling = sparse.diags_array(self._completions.row_weights / objective.total)
        return objective, parameters, sampling

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
            If there is no maximum, the fit has no such errors ("asymmetric", naive mean field), or
            there are more than 6,000 parameters.

        Notes
        -----
        A row of weight w counts as one observation whose score is multiplied by w, as it should for
        weights of similar sequences; rows that were counted should be repeated instead.
        """
        one_of("gauge", gauge, (*GAUGES, None))
        godambe = self._godambe()
        couplings, field = godambe.objective.errors_in_gauge(godambe.covariance(), gauge)
        return self._by_position(couplings, 2), self._by_position(field, 1)

    def _pooled_with(self, other):
        """`PooledRows` of this machine and another one, for permutations; rows keep weights."""
        if self._completions is not None or other._completions is not None:
            raise ValueError(
                "a permutation test is for rows as they were seen: fit with missing='absent' or "
                "'available'."
            )
        labels = np.maximum(np.concatenate([self._labels, other._labels]), -1)
        weights = np.concatenate([self._weights, other._weights])
        usable, of_self = weights > 0, np.arange(len(weights)) < len(self._weights)
        rows = np.column_stack([labels, weights])[usable]
        rows, members, counts = np.unique(rows, axis=0, return_inverse=True, return_counts=True)
        labels, weights = rows[:, :-1].astype(np.int64), rows[:, -1]
        of_first = np.bincount(members.ravel()[of_self[usable]], minlength=len(rows))
        objective = self._dense_objective(labels, counts * weights)
        contrasts, sets, pairs = objective.contrasts()
        starts = np.array([one[0] for one in sets])
        options = 0.0, min(float(self.tol), 1e-5)
        return PooledRows(
            objective, counts, of_first, weights, contrasts.dot, starts, pairs, *options
        )

    def _unpacked_contrasts(self, objective, contrasts):
        """Function of contrasts to couplings in the zero-sum gauge."""

        def unpacked(values):
            return self._by_position(objective.unpacked(contrasts.T @ values)[0], 2)

        return unpacked

    # --- probabilities --------------------------------------------------------------------------

    def _labels_of(self, X, missing=True):
        check_is_fitted(self)
        X = checked_table(self, X, reset=False, missing=True)
        labels = coded_labels(self, X, self.categories_)
        if not missing and (labels < 0).any():
            raise ValueError("X must have no missing labels here: `impute` them first.")
        return labels

    def _own(self, array, labels):
        """Entries of flat rows at the labels, zero where they are missing."""
        result = np.take_along_axis(array, self._first + np.maximum(labels, 0), axis=1)
        return np.where(labels >= 0, result, 0.0)

    def _local_fields(self, labels):
        return self._couplings.fields(labels) + self._field

    def _log_conditionals(self, X):
        labels = self._labels_of(X)
        return fitting.score_of(self._local_fields(labels), labels, self.sizes_)

    def _probabilities(self, X):
        fields = self._local_fields(self._labels_of(X))
        return np.hstack(
            [
                softmax(fields[:, first : first + q], axis=1)
                for first, q in zip(self._first, self.sizes_, strict=True)
            ]
        )

    def energy(self, X):
        """Energy -x'Jx / 2 - h'x; missing positions add nothing.

        Parameters
        ----------
        X : int array of shape (n_samples, n_groups)

        Returns
        -------
        array of shape (n_samples,)
        """
        labels = self._labels_of(X)
        halves = self._couplings.fields(labels) / 2 + self._field
        return -self._own(halves, labels).sum(1)

    def mutants(self, X):
        """Changes of log-probability by all changes of a single position.

        Parameters
        ----------
        X : int array of shape (n_groups,) or (n_samples, n_groups)
            Without missing labels.

        Returns
        -------
        array of shape (n_groups, q) or (n_samples, n_groups, q)
            log p(x with state b at position i) - log p(x). The last two axes are one, flat, if
            positions have different numbers of states.
        """
        single = np.ndim(X) == 1
        labels = self._labels_of(np.asarray(X)[None] if single else X, missing=False)
        fields = self._local_fields(labels)
        change = fields - np.repeat(self._own(fields, labels), self.sizes_, axis=1)
        if (self.sizes_ == self.sizes_[0]).all():
            change = change.reshape(len(labels), len(self.sizes_), -1)
        return change[0] if single else change

    def _categorical_model(self):
        return self.model_

    # --- files ----------------------------------------------------------------------------------

    def _saved(self):
        fitted, arrays = self._saved_fit("log_pseudo_likelihood_", "memory_")
        arrays |= {
            "labels": self._labels.astype(np.int16),
            "weights": self._weights,
            "flat_field": self._field,
        }
        if isinstance(self._couplings, OfFewRows):
            arrays["coefficients"] = self._couplings.coefficients
            arrays["coefficient_rows"] = self._couplings.labels
        else:  # the model of few rows is made of them when it is needed
            arrays |= model_to_arrays(self.model_)
        return fitted, arrays

    def _restore(self, arrays):
        self._restore_fit(arrays)
        self.sizes_ = np.array([len(listed) for listed in self.categories_])
        self._first = np.cumsum(self.sizes_) - self.sizes_
        self._labels = labels_from("labels", arrays, self.sizes_).astype(np.int64)
        self._weights = arrays.member("weights", "f", (len(self._labels),), low=0)
        restored_rows(self, arrays, self._labels)
        self._edges()
        n_states = int(self.sizes_.sum())
        self._field = arrays.member("flat_field", "f", (n_states,), low=-np.inf)
        if "coefficients" in arrays:
            rows = labels_from("coefficient_rows", arrays, self.sizes_)
            coefficients = arrays.member("coefficients", "f", (len(rows), n_states), low=-np.inf)
            self._couplings = OfFewRows(coefficients, rows, self.sizes_)
        else:
            model = self._model_from(arrays)
            if model.n_units != n_states:
                raise ValueError(f"its model must have {n_states} units, got {model.n_units}.")
            self._couplings = DenseCouplings(model.couplings, self.sizes_)
