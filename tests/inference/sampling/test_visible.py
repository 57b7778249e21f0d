"""Gibbs sampling and annealing of fully visible machines: against enumeration."""

import numpy as np
import pytest
from kernel_cases.machines import solved_gaussian
from scipy import sparse

import fastmf as mf
from fastmf.inference.sampling.gibbs import SequentialUnits, sampled_units
from tests.inference.mean_field.test_sparse_sweeps import MACHINES, pair


def spins(rng):
    return mf.Ising(rng.normal(size=8) / 2)


def bits(rng):
    return mf.Bernoulli(rng.normal(size=8))


def groups(rng):
    return mf.Categorical([rng.normal(size=q) for q in (2, 3, 5, 2)])


def mixed(rng):
    """Bits, groups and spins side by side."""
    return mf.Concatenated(
        mf.Bernoulli(rng.normal(size=2)),
        mf.Categorical(rng.normal(size=(2, 3))),
        mf.Ising(rng.normal(size=2)),
    )


def machine(units, scale, seed=0, dtype=np.float64):
    """Units of which 30 % of pairs are not coupled, dense and sparse."""
    rng = np.random.default_rng(seed)
    prior = units(rng)
    parts = prior.parts if isinstance(prior, mf.Concatenated) else (prior,)
    sizes = [q for p in parts for q in getattr(p, "sizes", np.ones(len(p.field), int))]
    column = np.repeat(np.arange(len(sizes)), sizes)
    stays = (rng.random((len(column),) * 2) < 0.7) & (column[:, None] != column)
    couplings = np.triu(np.where(stays, scale * rng.normal(size=stays.shape), 0), 1)
    couplings = (couplings + couplings.T).astype(dtype)
    return [mf.BoltzmannMachine(c, prior) for c in (couplings, sparse.csr_array(couplings))]


# Units of all kinds, dense, and those that are mixed sparse, too.
dense_and_sparse = pytest.mark.parametrize(
    ("units", "which"), [(spins, 0), (bits, 0), (groups, 0), (mixed, 0), (spins, 1), (mixed, 1)]
)


@dense_and_sparse
def test_samples_have_the_averages_of_enumeration(units, which):
    machines, n = machine(units, 0.6 if units in (bits, groups) else 0.25), 8_000
    model, exact = machines[which], mf.exact(machines[0])
    rng = np.random.default_rng(1)
    starts = model.prior.sample(np.zeros((n, model.n_units)), 0.0, rng)
    x = sampled_units(model).sample(starts, 40, rng)
    # Standard errors of n independent chains; all numbers are within 4.5.
    pairs = x.T @ x / n
    error = np.sqrt(np.maximum((x**2).T @ x**2 / n - pairs**2, 1e-4) / n)
    assert (abs(pairs - exact.pairwise) < 4.5 * error).all()
    assert (abs(x.mean(0) - exact.mean) < 4.5 * x.std(0) / np.sqrt(n) + 1e-9).all()


@dense_and_sparse
def test_annealed_weights_have_the_mean_of_enumeration(units, which):
    model = machine(units, 1.0)[which]
    found = mf.evaluation.annealed_importance_sampling(model, 400, 40, rng=0)
    exact = mf.exact(model).log_partition
    assert abs(found.log_partition - exact) < 4 * found.error + 1e-6
    assert abs(found.reverse - exact) < 4 * found.reverse_error + 1e-6
    assert found.error < 0.1


def test_weights_of_uncoupled_units_are_exact():
    """Along a path to other tilts, with J = 0: the mean weight is a ratio of closed forms."""
    n, tilt = 3, np.array([0.7, -0.2, 1.0])
    model = mf.BoltzmannMachine(np.zeros((n, n)), mf.Bernoulli(np.zeros(n)))
    rng = np.random.default_rng(0)
    x = (rng.random((40_000, n)) < 1 / (1 + np.exp(-tilt))).astype(float)
    log_weights, _ = SequentialUnits(model).anneal(x, np.array([0.0, 0.4, 1.0]), rng, tilt)
    weights = np.exp(log_weights)
    right = np.prod(2 / (1 + np.exp(tilt)))
    assert abs(weights.mean() - right) < 4 * weights.std() / 200


@pytest.mark.parametrize("dtype", [pytest.param(np.float32, marks=pytest.mark.slow), np.float64])
@pytest.mark.parametrize("which", [0, 1], ids=["dense", "sparse"])
def test_neither_threads_nor_parts_change_a_sample(dtype, which):
    models = machine(lambda rng: mf.Ising(rng.normal(size=60).astype(dtype)), 0.2, 2, dtype)
    units, start = sampled_units(models[which]), models[0].prior.sample
    x = start(np.zeros((30, 60)), 0.0, np.random.default_rng(3)).astype(dtype)
    one = units.sample(x, 60, np.random.default_rng(4), 1)
    assert one.dtype == dtype
    np.testing.assert_array_equal(units.sample(x, 60, np.random.default_rng(4), 2), one)
    rng = np.random.default_rng(4)
    np.testing.assert_array_equal(units.sample(units.sample(x, 20, rng), 40, rng), one)


def test_strong_couplings_and_saturated_fields():
    """Two spins that always agree, one that a field of 1e4 fixes, and large couplings of bits."""
    couplings = np.zeros((3, 3))
    couplings[0, 1] = couplings[1, 0] = 800.0
    model = mf.BoltzmannMachine(couplings, mf.Ising(np.array([0.0, 0.0, -1e4])))
    x = SequentialUnits(model).sample(np.ones((50, 3)), 5, np.random.default_rng(0))
    assert (x[:, 0] == x[:, 1]).all() and (x[:, 2] == -1).all()
    bits = mf.BoltzmannMachine(-1e5 * (np.ones((2, 2)) - np.eye(2)), mf.Bernoulli(np.zeros(2)))
    x = SequentialUnits(bits).sample(np.zeros((500, 2)), 5, np.random.default_rng(0))
    assert (x.sum(1) <= 1).all() and 0.25 < x[:, 0].mean() < 0.42


def test_without_couplings_or_chains():
    empty = mf.BoltzmannMachine(np.zeros((4, 4)), mf.Bernoulli(np.full(4, 30.0)))
    units = SequentialUnits(empty)
    assert (units.sample(np.zeros((3, 4)), 1, np.random.default_rng(0)) == 1).all()
    assert units.sample(np.zeros((0, 4)), 3, np.random.default_rng(0)).shape == (0, 4)
    assert (units.sample(np.zeros((3, 4)), 0, np.random.default_rng(0)) == 0).all()


# --- colours --------------------------------------------------------------------------------------


def test_chains_of_sparse_machines():
    _, model = MACHINES["groups"]()
    draws = mf.evaluation.gibbs_chains(model, 200, 20, n_warmup=20, rng=0)["visible"]
    assert draws.shape == (200, 20, 6) and draws.dtype.kind == "i"
    frequencies = model.prior.one_hot(draws).mean((0, 1))
    np.testing.assert_allclose(frequencies, mf.exact(model).mean, atol=0.06)


# --- annealing ------------------------------------------------------------------------------------


def test_bernoulli_and_float32():
    rng = np.random.default_rng(1)
    couplings = np.triu(rng.normal(size=(10, 10)), 1).astype(np.float32)
    prior = mf.Bernoulli(rng.normal(size=10).astype(np.float32))
    for model in pair(couplings + couplings.T, prior):
        found = mf.evaluation.annealed_importance_sampling(model, 200, 50, rng=0)
        assert found.samples.dtype == np.float32 and {*found.samples.flat} == {0, 1}
        exact = mf.exact(model).log_partition
        assert abs(found.log_partition - exact) < 5 * found.error + 1e-3


def test_real_units():
    """A Gaussian machine: log Z in closed form."""
    rng = np.random.default_rng(2)
    couplings = np.triu(rng.normal(size=(6, 6)) / 4, 1)
    dense, model = pair(couplings + couplings.T, mf.Gaussian(rng.normal(size=6), np.full(6, 2.0)))
    exact = solved_gaussian(dense)[2]
    for machine in (dense, model):
        found = mf.evaluation.annealed_importance_sampling(machine, 200, 50, rng=0)
        assert abs(found.log_partition - exact) < 5 * found.error + 1e-3


def test_mixed_units_and_starts_from_data():
    _, model = MACHINES["mixed"]()
    data = model.prior.sample(np.zeros((5, model.n_units)), 0.0, np.random.default_rng(0))
    one = mf.evaluation.annealed_importance_sampling(model, 100, 30, rng=0, data=data)
    other = mf.evaluation.annealed_importance_sampling(model, 100, 30, rng=1)
    assert abs(one.log_partition - other.log_partition) < 5 * (one.error + other.error)


def test_reports():
    for model in MACHINES["spins"](n=10):
        report = mf.evaluation.log_partition_report(
            model, n_chains=50, n_steps=100, include_exact=True
        )
        exact = report["exact"].log_partition
        np.testing.assert_allclose(exact, mf.exact(model).log_partition, rtol=1e-12)
        assert abs(report["AIS"].log_partition - exact) < 0.05
        assert abs(report["TAP2, largest"].log_partition - exact) < 0.2
        names = [entry.name for entry in report]
        assert "TAP3, mean" in names


def test_forbidden_pairs_and_other_models_are_refused():
    couplings = np.zeros((4, 4))
    couplings[0, 2] = couplings[2, 0] = -np.inf
    model = mf.BoltzmannMachine(sparse.csr_array(couplings), mf.Categorical(np.zeros((2, 2))))
    with pytest.raises(ValueError, match="-inf forbid"):
        mf.evaluation.annealed_importance_sampling(model)
    with pytest.raises(TypeError, match="RBM, a DBM or a BoltzmannMachine"):
        mf.evaluation.annealed_importance_sampling(object())
