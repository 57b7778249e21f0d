"""Missing values as estimators fill them in, and warnings where their means are uncertain."""

from dataclasses import replace

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted

from fastmf._common.arguments import count, one_of
from fastmf._common.rows import blocks
from fastmf._common.warning import warn_user
from fastmf.estimators.common.convergence import warn_unless_converged
from fastmf.estimators.common.rows import refuse_sparse_missing
from fastmf.estimators.common.runs import drawn_seed
from fastmf.inference.mean_field.solutions import distinct
from fastmf.inference.missing.fully_visible import METHODS, WORST_ERROR, conditional_means
from fastmf.inference.missing.layered import (
    MAX_WORK_OF_ROW,
    average_of_phases,
    exact_given,
    promising_starts,
)

LAYERED_METHODS = ("auto", "exact", "tap")


def means_of_missing(model, X, method, random_state, n_threads):
    """Means of the units of a model given the observed values of rows."""
    one_of("method", method, METHODS)
    seed = drawn_seed(random_state)
    result = conditional_means(model, X, method, seed=seed, n_threads=n_threads)
    n = np.count_nonzero(~result.converged)
    if n:
        reason = "mean-field solutions did not converge"
        if method != "tap":
            error = result.error.max()
            reason = f"probabilities have standard errors of up to {error:.2g}, above {WORST_ERROR}"
        warn_user(
            f"The means of {n} of {len(X)} rows are uncertain: their {reason}. Compare with "
            "another method, or another random_state.",
            ConvergenceWarning,
        )
    return result.mean


class LayeredImputing:
    """The method `impute` of machines with hidden layers."""

    def impute(self, X, *, method="auto", n_starts=8, labels="mode"):
        """Fill in missing values by their means given the others.

        Parameters
        ----------
        X : array of shape (n_samples, n_features)
            With NaN for missing values, or a negative label for a missing categorical one.
        method : {"auto", "exact", "tap"}, default "auto"
            - "exact": the sum over all states of the hidden layer, or of a row's missing units, the
              other side summed analytically: of few hidden units (up to some 12 of two values next
              to 784), or few missing ones next to any number of hidden ones. In a deep machine the
              sides are the even and the odd layers.
            - "tap": the means of distinct mean-field solutions from `n_starts` starts, each a phase
              with the weight that its log-partition gives. Phases that no start leads to are
              missed, and weights are approximate.
            - "auto": "exact" for rows that it takes, "tap" for all others.
        n_starts : int, default 8
            Number of starts of "tap": the mean of independent units, the distinct
            `solutions` under which the observed values are most probable, and the nearest rows of
            `starts_`. With 1, a single solution, which may be one of several phases.
        labels : {"mode", "mean", "probabilities"}, default "mode"
            Values of categorical units: the most probable label, which is wrong least often; the
            average label, whose squared error is least where labels are scores, such as ratings;
            or the probabilities of all states. Units of other kinds have means.

        Returns
        -------
        array of shape (n_samples, n_features)
            Rows that are filled in; with "probabilities" a column for each state.

        Raises
        ------
        ValueError
            With "exact", if there are too many states.

        Warns
        -----
        ConvergenceWarning
            If the solutions of some rows have not converged.
        """
        check_is_fitted(self)
        one_of("method", method, LAYERED_METHODS)
        one_of("labels", labels, ("mode", "mean", "probabilities"))
        n_starts = count("n_starts", n_starts)
        refuse_sparse_missing(X)
        given, X = X, self._dense_data(X, missing=True)
        mean, converged = X.copy(), np.ones(len(X), bool)
        incomplete = np.flatnonzero(np.isnan(X).any(1))
        if method != "tap":
            incomplete = self._fill_exactly(mean, incomplete)
        if method == "exact" and len(incomplete):
            raise ValueError(
                "method 'exact' takes rows for which the states of one side times the units of the "
                f"other are at most 2^{np.log2(MAX_WORK_OF_ROW):g}: {len(incomplete)} of {len(X)} "
                f"rows, among them row {incomplete[0]}, have more; take 'tap' or 'auto'."
            )
        phases = self._phases() if len(incomplete) and n_starts > 1 else None
        for rows in blocks(len(incomplete), len(incomplete) * X.shape[1] * n_starts):
            rows = incomplete[rows]
            mean[rows], converged[rows] = self._average_of_solutions(X[rows], phases, n_starts)
        warn_unless_converged(converged)
        filled = mean if labels == "probabilities" else self._as_given(mean, labels == "mean")
        exact = getattr(given, "dtype", None) == np.float64 and filled.dtype.kind == "f"
        if not exact or filled.shape != given.shape:
            return filled
        return np.where(given == given, given, filled)  # not in the precision of the machine

    def _fill_exactly(self, X, incomplete):
        """Fill in what can be summed, in place; the rows that are left."""
        unfilled = []
        for rows in blocks(len(incomplete), len(incomplete) * X.shape[1]):
            rows = incomplete[rows]
            result = exact_given(self.model_, X[rows])
            X[rows[result.exact]] = result.mean[result.exact]
            unfilled.append(rows[~result.exact])
        return np.concatenate(unfilled) if unfilled else incomplete

    def _phases(self):
        """The distinct mean-field solutions of the model itself, of finite log-partition."""
        solutions = self._solve(self.starts_)
        rows = distinct(solutions)[0]
        rows = rows[np.isfinite(solutions.log_partition[rows])]
        mean, b, a = ((part[0][rows],) for part in (solutions.mean, solutions.b, solutions.a))
        return replace(solutions, mean=mean, b=b, a=a, log_partition=solutions.log_partition[rows])

    def _average_of_solutions(self, X, phases, n_starts):
        """Means over mean-field solutions of each row, and whether one has converged."""
        zero, prior = X.dtype.type(0), self.visible_
        starts = np.broadcast_to(self.pointwise_.moments(zero, zero)[0], X.shape)[:, None]
        if phases is not None:
            from_phases = promising_starts(prior, X, phases, self.starts_, n_starts - 1)
            starts = np.concatenate([starts, from_phases], axis=1).astype(X.dtype)
        shape, missing = starts.shape, np.isnan(X)[:, None]
        starts = np.where(missing, starts, X[:, None]).reshape(-1, X.shape[1])
        seen = np.broadcast_to(X[:, None], shape).reshape(starts.shape)
        solutions = self._solve(starts, clamp=seen, log_partition=shape[1] > 1)
        logs = np.zeros(len(starts)) if solutions.log_partition is None else solutions.log_partition
        by_row = (part.reshape(shape[:2]) for part in (logs, solutions.converged))
        mean, converged = average_of_phases(solutions.mean[0].reshape(shape), *by_row)
        return np.where(missing[:, 0], mean, X), converged
