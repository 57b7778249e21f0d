import os
import signal

import numpy as np
import pytest

import fastmf as mf
from fastmf.learning.layered.settings import LayeredSettings
from fastmf.learning.layered.step import train

da = pytest.importorskip("dask.array")
distributed = pytest.importorskip("distributed")

from dask_workers import import_before_forks  # noqa: E402

from fastmf import distributed as mfd  # noqa: E402
from fastmf.distributed import train as chunked  # noqa: E402

KILL = getattr(signal, "SIGKILL", signal.SIGTERM)  # on Windows the latter ends a process at once
OPTIONS = dict(n_epochs=3, batch_size=100, monitor_rows=20)


def data(dtype=float):
    rng = np.random.default_rng(0)
    return (rng.random((230, 16)) < np.linspace(0.1, 0.9, 16)).astype(dtype)


def start(dtype=float):
    weights = np.random.default_rng(1).normal(scale=0.1, size=(16, 6)).astype(dtype)
    return mf.RBM(weights, mf.Bernoulli(np.zeros(16, dtype)), mf.Bernoulli(np.zeros(6, dtype)))


def assert_same(a, b):
    for x, y in (
        (a.weights, b.weights),
        *((p.field, q.field) for p, q in zip(a.layers, b.layers, strict=True)),
    ):
        assert x.dtype == y.dtype
        np.testing.assert_array_equal(x, y)


def learned(X, settings=None, **options):
    settings = settings or LayeredSettings(**OPTIONS)
    return chunked(start(X.dtype), X, settings, chunk_rows=32, n_threads=1, seed=3, **options)


@pytest.mark.parametrize("dtype", [np.float64, pytest.param(np.float32, marks=pytest.mark.slow)])
def test_training_does_not_depend_on_how_rows_are_split(dtype):
    X = data(dtype)
    options = {"gradient": "tap", "starts": "noise", **OPTIONS}
    results = [
        learned(da.from_array(X, chunks=chunks), LayeredSettings(**options)).model
        for chunks in ((230, 16), (1, 16), ((100, 3, 127), (5, 11)))
    ]
    assert abs(results[0].weights - start(dtype).weights).max() > 1e-3
    for other in results[1:]:
        assert_same(results[0], other)


@pytest.mark.parametrize("preconditioning", [None, 0.1])
def test_chunks_give_the_gradient_of_the_whole_batch(preconditioning):
    X, settings = data(), LayeredSettings(**OPTIONS, preconditioning=preconditioning)
    whole = train(start(), X, settings, seed=3)
    chunks = learned(da.from_array(X, chunks=(70, 16)), settings)
    np.testing.assert_allclose(chunks.model.weights, whole.model.weights, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(
        chunks.history["log_likelihood"], whole.history["log_likelihood"], rtol=1e-9
    )


def test_chunks_give_the_steps_of_units_whose_scale_is_free():
    """Covariances of hidden units are those of the whole batch."""
    X, layers = data(), (mf.Bernoulli(np.zeros(16)), mf.Gaussian(np.zeros(6), np.ones(6)))
    model, settings = mf.RBM(start().weights, *layers), LayeredSettings(**OPTIONS, gradient="tap")
    whole = train(model, X, settings, seed=3).model
    rows = da.from_array(X, chunks=(70, 16))
    chunks = chunked(model, rows, settings, chunk_rows=32, n_threads=1, seed=3).model
    assert abs(whole.weights - model.weights).max() > 0.01
    np.testing.assert_allclose(chunks.weights, whole.weights, rtol=1e-9, atol=1e-12)
    np.testing.assert_array_equal(chunks.hidden.precision, 1)


@pytest.mark.slow
def test_workers_are_killed_and_nothing_is_lost(tmp_path):
    import_before_forks()
    X = data()
    expected = learned(da.from_array(X, chunks=(60, 16))).model
    reported = []

    def kill(state):
        if state.epoch == 1:
            pid = client.run(os.getpid)
            os.kill(next(iter(pid.values())), KILL)
            reported.append(len(pid))

    calls, killed = tmp_path / "calls", tmp_path / "killed"

    def killing(block):
        """The block; once, within some step, the end of the worker that should load it."""
        with open(calls, "a") as file:
            file.write("x")
        if calls.stat().st_size >= 6 and not killed.exists():
            killed.touch()
            os.kill(os.getpid(), KILL)
        return block

    with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None,
            silence_logs=50,
        ) as cluster,
        distributed.Client(cluster) as client,
    ):  # fmt: skip
        # Held by the workers: what the killed one held is made again.
        rows = da.from_array(X, chunks=(60, 16)).persist()
        distributed.wait(rows)
        found = learned(rows, callbacks=[kill])
        assert reported == [2]
        assert_same(found.model, expected)
        # Not held: every step loads its rows.
        lazy = da.from_array(X, chunks=(60, 16)).map_blocks(killing, meta=np.empty((0, 0)))
        assert_same(learned(lazy).model, expected)
        assert killed.exists() and calls.stat().st_size > 6
        solved = mfd.tap(expected, rows)
        np.testing.assert_array_equal(solved.mean[1].compute(), mf.tap(expected, X).mean[1])


def test_options_and_rows_that_are_not_possible():
    X = da.from_array(data(), chunks=50)
    with pytest.raises(ValueError, match="persistent"):
        learned(X, LayeredSettings(gradient="pcd"))
    with pytest.raises(ValueError, match="n_starts"):
        learned(X, LayeredSettings(n_starts=3))
    with pytest.raises(ValueError, match="chunk_rows"):
        mfd.fit(mf.GeneralizedRBM(2, gradient="tap", n_epochs=1), X, chunk_rows=0)
    for validation in (data()[:, :5], np.full((2, 16), np.nan)):
        with pytest.raises(ValueError, match="validation_data must"):
            learned(X, validation=validation)
    for value in (np.nan, np.inf):
        holed = np.where(np.arange(230)[:, None] == 120, value, data())
        with pytest.raises(ValueError, match="X must be finite"):
            learned(da.from_array(holed, chunks=50))
