"""Neighbours of items by regressions on all others, against scikit-learn and SciPy."""

import itertools

import numpy as np
import pytest
from scipy.optimize import minimize
from sklearn.linear_model import LogisticRegression

import fastmf as mf
from fastmf.learning.pseudo_likelihood.ordinal import Thresholds
from fastmf.learning.pseudo_likelihood.rows import distinct
from fastmf.learning.pseudo_likelihood.selection import Regressions, nodewise_path


def chain(n, d, seed=0, stay=0.7):
    """Rows of a chain in {0, 1}, whose last item is rare."""
    rng = np.random.default_rng(seed)
    X = (1 + np.cumprod(np.where(rng.random((n, d)) < stay, 1, -1), axis=1)) // 2
    X[:, -1] &= rng.random(n) < 0.3
    return X


def regression_paths(X, penalties):
    """Neighbours (n_penalties, d, d) of each item, and its log-likelihoods, by scikit-learn."""
    n, d = X.shape
    rows, counts = np.unique(X, axis=0, return_counts=True)
    Z = (rows - X.mean(0)) / X.std(0)
    neighbours, values = np.zeros((len(penalties), d, d), bool), np.zeros(penalties.shape)
    for i in range(d):
        columns = np.delete(np.arange(d), i)
        # liblinear penalises the intercept, too: a large scale makes that negligible.
        model = LogisticRegression(
            l1_ratio=1.0, solver="liblinear", intercept_scaling=1e6, tol=1e-12, max_iter=100_000,
            random_state=0,
        )  # fmt: skip
        for k, l1 in enumerate(penalties[:, i]):
            model.set_params(C=1 / (l1 * n))
            model.fit(Z[:, columns], rows[:, i], sample_weight=counts)
            p = model.predict_proba(Z[:, columns])[np.arange(len(rows)), rows[:, i]]
            values[k, i] = counts @ np.log(p)
            neighbours[k, columns, i] = abs(model.coef_[0]) > 1e-6
    return neighbours, values


def test_edges_are_those_of_logistic_regressions():
    """Standardised columns, penalties of the path, no penalty of intercepts, EBIC, AND or OR."""
    X = chain(400, 4)
    n, d = X.shape
    fits = {
        (rule, gamma): mf.FullyVisibleBoltzmannMachine(l1=rule, ebic_gamma=gamma, tol=1e-8).fit(X)
        for rule, gamma in itertools.product(("and", "or"), (0.0, 0.25))
    }
    longest = max((fit.path_ for fit in fits.values()), key=lambda path: len(path.l1))
    neighbours, values = regression_paths(X, longest.l1)
    for (rule, gamma), machine in fits.items():
        path = machine.path_
        k = len(path.l1)
        np.testing.assert_allclose(path.l1, longest.l1[:k])
        np.testing.assert_allclose(path.log_pseudo_likelihood, values[:k], atol=1e-4)
        cost = np.log(n) + 2 * gamma * np.log(d - 1)
        best = np.argmin(-2 * values[:k] + neighbours[:k].sum(1) * cost, axis=0)
        directed = neighbours[best, :, np.arange(d)].T
        assert (directed != directed.T).any()  # the two rules differ
        expected = directed & directed.T if rule == "and" else directed | directed.T
        assert np.array_equal(machine.couplings_ != 0, expected)
        # It ends 20 penalties after the last criterion that was smaller than all before.
        assert k == min(path.chosen.max() + 21, 100)
        # The largest penalties are the smallest ones without neighbours.
        assert (path.n_edges[0] == 0).all() and (path.n_edges[1] > 0).any()
        assert np.array_equal(path.chosen, path.ebic.argmin(0)) and path.chosen.shape == (4,)


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
    assert np.argwhere(np.triu(machine.couplings_)).tolist() == [[0, 1], [0, 2], [1, 2]]


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


@pytest.mark.parametrize("options", [{"l1": "or"}, {"l1": "ebic"}])
def test_the_fit_is_that_of_the_chosen_graph(tmp_path, options):
    X = chain(200, 4, 2)
    machine = mf.FullyVisibleBoltzmannMachine(**options).fit(X)
    edges = np.argwhere(np.triu(machine.couplings_))
    again = mf.FullyVisibleBoltzmannMachine(graph=edges).fit(X)
    np.testing.assert_allclose(machine.couplings_, again.couplings_, atol=1e-8)
    np.testing.assert_allclose(machine.covariance(), again.covariance(), atol=1e-8)
    samples = (fit.bootstrap(5, 0).couplings for fit in (machine, again))
    np.testing.assert_allclose(*samples, atol=1e-6)
    ordinal = mf.OrdinalMachine(**options).fit(X)
    np.testing.assert_allclose(ordinal.couplings_, 4 * machine.couplings_, atol=1e-5)
    machine.save(tmp_path / "m.npz")
    loaded = mf.FullyVisibleBoltzmannMachine.load(tmp_path / "m.npz")
    assert loaded.l1 == machine.l1 and np.array_equal(loaded.covariance(), machine.covariance())
    counts = np.random.default_rng(0).integers(1, 4, 200)
    repeated = mf.FullyVisibleBoltzmannMachine(**options).fit(np.repeat(X, counts, axis=0))
    weighted = mf.FullyVisibleBoltzmannMachine(**options).fit(X, sample_weight=counts)
    assert np.array_equal(repeated.path_.chosen, weighted.path_.chosen)
    np.testing.assert_allclose(repeated.couplings_, weighted.couplings_, atol=1e-6)
    # Neither the order of items nor names of categories matter, and `graph` excludes.
    order = np.random.default_rng(1).permutation(4)
    moved = mf.FullyVisibleBoltzmannMachine(**options).fit(np.array(["no", "yes"])[X[:, order]])
    np.testing.assert_allclose(
        moved.couplings_, machine.couplings_[np.ix_(order, order)], atol=1e-6
    )
    some = mf.FullyVisibleBoltzmannMachine(**options, graph=[[0, 1], [1, 2], [0, 3]]).fit(X)
    assert {tuple(e) for e in np.argwhere(np.triu(some.couplings_))} <= {(0, 1), (1, 2), (0, 3)}


def test_separated_constant_and_independent_items():
    X = chain(200, 4, 3)
    X[:, 3] = X[:, 0]  # determined by another item
    with pytest.warns(UserWarning, match="maximum exists"):
        machine = mf.FullyVisibleBoltzmannMachine(l1="or").fit(X)
    assert machine.couplings_[0, 3] > 1 and np.isfinite(machine.path_.ebic).all()
    constant = np.column_stack([chain(200, 3, 4), np.ones(200, int)])
    machine = mf.FullyVisibleBoltzmannMachine(l1="and", l2=0.01)
    assert not machine.fit(constant).couplings_[3].any()
    noise = np.random.default_rng(0).integers(0, 2, (500, 4))
    machine = mf.FullyVisibleBoltzmannMachine(l1="or", ebic_gamma=1.0).fit(noise)
    assert not machine.couplings_.any()
