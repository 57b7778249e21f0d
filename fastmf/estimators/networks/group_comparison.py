"""Differences between the networks of groups."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.special import chdtrc

from fastmf._common.arguments import count, flag
from fastmf._common.progress import followed
from fastmf.estimators.common.runs import generator_of
from fastmf.estimators.networks.edge_inclusion import PairsResult
from fastmf.estimators.networks.network import Network, warn_of_refits
from fastmf.learning.pseudo_likelihood.fit import few_blas_threads, maximum
from fastmf.learning.pseudo_likelihood.resampling import Refits
from fastmf.learning.pseudo_likelihood.rows import distinct


class Omnibus(NamedTuple):
    """Chi-squared test of all differences together.

    Parameters
    ----------
    statistic : float
    p_value : float
    n_degrees : int
    """

    statistic: float
    p_value: float
    n_degrees: int


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


@dataclass(frozen=True, eq=False, repr=False)
class GroupComparison(PairsResult):
    """Differences of couplings in {0, 1} coding; see `compare_groups`.

    Parameters
    ----------
    difference, std : array of shape (n_features, n_features)
        The couplings of the first machine less the couplings of the second, and standard errors;
        for Potts machines as `couplings_`, in the zero-sum gauge.
    p_value : array of shape (n_features, n_features)
        p-values of two-sided Wald tests, not adjusted for their number; 1 on the diagonal. For
        pairs of positions, chi-squared tests of all their couplings.
    probability : array of shape (n_features, n_features)
        Posterior probabilities that couplings differ.
    log_bayes_factor : array of shape (n_features, n_features)
        Log of the evidence for a difference over that for none.
    omnibus : Omnibus
        NaN for more than 1,000 couplings, whose covariances are known feature by feature.
    names : array of str of shape (n_features,)
    permutation : PermutationTest, optional
    """

    difference: np.ndarray
    std: np.ndarray
    p_value: np.ndarray
    probability: np.ndarray
    log_bayes_factor: np.ndarray
    omnibus: Omnibus
    names: np.ndarray
    permutation: PermutationTest | None = None


def compare_groups(
    machine_a, machine_b, *, inclusion_probability=0.5, scale=1.0, errors="sandwich",
    n_permutations=0, rng=0, verbose=False,
):  # fmt: skip
    """Compare the couplings of machines fitted to two groups of rows.

    Parameters
    ----------
    machine_a, machine_b : FullyVisibleBoltzmannMachine, OrdinalMachine or PottsMachine
        Fitted to independent rows of the same features, one for each group.
    inclusion_probability, scale : float or None
        Prior of the differences, as in `FullyVisibleBoltzmannMachine.edge_inclusion`.
    errors : {"sandwich", "naive"}
    n_permutations : int
        Permutations of the rows for tests that do not rely on many rows; each takes two
        fits; 0 for none.
    rng : int, RandomState or None, default 0
        For permutations.
    verbose : bool, default False
        Whether to show on stderr how many permutations are done.

    Returns
    -------
    GroupComparison
        Differences with errors, tests and probabilities.

    Raises
    ------
    ValueError
        If the features or their values are not the same, or a fit has no standard errors; with
        permutations, if weights do not count rows.

    Notes
    -----
    Tests without permutations are for many rows: with few rows for each coupling they reject too
    often. Permutations reassign the rows to the groups at random: under their hypothesis both
    groups have one distribution, fields included. A penalty `l2` of the fits stays, and pulls
    differences to zero: it should be small. Rows of Potts machines keep their weights.

    Examples
    --------
    >>> import numpy as np, fastmf as mf
    >>> rng = np.random.default_rng(0)
    >>> chain = lambda p: np.cumprod(np.where(rng.random((500, 3)) < [0.5, p, 0.8], 1, -1), axis=1)
    >>> a, b = (mf.FullyVisibleBoltzmannMachine().fit(chain(p)) for p in (0.5, 0.9))
    >>> comparison = mf.compare_groups(a, b)
    >>> np.argwhere(comparison.probability > 0.9).tolist(), comparison.omnibus.p_value < 0.01
    ([[0, 1], [1, 0]], True)
    """
    n_permutations, rng = count("n_permutations", n_permutations, 0), generator_of(rng)
    verbose = flag("verbose", verbose)
    if not (isinstance(machine_a, Network) and type(machine_a) is type(machine_b)):
        named = f"{type(machine_a).__name__} and {type(machine_b).__name__}"
        raise TypeError(f"machines must be fitted machines of one class, got {named}.")
    a, b = (machine._edge_estimates(errors) for machine in (machine_a, machine_b))
    _check_alike(machine_a, machine_b, a, b)
    permutation = None
    if n_permutations:
        permutation = _permutation_test((machine_a, machine_b), n_permutations, rng, verbose)
    delta = a._replace(values=a.values - b.values, covariance=a.covariance + b.covariance)
    posterior = delta.inclusion(inclusion_probability, scale, sensitivity=False)
    statistic, n = delta.chi_square(), len(delta.values)
    degrees = np.array([len(members) for members in delta.sets])
    p_value = np.ones_like(posterior.probability)
    p_value[delta.pairs] = p_value.T[delta.pairs] = chdtrc(degrees, delta.chi_squares())
    return GroupComparison(
        difference=delta.couplings(delta.values),
        std=delta.deviations(),
        p_value=p_value,
        probability=posterior.probability,
        log_bayes_factor=posterior.log_bayes_factor,
        omnibus=Omnibus(statistic, float(chdtrc(n, statistic)), n),
        names=delta.names,
        permutation=permutation,
    )


def _check_alike(machine_a, machine_b, a, b):
    """Raise unless two machines have the same features, values and pairs."""
    if not np.array_equal(a.names, b.names):
        raise ValueError(
            "machines must have the same features: fit both to the same columns, got "
            f"{list(a.names)} and {list(b.names)}."
        )
    values = zip(a.names, machine_a.categories_, machine_b.categories_, strict=True)
    for name, x, y in values:
        if not np.array_equal(x, y):
            raise ValueError(
                f"machines must have the same values of features, got {x.tolist()} and "
                f"{y.tolist()} of {name}: declare them (n_categories, n_states, or pandas' "
                "categories), or merge those that a group lacks."
            )
    if not all(np.array_equal(x, y) for x, y in zip(a.pairs, b.pairs, strict=True)):
        raise ValueError(
            "machines must have the same pairs of features with couplings: give both one graph, or "
            "fit both without l1."
        )


def _permutation_test(machines, n, rng, verbose=False):
    """The test for the rows of two machines, dealt to them anew."""
    machine, parts = machines[0], [one._counted_rows() for one in machines]
    labels, counts, weights = map(np.concatenate, zip(*parts, strict=True))
    first, used = np.arange(len(labels)) < len(parts[0][0]), counts * weights > 0
    labels, counts, weights, first = (x[used] for x in (labels, counts, weights, first))
    kinds, kind = np.unique(weights, return_inverse=True)
    rows, sums, members = distinct(np.column_stack([labels, kind]).astype(int), counts)
    of_first = np.bincount(members, counts * first).astype(np.int64)
    counts, labels, weights = sums.astype(np.int64), rows[:, :-1], kinds[rows[:, -1]]
    objective = machine._objective_of(labels, counts * weights)
    contrasts, sets, pairs = objective.contrasts()
    starts = np.array([one[0] for one in sets])

    def norms(couplings):  # moduli, where a pair has one coupling
        return np.sqrt(np.add.reduceat(np.square(couplings), starts))

    with few_blas_threads(objective.n_parameters):
        pooled = maximum(objective, objective.independent(), machine._tol).parameters
        refits = Refits(objective, pooled, machine._penalty_l1, machine._tol)

        def differences(of_a):
            fits = [refits.maximum(k * weights) for k in (of_a, counts - of_a)]
            a, b = (machine._coupling_factor * contrasts @ fit.parameters for fit in fits)
            strength = norms(a).sum() - norms(b).sum()
            return norms(a - b), strength, all(fit.stopped for fit in fits)

        delta, strength, _ = differences(of_first)
        results = [
            differences(rng.multivariate_hypergeometric(counts, of_first.sum(), method="marginals"))
            for _ in followed(range(n), "permutations", verbose)
        ]
    moved, strengths, stopped = map(np.array, zip(*results, strict=True))
    share, stopped = float(stopped.mean()), warn_of_refits(stopped)
    moved, strengths = moved[stopped], strengths[stopped]
    p_value = np.ones((objective.n_units, objective.n_units))
    p_value[pairs] = p_value.T[pairs] = _p_value(moved >= delta)
    largest = delta.max()
    return PermutationTest(
        n, float(largest), float(_p_value(moved.max(1) >= largest)), float(strength),
        float(_p_value(abs(strengths) >= abs(strength))), p_value, share,
    )  # fmt: skip


def _p_value(as_large):
    """Share of permutations, with the data as one of them, whose statistic is as large."""
    return (1 + as_large.sum(0)) / (1 + len(as_large))
