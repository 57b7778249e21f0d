"""Starts and external tilts of mean-field solvers, and the results that records become."""

import numpy as np
import pytest

import fastmf as mf
from fastmf._outcomes import CONVERGED, OUT_OF_ITERATIONS
from fastmf.inference.mean_field._layout import Layout
from fastmf.inference.mean_field._rows import record_from, result, start_and_tilt

MODEL = mf.RBM(np.ones((3, 2)), mf.Bernoulli([0.0, 1.0, -1.0]), mf.Bernoulli([0.5, -0.5]))
LAYOUT = Layout(MODEL, 2, "blocked")


def started(init=None, field=None, precision=None, clamp=None):
    return start_and_tilt(MODEL, LAYOUT, init, field, precision, clamp)


def test_without_a_start_units_are_uncoupled():
    state, tilt, n_rows = started()
    assert n_rows is None and state.shape == (4, 1, 5)
    mean = 1 / (1 + np.exp(-np.array([0.0, 1.0, -1.0, 0.5, -0.5])))
    np.testing.assert_allclose(state[0, 0], mean, atol=1e-15)
    np.testing.assert_allclose(state[1, 0], mean * (1 - mean), atol=1e-15)
    for part in tilt:
        np.testing.assert_array_equal(part, np.zeros((1, 5), part.dtype), strict=True)
    assert [part.dtype.kind for part in tilt] == ["f", "f", "b"]


def test_data_have_no_variance():
    X = np.eye(3)
    state, _, n_rows = started(X)
    assert n_rows == 3
    np.testing.assert_array_equal(state[0], np.hstack([X, np.zeros((3, 2))]))
    assert not state[1].any()


def test_a_start_may_be_an_earlier_result():
    found = mf.tap(MODEL)
    state, _, _ = started(found)
    np.testing.assert_array_equal(state[0, 0], np.concatenate(found.mean))
    np.testing.assert_array_equal(state[1, 0], np.concatenate(found.var))


def test_tilts_have_one_row_or_all():
    _, tilt, n_rows = started(field=np.arange(3.0), precision=np.ones((4, 3)))
    assert n_rows == 4
    np.testing.assert_array_equal(tilt.field, [[0, 1, 2, 0, 0]])
    np.testing.assert_array_equal(tilt.precision, np.tile([1, 1, 1, 0, 0], (4, 1)))


def test_clamped_values_become_starts_without_variance():
    state, tilt, _ = started(clamp=np.array([1.0, np.nan, 0.0]))
    np.testing.assert_array_equal(tilt.clamped, [[True, False, True, False, False]])
    np.testing.assert_array_equal(state[0, 0, [0, 2]], [1, 0])
    np.testing.assert_array_equal(state[1, 0] == 0, tilt.clamped[0])


@pytest.mark.parametrize(
    "options, words",
    [
        ({"clamp": np.array([0.5, np.nan, 0.0])}, "outside the support"),
        ({"init": (np.zeros(3), -np.ones(3))}, "not negative"),
        ({"init": (np.zeros(3),)}, "1 items"),
        ({"init": np.zeros((2, 3)), "field": np.zeros((3, 3))}, "rows"),
    ],
)
def test_bad_input(options, words):
    with pytest.raises(ValueError, match=words):
        started(**options)


def record(n_rows):
    return record_from(np.arange(4.0 * n_rows * 5).reshape(4, n_rows, 5), 6, True)


def test_results_are_split_by_layer():
    rows = record(2)
    rows.status[:] = CONVERGED, OUT_OF_ITERATIONS
    rows.n_iter[:] = 2, 3
    found = result(LAYOUT, rows, np.array([1.0, 2.0]), single=False)
    np.testing.assert_array_equal(np.hstack(found.mean), rows.state[0])
    np.testing.assert_array_equal(np.hstack(found.a), rows.state[3])
    assert found.converged.tolist() == [True, False]
    assert found.message[1].startswith("not converged")
    assert found.history.shape == (2, 3)


def test_a_single_row_has_no_axis_of_rows():
    rows = record(1)
    rows.status[:], rows.n_iter[:] = CONVERGED, 1
    found = result(LAYOUT, rows, None, single=True)
    assert found.log_partition is None
    assert found.mean[0].shape == (3,) and found.b[1].shape == (2,)
    assert np.ndim(found.converged) == 0 and found.history.shape == (1,)


def test_booleans_are_refused_as_clamps():
    """They may be values, or a mask of the clamped units."""
    values = np.array([True, False, True])
    for clamp in (values, np.array([values, ~values]), (None, values[:2])):
        for solve in (mf.tap, mf.belief_propagation):
            with pytest.raises(ValueError, match=r"clamp.*got booleans.*astype"):
                solve(MODEL, clamp=clamp)
