"""Neighbours of items by regressions on all others, against scikit-learn and SciPy."""

import numpy as np
import pytest
from scipy.optimize import minimize
from sklearn.linear_model import LogisticRegression

import fastmf as mf
from fastmf.learning.pseudo_likelihood.nodewise import Regressions, nodewise_path
from fastmf.learning.pseudo_likelihood.ordinal.thresholds import Thresholds
from fastmf.learning.pseudo_likelihood.rows import distinct


def chain(n, d, seed=0, stay=0.7):
    """Rows of a chain in {0, 1}, whose last item is rare."""
    rng = np.random.default_rng(seed)
    X = (1 + np.cumprod(np.where(rng.random((n, d)) < stay, 1, -1), axis=1)) // 2
    X[:, -1] &= rng.random(n) < 0.3
    return X


def regression_paths(X, penalties, gamma):
    """Neighbours of each item, and its log-likelihoods, by scikit-learn alone."""
    n, d = X.shape
    rows, counts = np.unique(X, axis=0, return_counts=True)
    Z = (rows - X.mean(0)) / X.std(0)
    neighbours, values = np.zeros((d, d), bool), np.zeros(penalties.shape)
    for i in range(d):
        others = np.delete(np.arange(d), i)
        # liblinear penalises the intercept, too: a large scale makes that negligible.
        model = LogisticRegression(
            l1_ratio=1.0,
            solver="liblinear",
            intercept_scaling=1e6,
            tol=1e-12,
            max_iter=100_000,
            random_state=0,
        )
        best = np.inf
        for k, l1 in enumerate(penalties[:, i]):
            model.set_params(C=1 / (l1 * n))
            model.fit(Z[:, others], rows[:, i], sample_weight=counts)
            p = model.predict_proba(Z[:, others])[np.arange(len(rows)), rows[:, i]]
            values[k, i] = counts @ np.log(p)
            there = abs(model.coef_[0]) > 1e-6
            ebic = -2 * values[k, i] + there.sum() * (np.log(n) + 2 * gamma * np.log(d - 1))
            if ebic < best:
                best, neighbours[others, i] = ebic, there
    return neighbours, values


@pytest.mark.parametrize("gamma", [0.0, 0.25])
def test_edges_are_those_of_logistic_regressions(gamma):
    X, options = chain(400, 5), {"ebic_gamma": gamma, "tol": 1e-8}
    machines = {
        rule: mf.FullyVisibleBoltzmannMachine(l1=rule, **options).fit(X) for rule in ("and", "or")
    }
    path = machines["and"].path_
    neighbours, values = regression_paths(X, path.l1, gamma)
    np.testing.assert_allclose(path.log_pseudo_likelihood, values, atol=1e-4)
    assert (neighbours != neighbours.T).any()  # the two rules differ
    for rule, expected in (("and", neighbours & neighbours.T), ("or", neighbours | neighbours.T)):
        assert np.array_equal(machines[rule].couplings_ != 0, expected)
    # It ends 20 penalties after the last criterion that was smaller than all before.
    assert len(path.l1) == min(path.chosen.max() + 21, 100)
    # The largest penalties are the smallest ones without neighbours.
    assert (path.n_edges[0] == 0).all() and (path.n_edges[1] > 0).any()
    assert np.array_equal(path.chosen, path.ebic.argmin(0)) and path.chosen.shape == (5,)


def ordinal_regression(states, i, l1):
    """Penalised maximum of the regression of item i on the others, by SciPy."""
    x, Z = states[:, i], np.delete((states - states.mean(0)) / states.std(0), i, axis=1)
    m, p = x.max(), Z.shape[1]

    def log_likelihood(v):
        eta = np.hstack([np.zeros((len(x), 1)), v[:m] + np.arange(1, m + 1) * (Z @ v[m:])[:, None]])
        return (eta[np.arange(len(x)), x] - np.logaddexp.reduce(eta, axis=1)).mean()

    def unsplit(v):
        return np.append(v[:m], v[m : m + p] - v[m + p :])

    found = minimize(
        lambda v: -log_likelihood(unsplit(v)) + l1 * v[m:].sum(), np.zeros(m + 2 * p),
        method="L-BFGS-B", bounds=[(None, None)] * m + [(0, None)] * (2 * p),
        options={"ftol": 1e-15, "gtol": 1e-10, "maxfun": 100_000},
    ).x  # fmt: skip
    return len(x) * log_likelihood(unsplit(found)), unsplit(found)[m:]


def ordinal_rows(n=300, seed=1):
    rng = np.random.default_rng(seed)
    factor = rng.normal(size=(n, 1))
    cuts = [-0.5, 0.8], [0.0], [-1.0, 0.0, 1.0], [0.3]
    values = factor * [1.0, 1.0, 1.0, 0.0] + rng.normal(size=(n, 4))
    return np.stack([np.digitize(values[:, i], cut) for i, cut in enumerate(cuts)], axis=1)


def test_paths_of_ordinal_items():
    X = ordinal_rows()
    machine = mf.OrdinalMachine(l1="or").fit(X)
    path = machine.path_
    for k, i in ((10, 0), (20, 2), (30, 1), (-1, 3)):
        value, coefficients = ordinal_regression(X, i, path.l1[k, i])
        assert path.log_pseudo_likelihood[k, i] == pytest.approx(value, abs=5e-5)
        assert path.n_edges[k, i] == (abs(coefficients) > 1e-5).sum()
    pairs = np.argwhere(np.triu(machine.couplings_)).tolist()
    assert pairs == [[0, 1], [0, 2], [1, 2]]


def test_gradient_of_regressions():
    states, weights, _ = distinct(ordinal_rows(), np.random.default_rng(0).random(300))
    thresholds = Thresholds([3, 2, 4, 2], "blume_capel")
    pairs = np.array([0, 0, 2]), np.array([1, 3, 3])
    regressions = Regressions(states, weights, thresholds, pairs)
    assert regressions.n_parameters == len(thresholds.slope) + 6
    z = np.random.default_rng(1).normal(size=regressions.n_parameters) / 2
    value, gradient = regressions.value_and_gradient(z)
    assert regressions.log_likelihoods(z).sum() == pytest.approx(value * weights.sum())
    step = 1e-6 * np.eye(len(z))
    differences = [regressions.value_and_gradient(z + e)[0] - value for e in step]
    np.testing.assert_allclose(gradient, np.array(differences) / 1e-6, atol=1e-5)
    _, edges = nodewise_path(regressions, 0.0, "or", 1e-5)
    assert {tuple(edge) for edge in edges.tolist()} <= {(0, 1), (0, 3), (2, 3)}


@pytest.mark.parametrize("rule", ["and", "or"])
def test_the_fit_is_that_of_the_chosen_graph(rule, tmp_path):
    X = chain(300, 6, 2)
    options = {"l1": rule}
    machine = mf.FullyVisibleBoltzmannMachine(**options).fit(X)
    edges = np.argwhere(np.triu(machine.couplings_))
    again = mf.FullyVisibleBoltzmannMachine(graph=edges).fit(X)
    np.testing.assert_allclose(machine.couplings_, again.couplings_, atol=1e-8)
    ordinal = mf.OrdinalMachine(**options).fit(X)
    np.testing.assert_allclose(ordinal.couplings_, 4 * machine.couplings_, atol=1e-5)
    machine.save(tmp_path / "m.npz")
    loaded = mf.FullyVisibleBoltzmannMachine.load(tmp_path / "m.npz")
    assert loaded.l1 == rule and np.array_equal(loaded.covariance(), machine.covariance())
    counts = np.random.default_rng(0).integers(1, 4, 300)
    repeated = mf.FullyVisibleBoltzmannMachine(**options).fit(np.repeat(X, counts, axis=0))
    weighted = mf.FullyVisibleBoltzmannMachine(**options).fit(X, sample_weight=counts)
    assert np.array_equal(repeated.path_.chosen, weighted.path_.chosen)
    np.testing.assert_allclose(repeated.couplings_, weighted.couplings_, atol=1e-6)
    # Neither the order of items nor names of categories matter, and `graph` excludes.
    order = np.random.default_rng(1).permutation(6)
    moved = mf.FullyVisibleBoltzmannMachine(**options).fit(np.array(["no", "yes"])[X[:, order]])
    np.testing.assert_allclose(
        moved.couplings_, machine.couplings_[np.ix_(order, order)], atol=1e-6
    )
    some = mf.FullyVisibleBoltzmannMachine(**options, graph=[[0, 1], [1, 2], [0, 5]]).fit(X)
    assert {tuple(e) for e in np.argwhere(np.triu(some.couplings_))} <= {(0, 1), (1, 2), (0, 5)}


def test_separated_constant_and_independent_items():
    X = chain(200, 4, 3)
    X[:, 3] = X[:, 0]  # determined by another item
    with pytest.warns(UserWarning, match="maximum exists"):
        machine = mf.FullyVisibleBoltzmannMachine(l1="or").fit(X)
    assert machine.couplings_[0, 3] > 1 and np.isfinite(machine.path_.ebic).all()
    constant = np.column_stack([chain(200, 3, 4), np.ones(200, int)])
    machine = mf.FullyVisibleBoltzmannMachine(l1="and", l2=0.01)
    assert not machine.fit(constant).couplings_[3].any()
    noise = np.random.default_rng(0).integers(0, 2, (500, 5))
    machine = mf.FullyVisibleBoltzmannMachine(l1="or", ebic_gamma=1.0).fit(noise)
    assert not machine.couplings_.any()


def neighbours_by_steps(X, gamma):
    """Directed neighbours: the lasso path of each item by proximal steps, and its smallest EBIC."""
    n, d = X.shape
    Y = X.astype(float)
    Z = (Y - Y.mean(0)) / Y.std(0)
    step = 4 / max(np.linalg.eigvalsh(Z.T @ Z / n)[-1], 1)
    largest = abs(Z.T @ (Y - Y.mean(0)) / n) * ~np.eye(d, dtype=bool)
    B, c = np.zeros((d, d)), np.log(Y.mean(0) / (1 - Y.mean(0)))
    best, chosen = np.full(d, np.inf), np.zeros((d, d), bool)
    for factor in np.geomspace(1, 1e-3, 100):
        V, v, t = B, c, 1.0
        for _ in range(2000):
            r = 1 / (1 + np.exp(-(Z @ V + v))) - Y
            new = V - step * (Z.T @ r / n)
            new = np.sign(new) * np.maximum(abs(new) - step * factor * largest.max(0), 0)
            np.fill_diagonal(new, 0)
            shift = v - step * r.mean(0)
            done = max(abs(new - V).max(), abs(shift - v).max()) < 1e-8
            t = 1.0 if ((V - new) * (new - B)).sum() > 0 else t
            later = (1 + np.sqrt(1 + 4 * t * t)) / 2
            V, v = new + (t - 1) / later * (new - B), shift + (t - 1) / later * (shift - c)
            B, c, t = new, shift, later
            if done:
                break
        eta, size = Z @ B + c, (B != 0).sum(0)
        ebic = -2 * (Y * eta - np.logaddexp(0, eta)).sum(0)
        ebic += size * (np.log(n) + 2 * gamma * np.log(d - 1))
        chosen = np.where(ebic < best, B != 0, chosen)
        best = np.minimum(ebic, best)
    return chosen


@pytest.mark.parametrize("gamma", [0.0, pytest.param(0.25, marks=pytest.mark.slow)])
def test_edges_are_those_of_the_published_procedure(gamma):
    """Standardised columns, 100 penalties an item, no penalty of intercepts, EBIC, AND or OR."""
    rng = np.random.default_rng(5)
    severity = rng.normal(size=(250, 1))
    X = (severity + rng.normal(size=(250, 9)) > rng.normal(size=9)).astype(int)
    directed = neighbours_by_steps(X, gamma)
    assert (directed != directed.T).any()
    for rule, expected in (("and", directed & directed.T), ("or", directed | directed.T)):
        machine = mf.FullyVisibleBoltzmannMachine(l1=rule, ebic_gamma=gamma).fit(X)
        assert 5 < expected.sum() // 2 < 36
        assert np.array_equal(machine.couplings_ != 0, expected)
