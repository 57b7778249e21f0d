"""Permutation test of the difference of two networks."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from fastmf._common.progress import followed
from fastmf.estimators.networks.resampling import warn_of_refits
from fastmf.learning.pseudo_likelihood.fit import CompositeLikelihood, few_blas_threads
from fastmf.learning.pseudo_likelihood.lbfgs import maximum
from fastmf.learning.pseudo_likelihood.resampling import Refits


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
    """Rows of two groups together, to be dealt to them anew.

    `counts` and `of_first` (n_rows,) are numbers of rows of both groups, and of the first, that
    each row of the objective replaces, of this `weight` each; `contrasts` is a function of
    parameters, and `starts` (n_pairs,) the first contrast of each of the `pairs`.
    """

    objective: CompositeLikelihood
    counts: np.ndarray
    of_first: np.ndarray
    weight: float | np.ndarray
    contrasts: Callable
    starts: np.ndarray
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
