"""Annealing of fully visible machines: against enumeration."""

import numpy as np
import pytest
from scipy import sparse

import fastmf as mf
from tests.inference.mean_field.test_sparse_sweeps import MACHINES, pair


@pytest.mark.parametrize("kind", ["spins", "groups"])
@pytest.mark.parametrize("which", ["dense", "sparse"])
def test_both_ends_are_right(kind, which):
    model = MACHINES[kind](**({"n": 12, "scale": 0.8} if kind == "spins" else {}))[
        which == "sparse"
    ]
    exact = mf.exact(model)
    found = mf.annealed_importance_sampling(model, 200, 100, rng=0)
    assert found.converged
    assert abs(found.log_partition - exact.log_partition) < 5 * found.error + 1e-3
    assert abs(found.reverse - exact.log_partition) < 5 * found.reverse_error + 1e-3
    np.testing.assert_allclose(found.samples.mean(0), exact.mean, atol=0.2)


def test_bernoulli_and_float32():
    rng = np.random.default_rng(1)
    couplings = np.triu(rng.normal(size=(10, 10)), 1).astype(np.float32)
    prior = mf.Bernoulli(rng.normal(size=10).astype(np.float32))
    for model in pair(couplings + couplings.T, prior):
        found = mf.annealed_importance_sampling(model, 200, 100, rng=0)
        assert found.samples.dtype == np.float32 and {*found.samples.flat} == {0, 1}
        exact = mf.exact(model).log_partition
        assert abs(found.log_partition - exact) < 5 * found.error + 1e-3


def test_real_units():
    """A Gaussian machine: log Z in closed form."""
    rng = np.random.default_rng(2)
    couplings = np.triu(rng.normal(size=(6, 6)) / 4, 1)
    dense, model = pair(couplings + couplings.T, mf.Gaussian(rng.normal(size=6), np.full(6, 2.0)))
    A = 2 * np.eye(6) - dense.couplings
    h = model.prior.field
    exact = (6 * np.log(2 * np.pi) - np.linalg.slogdet(A)[1] + h @ np.linalg.solve(A, h)) / 2
    for machine in (dense, model):
        found = mf.annealed_importance_sampling(machine, 200, 200, rng=0)
        assert abs(found.log_partition - exact) < 5 * found.error + 1e-3


def test_mixed_units_and_starts_from_data():
    _, model = MACHINES["mixed"]()
    data = model.prior.sample(np.zeros((5, model.n_units)), 0.0, np.random.default_rng(0))
    one = mf.annealed_importance_sampling(model, 100, 200, rng=0, data=data)
    other = mf.annealed_importance_sampling(model, 100, 200, rng=1)
    assert abs(one.log_partition - other.log_partition) < 5 * (one.error + other.error)


def test_reports():
    for model in MACHINES["spins"](n=10):
        report = mf.log_partition_report(model, n_chains=50, n_steps=100)
        exact = report["exact"].log_partition
        np.testing.assert_allclose(exact, mf.exact(model).log_partition, rtol=1e-12)
        assert abs(report["AIS"].log_partition - exact) < 0.05
        assert abs(report["TAP2, largest"].log_partition - exact) < 0.2
        names = [entry.name for entry in report]
        assert "TAP3, mean" in names and "TAP2, corrected" not in names


def test_forbidden_pairs_and_other_models_are_refused():
    couplings = np.zeros((4, 4))
    couplings[0, 2] = couplings[2, 0] = -np.inf
    model = mf.BoltzmannMachine(sparse.csr_array(couplings), mf.Categorical(np.zeros((2, 2))))
    with pytest.raises(ValueError, match="-inf forbid"):
        mf.annealed_importance_sampling(model)
    with pytest.raises(TypeError, match="RBM, a DBM or a BoltzmannMachine"):
        mf.annealed_importance_sampling(object())
