"""Checks of fixed points with sparse couplings: against those with dense ones."""

import numpy as np
import pytest
from scipy import sparse

import fastmf as mf
from fastmf.inference.mean_field import _sparse_checks, reliability
from fastmf.kernels.mean_field.arguments import Tilt
from tests.inference.mean_field.test_sparse_sweeps import MACHINES, pair, spin_machines
from tests.models.test_couplings import spins


@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize(
    ("kind", "scale"), [("spins", 0.2), ("spins", 0.7), ("spins", 1.5), ("groups", 1.0)]
)
def test_the_same_verdicts(kind, scale, whole):
    """Of the same rows."""
    dense, machine = MACHINES[kind](*((scale,) if kind == "spins" else ()))
    field = 0.2 * np.random.default_rng(1).normal(size=(4, machine.n_units))
    rows = mf.tap(dense, field=field)
    tilt = Tilt(field, np.zeros((1, machine.n_units)), np.zeros((1, machine.n_units), bool))
    expected, found = (
        reliability.FixedPointCheck(mf.tap, m, tilt, True, whole)(rows) for m in (dense, machine)
    )
    for one, other in zip(found, expected, strict=True):
        assert one.split(" ")[-1:] == other.split(" ")[-1:]
        assert one.count(";") == other.count(";")


@pytest.mark.parametrize("schedule", ["blocked", "sequential"])
def test_fields_of_rows_are_those_of_the_model_s_units(schedule):
    """With strong fields all is well, which it is not where they are on other units."""
    machine = spin_machines(0.9)[1]
    field = np.zeros(machine.n_units)
    field[::2] = 30.0
    found = mf.tap(machine, field=field, schedule=schedule)
    assert found.converged and found.reliable


def test_warnings_of_strong_couplings():
    machine = spin_machines(2.0, seed=2)[1]
    found = mf.tap(machine, max_iter=5000)
    assert found.reliable is not None and not found.reliable
    assert "not reliable" in str(found.message) or not found.converged


def test_radius():
    rng = np.random.default_rng(2)
    for scale in (0.3, 0.6, 1.0, 1.7):
        couplings, _ = spins(rng, 25, 0.2)
        squares, var = (scale * couplings) ** 2, rng.uniform(0.2, 1, 25)
        expected = reliability.radius_exceeds_one(squares, var, var, True)
        found = _sparse_checks.radius_exceeds_one(sparse.csr_array(squares), var)
        assert found == expected
    tree = sparse.diags_array([9.0, 9.0], offsets=[-1, 1], shape=(40, 40))
    assert not _sparse_checks.radius_exceeds_one(sparse.csr_array(tree), np.ones(40))


def test_triangles():
    rng = np.random.default_rng(3)
    couplings, _ = spins(rng, 25, 0.4)
    var = rng.random(25)
    expected = sum(
        couplings[i, j] * couplings[j, k] * couplings[k, i] * var[i] * var[j] * var[k]
        for i in range(25) for j in range(i) for k in range(j)
    )  # fmt: skip
    found = _sparse_checks.triangles(sparse.csr_array(couplings), var)
    np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_edges():
    couplings, _ = spins(np.random.default_rng(4), 8, 0.4)
    rows, columns, values = _sparse_checks.edges_of(sparse.csr_array(couplings))
    assert [*zip(rows, columns, strict=True)] == [
        *zip(*np.nonzero(np.triu(couplings)), strict=True)
    ]
    np.testing.assert_array_equal(values, couplings[rows, columns])


@pytest.mark.usefixtures("no_exact_sums")
def test_values_below_a_bound_are_told():
    """Curie-Weiss: the solution near 0 is below the naive mean-field bound."""
    dense, machine = pair(np.ones((10, 10)) - np.eye(10), mf.Ising(np.full(10, 0.01)))
    tilt = Tilt(*(np.zeros((1, 10), kind) for kind in (float, float, bool)))
    check = reliability.FixedPointCheck(mf.tap, machine, tilt, True, True)
    assert "15.7 nats below a naive mean-field bound" in check(mf.tap(dense))[0]
