"""Sum-product of RBMs from several starts, against enumeration."""

from functools import partial

import numpy as np
import pytest

import fastmf as mf


def ferromagnet(coupling=0.2, field=0.0, dtype=np.float64):
    """An RBM of 10 + 10 spins that has two phases."""
    layers = (mf.Ising(np.full(10, field, dtype)) for _ in range(2))
    return mf.RBM(np.full((10, 10), coupling, dtype), *layers)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_two_phases_are_both_counted(dtype):
    model = ferromagnet(dtype=dtype)
    exact = mf.exact(model)
    found = mf.mixture(mf.belief_propagation, model, 10, pairwise=True)
    one = found.solutions.log_partition
    assert len(one) == 2
    assert found.log_partition == pytest.approx(one[0] + np.log(2), abs=1e-4)
    assert found.log_partition == pytest.approx(exact.log_partition, abs=0.01)
    np.testing.assert_allclose(found.solutions.weights, 0.5, atol=1e-4)
    np.testing.assert_allclose(found.mean[0], 0, atol=1e-4)
    np.testing.assert_allclose(found.var[1], 1, atol=1e-4)
    # Averages of products, not products of averages.
    energy = -0.2 * found.pairwise.sum()
    step = 1e-3
    above, below = (mf.exact(ferromagnet(0.2 + x)).log_partition for x in (step, -step))
    assert energy == pytest.approx(-0.2 * (above - below) / (2 * step), abs=0.1)


def test_the_unstable_point_without_preference_is_no_solution():
    found = mf.mixture(mf.belief_propagation, ferromagnet(), 10)
    assert (abs(found.solutions.visible) > 0.8).all()
    assert mf.belief_propagation(ferromagnet()).log_partition < found.log_partition - 3


def test_weak_couplings_have_one_solution_as_without_starts():
    model = ferromagnet(0.02, 0.3)
    found, one = mf.mixture(mf.belief_propagation, model, 6), mf.belief_propagation(model)
    np.testing.assert_allclose(found.mean[0], one.mean[0], atol=1e-7)
    assert found.log_partition == pytest.approx(one.log_partition, abs=1e-7)
    assert found.solutions.members.tolist() == [0] * 6
    assert found.reliable


def test_rows_have_solutions_of_their_own():
    field = np.array([[0.0] * 10, [0.05] * 10, [2.0] * 10])
    found = mf.mixture(mf.belief_propagation, ferromagnet(), 8, field=field)
    for row in range(3):
        shifted = mf.RBM(np.full((10, 10), 0.2), mf.Ising(field[row]), mf.Ising(np.zeros(10)))
        exact = mf.exact(shifted)
        assert found.log_partition[row] == pytest.approx(exact.log_partition, abs=0.02)
        np.testing.assert_allclose(found.mean[0][row], exact.mean[0], atol=0.01)
    assert [len(x.weights) for x in found.solutions] == [2, 2, 1]


def test_strong_couplings_of_bernoulli_units():
    reliable, errors, before = [], [], []
    for seed in range(6):
        rng = np.random.default_rng(seed)
        w = rng.normal(size=(10, 10)) * 3
        layers = (mf.Bernoulli(rng.normal(size=10) - w.sum(k) / 2) for k in (1, 0))
        model = mf.RBM(w, *layers)
        exact = np.concatenate(mf.exact(model).mean)
        for kept, solve in (
            (errors, partial(mf.mixture, mf.belief_propagation)),
            (before, mf.belief_propagation),
        ):
            found = solve(model)
            kept.append(abs(np.concatenate(found.mean) - exact).mean())
            if found.reliable:
                reliable.append(kept[-1])
    # Half of these machines have a fixed point that is right, one of them from several starts only;
    # on the others belief propagation does not converge, and says so.
    assert max(reliable) < 0.05 and len(reliable) >= 3
    assert (
        max(np.subtract(before, errors)) > 0.6
        and (np.array(errors) < np.array(before) + 1e-6).all()
    )


def test_bad_options_of_mixtures():
    with pytest.raises(ValueError, match="init"):
        mf.mixture(mf.belief_propagation, ferromagnet(), 4, init=np.zeros((10, 10)))
    with pytest.raises(ValueError, match="n_starts"):
        mf.mixture(mf.belief_propagation, ferromagnet(), 0)
    with pytest.raises(TypeError, match="n_starts"):
        mf.belief_propagation(ferromagnet(), n_starts=4)
