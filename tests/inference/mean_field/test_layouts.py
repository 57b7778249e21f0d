"""The layout of a model is made once, and its memory used again."""

import itertools

import numpy as np
import pytest

import fastmf as mf
from fastmf.inference.mean_field._layouts import GroupedLayout, Layout, layout_of


def random_machine(sizes, rng, dtype="float32"):
    weights = [rng.normal(size=shape).astype(dtype) for shape in itertools.pairwise(sizes)]
    layers = [mf.Bernoulli(rng.normal(size=n).astype(dtype)) for n in sizes]
    return mf.RBM(*weights, *layers) if len(sizes) == 2 else mf.DBM(tuple(weights), tuple(layers))


@pytest.mark.parametrize("order", [1, 2, 3])
@pytest.mark.parametrize("sizes", [(50, 7), (30, 100, 9, 26)])
def test_a_model_no_longer_in_use_leaves_its_memory_to_the_next(sizes, order):
    rng = np.random.default_rng(0)
    model = random_machine(sizes, rng)
    layout = layout_of(model, order, "blocked")
    memory = [layer.couplings.ctypes.data for layer in layout.layers.of_model]
    model = random_machine(sizes, rng)
    assert layout_of(model, order, "blocked") is layout
    fresh = Layout(model, order, "blocked")
    for layer, expected in zip(layout.layers.of_model, fresh.layers.of_model, strict=True):
        assert layer.couplings.ctypes.data in memory
        for found, power in zip(layer[4:], expected[4:], strict=True):
            np.testing.assert_allclose(found, power, rtol=1e-6)
        np.testing.assert_array_equal(layer.prior.field, expected.prior.field)
    np.testing.assert_array_equal(layout.layers[:, :7] != 0, fresh.layers[:, :7] != 0)


def test_a_model_in_use_keeps_its_memory():
    rng = np.random.default_rng(0)
    models = [random_machine((50, 7), rng) for _ in range(2)]
    first = layout_of(models[0], 2, "blocked")
    expected = first.layers.of_model[0].couplings.copy()
    assert layout_of(models[1], 2, "blocked") is not first
    np.testing.assert_array_equal(first.layers.of_model[0].couplings, expected)


def machine_with_groups(rng, sizes=(3, 4, 2), n_hidden=5):
    groups = mf.Categorical([rng.normal(size=size) for size in sizes])
    visible = mf.Concatenated(mf.Bernoulli(rng.normal(size=4)), groups)
    weights = rng.normal(size=(4 + sum(sizes), n_hidden))
    return mf.RBM(weights, visible, mf.Ising(rng.normal(size=n_hidden)))


@pytest.mark.parametrize("order", [1, 2])
def test_a_model_with_the_same_groups_takes_over_their_tables(order):
    rng = np.random.default_rng(0)
    model = machine_with_groups(rng)
    layout = layout_of(model, order, "blocked")
    model = machine_with_groups(rng)
    assert layout_of(model, order, "blocked") is layout
    fresh = GroupedLayout(model, order, "blocked")
    for layer, expected in zip(layout.layers.of_model, fresh.layers.of_model, strict=True):
        for found, power in zip(layer[4:], expected[4:], strict=True):
            np.testing.assert_array_equal(found, power)
    starts = np.concatenate(
        [rng.random((3, 4)), *(np.eye(n)[[0, 1, 1]] for n in (3, 4, 2))], axis=1
    )
    again = mf.tap(model, starts, order=order, max_iter=5)
    other = mf.tap(mf.RBM(model.weights, *model.layers), starts, order=order, max_iter=5)
    np.testing.assert_array_equal(again.mean[0], other.mean[0])
