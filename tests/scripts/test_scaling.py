"""Every scaling task runs, and sets what it times beside a ceiling."""

import os

import numpy as np
import pytest

import fastmf as mf


@pytest.fixture
def scaling(load):
    pytest.importorskip("threadpoolctl")
    return load("scaling")


@pytest.mark.parametrize("name", ["tap", "bp", "ep", "fvbm"])
def test_a_quick_run_gives_table_and_picture(name, scaling, rows, tmp_path):
    pytest.importorskip("matplotlib")
    cores = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else None
    options = ["--quick", "--threads", "2", "--repeats", "1", "--output", str(tmp_path)]
    scaling.main([name, *options])
    table = rows(tmp_path / f"scaling_{name}.csv")
    assert (tmp_path / f"scaling_{name}.png").read_bytes().startswith(b"\x89PNG")
    assert {row["axis"] for row in table} >= {"threads", "threads, work in proportion"}
    assert {row["threads"] for row in table} == {"1", "2"}
    assert {row["who"] for row in table} >= {"fastmf", "ceiling"}
    assert all(0 < float(row["seconds"]) < 1000 for row in table)
    if cores:
        assert os.sched_getaffinity(0) == cores


def test_beliefs_of_numpy_are_those_of_the_solver(scaling):
    model = scaling.rbm(scaling.Size(20, 10, 1), "float64", patterns=0.0, noise=2.0)
    solution = mf.belief_propagation(model, max_iter=10, tol=0, damping=0.0)
    for beliefs, mean in zip(scaling.by_odds(model, 10), solution.mean, strict=True):
        np.testing.assert_allclose(beliefs, mean, atol=1e-10)


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="cores cannot be chosen here")
def test_threads_are_pinned_and_set_free(load):
    pytest.importorskip("threadpoolctl")
    cores = os.sched_getaffinity(0)
    with load("timing").pinned(1):
        assert len(os.sched_getaffinity(0)) == 1
    assert os.sched_getaffinity(0) == cores
