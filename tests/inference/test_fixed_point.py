from types import SimpleNamespace

import numpy as np
import pytest

import fastmf as mf
from fastmf.inference.fixed_point import stacked, trace_of


def test_stacked_rows_are_those_of_both():
    rng = np.random.default_rng(0)
    below, above = (mf.Bernoulli(rng.normal(size=n)) for n in (8, 4))
    model = mf.RBM(rng.normal(size=(8, 4)), below, above)
    X = (rng.random((5, 8)) < 0.5).astype(float)
    whole = mf.tap(model, X)
    both = stacked(mf.tap(model, X[:2], history=True), mf.tap(model, X[2:]))
    for name in ("mean", "var", "b", "a"):
        for part, expected in zip(getattr(both, name), getattr(whole, name), strict=True):
            np.testing.assert_allclose(part, expected, atol=1e-12)
    np.testing.assert_allclose(both.log_partition, whole.log_partition, atol=1e-12)
    for name in ("converged", "n_iter", "message"):
        np.testing.assert_array_equal(getattr(both, name), getattr(whole, name))
    assert both.history is None


def test_stacked_rows_without_log_partitions():
    model = mf.RBM(np.ones((3, 2)), mf.Bernoulli(np.zeros(3)), mf.Bernoulli(np.zeros(2)))
    with_, without = (mf.tap(model, np.eye(3), log_partition=wanted) for wanted in (True, False))
    assert without.log_partition is None
    assert stacked(without, without).log_partition is None
    assert stacked(with_, without).log_partition is None
    np.testing.assert_array_equal(with_.mean[0], without.mean[0])


def test_rows_that_ended_repeat_their_last_residual():
    history = np.array([[3.0, 2.0, 1.0, 0.0], [5.0, 4.0, 0.0, 0.0]])
    record = SimpleNamespace(history=history, n_iter=np.array([3, 2]))
    np.testing.assert_array_equal(trace_of(record), [[3, 2, 1], [5, 4, 4]])


def test_a_result_says_how_many_rows_converged():
    model = mf.RBM(np.ones((3, 2)), mf.Bernoulli(np.zeros(3)), mf.Bernoulli(np.zeros(2)))
    assert repr(mf.tap(model, np.eye(3))).startswith("FixedPoint(3 of 3 converged")
    assert "0 of 1 converged, at most 1 sweeps" in repr(mf.tap(model, max_iter=1))


@pytest.mark.parametrize("starts", [None, np.eye(3)], ids=["single", "rows"])
def test_results_are_data_frames(starts):
    pytest.importorskip("pandas")
    W = np.arange(6.0).reshape(3, 2) / 9
    result = mf.tap(mf.RBM(W, mf.Bernoulli(np.ones(3)), mf.Ising(np.zeros(2))), starts)
    frame = result.as_frame()
    for layer, values in enumerate(result.var):
        np.testing.assert_array_equal(frame.loc[layer, "var"].to_numpy(), values.ravel())
    names = ["layer", "unit"] if starts is None else ["layer", "row", "unit"]
    assert list(frame.index.names) == names
    machine = mf.BoltzmannMachine(W @ W.T * (1 - np.eye(3)), mf.Ising(np.ones(3)))
    flat = mf.tap(machine, starts)
    expected = flat.mean[1] if starts is None else flat.mean[2, 1]
    assert flat.as_frame()["mean"][1 if starts is None else (2, 1)] == expected
    solutions = mf.evaluation.solutions(machine, W.T)
    assert solutions.as_frame()["counts"].sum() == 2
