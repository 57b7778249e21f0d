"""Permutation test of the difference of two networks."""

from typing import NamedTuple

import numpy as np

from fastmf._common.progress import followed
from fastmf.learning.pseudo_likelihood.fit import few_blas_threads
from fastmf.learning.pseudo_likelihood.resampling import Refits, counts_of
from fastmf.learning.pseudo_likelihood.selection import maximum


class PermutationTest(NamedTuple):
    """Differences of two groups beside those of rows that are dealt to them at random.

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
        Share of the permutations whose maxima were found.
    """

    n: int
    largest: float
    largest_p_value: float
    strength: float
    strength_p_value: float
    p_value: np.ndarray
    converged: float


def permutation_test(machine_a, machine_b, n, rng, verbose=False):
    """The test for two machines with rows that weights count.

    Parameters
    ----------
    machine_a, machine_b : Network
    n : int
    rng : numpy.random.Generator
    verbose : bool

    Returns
    -------
    PermutationTest

    Raises
    ------
    ValueError
        For clusters, incomplete rows, or couplings that were selected.
    """
    for machine in (machine_a, machine_b):
        if machine._sampling is not None or isinstance(machine.l1, str):
            raise ValueError(
                "permutations are of rows that weights count, and of all couplings: fit without "
                "clusters, weights='sampling' and selection of couplings."
            )
        machine._refits("a permutation test")
    whole = machine_a._objective.joined(machine_b._objective)
    sizes = [counts_of(machine._row_weights()) for machine in (machine_a, machine_b)]
    counts, n_a = np.concatenate(sizes), int(sizes[0].sum())
    l1, tol = machine_a._penalty_l1, min(float(machine_a.tol), 1e100)
    factor = machine_a._coupling_factor
    with few_blas_threads(whole.n_parameters):
        pooled = maximum(whole, whole.independent(), tol).parameters
        refits = Refits(whole, pooled, l1, tol)

        def differences(of_a):
            fits = [refits.maximum(w.astype(float)) for w in (of_a, counts - of_a)]
            a, b = (factor * fit.parameters[whole.n_fields :] for fit in fits)
            return a - b, abs(a).sum() - abs(b).sum(), all(fit.stopped for fit in fits)

        first = np.concatenate([sizes[0], 0 * sizes[1]])
        delta, strength, _ = differences(first)
        found = [
            differences(rng.multivariate_hypergeometric(counts, n_a, method="marginals"))
            for _ in followed(range(n), "permutations", verbose)
        ]
    moduli = abs(np.array([one[0] for one in found]))
    p_value = np.ones_like(machine_a.couplings_)
    own = _p_value(moduli >= abs(delta))
    p_value[whole.pairs] = p_value.T[whole.pairs] = own
    largest = abs(delta).max()
    strengths = abs(np.array([one[1] for one in found]))
    return PermutationTest(
        n, float(largest), float(_p_value(moduli.max(1) >= largest)), float(strength),
        float(_p_value(strengths >= abs(strength))), p_value,
        float(np.mean([one[2] for one in found])),
    )  # fmt: skip


def _p_value(as_large):
    """Share of permutations, with the data as one of them, whose statistic is as large."""
    return (1 + as_large.sum(0)) / (1 + len(as_large))
