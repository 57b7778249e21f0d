import numpy as np
import pytest

from fastmf._jit.kernel import kernel
from fastmf.priors._group_loops import normalise, subtract_response


@kernel(views=True)
def compiled_normalise(weights, first, last, out):
    normalise(weights, first, last, out)


@kernel(views=True)
def compiled_subtract_response(mean, field, first, last, out):
    subtract_response(mean, field, first, last, out)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("size", [1, 2, 4, 5, 8, 15, 16, 21, 33])
def test_states_of_other_groups_are_left_unchanged(size, dtype):
    rng = np.random.default_rng(size)
    weights, field = rng.random((2, size + 40)).astype(dtype)
    first, last = 3, 3 + size
    for function, inputs in (
        (compiled_normalise, (weights,)),
        (compiled_subtract_response, (weights, field)),
    ):
        out = np.full(size + 40, 7, dtype)
        expected = out.copy()
        function.py_func(*inputs, first, last, expected)
        function(*inputs, first, last, out)
        np.testing.assert_allclose(out, expected, rtol=20 * np.finfo(dtype).eps)
        assert (out[:first] == 7).all()
        assert (out[last:] == 7).all()


def test_normalised_weights_sum_to_one():
    weights, out = np.random.default_rng(0).random(21), np.zeros(21)
    compiled_normalise(weights, 0, 21, out)
    assert out.sum() == pytest.approx(1, abs=1e-15)
    np.testing.assert_allclose(out * weights.sum(), weights, rtol=1e-15)
