import numpy as np
import pytest
from stripes import quick, start, stripes

from fastmf.learning.layered.family import train


def test_momentum_repeats_the_previous_step():
    # One batch, and a learning rate that is zero in the second epoch.
    def rate(epoch):
        return 0.1 if epoch == 0 else 0.0

    options = {"momentum": 0.5, "learning_rate": rate, "batch_size": 60}
    one, two = (train(start(), stripes(), quick(n_epochs=n, **options)) for n in (1, 2))
    step = one.model.weights - start().weights
    np.testing.assert_allclose(two.model.weights, start().weights + 1.5 * step, atol=1e-12)


def test_weight_decay():
    plain, l2, l1 = (
        train(start(), stripes(), quick(n_epochs=1, batch_size=60, **o), seed=0).model.weights
        for o in ({}, {"l2": 0.5}, {"l1": 0.5})
    )
    np.testing.assert_allclose(l2 - plain, -0.1 * 0.5 * start().weights, atol=1e-12)
    np.testing.assert_allclose(l1 - plain, -0.1 * 0.5 * np.sign(start().weights), atol=1e-12)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_types_are_kept(dtype):
    state = train(start(dtype=dtype), stripes(dtype=dtype), quick(starts="persistent"), seed=0)
    assert state.model.dtype == state.model.visible.field.dtype == dtype
    assert {c.dtype for c in state.chains} == {np.dtype(dtype)}
    assert state.velocity.layers[1].field.dtype == dtype


def test_divergence_is_an_error():
    with pytest.raises(FloatingPointError, match="smaller learning_rate"):
        train(start(), stripes(), quick(learning_rate=1e308, n_epochs=9), seed=0)
