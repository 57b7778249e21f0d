"""Whatever arrays come, `tap` either solves or says what is wrong."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

import fastmf as mf

MODEL = mf.RBM(np.full((3, 2), 0.5), mf.Bernoulli(np.zeros(3)), mf.Bernoulli(np.zeros(2)))

ANY_ARRAY = arrays(
    dtype=st.sampled_from([np.float64, np.float32, np.int64, np.bool_, np.uint8]),
    shape=st.one_of(
        st.just((3,)), st.just((2, 3)), array_shapes(max_dims=3, min_side=0, max_side=4)
    ),
)


@settings(max_examples=150, deadline=None)
@given(
    name=st.sampled_from(["init", "field", "precision", "clamp"]),
    value=ANY_ARRAY,
    order=st.sampled_from(["C", "F"]),
)
def test_any_array(name, value, order):
    value = np.asarray(value, order=order)
    value.flags.writeable = False
    with np.errstate(all="raise", under="ignore"):
        try:
            result = mf.tap(MODEL, max_iter=20, **{name: value})
        except (ValueError, TypeError) as error:
            assert name in str(error)
            return
    assert value.shape in ((3,), (len(value), 3))
    for part in (*result.mean, *result.var):
        assert np.isfinite(part).all()
    assert not np.isnan(result.log_partition).any()


@settings(max_examples=50, deadline=None)
@given(
    name=st.sampled_from(["damping", "tol", "max_iter", "onsager_every", "n_threads"]),
    value=st.one_of(st.none(), st.floats(), st.integers(-3, 3), st.text(max_size=2), st.booleans()),
)
def test_any_setting(name, value):
    try:
        result = mf.tap(MODEL, **{"max_iter": 20, name: value})
    except (ValueError, TypeError) as error:
        assert name in str(error)
        return
    assert np.isfinite(result.mean[0]).all()


class Frame:
    """As those of pandas are: an array that has `mean` and `var`, and is no earlier result."""

    def mean(self):
        return 0.0

    var = mean

    def __array__(self, dtype=None, copy=None):
        return np.full((2, 3), 0.25)


def test_a_frame_of_data_is_an_array():
    expected = mf.tap(MODEL, np.full((2, 3), 0.25), max_iter=3).mean[0]
    np.testing.assert_array_equal(mf.tap(MODEL, Frame(), max_iter=3).mean[0], expected)
