"""Fits of available cases, beside sums of regressions that are written out in NumPy."""

from itertools import product

import numpy as np
import pytest
from scipy import linalg
from sklearn.exceptions import ConvergenceWarning

import fastmf as mf
from fastmf.models._gauge import in_gauge

EDGES = [(0, 1), (1, 2), (2, 3), (0, 3), (3, 4)]


def binary_table(n=400, missing=0.15, seed=0):
    """Spins of a ring with a tail, with holes."""
    couplings = np.zeros((5, 5))
    for k, (i, j) in enumerate(EDGES):
        couplings[i, j] = couplings[j, i] = (0.5, -0.4, 0.3, 0.6, -0.3)[k]
    states = np.array(list(product((-1.0, 1.0), repeat=5)))
    field = np.array([0.2, -0.1, 0.0, 0.3, -0.2])
    p = np.exp(((states @ couplings) * states).sum(1) / 2 + states @ field)
    rng = np.random.default_rng(seed)
    X = states[rng.choice(32, n, p=p / p.sum())]
    return np.where(rng.random(X.shape) < missing, np.nan, X), couplings, field, states, p / p.sum()


def by_hand(X, weights, l2=0.0, clusters=None):
    """Parameters, value and sandwich of the sum of logistic regressions on available rows."""
    n, n_units = len(weights), X.shape[1]
    size = n_units + len(EDGES)
    regressions = []
    for i in range(n_units):
        own = [(b if a == i else a, n_units + k) for k, (a, b) in enumerate(EDGES) if i in (a, b)]
        columns, index = [c for c, _ in own], [i, *(k for _, k in own)]
        rows = np.flatnonzero(~np.isnan(X[:, [i, *columns]]).any(1) & (weights > 0))
        design = np.column_stack([np.ones(len(rows)), X[np.ix_(rows, columns)]])
        regressions.append((rows, design, X[rows, i], index))
    total = weights[sorted({r for rows, *_ in regressions for r in rows})].sum()
    theta = np.zeros(size)
    for _ in range(50):
        scores, hessian, value = np.zeros((n, size)), l2 * total * np.eye(size), 0.0
        for rows, z, x, index in regressions:
            eta = z @ theta[index]
            value -= weights[rows] @ np.log1p(np.exp(-2 * x * eta))
            scores[np.ix_(rows, index)] += (x - np.tanh(eta))[:, None] * z
            curvature = weights[rows] / np.cosh(eta) ** 2
            hessian[np.ix_(index, index)] += z.T @ (curvature[:, None] * z)
        gradient = weights @ scores - l2 * total * theta
        theta = theta + linalg.solve(hessian, gradient)
    mean = weights @ scores / total
    kept = scores.any(1)
    centred = (scores - mean) * kept[:, None]
    if clusters is None:
        outer = centred.T @ (weights[:, None] * centred)
    else:
        sums = np.array([(weights * (clusters == c)) @ centred for c in np.unique(clusters)])
        outer = sums.T @ sums
    inverse = linalg.inv(hessian)
    return theta, value, inverse @ outer @ inverse


def parameters_of(machine):
    couplings = machine.couplings_[tuple(np.transpose(sorted(EDGES)))]
    return np.concatenate([machine.field_, couplings])


def in_order(theta, covariance):
    """Parameters by hand in the order of sorted edges."""
    order = [*range(5), *(5 + EDGES.index(edge) for edge in sorted(EDGES))]
    return theta[order], covariance[np.ix_(order, order)]


@pytest.mark.parametrize(
    ("solver", "l2", "complete"),
    [("auto", 0.0, False), ("newton", 0.02, False), ("lbfgs", 0.0, False), ("lbfgs", 0.02, False),
     ("auto", 0.02, True), ("newton", 0.0, True)],
)  # fmt: skip
def test_equal_to_regressions_on_available_rows(solver, l2, complete):
    """Of complete rows the option changes nothing; other pairs have no couplings."""
    X, *_ = binary_table(missing=0.0 if complete else 0.15)
    weights = np.random.default_rng(1).integers(0, 4, len(X)).astype(float)
    theta, value, covariance = by_hand(X, weights, l2)
    theta, covariance = in_order(theta, covariance)
    options = {} if complete else {"missing": "available"}
    machine = mf.FullyVisibleBoltzmannMachine(
        graph=EDGES, solver=solver, l2=l2, tol=1e-8, **options
    )
    machine.fit(X, sample_weight=weights)
    assert machine.converged_ and machine.existence_.exists
    assert np.count_nonzero(machine.couplings_) == 2 * len(EDGES)
    np.testing.assert_allclose(parameters_of(machine), theta, atol=1e-6)
    kept = machine._objective.total
    expected = value - l2 * kept / 2 * theta @ theta
    assert machine.history_[-1] == pytest.approx(expected, rel=1e-9)
    np.testing.assert_allclose(machine.covariance(), covariance, rtol=1e-5, atol=1e-9)


def test_clusters_and_one_by_one_errors():
    X, *_ = binary_table()
    clusters = np.arange(len(X)) // 4
    theta, _, covariance = by_hand(X, np.ones(len(X)), clusters=clusters)
    _, covariance = in_order(theta, covariance)
    machine = mf.FullyVisibleBoltzmannMachine(graph=EDGES, missing="available", tol=1e-8)
    machine.fit(X, clusters=clusters)
    np.testing.assert_allclose(machine.covariance(), covariance, rtol=1e-5, atol=1e-9)
    errors = machine._godambe().standard_errors_without_matrices(np.arange(10))
    np.testing.assert_allclose(errors, np.sqrt(covariance.diagonal()), rtol=1e-4)


def with_all_holes(states, p, share):
    """All states with all patterns of missing values, independent of them, and weights."""
    patterns = np.array(list(product((False, True), repeat=len(share))))
    shares = np.where(patterns, share, 1 - share).prod(1)
    X = np.where(patterns[:, None], np.nan, states[None]).reshape(-1, len(share))
    return X, 1e4 * np.outer(shares, p).ravel()


def test_of_the_distribution_itself_the_estimate_is_the_truth():
    _, couplings, field, states, p = binary_table()
    X, weights = with_all_holes(states, p, np.array([0.1, 0.3, 0.2, 0.25, 0.4]))
    machine = mf.FullyVisibleBoltzmannMachine(graph=EDGES, missing="available", tol=1e-8)
    machine.fit(X, sample_weight=weights)
    np.testing.assert_allclose(machine.couplings_, couplings, atol=1e-7)
    np.testing.assert_allclose(machine.field_, field, atol=1e-7)


def test_counts_are_reported():
    X, *_ = binary_table()
    machine = mf.FullyVisibleBoltzmannMachine(graph=EDGES, missing="available").fit(X)
    seen = ~np.isnan(X)
    needed = [{0, 1, 3}, {0, 1, 2}, {1, 2, 3}, {0, 2, 3, 4}, {3, 4}]
    there = np.stack([seen[:, sorted(own)].all(1) for own in needed], 1)
    assert machine.n_available_.tolist() == there.sum(0).tolist()
    assert machine.n_missing_ == (~seen).sum()
    assert machine.n_dropped_ == (~there.any(1)).sum()


@pytest.mark.parametrize("cls", [mf.FullyVisibleBoltzmannMachine, mf.OrdinalMachine])
def test_without_a_graph_cases_are_complete(cls):
    X, *_ = binary_table(missing=0.05)
    X = (X + 1) / 2
    complete = cls().fit(X[~np.isnan(X).any(1)])
    machine = cls(missing="available").fit(X)
    np.testing.assert_allclose(machine.couplings_, complete.couplings_, atol=1e-12)
    assert machine.n_dropped_ == np.isnan(X).any(1).sum()


def test_a_neighbour_that_was_not_seen_never_tells():
    # Values of unit 4 beside a missing unit 3 are in no term.
    X, *_ = binary_table()
    X[:100, 3] = np.nan
    changed = X.copy()
    changed[:100, 4] *= -1
    fits = [
        mf.FullyVisibleBoltzmannMachine(graph=EDGES, missing="available", tol=1e-8).fit(rows)
        for rows in (X, changed)
    ]
    np.testing.assert_allclose(fits[0].couplings_, fits[1].couplings_, atol=1e-9)
    np.testing.assert_allclose(fits[0].covariance(), fits[1].covariance(), atol=1e-9)


def test_reports_of_available_cases(tmp_path):
    X, *_ = binary_table()
    machine = mf.FullyVisibleBoltzmannMachine(graph=EDGES, missing="available", tol=1e-8).fit(X)
    probability = machine.edge_inclusion().probability
    assert (probability[tuple(np.transpose(EDGES))] > 0.5).all()
    assert np.count_nonzero(probability) == 2 * len(EDGES)
    found = machine.predictability()
    for i, needed in enumerate([[0, 1, 3], [1, 0, 2], [2, 1, 3], [3, 0, 2, 4], [4, 3]]):
        rows = X[~np.isnan(X[:, needed]).any(1)]
        means = np.tanh(rows[:, needed[1:]] @ machine.couplings_[i, needed[1:]] + machine.field_[i])
        variance = rows[:, i].var()
        assert found.r2[i] == pytest.approx(1 - ((rows[:, i] - means) ** 2).mean() / variance)
        assert found.accuracy[i] == pytest.approx((rows[:, i] * means > 0).mean())
        shares = (rows[:, i] > 0).mean()
        assert found.marginal_accuracy[i] == pytest.approx(max(shares, 1 - shares))
    samples = machine.bootstrap(100, rng=0)
    there = tuple(np.transpose(EDGES))
    ratios = samples.couplings.std(0)[there] / machine.standard_errors()[0][there]
    assert ((ratios > 0.8) & (ratios < 1.25)).all()
    machine.save(tmp_path / "machine.npz")
    loaded = mf.FullyVisibleBoltzmannMachine.load(tmp_path / "machine.npz")
    assert np.array_equal(loaded.covariance(), machine.covariance())
    assert np.array_equal(loaded.n_available_, machine.n_available_)


def test_errors_of_predictability_are_those_of_the_weights_of_rows():
    X, *_ = binary_table(n=40, seed=2)
    machine = mf.FullyVisibleBoltzmannMachine(graph=EDGES, missing="available", tol=1e-8)

    def r2(weights):
        return machine.fit(X, sample_weight=weights).predictability().r2

    variance, step = 0.0, 1e-3
    for r in range(len(X)):
        more, less = (np.ones(len(X)) for _ in range(2))
        more[r], less[r] = 1 + step, 1 - step
        variance = variance + ((r2(more) - r2(less)) / (2 * step)) ** 2
    found = machine.fit(X).predictability()
    np.testing.assert_allclose(found.standard_error, np.sqrt(variance), rtol=1e-4)


def test_ratio_tests_compare_sums_of_the_same_terms():
    X, *_ = binary_table(n=300, seed=3)
    machine = mf.FullyVisibleBoltzmannMachine(graph=EDGES, missing="available", tol=1e-8).fit(X)
    test = machine.likelihood_ratio_test([(3, 4)])
    # The weight of a single coupling is the ratio of its two variances.
    index = 5 + sorted(EDGES).index((3, 4))
    naive = machine._godambe().naive_covariance()[index, index]
    assert test.weights[0] == pytest.approx(machine.covariance()[index, index] / naive)
    wald = (machine.couplings_[3, 4] ** 2 / naive).item()
    assert test.statistic == pytest.approx(wald, rel=0.1)


def test_units_that_never_meet_their_neighbours_are_named():
    pd = pytest.importorskip("pandas")
    X, *_ = binary_table()
    X[: len(X) // 2, 3] = X[len(X) // 2 :, 4] = np.nan
    table = pd.DataFrame(X, columns=list("abcde"))
    machine = mf.FullyVisibleBoltzmannMachine(graph=EDGES, missing="available")
    with pytest.raises(ValueError, match=r"each column.* got none for 3 \('d'\), 4 \('e'\)"):
        machine.fit(table)
    with pytest.raises(ValueError, match=r"got none for 3, 4"):
        mf.PottsMachine(graph=EDGES, missing="available").fit(np.where(np.isnan(X), -1, X > 0))


@pytest.mark.parametrize("l2", [0.0, 0.1])
def test_a_unit_that_is_constant_where_it_counts_has_no_maximum(l2):
    X, *_ = binary_table()
    X[X[:, 4] == 1, 3] = np.nan  # unit 4 is seen together with its neighbour as -1 alone
    machine = mf.FullyVisibleBoltzmannMachine(graph=EDGES, missing="available", l2=l2)
    if l2:
        assert machine.fit(X).existence_.exists
        return
    with pytest.warns(ConvergenceWarning, match="units that are constant"):
        machine.fit(X)
    assert machine.existence_.exists is False
    assert machine.existence_.units == (4,)


# --- Potts machines ---------------------------------------------------------------------------


def potts_table(n=600, missing=0.15, seed=0):
    """Rows of a ring of three sites of three states, and one of two, with holes."""
    sizes, rng = SIZES, np.random.default_rng(seed)
    states = np.array(list(product(*map(range, sizes))))
    one_hot = np.hstack([states[:, [i]] == np.arange(q) for i, q in enumerate(sizes)]).astype(float)
    site = np.repeat(np.arange(4), sizes)
    coupled = np.isin(abs(site[:, None] - site), (1, 3))
    couplings = np.triu(np.where(coupled, rng.normal(size=coupled.shape), 0))
    couplings = couplings + couplings.T
    log_p = one_hot @ (rng.normal(size=11) / 3) + ((one_hot @ couplings) * one_hot).sum(1) / 2
    p = np.exp(log_p - log_p.max())
    p /= p.sum()
    X = states[rng.choice(len(states), n, p=p)]
    return np.where(rng.random(X.shape) < missing, -1, X), couplings, states, p


RING, SIZES = [(0, 1), (1, 2), (2, 3), (0, 3)], (3, 3, 3, 2)


def test_potts_machine_of_the_distribution_itself():
    _, couplings, states, p = potts_table()
    X, weights = with_all_holes(states, p, np.array([0.1, 0.3, 0.2, 0.25]))
    machine = mf.PottsMachine(n_states=SIZES, graph=RING, missing="available", tol=1e-9)
    machine.fit(X, sample_weight=weights)
    assert machine.existence_.exists
    expected, _ = in_gauge(couplings, np.zeros(11), SIZES, "zero-sum")
    np.testing.assert_allclose(machine.in_gauge("zero-sum")[0], expected, atol=1e-5)
    # Left out, missing sites bias the terms of their neighbours, as the graph has a loop.
    absent = mf.PottsMachine(n_states=SIZES, graph=RING, tol=1e-9).fit(X, sample_weight=weights)
    assert abs(absent.in_gauge("zero-sum")[0] - expected).max() > 0.01


def test_potts_machine_reports(tmp_path):
    X, *_ = potts_table()
    machine = mf.PottsMachine(n_states=SIZES, graph=RING, missing="available").fit(X)
    assert machine.converged_
    assert machine.existence_.exists
    probability = machine.edge_inclusion().probability
    assert (probability[tuple(np.transpose(RING))] > 0.5).all()
    assert machine.likelihood_ratio_test([RING[0]]).p_value < 0.01
    machine.save(tmp_path / "machine.npz")
    loaded = mf.PottsMachine.load(tmp_path / "machine.npz")
    assert np.array_equal(loaded.standard_errors()[0], machine.standard_errors()[0])
    assert np.array_equal(loaded.n_available_, machine.n_available_)


def test_pairs_of_states_that_never_meet_in_a_term_have_no_maximum():
    X, *_ = potts_table(missing=0)
    # States 0 of sites 0 and 1 meet nowhere, as one of them is missing.
    meeting = (X[:, 0] == 0) & (X[:, 1] == 0)
    X[meeting, 0] = -1
    machine = mf.PottsMachine(n_states=SIZES, graph=RING, missing="available")
    with pytest.warns(ConvergenceWarning, match="never meet"):
        machine.fit(X)
    assert machine.existence_.units == (0, 1)
    assert machine.set_params(l2=0.01).fit(X).existence_.exists
