"""Differences between the networks of groups."""

from dataclasses import dataclass
from itertools import combinations
from typing import NamedTuple

import numpy as np
from scipy.special import chdtrc

from fastmf._common.arguments import count, flag
from fastmf.estimators.common.runs import generator_of
from fastmf.estimators.networks.covariances import NodeCovariances
from fastmf.estimators.networks.edge_inclusion import PairsResult
from fastmf.estimators.networks.network import Network
from fastmf.estimators.networks.resampling import PermutationTest, permutation_test


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


@dataclass(frozen=True, eq=False, repr=False)
class GroupsComparison(PairsResult):
    """Couplings of more than two groups; see `compare_groups`.

    Parameters
    ----------
    p_value : array of shape (n_features, n_features)
        p-values of chi-squared tests that a coupling is the same in all groups, not adjusted for
        their number; 1 on the diagonal.
    omnibus : Omnibus
    common : array of shape (n_features, n_features)
        Couplings in {0, 1} coding if they are the same in all groups.
    pairwise : dict of (int, int) to GroupComparison
        The first less the second, for each pair of groups.
    names : array of str of shape (n_features,)
    """

    p_value: np.ndarray
    omnibus: Omnibus
    common: np.ndarray
    pairwise: dict
    names: np.ndarray


def compare_groups(
    machine_a,
    machine_b,
    *machines,
    inclusion_probability=0.5,
    scale=1.0,
    errors="sandwich",
    n_permutations=0,
    rng=0,
    verbose=False,
):
    """Compare the couplings of machines fitted to different groups of rows.

    Parameters
    ----------
    machine_a, machine_b, *machines : FullyVisibleBoltzmannMachine, OrdinalMachine or PottsMachine
        Fitted to independent rows of the same features, one for each group.
    inclusion_probability, scale : float or None
        Prior of the differences, as in `FullyVisibleBoltzmannMachine.edge_inclusion`.
    errors : {"sandwich", "naive"}
    n_permutations : int
        Permutations of the rows for tests that do not rely on many rows; each takes two
        fits; 0 for none. With more than two groups, for each pair.
    rng : int, RandomState or None, default 0
        For permutations.
    verbose : bool, default False
        Whether to show on stderr how many permutations are done.

    Returns
    -------
    GroupComparison or GroupsComparison
        For two groups differences with errors, tests and probabilities; for more groups tests, the
        common couplings, and the comparisons of all pairs of groups.

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
    >>> found = mf.compare_groups(a, b)
    >>> np.argwhere(found.probability > 0.9).tolist(), found.omnibus.p_value < 0.01
    ([[0, 1], [1, 0]], True)
    """
    machines = (machine_a, machine_b, *machines)
    n_permutations, rng = count("n_permutations", n_permutations, 0), generator_of(rng)
    verbose = flag("verbose", verbose)
    kind = type(machine_a)
    if not all(isinstance(machine, Network) and type(machine) is kind for machine in machines):
        named = ", ".join(type(machine).__name__ for machine in machines)
        raise TypeError(f"machines must be fitted machines of one class, got {named}.")
    estimates = [machine._edge_estimates(errors) for machine in machines]
    if len(machines) > 2 and isinstance(estimates[0].covariance, NodeCovariances):
        raise ValueError("more than two groups are compared for up to 1,000 couplings.")
    for machine, members in zip(machines[1:], estimates[1:], strict=True):
        _check_alike(machine_a, machine, estimates[0], members)

    def compared(i, j):
        permutation = None
        if n_permutations:
            rows = machines[i]._pooled_with(machines[j])
            permutation = permutation_test(rows, n_permutations, rng, verbose)
        prior = inclusion_probability, scale
        return _comparison(estimates[i], estimates[j], prior, permutation)

    if len(machines) == 2:
        return compared(0, 1)
    pairwise = {pair: compared(*pair) for pair in combinations(range(len(machines)), 2)}
    return _of_all(estimates, pairwise)


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


def _comparison(a, b, prior, permutation):
    """The `GroupComparison` of two estimates."""
    delta = a._replace(values=a.values - b.values, covariance=a.covariance + b.covariance)
    posterior = delta.inclusion(*prior, sensitivity=False)
    statistic, n = delta.chi_square(), len(delta.values)
    degrees = np.array([len(members) for members in delta.sets])
    return GroupComparison(
        difference=delta.couplings(delta.values),
        std=delta.deviations(),
        p_value=_symmetric_p_values(delta, chdtrc(degrees, delta.chi_squares())),
        probability=posterior.probability,
        log_bayes_factor=posterior.log_bayes_factor,
        omnibus=Omnibus(statistic, float(chdtrc(n, statistic)), n),
        names=delta.names,
        permutation=permutation,
    )


def _symmetric_p_values(estimates, values):
    out = np.ones((len(estimates.names), len(estimates.names)))
    out[estimates.pairs] = out.T[estimates.pairs] = values
    return out


def _of_all(estimates, pairwise):
    """The `GroupsComparison` of several estimates: distances from their weighted mean."""
    values, covariances = zip(*((one.values, one.covariance) for one in estimates), strict=True)
    common, statistic = _weighted_mean(values, covariances)
    first = estimates[0]
    of_pairs = [
        _weighted_mean(
            [x[members] for x in values], [C[np.ix_(members, members)] for C in covariances]
        )[1]
        for members in first.sets
    ]
    degrees = (len(estimates) - 1) * np.array([len(members) for members in first.sets])
    n = (len(estimates) - 1) * len(values[0])
    return GroupsComparison(
        p_value=_symmetric_p_values(first, chdtrc(degrees, of_pairs)),
        omnibus=Omnibus(statistic, float(chdtrc(n, statistic)), n),
        common=first.couplings(common),
        pairwise=pairwise,
        names=first.names,
    )


def _weighted_mean(values, covariances):
    """Mean of some vectors, weighted by their precisions, and their squared distance from it."""
    precisions = [np.linalg.inv(C) for C in covariances]
    pairs = list(zip(precisions, values, strict=True))
    mean = np.linalg.solve(sum(precisions), sum(P @ x for P, x in pairs))
    return mean, sum(float((x - mean) @ P @ (x - mean)) for P, x in pairs)
