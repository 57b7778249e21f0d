"""Potts machines as an estimator."""

import numpy as np
import pytest
from potts_data import log_pseudo_likelihood, random_rows
from sklearn.exceptions import ConvergenceWarning

import fastmf as mf

SIZES = [3, 4, 2, 3]
RIDGE = {"l2": 0.05, "l2_field": 0.02}


def fitted(n_rows=300, sizes=SIZES, *, missing=0.0, weights=None, **options):
    X, _ = random_rows(sizes, n_rows, missing=missing)
    options = {"n_states": sizes, **options}
    return mf.PottsMachine(**options).fit(X, sample_weight=weights), X


def flat(machine):
    """Couplings and field without axes for positions."""
    n = int(machine.sizes_.sum())
    return machine.couplings_.reshape(n, n), machine.field_.reshape(n)


# --- the fit ------------------------------------------------------------------------------------


def test_a_sampled_machine_is_found_again():
    rng = np.random.default_rng(0)
    J = rng.normal(size=(4, 3, 4, 3)) * 0.5
    J += J.transpose(2, 3, 0, 1)
    J[range(4), :, range(4)] = 0
    true = mf.BoltzmannMachine(J, mf.Categorical(rng.normal(size=(4, 3)) * 0.3))
    from fastmf.inference.sampling.discrete import sample

    X = true.prior.labels(sample(true, 20_000, rng))
    machine = mf.PottsMachine(n_states=3).fit(X)
    found, _ = machine.in_gauge("zero-sum")
    from fastmf.models._gauge import in_gauge

    expected = in_gauge(J.reshape(12, 12), np.zeros(12), [3] * 4, "zero-sum")[0]
    z = (found.reshape(12, 12) - expected) / np.maximum(
        machine.standard_errors()[0].reshape(12, 12), 1e-12
    )
    assert abs(z[expected != 0]).max() < 4.5
    assert machine.existence_.exists and machine.converged_


def test_order_of_rows_and_names_of_states_do_not_matter():
    X, _ = random_rows([3] * 5, 90)
    options = {"tol": 1e-13} | RIDGE
    machine = mf.PottsMachine(**options).fit(X)
    J = machine.couplings_
    other = mf.PottsMachine(**options).fit(2 - X[::-1])
    np.testing.assert_allclose(other.couplings_, J[:, ::-1, :, ::-1], atol=6e-8)
    other = mf.PottsMachine(**options).fit(X[:, ::-1])
    np.testing.assert_allclose(other.couplings_, J[::-1, :, ::-1], atol=6e-8)


def test_ridge_in_plmc_s_terms():
    """The gradient of l - lambda_h |h|^2 - lambda_e sum |J_ij|^2 vanishes."""
    X, weights = random_rows([3] * 4, 100)
    N, lambda_e, lambda_h = weights.sum(), 1.3, 0.4
    machine = mf.PottsMachine(l2=2 * lambda_e / N, l2_field=2 * lambda_h / N, tol=1e-14)
    J, h = flat(machine.fit(X, sample_weight=weights))

    def objective(J, h):
        value = weights @ log_pseudo_likelihood(J, h, X, [3] * 4)
        return value - lambda_h * (h**2).sum() - lambda_e * (np.triu(J) ** 2).sum()

    rng = np.random.default_rng(0)
    for _ in range(5):
        dh, dJ = rng.normal(size=12), rng.normal(size=(12, 12)) * (J != 0)
        dJ += dJ.T
        ends = [objective(J + e * dJ, h + e * dh) for e in (1e-4, -1e-4)]
        assert abs(ends[0] - ends[1]) / 2e-4 < 1e-4


def test_no_maximum_warns_with_the_positions():
    X = np.array([[0, 0, 1], [1, 1, 0], [0, 0, 0], [1, 1, 1]])
    with pytest.warns(ConvergenceWarning, match=r"positions 0, 1.*never meet"):
        machine = mf.PottsMachine().fit(X)
    assert machine.existence_.exists is False and not machine.converged_
    with pytest.raises(ValueError, match="no maximum exists"):
        machine.standard_errors()


def test_mean_field_has_half_of_weak_couplings():
    X = np.random.default_rng(0).integers(0, 3, (5000, 4))
    inverted = mf.PottsMachine(solver="naive_mean_field").fit(X)
    best = mf.PottsMachine().fit(X)
    difference = 2 * inverted.in_gauge("zero-sum")[0] - best.in_gauge("zero-sum")[0]
    assert abs(difference).max() < 0.01 < abs(best.in_gauge("zero-sum")[0]).max()
    assert inverted.log_pseudo_likelihood_ <= best.log_pseudo_likelihood_
    with pytest.raises(ValueError, match="symmetric pseudo-likelihood"):
        inverted.standard_errors()


def test_bad_data():
    with pytest.raises(ValueError, match="one of 0, 1: got"):
        mf.PottsMachine(n_states=2).fit([[0, 1, 2], [0, 1, 0]])
    with pytest.raises(ValueError, match="integer labels"):
        mf.PottsMachine().fit([[0.5, 1]])
    with pytest.raises(ValueError, match="positive for some row"):
        mf.PottsMachine().fit([[0, 1]], sample_weight=[0.0])
    machine, X = fitted(**RIDGE)
    with pytest.raises(ValueError, match="in column 0 one of"):
        machine.energy(X + 1)
    with pytest.raises(ValueError, match="features"):
        machine.energy(X[:, :2])


# --- what a fitted machine tells ----------------------------------------------------------------


def test_energies_mutants_and_scores():
    machine, X = fitted(**RIDGE)
    np.testing.assert_allclose(machine.energy(X), machine.model_.energy(X), rtol=1e-12)
    expected = log_pseudo_likelihood(*flat(machine), X, SIZES)
    np.testing.assert_allclose(machine.score_samples(X), expected, rtol=1e-12)
    assert machine.score(X) == pytest.approx(machine.log_pseudo_likelihood_)
    change = machine.mutants(X[0])
    first = np.cumsum(SIZES) - SIZES
    for i, q in enumerate(SIZES):
        for b in range(q):
            mutant = X[:1].copy()
            mutant[0, i] = b
            expected = machine.energy(X[:1]) - machine.energy(mutant)
            assert change[first[i] + b] == pytest.approx(expected[0], abs=1e-12)
    with pytest.raises(ValueError, match="impute"):
        machine.mutants(np.append(-1, X[0, 1:]))


def test_conditional_probabilities_and_missing_positions():
    machine, X = fitted(**RIDGE)
    p = machine.conditional_proba(X)
    own = np.cumsum([0, *SIZES[:-1]]) + X
    np.testing.assert_allclose(
        np.log(np.take_along_axis(p, own, 1)).sum(1), machine.score_samples(X)
    )
    assert machine.score_samples(np.full((1, 4), -1)) == 0
    assert machine.energy(np.full((1, 4), -1)) == 0


def test_couplings_of_few_rows_in_files_of_earlier_versions(tmp_path):
    X, _ = random_rows([6] * 8, 2)
    machine = mf.PottsMachine(n_states=6, tol=1e-12, **RIDGE).fit(X)
    newton = mf.PottsMachine(n_states=6, tol=1e-12, solver="newton", **RIDGE).fit(X)
    np.testing.assert_allclose(machine.couplings_, newton.couplings_, atol=1e-5)
    machine.save(path := tmp_path / "machine.npz")
    with np.load(path) as file:
        arrays = dict(file)
    A = np.random.default_rng(0).normal(size=(2, 48))
    np.savez(path, **arrays, coefficients=A, coefficient_rows=X.astype(np.int16))
    x = np.eye(6)[X].reshape(2, -1)
    expected = (x.T @ A + A.T @ x).reshape(8, 6, 8, 6)
    expected[np.arange(8), :, np.arange(8)] = 0
    np.testing.assert_allclose(mf.PottsMachine.load(path).couplings_, expected)


def test_ratio_test():
    rng = np.random.default_rng(0)
    X = rng.integers(0, 3, (400, 4))
    X[:, 1] = np.where(rng.random(400) < 0.3, X[:, 0], X[:, 1])
    machine = mf.PottsMachine(n_states=3).fit(X)
    coupled, free = (machine.likelihood_ratio_test([pair]) for pair in ((0, 1), (2, 3)))
    assert coupled.p_value < 1e-4 and free.p_value > 0.01
    assert len(free.weights) == 4 and machine.likelihood_ratio_test().p_value < 1e-3
    assert len(free.parameters) == 12 + 6 * 9
    for pairs in ([[0, 0]], [[0, 7]], [0, 1], []):
        with pytest.raises(ValueError, match="pairs must"):
            machine.likelihood_ratio_test(pairs)
    with pytest.raises(ValueError, match="without l2"):
        fitted(**RIDGE)[0].likelihood_ratio_test()


def test_bad_questions():
    machine, _ = fitted(**RIDGE)
    for call in (
        lambda: machine.in_gauge("plmc"),
        lambda: machine.in_gauge("lattice", reference=2),
        lambda: machine.contact_scores(gauge="lattice"),
        lambda: machine.contact_scores(ignore=4),
        lambda: machine.standard_errors("ising"),
        lambda: machine.sample(0),
    ):
        with pytest.raises(ValueError, match="must be"):
            call()


@pytest.mark.parametrize(
    "X",
    [[[0]], [[0], [1], [2]], [[0, 1, 2]], [[0, -1], [1, -1]], [[-1, -1], [-1, -1]],
     np.arange(60).reshape(20, 3) % 41 * 3, np.arange(2100).reshape(30, 70) % 13 % 2],
    ids=["one", "one position", "one row", "absent position", "nothing", "many states",
         "many positions"],
)  # fmt: skip
def test_odd_data(X):
    machine = mf.PottsMachine(**RIDGE).fit(X)
    assert machine.converged_
    for array in (
        *machine.in_gauge("zero-sum"),
        machine.contact_scores(),
        machine.mutants(0 * machine.sizes_),
    ):
        assert np.isfinite(array).all()


@pytest.mark.parametrize("n_rows", [300, 5])
def test_iterations_are_shown_on_demand(monkeypatch, capsys, n_rows):
    monkeypatch.setattr("fastmf._common.progress.SECONDS", 0.0)
    X = np.random.default_rng(0).integers(0, 3, (n_rows, 20))
    options = {"l2": 0.1, "l2_field": 0.1, "solver": "lbfgs"}
    quiet = mf.PottsMachine(**options).fit(X)
    assert capsys.readouterr().err == ""
    shown = mf.PottsMachine(**options, verbose=True).fit(X)
    np.testing.assert_array_equal(shown.couplings_, quiet.couplings_)
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == shown.n_iter_
    value = float(lines[-1].split()[-1])
    assert lines[0].startswith("iteration 1,") and value == pytest.approx(shown.history_[-1])


@pytest.mark.parametrize("missing", ["absent", "available", "em"])
def test_rows_without_labels_make_no_difference(missing):
    rng = np.random.default_rng(0)
    X = rng.integers(0, 3, (120, 4)).astype(float)
    X[rng.random(X.shape) < 0.1] = np.nan
    X[0] = [0, 1, 2, 0]
    machine = mf.PottsMachine(l2=0.05, l2_field=0.05, missing=missing, tol=1e-8).fit(X)
    more = np.vstack([np.full((40, 4), np.nan), X])
    weights = np.append(np.full(40, 3.0), np.ones(120))
    again = mf.PottsMachine(l2=0.05, l2_field=0.05, missing=missing, tol=1e-8)
    again.fit(more, sample_weight=weights)
    np.testing.assert_allclose(again.couplings_, machine.couplings_, atol=1e-6)
    assert again.log_pseudo_likelihood_ == pytest.approx(machine.log_pseudo_likelihood_)
    assert again.n_dropped_ == machine.n_dropped_ + 40


# --- likelihood ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "graph, l2_field", [(None, 0.02), (None, 1.0), ([(0, 1), (1, 2), (2, 3)], 0.0)]
)
def test_moments_of_the_largest_likelihood(graph, l2_field):
    """Means and pairs of the data are those of the machine, but for the penalties."""
    X, _ = random_rows(SIZES, 400)
    weights = np.random.default_rng(1).random(len(X)) + 0.5
    options = {"l2": 0.01, "l2_field": l2_field, "graph": graph, "max_iter": 200}
    machine = mf.PottsMachine(n_states=SIZES, solver="likelihood", **options)
    model = machine.fit(X, sample_weight=weights).model_
    J, h, x = model.couplings, model.prior.field, model.prior.one_hot(X)
    exact, weights = mf.exact(model), weights / weights.sum()  # chains have errors of about 0.001
    assert abs(weights @ x - exact.mean - l2_field * h).max() < 0.006
    position = np.repeat(np.arange(4), SIZES)
    pairs = (x.T * weights) @ x - exact.pairwise - 0.01 * J
    coupled = abs(position[:, None] - position) == 1 if graph else position[:, None] != position
    assert abs(pairs[coupled]).max() < 0.006
    assert not J[~coupled].any()
    assert machine.converged_ and abs(machine.memory_) < 0.1


def test_chains_that_do_not_renew_are_told(tmp_path):
    X = np.repeat([[0] * 8, [1] * 8], 50, axis=0)
    X[::10, 0] = 1 - X[::10, 0]
    machine = mf.PottsMachine(solver="likelihood", l2=1e-3, l2_field=1e-3, max_iter=20)
    with pytest.warns(ConvergenceWarning, match="have not renewed"):
        machine.fit(X)
    assert not machine.converged_ and machine.memory_ > 0.9
    machine.save(tmp_path / "machine.npz")
    assert mf.PottsMachine.load(tmp_path / "machine.npz").memory_ == machine.memory_
    with pytest.raises(ValueError, match="pseudo-likelihood"):
        machine.standard_errors()


@pytest.mark.parametrize("kind", [mf.PottsMachine, mf.FullyVisibleBoltzmannMachine])
def test_samples_at_a_temperature(kind):
    X = np.random.default_rng(0).integers(0, 2, (200, 3))
    X[:, 1] = np.where(X[:, 2] > 0, X[:, 0], X[:, 1])
    machine = kind(l2=0.01).fit(X)
    states = np.array(list(np.ndindex(2, 2, 2)))
    energy = machine.model_.energy(states if kind is mf.PottsMachine else 2 * states - 1.0)
    expected = np.exp(-energy / 0.5) / np.exp(-energy / 0.5).sum()
    drawn = machine.sample(20_000, temperature=0.5, random_state=0).astype(int) @ [4, 2, 1]
    shares = np.bincount(drawn, minlength=8) / 20_000
    np.testing.assert_allclose(shares, expected, atol=5 * np.sqrt(0.25 / 20_000))
    with pytest.raises(ValueError, match="temperature must be positive"):
        machine.sample(temperature=0.0)
