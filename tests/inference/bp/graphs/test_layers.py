"""RBMs that are solved as graphs."""

import numpy as np
import pytest

import fastmf as mf


def machine(visible, hidden, strength=0.3, n=4, m=3):
    rng = np.random.default_rng(1)
    if visible is mf.Categorical:
        units = mf.Categorical([rng.normal(size=size) for size in (2, 3, 4)])
    else:
        units = visible(rng.normal(size=n))
    weights = rng.normal(size=(len(units[0]), m)) * strength
    weights[0, 0] = 0
    return mf.RBM(weights, units, hidden(rng.normal(size=m)))


@pytest.mark.parametrize("visible", [mf.Ising, mf.Bernoulli, mf.Categorical])
@pytest.mark.parametrize("hidden", [mf.Ising, mf.Bernoulli])
def test_the_same_fixed_point_as_that_of_the_kernels_of_rbms(visible, hidden):
    model = machine(visible, hidden)
    plain = mf.belief_propagation(model, tol=1e-12)
    nothing = np.full(3 if visible is mf.Categorical else 4, np.nan)
    found = mf.belief_propagation(model, tol=1e-12, clamp=nothing, pairwise=True)
    assert abs(plain.log_partition - found.log_partition) < 1e-9
    for k in range(2):
        np.testing.assert_allclose(found.mean[k], plain.mean[k], atol=1e-9)
        np.testing.assert_allclose(found.var[k], plain.var[k], atol=1e-9)
        mean, _ = model.layers[k].moments(found.b[k], found.a[k])
        np.testing.assert_allclose(mean, plain.mean[k], atol=1e-9)
        np.testing.assert_array_equal(found.assignment[k], plain.assignment[k])
    exact = mf.exact(model)
    np.testing.assert_allclose(found.pairwise, exact.pairwise, atol=0.02)
    upper = mf.tree_reweighted(model).log_partition
    assert exact.log_partition < upper < exact.log_partition + 1
    assert found.unique and found.reliable
    best = mf.most_probable(model, clamp=nothing)
    assert best.score == pytest.approx(mf.most_probable(model).score)


@pytest.mark.parametrize("hidden", [mf.Ising, mf.Bernoulli])
def test_pair_beliefs_of_categorical_units_are_exact_on_a_tree(hidden):
    model = machine(mf.Categorical, hidden, 2.0, m=1)
    rows = np.random.default_rng(0).normal(size=(3, 9))
    found = mf.belief_propagation(model, field=rows, pairwise=True)
    for k, row in enumerate(rows):
        visible = mf.Categorical(model.visible.field + row, model.visible.state)
        exact = mf.exact(mf.RBM(model.weights, visible, model.hidden))
        np.testing.assert_allclose(found.pairwise[k], exact.pairwise, atol=1e-12)
    averaged = mf.belief_propagation(model, field=rows, pairwise="mean")
    np.testing.assert_allclose(averaged.pairwise, found.pairwise.mean(0), atol=1e-12)


def test_clamped_units():
    model = machine(mf.Ising, mf.Bernoulli, 1.0, m=1)
    clamp = np.full(4, np.nan)
    clamp[[0, 2]] = 1.0, -1.0
    found = mf.belief_propagation(model, clamp=clamp)
    states = np.array(np.meshgrid(*[[-1.0, 1.0]] * 4)).reshape(4, -1).T
    states = states[(states[:, 0] == 1) & (states[:, 2] == -1)]
    logs = np.concatenate([-model.energy(states, np.full((len(states), 1), h)) for h in (0.0, 1.0)])
    weights = np.exp(logs - logs.max())
    assert abs(found.log_partition - logs.max() - np.log(weights.sum())) < 1e-10
    mean = weights @ np.vstack([states, states]) / weights.sum()
    np.testing.assert_allclose(found.mean[0], mean, atol=1e-12)
    both = mf.belief_propagation(model, clamp=(clamp, np.array([1.0])), field=np.zeros((2, 4)))
    assert (both.mean[1] == 1).all() and both.mean[0].shape == (2, 4)


def test_what_graphs_lack_is_refused_by_name():
    model = machine(mf.Ising, mf.Ising)
    for options, name in (
        ({"init": np.zeros((4, 3))}, "init"),
        ({"sum_hidden": True}, "sum_hidden"),
        ({"n_starts": 2, "rng": 0}, "n_starts"),
    ):
        with pytest.raises(ValueError, match=name):
            mf.most_probable(model, clamp=np.full(4, np.nan), **options)
