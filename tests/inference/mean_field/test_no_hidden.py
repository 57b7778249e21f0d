"""Starts, fields and clamped units of RBMs without hidden units; see also `models`."""

import numpy as np

import fastmf as mf

FIELD = np.array([0.3, -1.0, 2.0])
MODEL = mf.RBM(np.zeros((3, 0)), mf.Ising(FIELD), mf.Ising(np.zeros(0)))


def test_what_is_given_for_each_layer():
    rng = np.random.default_rng(0)
    b, none = rng.normal(size=(4, 3)), np.zeros((4, 0))
    expected = np.tanh(FIELD + b)
    log_partition = np.log(2 * np.cosh(FIELD + b)).sum(1)
    first = mf.tap(MODEL, field=b)
    starts = [None, b, (b, None), (np.tanh(b), b * 0), ((np.tanh(b), none), (b * 0, none)), first]
    for field in (b, (b, None), (b, none)):
        for init in starts:
            result = mf.tap(MODEL, init, field=field)
            assert result.mean[1].shape == result.b[1].shape == (4, 0)
            np.testing.assert_allclose(result.mean[0], expected, atol=1e-12)
            np.testing.assert_allclose(result.log_partition, log_partition, atol=1e-12)
    values = np.array([1.0, np.nan, np.nan])
    for clamp in (values, (values, None), (values, np.zeros(0))):
        result = mf.tap(MODEL, clamp=clamp)
        np.testing.assert_allclose(result.mean[0], [1, *np.tanh(FIELD[1:])], atol=1e-12)
    assert mf.tap(MODEL, log_partition=False).log_partition is None
