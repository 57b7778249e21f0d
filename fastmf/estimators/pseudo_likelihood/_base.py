"""Base class of the machines of binary, ordinal and categorical items."""

import numpy as np
from scipy import sparse
from sklearn.base import BaseEstimator

from fastmf._common.arguments import count, number, one_of, positive, row_weights
from fastmf._common.warning import listed, warn_user
from fastmf.estimators.common.categories import (
    as_array,
    checked_table,
    declared_categories,
    decoded,
)
from fastmf.estimators.common.data import column_name, dense_frame, missing_entries, with_nan
from fastmf.estimators.common.files import Saved
from fastmf.estimators.common.reports import feature_names, frame_like, is_frame
from fastmf.estimators.common.runs import drawn_seed, generator_of, warn_of_convergence
from fastmf.inference.sampling.discrete import METHODS, conditional_means, sample
from fastmf.learning.pseudo_likelihood.existence import Existence, decided
from fastmf.learning.pseudo_likelihood.fit import MAX_ITER
from fastmf.learning.pseudo_likelihood.graph import edges_of
from fastmf.learning.pseudo_likelihood.rows import (
    MAX_OF_A_ROW,
    Completions,
    available,
    distinct,
    expectation_maximisation,
    n_completions,
    sampling,
)
from fastmf.models import BoltzmannMachine

# Default numbers of iterations that differ from `MAX_ITER`.
ITERATIONS = {"newton": MAX_ITER // 10, "bslm": 10 * MAX_ITER, "likelihood": 300}


class ItemMachine(Saved, BaseEstimator):
    """Base class of machines of items.

    A subclass defines `_solvers` and `_missing`, the allowed values of options; `_learned_labels`,
    which sets `categories_`; `_labels_of`, which encodes rows as category numbers, -1 where
    missing; `_log_conditionals` and `_probabilities`, which compute `score_samples` and
    `conditional_proba` from these; `_unit_model`, the machine to sample from, if not `model_`;
    `_seen_only`, whether completions use observed categories only; and `_item_name` for warnings.
    """

    # Name of the array of training labels in files.
    _member = "rows"

    @property
    def _sizes(self):
        """Number of categories of each item."""
        return np.array([len(listed) for listed in self.categories_])

    def score(self, X, y=None):
        """Compute the mean of `score_samples`."""
        return float(np.mean(self.score_samples(X)))

    def score_samples(self, X):
        """Compute the log-pseudo-likelihood of each row, summed over its observed values.

        Parameters
        ----------
        X : array or data frame of shape (n_samples, n_features)

        Returns
        -------
        array of shape (n_samples,)
            In nats.
        """
        return self._log_conditionals(self._labels_of(X))

    def conditional_proba(self, X):
        """Compute the conditional probabilities of each feature given all other features.

        Parameters
        ----------
        X : array or data frame of shape (n_samples, n_features)
            Only Potts machines accept missing values, which are ignored.

        Returns
        -------
        array of shape (n_samples, n_states)
            Probabilities of all categories of all features; of binary units the second one only.
        """
        return self._probabilities(self._labels_of(X))

    def sample(self, n_samples=1, *, n_sweeps=100, temperature=1.0, random_state=None):
        """Draw samples: exactly from machines with few states, otherwise by annealed Gibbs chains.

        Parameters
        ----------
        n_samples : int
        n_sweeps : int
            Gibbs sweeps of each chain. Chains, at least 100, are used for more than 20 binary
            units or 2^16 joint states of other items. They start from exact samples of the maximum
            spanning tree, are annealed, and resampled by their importance weights.
        temperature : float
            Divides the energy: below 1, samples have higher probability and are less diverse.
        random_state : int, RandomState or None

        Returns
        -------
        array of shape (n_samples, n_features)
            Values of `categories_`.
        """
        rng = generator_of(random_state)
        n_samples, n_sweeps = count("n_samples", n_samples), count("n_sweeps", n_sweeps)
        temperature = positive("temperature", temperature)
        model = self._unit_model()
        prior = model.prior._replace(field=model.prior.field / temperature)
        model = BoltzmannMachine(model.couplings / temperature, prior)
        return self._values_of(prior, sample(model, n_samples, rng, n_sweeps))

    def _unit_model(self):
        """Return the machine with one unit, or group of states, for each item."""
        return self.model_

    def _units_of(self, prior, labels):
        """Return the values of the prior's units, NaN where labels are negative."""
        return prior.one_hot(labels)

    def _values_of(self, prior, means):
        """Return the most probable categories given the means of the prior's units."""
        return decoded(prior.labels(means), self.categories_)

    def impute(self, X, *, method="auto", random_state=0):
        """Fill in missing values given the observed values of the row.

        Parameters
        ----------
        X : array or data frame of shape (n_samples, n_features)
            NaN and None are missing values; for Potts machines also negative labels.
        method : {"auto", "exact", "annealing", "tap"}, default "auto"
            - "exact": enumeration of the states of a row's missing values, at most 2^20 states.
            - "annealing": sequential Monte Carlo from the maximum spanning tree of the couplings,
              with standard errors of probabilities of about 0.003; exact if the couplings form a
              tree. Phases have their correct weights.
            - "tap": the solution of `fastmf.tap` from uncoupled units: fast for hundreds of missing
              values, but inaccurate for strong couplings and several phases.
            - "auto": "exact" for rows with few enough states, "annealing" for all other rows.
        random_state : int, RandomState or None, default 0
            Random state of annealing. The result for a row does not depend on the other rows.

        Returns
        -------
        array or data frame of shape (n_samples, n_features)
            The most probable values of `categories_`; for binary units with numeric values, the
            mean between the two values. A data frame if `X` is one.

        Raises
        ------
        ValueError
            With "exact", if the missing values of a row have more than 2^20 states together.

        Warns
        -----
        ConvergenceWarning
            If standard errors of some rows exceed 0.01, or their solutions do not converge.
        """
        one_of("method", method, METHODS)
        seed, model = drawn_seed(random_state), self._unit_model()
        units = self._units_of(model.prior, self._labels_of(X, missing=True))
        result = conditional_means(model, units, method, seed=seed, n_threads=self.n_threads)
        n = np.count_nonzero(~result.converged)
        if n:
            reason = "mean-field solutions did not converge"
            if method != "tap":
                reason = f"probabilities have standard errors of up to {result.error.max():.2g}"
            warn_of_convergence(
                f"The means of {n} of {len(units)} rows are uncertain: their {reason}. Compare "
                "with another method, or another random_state."
            )
        filled = self._values_of(model.prior, result.mean)
        return frame_like(X, filled.T) if is_frame(X) else filled

    def _edges(self):
        """Return the pairs of items that `graph` couples; None without a graph."""
        if getattr(self, "graph", None) is None:
            return None
        names = getattr(self, "feature_names_in_", None)
        self.graph_ = edges_of(self.graph, self.n_features_in_, names)
        return self.graph_

    def _check_options(self):
        """Check the options that several machines share."""
        one_of("solver", self.solver, self._solvers)
        one_of("missing", self.missing, self._missing)
        for name in ("l2", "l2_field", "ebic_gamma", "tol"):
            if hasattr(self, name):
                number(name, getattr(self, name), 0, np.inf, below=True)
        count("max_iter", self.max_iter, optional=True)
        count("n_threads", self.n_threads, optional=True)

    def _iterations(self, solver):
        """Return the largest number of iterations of a solver."""
        return self.max_iter or ITERATIONS.get(solver, MAX_ITER)

    # --- fits ----------------------------------------------------------------------------------

    def _observed(self, X, sample_weight, clusters=None, merge=True):
        """Check options and rows, set attributes of the data; return labels and weights to fit.

        Labels are complete except for available cases. Equal rows are merged if `merge`. The
        columns of `_sampling` (n_clusters, n_rows) are rows before completion.
        """
        self._check_options()
        X, missing = dense_frame(X), self.missing
        declared = declared_categories(X)
        X = checked_table(self, X, reset=True, missing=missing != "error")
        weights = row_weights(1.0 if sample_weight is None else sample_weight, len(X))
        labels, edges = self._learned_labels(X, weights > 0, declared), self._edges()
        if clusters is not None:
            _check_clusters(clusters, len(labels))
        if missing == "em":
            usable = np.ones(len(labels), bool)
            usable[weights > 0] = _summable(labels[weights > 0], self._sizes, edges)
        elif missing == "absent":
            # Rows without any label do not contribute; they are kept if no row has a label.
            usable = (labels >= 0).any(1) | (labels < 0).all()
        else:
            terms = available(labels, edges if missing == "available" else None)
            usable = terms.any(1)
        used = usable & (weights > 0)
        if not used.any():
            where = "" if edges is None else " in a feature and its neighbours in graph"
            what = f"values{where}, none missing" if missing in ("drop", "available") else "values"
            raise ValueError(f"X must have a row of positive weight with {what}.")
        if missing == "available" and not (seen := terms[used].any(0)).all():
            absent = [column_name(self, int(j)) for j in np.flatnonzero(~seen)]
            raise ValueError(
                "missing='available' needs, for each column, a row with its value and those of all "
                f"its neighbours in graph, got none for {', '.join(absent[:10])}: leave out "
                "columns or edges, or take missing='em'."
            )
        weights, members = weights * used, None
        if merge:
            rows, sums, members = distinct(labels, weights)
        else:
            rows, sums = labels[used], weights[used]
        self._sampling = self._completions = None
        if clusters is not None:
            self._sampling = sampling(members, weights, clusters)
        if missing == "em" and (rows < 0).any():
            self._completions = Completions.of(rows, sums, self._sizes, self._seen_only)
            rows, sums = self._completions.states, self._completions.weights
        self.n_missing_, self.n_dropped_ = np.count_nonzero(labels < 0), np.count_nonzero(~usable)
        return rows, sums

    @property
    def _penalty_l1(self):
        """Penalty `l1` of the fit; 0 after a selection of couplings."""
        l1 = getattr(self, "l1", 0.0)
        return 0.0 if isinstance(l1, str) else float(l1)

    def _maximised(self, solve, start):
        """Maximise the objective, by expectation maximisation if rows are incomplete."""
        if self._completions is None:
            return solve(self._objective, start)

        def solve_from(objective, last):
            return solve(objective, objective.independent() if last is None else last)

        def exists(completions, parameters):
            self._completions = completions
            return self._existence(parameters).exists is not False

        fit, self._completions, self._objective = expectation_maximisation(
            self._completions, self._objective.reweighted, solve_from, exists
        )
        return fit

    def _likely_objective(self):
        """Return the objective without completions of negligible probability."""
        if self._completions is None:
            return self._objective
        return self._objective.reweighted(self._completions.likely_weights)

    def _existence(self, parameters):
        """Return the `Existence` of the maximum, given the parameters of the fit."""
        return decided(self._likely_objective(), parameters, self._penalty_l1)

    def _keep_fit(self, fit, existence, max_iter):
        """Set attributes from a fit; warn if it is not a maximum."""
        self.history_, self.n_iter_ = np.array(fit.history), len(fit.history)
        self.existence_, exists = existence, existence.exists is not False
        self.converged_ = bool(fit.stopped and exists)
        message, units = existence.message, existence.units
        if units and hasattr(self, "feature_names_in_"):
            message += f" ({self._item_name} {listed(feature_names(self)[list(units)])})"
        if units and self.n_missing_ and self.missing == "absent":
            message += (
                f"; {self.n_missing_} labels are missing, and rows without a label are told from "
                "others: missing='em' takes them as unknown"
            )
        if not fit.stopped and exists:
            remedy = "raise max_iter" if self.n_iter_ >= max_iter else "give a larger tol"
            message = (
                f"stopped after {self.n_iter_} iterations of {max_iter} before `tol` was reached: "
                f"{remedy} or take another solver" + (f"; {message}" if message else "")
            )
        if message:
            warn_of_convergence(f"{message}.")

    def __sklearn_tags__(self):
        """Return scikit-learn's tags: strings are accepted, and NaN unless missing="error"."""
        tags = super().__sklearn_tags__()
        tags.input_tags.string = True
        tags.input_tags.allow_nan = self.missing != "error"
        return tags

    # --- files ----------------------------------------------------------------------------------

    def _saved_fit(self, *names):
        """Return the attributes `names`, and the attributes and arrays common to all machines."""
        names = (
            "n_iter_", "converged_", "n_features_in_", "n_missing_", "n_dropped_", "existence_",
            *names,
        )  # fmt: skip
        fitted = {name: getattr(self, name) for name in names}
        fitted["categories_"] = [listed.tolist() for listed in self.categories_]
        arrays = {"history_": self.history_}
        if self._sampling is not None:
            arrays["sampling"] = _coordinates(self._sampling)
        if self._completions is not None:
            arrays["share"] = _coordinates(self._completions.share)
            arrays["row_weights"] = self._completions.row_weights
        return fitted, arrays

    def _restored_fit(self, arrays):
        """Restore the attributes written by `_saved_fit`; return labels and weights of rows."""
        exists, units, message = self.existence_
        self.existence_ = Existence(exists, tuple(units), message)
        self.categories_ = [as_array(listed) for listed in self.categories_]
        d = self.n_features_in_
        if len(self.categories_) != d:
            raise ValueError(f"categories_ must have {d} columns, got {len(self.categories_)}.")
        self.history_ = arrays.member("history_", "f", (None,))
        if "missing" in arrays:  # of earlier versions
            missing = arrays.member("missing", "iu", (2,), low=0)
            self.n_missing_, self.n_dropped_ = map(int, missing)
        self._edges()
        labels = self._rows_in(arrays)
        weights, n = arrays.member("weights", "f", (len(labels),), low=0), len(labels)
        self._completions = self._sampling = None
        if "share" in arrays or "row_weights" in arrays:
            raw_weights = arrays.member("row_weights", "f", (None,), low=0)
            share = _sparse_in("share", arrays, n, len(raw_weights))
            self._completions, n = Completions(labels, share, raw_weights), len(raw_weights)
        if "sampling" in arrays:
            self._sampling = _sparse_in("sampling", arrays, n)
        return labels, weights

    def _rows_in(self, arrays):
        return labels_from(self._member, arrays, self._sizes)


def labels_from(name, arrays, sizes):
    """Read rows of labels from an archive; each is a state of its position, or -1."""
    labels = arrays.member(name, "iu", (None, len(sizes)), low=-1)
    if (labels >= sizes).any():
        raise ValueError(f"member {name!r} must hold states of its positions, got larger labels.")
    return labels.astype(np.int64)


def _summable(labels, sizes, edges=None):
    """Return a mask of rows with few enough completions for `missing="em"`, at least one value.

    Warn about rows with too many completions and pairs of columns that never occur together.
    """
    empty = np.flatnonzero((labels < 0).all(0))
    if len(empty):
        raise ValueError(
            f"X must have values in each column, got none in column {empty[0]}: leave it out."
        )
    seen = (labels >= 0).astype(np.float32)
    pairs = np.triu_indices(len(sizes), 1) if edges is None else tuple(np.transpose(edges))
    unseen = np.flatnonzero((seen.T @ seen)[pairs] == 0)
    if len(unseen):
        named = ", ".join(f"{pairs[0][k]} and {pairs[1][k]}" for k in unseen[:5])
        warn_user(
            f"no row has values of both columns of {len(unseen)} pairs, such as {named}: rows say "
            "nothing of their couplings; leave the pairs out (graph), or give a ridge penalty l2."
        )
    excessive = n_completions(labels, sizes) > MAX_OF_A_ROW
    if excessive.all():
        raise ValueError(
            f"missing='em' sums over the completions of a row, up to {MAX_OF_A_ROW:,}, and all "
            "rows have more: leave out items that are missing most often, or impute them first."
        )
    if excessive.any():
        warn_user(
            f"{int(excessive.sum())} rows have more than {MAX_OF_A_ROW:,} completions of their "
            "missing values and are left out: leave out the items that are missing most often, or "
            "impute these rows first."
        )
    return ~excessive & (labels >= 0).any(1)


def _check_clusters(clusters, n_rows):
    """Raise unless each row has the label of one of at least two clusters."""
    if np.shape(clusters) != (n_rows,):
        raise ValueError(
            f"clusters must have one label for each of {n_rows} rows, got shape "
            f"{np.shape(clusters)}."
        )
    clusters = np.asarray(with_nan(clusters))
    absent = missing_entries(clusters[:, None])[:, 0]
    if absent.any():
        raise ValueError(
            f"clusters must have no missing labels, got one in row {int(absent.argmax())}: give "
            "such rows labels of their own."
        )
    if len(set(clusters.tolist())) < 2:
        raise ValueError("clusters must be at least two, got one: its errors are not known.")


def _coordinates(matrix):
    """Return row, column and value of the entries of a sparse array, (3, n_entries)."""
    matrix = sparse.coo_array(matrix)
    return np.stack([*matrix.coords, matrix.data])


def _sparse_in(name, arrays, n_columns, n_rows=None):
    """Read a sparse array of coordinates, or of compressed rows in files of earlier versions."""
    if f"{name}_indptr" in arrays:
        column = arrays.member(f"{name}_indices", "iu", (None,), low=0)
        ends = arrays.member(f"{name}_indptr", "iu", (None,), low=0, high=len(column))
        values = arrays.member(name, "f", column.shape, low=0)
        return sparse.csr_array((values, column, ends), shape=(len(ends) - 1, n_columns))
    entries = arrays.member(name, "f", (3, None), low=0)
    row, column = entries[:2].astype(np.int64)
    n_rows = int(row.max()) + 1 if n_rows is None else n_rows
    return sparse.csr_array((entries[2], (row, column)), shape=(n_rows, n_columns))
