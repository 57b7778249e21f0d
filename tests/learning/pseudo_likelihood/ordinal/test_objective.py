"""Log-pseudo-likelihood of ordinal items: values, derivatives, scores, and its maximum."""

import numpy as np
import ordinal_data
import pytest
from differences import differences
from scipy import optimize

from fastmf.learning.pseudo_likelihood import fit as module
from fastmf.learning.pseudo_likelihood.fit import lbfgs, newton
from fastmf.learning.pseudo_likelihood.godambe import Godambe
from fastmf.learning.pseudo_likelihood.ordinal import OrdinalLikelihood, Thresholds
from fastmf.learning.pseudo_likelihood.rows import distinct, sampling

SIZES = [2, 3, 5, 4]
TABLES = {
    "four of three": ([3] * 4, False),
    "binary": ([2] * 5, False),
    "three of five": ([5] * 3, False),
    "unequal": (SIZES, False),
    "weighted": (SIZES, True),
}


def objective_of(sizes, kind="free", n_rows=300, *, weighted=False, seed=0, **options):
    states, weights = ordinal_data.random_rows(sizes, n_rows, weighted=weighted, seed=seed)
    return OrdinalLikelihood(states, weights, Thresholds(sizes, kind), **options)


def unpacked(objective, parameters):
    """Couplings and a list of thresholds."""
    sigma, fields = objective.unpacked(parameters)
    flat = objective.thresholds.matrix @ fields
    item = objective.thresholds.item
    return sigma, [flat[item == i] for i in range(objective.n_units)]


def random_point(objective, seed=2):
    return 0.3 * np.random.default_rng(seed).normal(size=objective.n_parameters)


SOME_PAIRS = (np.array([0, 0, 2]), np.array([1, 3, 3]))


@pytest.mark.parametrize("pairs", [None, SOME_PAIRS])
@pytest.mark.parametrize("kind", ["free", "blume_capel"])
def test_value_and_derivatives(kind, pairs, monkeypatch):
    monkeypatch.setattr(module, "BLOCK_NUMBERS", 10)  # several blocks of rows
    objective = objective_of(SIZES, kind, weighted=True, l2=0.2, l2_field=0.1, pairs=pairs)
    at = random_point(objective)
    states = objective.states.astype(int)
    values = ordinal_data.log_pseudo_likelihoods(*unpacked(objective, at), states)
    value, gradient = objective.value_and_gradient(at)
    assert value == pytest.approx(objective.weights @ values - objective.ridge @ at**2 / 2)
    assert objective.log_likelihood(at) == pytest.approx(
        objective.total * objective.weights @ values
    )
    numeric = differences(lambda p: objective.value_and_gradient(p)[0], at)
    np.testing.assert_allclose(gradient, numeric, atol=1e-9)
    hessian = objective.hessian(at)
    numeric = differences(lambda p: objective.value_and_gradient(p)[1], at)
    np.testing.assert_allclose(-hessian, numeric, atol=1e-8)
    vector = np.random.default_rng(5).normal(size=len(at))
    product = objective.hessian_product(at, vector)
    np.testing.assert_allclose(product, hessian @ vector, atol=1e-9)


@pytest.mark.parametrize("kind", ["free", "blume_capel"])
def test_scores_of_rows(kind):
    objective = objective_of(SIZES, kind, 40)
    at, states = random_point(objective), objective.states.astype(int)
    sigma, mu = unpacked(objective, at)
    expected = ordinal_data.scores(sigma, mu, states)
    n = objective.thresholds.matrix.shape[0]
    expected = np.hstack([expected[:, :n] @ objective.thresholds.matrix, expected[:, n:]])
    factors = np.random.default_rng(3).random(40)
    found = objective.scores(at, slice(None), factors)
    np.testing.assert_allclose(found, factors[:, None] * expected, atol=1e-13)
    some = np.array([3, 17])
    np.testing.assert_allclose(objective.scores(at, some, np.ones(2)), expected[some], atol=1e-13)
    vectors = np.random.default_rng(4).normal(size=(3, objective.n_parameters))
    products = objective.score_products(at, vectors, slice(None), factors)
    np.testing.assert_allclose(products, found @ vectors.T, atol=1e-12)
    few = objective_of(SIZES, kind, 40, pairs=SOME_PAIRS)
    kept = np.zeros(objective.n_parameters, bool)
    kept[: objective.n_fields] = True
    kept[objective.index[SOME_PAIRS]] = True
    zero = np.where(kept, at, 0)
    np.testing.assert_allclose(
        few.scores(zero[kept], slice(None), factors),
        objective.scores(zero, slice(None), factors)[:, kept], atol=1e-13,
    )  # fmt: skip


def by_scipy(sizes, states, weights, l2):
    """Maximum of an independent objective, by SciPy's own optimiser."""
    d, share = len(sizes), weights / weights.sum()
    ends = np.cumsum([q - 1 for q in sizes])
    upper = np.triu_indices(d, 1)

    def parts(p):
        sigma = np.zeros((d, d))
        sigma[upper] = p[ends[-1] :]
        return sigma + sigma.T, np.split(p[: ends[-1]], ends[:-1])

    def loss(p):
        sigma, mu = parts(p)
        value = share @ ordinal_data.log_pseudo_likelihoods(sigma, mu, states)
        gradient = share @ ordinal_data.scores(sigma, mu, states)
        couplings = np.append(np.zeros(ends[-1]), p[ends[-1] :])
        return l2 / 2 * couplings @ couplings - value, l2 * couplings - gradient

    start = np.zeros(ends[-1] + len(upper[0]))
    found = optimize.minimize(loss, start, jac=True, method="BFGS", options={"gtol": 1e-9})
    return found.x


@pytest.mark.parametrize("table", TABLES)
@pytest.mark.parametrize("l2", [0.0, 0.1])
def test_maximum_and_sandwich_against_independent_code(table, l2):
    sizes, weighted = TABLES[table]
    states, weights = ordinal_data.random_rows(sizes, 150, weighted=weighted, seed=4)
    rows, sums, members = distinct(states, weights)
    objective = OrdinalLikelihood(rows, sums, Thresholds(sizes), l2=l2)
    expected = by_scipy(sizes, states, weights, l2)
    start = objective.independent()
    for solver, tol in ((newton, 1e-8), (lbfgs, 1e-8)):
        fit = solver(objective, start, tol=tol)
        assert fit.stopped
        np.testing.assert_allclose(fit.parameters, expected, atol=1e-6)
    at = newton(objective, start).parameters
    scores = ordinal_data.scores(*unpacked(objective, at), states)
    share = weights / weights.sum()
    numeric = differences(
        lambda p: share @ ordinal_data.scores(*unpacked(objective, p), states), at, 1e-4
    )
    H = -numeric + np.diag(objective.ridge)
    inverse, centred = np.linalg.inv(H), scores - share @ scores
    clusters = np.arange(len(states)) // 3
    designs = {"counts": np.diag(np.sqrt(share / weights.sum())), "sampled": np.diag(share)}
    designs["clusters"] = (clusters[:, None] == np.arange(clusters[-1] + 1)).T * share
    arguments = {
        "counts": None,
        "sampled": sampling(members, weights),
        "clusters": sampling(members, weights, clusters),
    }
    for name, matrix in designs.items():
        sums = matrix @ centred @ inverse
        godambe = Godambe(objective, at, arguments[name])
        np.testing.assert_allclose(godambe.covariance(), sums.T @ sums, rtol=2e-5, atol=1e-9)
        errors = np.sqrt((sums.T @ sums).diagonal())
        np.testing.assert_allclose(godambe.standard_errors(), errors, rtol=1e-5)
        some = godambe.standard_errors_without_matrices(np.arange(3))
        np.testing.assert_allclose(some, errors[:3], rtol=1e-4)


def test_lasso_satisfies_its_optimality_conditions():
    objective = objective_of(SIZES, l2=0.01)
    l1, n = 0.4, objective.n_fields
    fit = lbfgs(objective, objective.independent(), l1=l1, tol=1e-12)
    gradient, couplings = objective.value_and_gradient(fit.parameters)[1], fit.parameters[n:]
    assert fit.stopped and 0 < (couplings == 0).sum() < len(couplings)
    np.testing.assert_allclose(gradient[:n], 0, atol=1e-6)
    zero = couplings == 0
    assert (abs(gradient[n:][zero]) <= l1 + 1e-6).all()
    np.testing.assert_allclose(gradient[n:][~zero], l1 * np.sign(couplings[~zero]), atol=1e-6)


def test_pairs_without_couplings():
    """They are as if their couplings were tested and restricted to zero."""
    few, all_ = objective_of(SIZES, pairs=SOME_PAIRS), objective_of(SIZES)
    absent = np.array([(0, 2), (1, 2), (1, 3)])
    found = newton(few, few.independent()).parameters
    test = Godambe(all_, newton(all_, all_.independent()).parameters).likelihood_ratio_test(absent)
    sigma, fields = few.unpacked(found)
    np.testing.assert_allclose(all_.packed(sigma, fields), test.parameters, atol=1e-8)
    with pytest.raises(ValueError, match="pairs must be edges"):
        Godambe(few, found).standard_errors([[0, 2]])


def test_threads_do_not_change_results(monkeypatch):
    monkeypatch.setattr(module, "BLOCK_NUMBERS", 10)
    results = []
    for n_threads in (1, 2):
        objective = objective_of(SIZES, n_rows=5000, n_threads=n_threads)
        at = random_point(objective)
        results.append((*objective.value_and_gradient(at), objective.hessian(at)))
    for one, two in zip(*results, strict=True):
        np.testing.assert_array_equal(one, two)
