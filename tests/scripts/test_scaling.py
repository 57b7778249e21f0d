"""Every scaling task runs, and sets what it times beside a ceiling."""

import csv
import os

import pytest


@pytest.fixture
def scaling(load):
    pytest.importorskip("threadpoolctl")
    return load("scaling")


@pytest.mark.parametrize("name", ["tap", "bp", "ep", "fvbm"])
def test_a_quick_run_gives_table_and_picture(name, scaling, tmp_path):
    pytest.importorskip("matplotlib")
    cores = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else None
    options = ["--quick", "--threads", "2", "--repeats", "1", "--output", str(tmp_path)]
    scaling.main([name, *options])
    with open(tmp_path / f"scaling_{name}.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert (tmp_path / f"scaling_{name}.png").read_bytes().startswith(b"\x89PNG")
    assert {row["axis"] for row in rows} >= {"threads", "threads, work in proportion"}
    assert {row["threads"] for row in rows} == {"1", "2"}
    assert {row["who"] for row in rows} >= {"fastmf", "ceiling"}
    assert all(0 < float(row["seconds"]) < 1000 for row in rows)
    if cores:
        assert os.sched_getaffinity(0) == cores


def test_ceilings_are_of_the_work(scaling):
    assert scaling.Work().ceiling("float64", 1) is None
    work = scaling.Work(operations=2.0, bytes=6.0)
    seconds = work.ceiling("float64", 1, quick=True)
    product, copy = (scaling.product_rate, "float64", 1), (scaling.copy_rate, "float64", 1)
    rates = [scaling.BEST[key] for key in (product, copy)]
    assert all(1e6 < rate < 1e13 for rate in rates)
    assert seconds == pytest.approx(2 / rates[0] + 6 / rates[1])
    # A busy moment is forgotten, and does not make others forget.
    for rate, best in ((1.0, 1e6), (1e15, 1e15)):
        scaling.BEST[product] = rate
        work.ceiling("float64", 1, quick=True)
        assert scaling.BEST[product] >= best


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="cores cannot be chosen here")
def test_threads_are_pinned_and_set_free(load):
    pytest.importorskip("threadpoolctl")
    cores = os.sched_getaffinity(0)
    with load("timing").pinned(1):
        assert len(os.sched_getaffinity(0)) == 1
    assert os.sched_getaffinity(0) == cores
