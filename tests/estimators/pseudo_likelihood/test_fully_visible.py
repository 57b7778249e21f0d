import pickle
import warnings

import numpy as np
import pytest
import scipy
from populations import all_states
from sklearn.exceptions import ConvergenceWarning

import fastmf as mf
from fastmf.inference.sampling.discrete import probabilities

SOLVERS = ["auto", "bslm", "newton", "lbfgs"]


def machine(d=5, seed=0, scale=0.4):
    rng = np.random.default_rng(seed)
    J = np.triu(scale * rng.normal(size=(d, d)), 1)
    return mf.BoltzmannMachine(J + J.T, mf.Ising(scale * rng.normal(size=d)))


def rows(n=600, d=5, seed=0):
    model = machine(d)
    p = probabilities(model)
    return all_states(d)[np.random.default_rng(seed).choice(len(p), n, p=p)]


@pytest.fixture(scope="module")
def fitted():
    return mf.FullyVisibleBoltzmannMachine().fit(rows())


@pytest.mark.parametrize("solver", SOLVERS)
def test_every_solver_finds_the_machine_behind_its_own_distribution(solver):
    model = machine()
    found = mf.FullyVisibleBoltzmannMachine(solver=solver, tol=1e-9).fit(
        all_states(5), sample_weight=1000 * probabilities(model)
    )
    assert found.converged_ and found.existence_.exists
    np.testing.assert_allclose(found.couplings_, model.couplings, atol=1e-4)
    np.testing.assert_allclose(found.field_, model.prior.field, atol=1e-4)
    assert len(found.history_) == found.n_iter_
    assert (np.diff(found.history_) > -1e-9).all()
    assert found.gradient_norm_ < 1e-5


def test_zeros_and_ones_are_converted_and_results_converted_back(fitted):
    X = rows()
    other = mf.FullyVisibleBoltzmannMachine().fit((X + 1) / 2)
    np.testing.assert_allclose(other.couplings_, fitted.couplings_, atol=1e-12)
    drawn = other.sample(50, random_state=1)
    assert set(np.unique(drawn)) == {0, 1}
    np.testing.assert_array_equal(2 * drawn - 1, fitted.sample(50, random_state=1))
    np.testing.assert_allclose(other.score_samples((X + 1) / 2), fitted.score_samples(X))
    missing = np.where(np.arange(5) == 2, np.nan, (X[:4] + 1) / 2)
    imputed = other.impute(missing)
    np.testing.assert_allclose(imputed[:, 2], other.conditional_proba((X[:4] + 1) / 2)[:, 2])
    with pytest.raises(ValueError, match="values of fit"):
        other.score_samples(X)


def test_probabilities_follow_from_the_joint_distribution(fitted):
    states, p = all_states(5), fitted.pmf()
    assert p.sum() == pytest.approx(1)
    np.testing.assert_allclose(fitted.pmf(states[[7, 3]]), p[[7, 3]])
    given = fitted.conditional_proba(states)
    total = np.zeros(len(states))
    for j in range(5):
        flipped = np.arange(32) ^ (1 << j)
        own = p / (p + p[flipped])
        np.testing.assert_allclose(given[:, j], np.where(states[:, j] > 0, own, 1 - own))
        total += np.log(own)
    np.testing.assert_allclose(fitted.score_samples(states), total)
    assert fitted.score(states) == pytest.approx(total.mean())


@pytest.mark.slow
def test_standard_errors_against_the_spread_of_estimates():
    """150 samples of 800 rows: each spread is known to 6%, and the mean of all ten better."""
    estimates, errors, inside = [], [], []
    truth = machine().couplings
    for seed in range(150):
        found = mf.FullyVisibleBoltzmannMachine().fit(rows(800, seed=100 + seed))
        estimates.append(found.couplings_)
        errors.append(found.standard_errors()[0])
        low, high = np.moveaxis(found.confint(0.9)[0], -1, 0)
        inside.append((low <= truth) & (truth <= high))
    upper = np.triu_indices(5, 1)
    spread, mean = np.std(estimates, axis=0)[upper], np.mean(errors, axis=0)[upper]
    np.testing.assert_allclose(mean, spread, rtol=0.25)
    assert np.mean(mean / spread) == pytest.approx(1, abs=0.06)
    assert np.mean(np.array(inside)[:, upper[0], upper[1]]) == pytest.approx(0.9, abs=0.025)


def test_standard_errors_of_some_pairs(fitted, monkeypatch):
    couplings, field = fitted.standard_errors()
    variances = fitted.covariance().diagonal()
    np.testing.assert_allclose(fitted._objective.packed(couplings, field) ** 2, variances)
    expected = [couplings[1, 3], field[2], couplings[4, 0]]
    pairs = [[1, 3], [2, 2], [4, 0]]
    np.testing.assert_allclose(fitted.standard_errors(pairs), expected, rtol=1e-12)
    # As beyond 109 units.
    monkeypatch.setattr("fastmf.learning.pseudo_likelihood.godambe.MAX_HESSIAN_PARAMETERS", 3)
    np.testing.assert_allclose(fitted.standard_errors(pairs), expected, rtol=1e-5)
    with pytest.raises(ValueError, match=r"GB each.*standard_errors"):
        fitted.covariance()
    # All at once they need no covariance, only room for its ingredients.
    np.testing.assert_array_equal(fitted.standard_errors()[1], field)
    monkeypatch.setattr("fastmf._common.memory.memory_of_the_machine", lambda: 24 * 15**2 - 1)
    with pytest.raises(MemoryError, match=r"three matrices of 15 x 15 .*pairs"):
        fitted.standard_errors()
    for bad in ([0, 1], [[0, 5]], [[0.0, 1.0]]):
        with pytest.raises(ValueError, match="pairs must"):
            fitted.standard_errors(bad)


def test_comparison_with_smaller_machines(fitted):
    independent = fitted.likelihood_ratio_test()
    assert len(independent.weights) == 10 and independent.p_value < 1e-10
    one = fitted.likelihood_ratio_test([[3, 1]])
    # For one coupling, near Wald's test.
    wald = fitted.test_couplings()
    z = wald.z[(wald.first == 1) & (wald.second == 3)]
    assert one.statistic / one.weights[0] == pytest.approx(float(z[0]) ** 2, rel=0.1)
    assert one.parameters[fitted._objective.index[1, 3]] == 0
    with pytest.raises(ValueError, match="couplings"):
        fitted.likelihood_ratio_test([[2, 2]])
    with pytest.raises(ValueError, match="l2"):
        mf.FullyVisibleBoltzmannMachine(l2=0.1).fit(rows()).likelihood_ratio_test()


def separated():
    X = rows()
    X[:, 3] = X[:, 1]
    return X


@pytest.mark.parametrize("solver", SOLVERS)
def test_separation_is_reported(solver):
    with pytest.warns(ConvergenceWarning, match=r"no maximum exists.* units 1, 3, .*l2"):
        found = mf.FullyVisibleBoltzmannMachine(solver=solver).fit(separated())
    assert not found.converged_
    assert found.existence_.exists is False and found.existence_.units == (1, 3)
    assert np.isfinite(found.couplings_).all()
    with pytest.raises(ValueError, match="no maximum exists"):
        found.standard_errors()


@pytest.mark.parametrize(
    "options", [{"l2": 0.01}, {"solver": "firth"}, {"l1": 0.01}, {"l1": 0.01, "solver": "bslm"}]
)
def test_penalties_make_a_maximum(options):
    found = mf.FullyVisibleBoltzmannMachine(**options).fit(separated())
    assert found.converged_ and abs(found.couplings_).max() < 10


def test_firth_does_not_make_up_for_rows_that_say_nothing():
    """Of equal rows only the sum of a field and the coupling is known, as far as it is."""
    X = np.ones((30, 2))
    with pytest.warns(ConvergenceWarning, match="not unique"):
        found = mf.FullyVisibleBoltzmannMachine(solver="firth", max_iter=30).fit(X)
    assert not found.converged_ and found.existence_.exists is False
    X[:10, 0] = -1
    assert mf.FullyVisibleBoltzmannMachine(solver="firth").fit(X).converged_


def test_l1_leaves_the_field_of_a_constant_unit_free():
    X = rows()
    X[:, 2] = 1
    with pytest.warns(ConvergenceWarning, match="constant"):
        found = mf.FullyVisibleBoltzmannMachine(l1=0.05).fit(X)
    assert not found.converged_ and found.existence_.units == (2,)
    assert mf.FullyVisibleBoltzmannMachine(l1=0.05, l2=0.01).fit(X).converged_
    # Weights do not add up to exactly the same in another order.
    for seed in range(10):
        weights = np.random.default_rng(seed).random(len(X))
        with pytest.warns(ConvergenceWarning, match="constant"):
            mf.FullyVisibleBoltzmannMachine(l1=0.05).fit(X, sample_weight=weights)


@pytest.mark.parametrize("X, message", [
    (np.array([[0.5, 1.0], [1.0, 0.0]]), r"got 0, 0.5, 1 in column 0.*Binarizer"),
    (np.array([[1.0, 0.0], [-1.0, 1.0]]), "got -1, 0, 1 in column 0"),
    (np.array([[1.0, np.nan], [-1.0, 1.0]]), "NaN"), (np.array([[2.0, 3.0], [2.0, 3.0]]), "binary"),
])  # fmt: skip
def test_bad_data(X, message):
    with pytest.raises(ValueError, match=message):
        mf.FullyVisibleBoltzmannMachine().fit(X)


def test_pickle_keeps_everything_but_work_space(fitted):
    fitted.covariance()
    copy = pickle.loads(pickle.dumps(fitted))
    np.testing.assert_array_equal(copy.covariance(), fitted.covariance())
    assert len(pickle.dumps(fitted)) < 20_000


def test_a_machine_of_many_units():
    """More units than packed keys are exact for; L-BFGS, bounded curvature, Gibbs, mean field."""
    d, rng = 60, np.random.default_rng(0)
    X = np.where(rng.random((6000, d)) < 0.5, 1.0, -1.0)
    X[:, 1:] *= np.where(rng.random((6000, d - 1)) < 0.7, X[:, :-1] * X[:, 1:], 1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = mf.FullyVisibleBoltzmannMachine().fit(X)
    newton = mf.FullyVisibleBoltzmannMachine(solver="newton").fit(X)
    assert found.converged_ and found.existence_.exists
    np.testing.assert_allclose(found.couplings_, newton.couplings_, atol=1e-4)
    drawn = found.sample(200, random_state=0)
    assert drawn.shape == (200, d)
    missing = np.where(rng.random((3, d)) < 0.5, np.nan, X[:3])
    assert (abs(found.impute(missing)) <= 1).all()
    with pytest.raises(ValueError, match="at most 20"):
        found.pmf()


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("total", [1.0, 1e-3, 1e-6, 1e9])
def test_a_solver_has_converged_to_the_maximum_whatever_weights_add_up_to(solver, total):
    X = np.cumprod(np.where(np.random.default_rng(0).random((400, 5)) < 0.75, 1, -1), axis=1)
    exact = mf.FullyVisibleBoltzmannMachine(solver="newton").fit(X)
    found = mf.FullyVisibleBoltzmannMachine(solver=solver)
    found.fit(X, sample_weight=np.full(400, total / 400))
    assert found.converged_
    np.testing.assert_allclose(found.couplings_, exact.couplings_, atol=1e-4)


@pytest.mark.parametrize("n, d, ones", [(50, 200, 0.3), (150, 40, 0.1)])
def test_fits_of_few_rows_and_rare_columns_come_back(n, d, ones, monkeypatch):
    """Without linear programmes, which would take minutes."""
    monkeypatch.setattr(scipy.optimize, "linprog", None)
    X = (np.random.default_rng(0).random((n, d)) < ones).astype(float)
    with pytest.warns(ConvergenceWarning, match="no maximum exists"):
        found = mf.FullyVisibleBoltzmannMachine().fit(X)
    assert found.existence_.units == tuple(range(d)) and not found.converged_
