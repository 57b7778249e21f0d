"""TAP from several starts, against enumeration."""

import numpy as np
import pytest

import fastmf as mf


def ferromagnet(field=0.0):
    return mf.BoltzmannMachine(0.3 * (1 - np.eye(10)), mf.Ising(np.full(10, field)))


@pytest.mark.parametrize("order", [1, 2])
def test_two_phases_are_both_counted(order):
    found = mf.mixture(mf.tap, ferromagnet(), order=order)
    assert len(found.solutions.weights) == 2
    one = found.solutions.log_partition[0]
    assert found.log_partition == pytest.approx(one + np.log(2), abs=1e-6)
    np.testing.assert_allclose(found.mean, 0, atol=1e-5)
    np.testing.assert_allclose(found.var, 1, atol=1e-5)
    assert found.log_partition == pytest.approx(mf.exact(ferromagnet()).log_partition, abs=0.1)


def test_rows_and_layers_have_solutions_of_their_own():
    weights, none = np.full((10, 10), 0.2), np.zeros(10)
    model = mf.RBM(weights, mf.Ising(none), mf.Ising(none))
    field = np.array([[0.0] * 10, [2.0] * 10])
    found = mf.mixture(mf.tap, model, 12, field=field)
    assert [len(x.weights) for x in found.solutions] == [2, 1]
    for k in range(2):
        exact = mf.exact(mf.RBM(weights, mf.Ising(field[k]), mf.Ising(none)))
        assert found.log_partition[k] == pytest.approx(exact.log_partition, abs=0.1)
        np.testing.assert_allclose(found.mean[1][k], exact.mean[1], atol=0.02)
    assert found.reliable.shape == found.message.shape == (2,)


def test_what_several_starts_do_not_have_is_refused():
    for options in ({"init": np.ones(10)}, {"history": True}, {"n_starts": 0}, {"rng": -1}):
        with pytest.raises(ValueError, match=r"init|mixture|n_starts|rng"):
            mf.mixture(mf.tap, ferromagnet(), **options)


@pytest.mark.parametrize("solver", [mf.tap, mf.relaxed_bp, mf.adaptive_tap, mf.belief_propagation])
def test_all_solvers_have_the_same_phases(solver):
    """Solutions of a ferromagnet in a weak field and their weights, against enumeration."""
    model, exact = ferromagnet(0.02), mf.exact(ferromagnet(0.02))
    result = mf.mixture(solver, model, rng=1)
    assert len(result.solutions.weights) == 2 and result.solutions.members.min() >= -1
    np.testing.assert_allclose(result.mean, exact.mean, atol=0.02)
    assert result.log_partition == pytest.approx(exact.log_partition, abs=0.1)
    fields = np.array([[0.0], [3.0]]) * np.ones(10)
    rows = mf.mixture(solver, model, 8, field=fields)
    assert rows.mean.shape == (2, 10)
    assert [len(x.weights) for x in rows.solutions] == [2, 1]
