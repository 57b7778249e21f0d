import numpy as np
import pytest

import fastmf as mf
from fastmf.evaluation import effective_couplings

RNG = np.random.default_rng(0)
UNITS = mf.Categorical([np.zeros(3), np.zeros(2), np.zeros(4)])
X = np.stack([RNG.integers(0, size, 30) for size in (3, 2, 4)], 1)


def zero_sum(block):
    return block - block.mean(0) - block.mean(1)[:, None] + block.mean()


def test_gaussian_hidden_units_give_the_product_of_the_weights():
    weights, precision = RNG.normal(size=(9, 5)), RNG.uniform(1, 3, 5)
    model = mf.RBM(weights, UNITS, mf.Gaussian(RNG.normal(size=5), precision))
    found = effective_couplings(model, X)
    expected = (weights / precision) @ weights.T
    for here in (slice(0, 3), slice(3, 5), slice(5, 9)):
        for there in (slice(0, 3), slice(3, 5), slice(5, 9)):
            block = 0 if here == there else zero_sum(expected[here, there])
            np.testing.assert_allclose(found[here, there], block, atol=1e-12)


def test_two_groups_alone_have_the_couplings_of_their_distribution():
    """Without other groups the background does not matter, and the couplings are exact."""
    model = mf.RBM(
        2 * RNG.normal(size=(6, 4)),
        mf.Categorical(RNG.normal(size=(2, 3))),
        mf.Bernoulli(np.ones(4)),
    )
    found = effective_couplings(model, [[0, 1], [2, 2]])
    assert found.shape == (2, 3, 2, 3)
    labels = np.array([[a, b] for a in range(3) for b in range(3)])
    flat = model.visible.one_hot(labels)
    logs = model.visible.log_prob(flat).sum(1)
    logs += model.hidden.log_partition(flat @ model.weights, 0.0).sum(1)
    np.testing.assert_allclose(found[0, :, 1], zero_sum(logs.reshape(3, 3)), atol=1e-12)


def test_weights_choose_the_background_and_bad_input_is_named():
    model = mf.RBM(2 * RNG.normal(size=(9, 4)), UNITS, mf.Bernoulli(np.ones(4)))
    only_first = effective_couplings(model, X, n_background=1, sample_weight=np.arange(30) == 0)
    np.testing.assert_allclose(only_first, effective_couplings(model, X[:1]), atol=1e-13)
    assert abs(only_first - effective_couplings(model, X)).max() > 1e-3
    single = mf.RBM(model.weights.astype(np.float32), UNITS, mf.Bernoulli(np.ones(4)))
    np.testing.assert_allclose(
        effective_couplings(single, X), effective_couplings(model, X), atol=1e-4
    )
    with pytest.raises(TypeError, match="all categorical"):
        effective_couplings(mf.RBM(np.ones((2, 2)), mf.Ising([0, 0]), mf.Ising([0, 0])), X)
    with pytest.raises(ValueError, match="sample_weight"):
        effective_couplings(model, X, sample_weight=[1.0])
    with pytest.raises(ValueError, match="X must be finite"):
        effective_couplings(model, [[0, -1, 0]])
