"""Results of resampled rows of a network, and permutation tests."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from fastmf._common.names import pandas
from fastmf._common.progress import followed
from fastmf.estimators.common.convergence import warn_of_convergence
from fastmf.learning.pseudo_likelihood.fit import CompositeLikelihood, few_blas_threads
from fastmf.learning.pseudo_likelihood.lbfgs import maximum
from fastmf.learning.pseudo_likelihood.resampling import Refits


class Predictability(NamedTuple):
    """How well each feature is known from all others.

    Parameters
    ----------
    r2 : array of shape (n_features,)
        Share of its variance that its conditional means explain.
    standard_error : array of shape (n_features,)
        Standard errors of `r2`.
    accuracy : array of shape (n_features,)
        Share of rows in which the most probable value is right.
    marginal_accuracy : array of shape (n_features,)
        The same if nothing is known of the others: the share of the most frequent value.
    """

    r2: np.ndarray
    standard_error: np.ndarray
    accuracy: np.ndarray
    marginal_accuracy: np.ndarray


class Bootstrap(NamedTuple):
    """Estimates of resampled rows.

    Parameters
    ----------
    couplings : array of shape (n, n_features, n_features)
    field : array of shape (n, n_features)
        Fields; or the parameters of thresholds, item by item, (n, n_thresholds).
    converged : bool array of shape (n,)
        False where the maximum of a sample was not found, as it may not exist.
    """

    couplings: np.ndarray
    field: np.ndarray
    converged: np.ndarray


class Stability(NamedTuple):
    """Correlations of centralities with centralities of fewer rows.

    Parameters
    ----------
    dropped : array of shape (n_shares,)
        Shares of the rows that are dropped.
    strength, expected_influence : array of shape (n_shares, n)
        Correlation over features with the values of all rows, for each sample; NaN where the
        maximum of a sample was not found, as it may not exist.
    converged : bool array of shape (n_shares, n)
    """

    dropped: np.ndarray
    strength: np.ndarray
    expected_influence: np.ndarray
    converged: np.ndarray

    def coefficient(self, name="strength", correlation=0.7, probability=0.95):
        """Largest share of rows that can be dropped with little change of the centralities."""
        reached = (getattr(self, name) >= correlation).mean(1) >= probability
        enough = np.logical_and.accumulate(reached[np.argsort(self.dropped)])
        return float(np.sort(self.dropped)[enough].max(initial=0.0))

    def as_frame(self):
        """One line for each share and sample, as a pandas data frame."""
        dropped = np.broadcast_to(self.dropped[:, None], self.strength.shape)
        columns = self._asdict() | {"dropped": dropped}
        return pandas().DataFrame({name: values.ravel() for name, values in columns.items()})


class PermutationTest(NamedTuple):
    """Differences of two groups beside differences after dealing rows to them at random.

    The couplings of a pair of positions of Potts machines count as one, by their Frobenius norm in
    the zero-sum gauge, and so do their differences.

    Parameters
    ----------
    n : int
        Number of permutations.
    largest, largest_p_value : float
        Largest absolute difference of a coupling, and its p-value.
    strength, strength_p_value : float
        Difference of the sums of all absolute couplings, the first group's less the second's, and
        its two-sided p-value.
    p_value : array of shape (n_features, n_features)
        Two-sided p-values of single couplings, not adjusted for their number; 1 on the diagonal.
    converged : float
        Share of the permutations whose maxima were found. All others are left out of the p-values,
        which are then exact for the permutations under which both maxima exist.
    """

    n: int
    largest: float
    largest_p_value: float
    strength: float
    strength_p_value: float
    p_value: np.ndarray
    converged: float


class PooledRows(NamedTuple):
    """Rows of two groups together, to be dealt to them anew."""

    objective: CompositeLikelihood
    counts: np.ndarray  # (n_rows,): number of rows that each row of the objective replaces
    of_first: np.ndarray  # (n_rows,): number of these that are of the first group
    weight: float | np.ndarray  # of each of these
    contrasts: Callable  # function of parameters
    starts: np.ndarray  # (n_pairs,): first contrast of each pair
    pairs: tuple
    l1: float
    tol: float

    def norms(self, couplings):
        """Norms of the couplings of each pair of features: moduli, where there is one."""
        return np.sqrt(np.add.reduceat(np.square(couplings), self.starts))


def permutation_test(rows, n, rng, verbose=False):
    """The test for rows of two groups."""
    objective, n_first = rows.objective, int(rows.of_first.sum())
    with few_blas_threads(objective.n_parameters):
        pooled = maximum(objective, objective.independent(), rows.tol).parameters
        refits = Refits(objective, pooled, rows.l1, rows.tol)

        def differences(of_a):
            fits = [refits.maximum(k * rows.weight + 0.0) for k in (of_a, rows.counts - of_a)]
            a, b = (rows.contrasts(fit.parameters) for fit in fits)
            strength = rows.norms(a).sum() - rows.norms(b).sum()
            return rows.norms(a - b), strength, all(fit.stopped for fit in fits)

        delta, strength, _ = differences(rows.of_first)
        results = [
            differences(rng.multivariate_hypergeometric(rows.counts, n_first, method="marginals"))
            for _ in followed(range(n), "permutations", verbose)
        ]
    norms, strengths, stopped = map(np.array, zip(*results, strict=True))
    share, stopped = float(stopped.mean()), warn_of_refits(stopped)
    norms, strengths = norms[stopped], strengths[stopped]
    p_value = np.ones((objective.n_units, objective.n_units))
    p_value[rows.pairs] = p_value.T[rows.pairs] = _p_value(norms >= delta)
    largest = delta.max()
    return PermutationTest(
        n, float(largest), float(_p_value(norms.max(1) >= largest)), float(strength),
        float(_p_value(abs(strengths) >= abs(strength))), p_value, share,
    )  # fmt: skip


def _p_value(as_large):
    """Share of permutations, with the data as one of them, whose statistic is as large."""
    return (1 + as_large.sum(0)) / (1 + len(as_large))


def warn_of_refits(converged):
    """Which refits have a maximum, an array; warns unless all have."""
    converged = np.array(converged)
    if not converged.all():
        warn_of_convergence(
            f"{(~converged).sum()} of {converged.size} samples of the rows have no maximum, or it "
            "was not found: where a rare value is missing couplings grow without bound; leave out "
            "these samples (`converged`), or fit with a penalty l2."
        )
    return converged


def correlation(x, y):
    """Correlation of two vectors, 0 if one does not vary."""
    x, y = x - x.mean(), y - y.mean()
    norm = np.sqrt((x @ x) * (y @ y))
    return float(x @ y / norm) if norm > 0 else 0.0
