import contextlib
import itertools

import numpy as np
import pytest
from own_priors import Biased
from scipy.special import gammaln

import fastmf as mf
from fastmf.evaluation import gibbs_chains, log_likelihood, solutions
from fastmf.models import RBM, BoltzmannMachine, exact
from fastmf.priors import Bernoulli, Gaussian, Ising


def states_of(prior):
    """All states of a layer, one a row."""
    if isinstance(prior, mf.Concatenated):
        parts = map(states_of, prior.parts)
    elif isinstance(prior, mf.Categorical):
        parts = map(np.eye, prior.sizes)
    else:
        values = {
            Bernoulli: lambda: [(0, 1)] * len(prior.field),
            Ising: lambda: [(-1, 1)] * len(prior.field),
            mf.Binomial: lambda: [range(int(n) + 1) for n in prior.n],
            mf.Ordinal: lambda: [range(np.isfinite(w).sum()) for w in prior.log_weights],
        }[type(prior)]()
        parts = [np.array(list(column), float)[:, None] for column in values]
    return np.array([np.concatenate(states) for states in itertools.product(*parts)])


def symmetric(matrix):
    upper = np.triu(matrix, 1)
    return upper + upper.T


r = np.random.default_rng(0).normal
GROUPS = mf.Categorical([r(size=3), r(size=2), r(size=4)])
WITHIN = np.kron(np.eye(2), np.ones((3, 3)))
SCORES = mf.Ordinal([[0.0, -1.0, 0.5], [0.3, 0.1, -np.inf], [0.0, 0.8, 0.2]])
SUMMED = {
    "spins": BoltzmannMachine(symmetric(r(size=(5, 5))), Ising(r(size=5))),
    "groups": BoltzmannMachine(
        symmetric(r(size=(6, 6)) * (1 - WITHIN)), mf.Categorical(r(size=(2, 3)))
    ),
    "scores": BoltzmannMachine(symmetric(r(size=(3, 3)) / 2), SCORES),
    "bits and spins": RBM(r(size=(3, 4)), Bernoulli(r(size=3)), Ising(r(size=4))),
    "spins and bits": RBM(r(size=(4, 3)), Ising(r(size=4)), Bernoulli(r(size=3))),
    "groups and bits": RBM(r(size=(9, 3)), GROUPS, Bernoulli(r(size=3))),
    "groups and groups": RBM(r(size=(9, 6)), GROUPS, mf.Categorical(r(size=(2, 3)))),
    "counts": RBM(
        r(size=(3, 2)) / 5, *(mf.Binomial(r(size=len(n)), n) for n in ([1, 2, 4], [3, 2]))
    ),
    "deep": mf.DBM(
        [r(size=shape) for shape in ((3, 2), (2, 3), (3, 2))],
        [Bernoulli(r(size=n)) for n in (3, 2, 3, 2)],
    ),
}


@pytest.mark.parametrize("name", SUMMED)
def test_averages_are_those_of_all_states(name):
    model = SUMMED[name]
    parts = list(zip(*itertools.product(*map(states_of, model.layers)), strict=True))
    parts = [np.array(part, float) for part in parts]
    log_weights = -model.energy(*parts)
    log_partition = np.logaddexp.reduce(log_weights)
    p, x = np.exp(log_weights - log_partition), np.hstack(parts)
    found = exact(model)
    assert found.log_partition == pytest.approx(log_partition, rel=1e-13, abs=1e-13)
    np.testing.assert_allclose(np.hstack(found.mean), p @ x, atol=1e-12)
    np.testing.assert_allclose(np.hstack(found.var), p @ x**2 - (p @ x) ** 2, atol=1e-12)
    if isinstance(model, BoltzmannMachine):
        pairs = [(found.pairwise, x, x)]
    else:
        pairwise = found.pairwise if isinstance(model, mf.DBM) else [found.pairwise]
        pairs = zip(pairwise, parts, parts[1:], strict=False)
    for averages, one, other in pairs:
        np.testing.assert_allclose(averages, one.T @ (p[:, None] * other), atol=1e-12)


@pytest.mark.parametrize("flipped", [False, True])
def test_rbm_with_one_continuous_layer(flipped):
    # Summing Gaussian hidden units gives a Boltzmann machine: a Hopfield model.
    rng = np.random.default_rng(2)
    weights = rng.normal(size=(4, 2))
    spins, memory = Ising(rng.normal(size=4)), Gaussian(np.zeros(2), [2.0, 3.0])
    couplings = weights / memory.precision @ weights.T
    hopfield = BoltzmannMachine(couplings - np.diag(couplings.diagonal()), spins)
    rbm = RBM(weights.T, memory, spins) if flipped else RBM(weights, spins, memory)
    result, reference = exact(rbm), exact(hopfield)
    constant = couplings.trace() / 2 + np.log(2 * np.pi / memory.precision).sum() / 2
    assert result.log_partition == pytest.approx(reference.log_partition + constant, rel=1e-13)
    np.testing.assert_allclose(result.mean[flipped], reference.mean, atol=1e-13)
    pairwise = result.pairwise.T if flipped else result.pairwise
    # <v h> = <v v'> W / precision, as h given v has mean v'W / precision.
    expected = reference.pairwise @ weights / memory.precision
    np.testing.assert_allclose(pairwise, expected, atol=1e-13)


def test_two_by_two_reference():
    rbm = RBM([[0.9, -0.7], [0.4, 0.8]], Bernoulli([0.1, -0.2]), Bernoulli([0.3, -0.4]))
    result = exact(rbm)
    assert result.log_partition == pytest.approx(3.250924240281101, rel=1e-14)
    means = [0.60976985, 0.60142979, 0.73818036, 0.41976462]
    np.testing.assert_allclose(np.concatenate(result.mean), means, atol=5e-9)


def test_visible_layer_of_real_size():
    # Equal hidden units that push half the visible units up and half down, so that everything is a
    # binomial sum.
    n, w = 12, 0.3
    weights = np.where(np.arange(784)[:, None] % 2, w, -w) * np.ones(n)
    rbm = RBM(weights, Bernoulli(np.zeros(784)), Bernoulli(np.full(n, -2.0)))
    k = np.arange(n + 1)
    terms = gammaln(n + 1) - gammaln(k + 1) - gammaln(n - k + 1) - 2.0 * k
    terms += 392 * (np.logaddexp(0, w * k) + np.logaddexp(0, -w * k))
    result = exact(rbm)
    assert result.log_partition == pytest.approx(np.logaddexp.reduce(terms), rel=1e-13)
    p = np.exp(terms - np.logaddexp.reduce(terms))
    np.testing.assert_allclose(result.mean[1], p @ k / n, rtol=1e-12)


@pytest.mark.parametrize(
    ("model", "error"),
    [
        (RBM(np.zeros((2, 2)), Gaussian([0, 0], 1.0), Gaussian([0, 0], 1.0)), ValueError),
        (BoltzmannMachine(np.ones((40, 40)) - np.eye(40), Ising(np.zeros(40))), ValueError),
        (BoltzmannMachine(np.zeros((2, 2)), Gaussian([0, 0], 1.0)), ValueError),
        (np.zeros((2, 2)), TypeError),
    ],
)
def test_models_that_cannot_be_summed(model, error):
    with pytest.raises(error):
        exact(model)


def test_variances_of_certain_units_are_not_negative():
    rng = np.random.default_rng(0)
    for _ in range(60):
        fields = 3 * rng.normal(size=3), 3 * rng.normal(size=2)
        rbm = RBM(5 * rng.normal(size=(3, 2)), Ising(fields[0]), Bernoulli(fields[1]))
        assert (np.concatenate(exact(rbm).var) >= 0).all()


def test_the_result_in_consoles():
    found = exact(RBM(np.zeros((3, 2)), Ising(np.zeros(3)), Ising(np.zeros(2))))
    assert repr(found) == "Exact(log-partition 3.46574, averages of 3 + 2 units)"  # 5 ln 2
    pair = exact(BoltzmannMachine(np.zeros((2, 2)), Ising(np.zeros(2))), averages=False)
    assert repr(pair) == "Exact(log-partition 1.38629, without averages)"


@pytest.mark.parametrize("kind", [Bernoulli, Ising, lambda x: Gaussian(x, 1.0)])
def test_sums_that_overflow_are_refused(kind):
    prior, ones = kind([1e308, -1e308, 1e308]), np.ones((2, 3))
    machine = RBM(np.full((3, 3), 1e200), prior, prior)
    with pytest.raises(FloatingPointError, match="smaller size"):
        machine.at_temperature(0.5)
    with pytest.raises(FloatingPointError, match="smaller size"):
        exact(RBM(np.full((1, 1), 1e200), Bernoulli(np.zeros(1)), Gaussian(np.zeros(1), 1.0)))
    for call in (
        exact, mf.tap, solutions, mf.log_partition_bounds, lambda model: model.energy(ones, ones),
        lambda model: gibbs_chains(model, 1, 1, rng=0), lambda _: prior.sample(0, 0, 0),
    ):  # fmt: skip
        with contextlib.suppress(FloatingPointError, ValueError):  # but no warning, an error here
            call(machine)


def test_priors_of_users_may_overflow():
    units = (kind(np.full(3, -1000.0)) for kind in (Biased, Bernoulli))
    mine, ours = (mf.RBM(np.ones((3, 2)), visible, Ising(np.ones(2))) for visible in units)
    for solve in (mf.tap, mf.relaxed_bp, mf.adaptive_tap):
        result, expected = solve(mine), solve(ours)
        assert result.log_partition == pytest.approx(expected.log_partition, rel=1e-12)
        np.testing.assert_allclose(result.mean[1], expected.mean[1], atol=1e-8)


# --- RBMs without hidden units: independent visible units, of which everything is known -----------


FIELD = np.array([0.3, -1.0, 2.0])
VISIBLE = {
    "Bernoulli": mf.Bernoulli(FIELD),
    "Ising": mf.Ising(FIELD),
    "Gaussian": mf.Gaussian(FIELD, np.ones(3)),
    "TruncatedGaussian": mf.TruncatedGaussian(FIELD, np.ones(3), -np.ones(3), np.ones(3)),
    "Categorical": mf.Categorical(FIELD[None]),
}
kinds = pytest.mark.parametrize("visible", VISIBLE.values(), ids=VISIBLE)


def machine(visible, dtype=np.float64):
    return mf.RBM(np.zeros((3, 0), dtype), visible, mf.Bernoulli(np.zeros(0, dtype)))


def known(visible, b=0.0):
    """Means, variances and log-partition of the units under fields."""
    mean, var = visible.moments(np.zeros(3) + b, np.zeros(3))
    if isinstance(visible, mf.Categorical):
        return mean, var, np.logaddexp.reduce(visible.field + b)
    return mean, var, visible.log_partition(np.zeros(3) + b, np.zeros(3)).sum()


def assert_known(result, visible, b=0.0, tol=1e-9):
    mean, var, log_partition = known(visible, b)
    assert result.converged and result.mean[1].shape == result.var[1].shape == (0,)
    np.testing.assert_allclose(result.mean[0], mean, atol=tol)
    np.testing.assert_allclose(result.var[0], var, atol=tol)
    assert result.log_partition == pytest.approx(log_partition, abs=10 * tol)


@kinds
@pytest.mark.parametrize("b", [0.0, np.array([0.5, -0.2, 0.1])], ids=["", "field"])
def test_solvers_find_the_independent_units(visible, b):
    model, field = machine(visible), None if np.ndim(b) == 0 else (b, None)
    binary = isinstance(visible, mf.Bernoulli | mf.Ising)
    groups = isinstance(visible, mf.Categorical)
    for order in (1, 2, 3) if binary else (1, 2):
        assert_known(mf.tap(model, order=order, field=field), visible, b)
    if not groups:
        for schedule in ("auto", "convergent"):
            assert_known(mf.adaptive_tap(model, schedule=schedule, field=field), visible, b)
        assert_known(mf.relaxed_bp(model, field=field), visible, b)
        assert_known(mf.tap(model, schedule="sequential", field=field), visible, b)
    if binary or groups:
        assert_known(mf.belief_propagation(model, field=field), visible, b)
        best = (
            max(visible.field + b)
            if groups
            else np.maximum(*(x * (visible.field + b) for x in visible.support)).sum()
        )
        for sum_hidden in (False, True):
            found = mf.most_probable(model, sum_hidden=sum_hidden, field=field)
            assert found.objective == pytest.approx(best)


@kinds
def test_exact_and_saved(visible, tmp_path):
    model = machine(visible)
    mean, var, log_partition = known(visible)
    for same in (model, mf.load(_saved(model, tmp_path / "machine.npz"))):
        exact = mf.exact(same)
        assert exact.log_partition == pytest.approx(log_partition)
        np.testing.assert_allclose(exact.mean[0], mean, atol=1e-12)
        np.testing.assert_allclose(exact.var[0], var, atol=1e-12)
        assert exact.mean[1].shape == (0,) and exact.pairwise.shape == (3, 0)
        assert mf.exact(same, averages=False).log_partition == exact.log_partition


def _saved(model, path):
    model.save(path)
    return path


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_rows_and_what_else_is_returned(dtype):
    model = machine(mf.Bernoulli(FIELD.astype(dtype)), dtype)
    x = np.array([[1.0, 0, 1], [0, 0, 0], [1, 1, 1]], dtype)
    mean = known(model.visible)[0]
    for result in (mf.tap(model, x), mf.relaxed_bp(model, x), mf.adaptive_tap(model, x)):
        np.testing.assert_allclose(result.mean[0], np.tile(mean, (3, 1)), atol=1e-6)
        assert result.mean[1].shape == (3, 0)
    clamped = mf.tap(model, x, clamp=np.where([True, False, False], x, np.nan))
    np.testing.assert_array_equal(clamped.mean[0][:, 0], x[:, 0])
    result = mf.belief_propagation(model, field=(x, None), pairwise=True)
    assert result.messages.shape == result.pairwise.shape == (3, 3, 0)
    assert result.spectral_radius == 0
    mean_pairs = mf.belief_propagation(model, field=(x, None), pairwise="mean").pairwise
    assert mean_pairs.shape == (3, 0)


def test_evaluation():
    visible = VISIBLE["Bernoulli"]
    model, log_partition = machine(visible), known(visible)[2]
    x = np.array([[1.0, 0, 1], [0, 0, 0]])
    energy = model.energy(x, np.zeros((2, 0)))
    np.testing.assert_allclose(energy, -x @ FIELD)
    likelihood = -energy - log_partition
    np.testing.assert_allclose(log_likelihood(model, x, log_partition), likelihood)
    np.testing.assert_allclose(mf.evaluation.pseudo_log_likelihood(model, x), likelihood)
    assert solutions(model, 5, rng=0).log_partition == pytest.approx(log_partition)
    estimate = mf.evaluation.annealed_importance_sampling(model, n_chains=100, rng=0)
    assert estimate.log_partition == pytest.approx(log_partition, abs=0.05)
    assert "exact" in str(mf.evaluation.log_partition_report(model, n_chains=10))
    chains = gibbs_chains(model, 4, 2000, rng=0)["visible"]
    np.testing.assert_allclose(chains.mean((0, 1)), known(visible)[0], atol=0.05)


def test_a_row_of_a_conditional_machine_without_hidden_units():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 3))
    Y = (X @ rng.normal(size=(3, 4)) > 0).astype(int)
    crbm = mf.ConditionalRBM(objective="logistic", n_epochs=5, random_state=0).fit(X, Y)
    given = crbm.model_.given(X[0])
    for result in (mf.belief_propagation(given), mf.tap(given), mf.exact(given)):
        np.testing.assert_allclose(result.mean[0], crbm.predict_proba(X[:1])[0], atol=1e-9)
    log_probability = -crbm.model_.free_energy(Y[:1], X[:1]) - mf.exact(given).log_partition
    np.testing.assert_allclose(log_probability, crbm.score_samples(X[:1], Y[:1]))


def test_what_makes_no_sense_is_refused():
    empty, units = mf.Bernoulli(np.zeros(0)), mf.Bernoulli(FIELD)
    with pytest.raises(ValueError, match=r"weights must be a non-empty matrix, got shape \(0, 3\)"):
        mf.RBM(np.zeros((0, 3)), empty, units)
    with pytest.raises(ValueError, match=r"weights\[0\] must be a non-empty matrix"):
        mf.DBM((np.zeros((3, 0)), np.zeros((0, 3))), (units, empty, units))
    with pytest.raises(ValueError, match="couplings must be a non-empty matrix"):
        mf.BoltzmannMachine(np.zeros((0, 0)), empty)
    with pytest.raises(ValueError, match="init must have hidden units"):
        mf.GeneralizedRBM(init=machine(units), n_epochs=1).fit(np.eye(3))
