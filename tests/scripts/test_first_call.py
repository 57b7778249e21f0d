import math
import sys
import warnings
from pathlib import Path

import pytest

import fastmf


@pytest.fixture
def script(load):
    return load("first_call")


@pytest.fixture
def benchmark(script, monkeypatch):
    """The benchmarks of asv over the rows of the script."""
    monkeypatch.setitem(sys.modules, "first_call", script)
    file = Path(fastmf.__file__).parents[1] / "asv_bench" / "benchmarks" / "first_call.py"
    names = {"__file__": str(file), "__name__": "first_call_benchmarks"}
    monkeypatch.setattr(sys, "path", list(sys.path))
    exec(compile(file.read_text(), str(file), "exec"), names)
    return names


def test_seconds_of_each_call(script, tmp_path):
    seconds = script.run(["time.sleep(0.2)", "1"], tmp_path)
    assert len(seconds) == 3 and 0.2 <= seconds[1] < 5
    assert script.run(["time.sleep(0.2)"], tmp_path, "process_time")[1] < 0.2
    with pytest.raises(RuntimeError, match="NameError"):
        script.run(["nonsense"], tmp_path)


def test_every_call_runs(script, tmp_path, monkeypatch):
    """In this process, whose compiled code the other tests use too."""
    import numpy as np

    (tmp_path / "own_prior.py").write_text(script.OWN_PRIOR)
    monkeypatch.syspath_prepend(tmp_path)
    names = {"mf": fastmf, "np": np}
    exec(script.DEFINITIONS, names)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # one epoch does not converge
        for row in script.ROWS.values():
            for call in filter(None, row):
                eval(call, names)


def test_a_row_is_measured_with_a_cache_of_its_own(script, monkeypatch):
    definitions = "from fastmf.kernels.sampling.random import row_key as f"
    monkeypatch.setattr(script, "DEFINITIONS", definitions)
    row = script.Row("[f.compile('(uint64, int64, int64)'), f.stats]", "time.sleep(0.1)")
    found = script.measure(row)
    assert found.second >= 0.1 and found.other is None
    assert 0 < found.cached < found.cold


def test_the_table(script):
    measured = {
        "`a`": script.Seconds(5.04, 0.512, 4.0, 0.3, 0.07, 0.61),
        "`b`": script.Seconds(20.0, None, None, 0.4, None, 0.55),
    }
    text = script.table(measured, "perf_counter")
    assert "| `a` | 5 | 0.51 | 4 | 0.3 | 0.07 |" in text
    assert "| `b` | 20 |  |  | 0.4 |  |" in text
    assert text.startswith("Seconds of first calls") and "takes 0.55 s" in text
    assert script.table(measured, "process_time").startswith("Seconds of the processor")


def test_it_goes_between_its_markers(script, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(script, "ROWS", {"`a`": script.Row("1")})
    seconds = script.Seconds(5.0, None, None, 0.3, None, 0.6)
    monkeypatch.setattr(script, "measure", lambda row, clock: seconds)
    path = tmp_path / "page.md"
    path.write_text("before\n" + "\nearlier\n".join(script.MARKERS) + "\nafter\n")
    monkeypatch.setattr("sys.argv", ["first_call", "--write", str(path)])
    monkeypatch.syspath_prepend(script.ROOT / "scripts")
    script.main()
    text = path.read_text()
    assert text.startswith("before\n" + script.MARKERS[0]) and text.endswith("\nafter\n")
    assert "| `a` | 5 |  |  | 0.3 |  |" in text and "earlier" not in text
    for wrong in (["--only", "a", "--write", str(path)], ["--only", "nonsense"]):
        monkeypatch.setattr("sys.argv", ["first_call", *wrong])
        with pytest.raises(SystemExit, match="2"):
            script.main()


def test_the_page_has_the_table(script):
    text = script.PAGE.read_text(encoding="utf-8")
    part = text.partition(script.MARKERS[0])[2].partition(script.MARKERS[1])[0]
    assert [name for name in script.ROWS if f"| {name} |" not in part] == []


def test_asv_tracks_every_row(script, benchmark, monkeypatch):
    tracked = benchmark["FirstCall"]()
    assert list(tracked.params) == list(script.ROWS)
    seconds = script.Seconds(5.0, 1.0, None, 0.3, None, 0.6)
    benchmark["measure"] = lambda row: seconds
    found = tracked.setup_cache()
    name = tracked.params[0]
    assert tracked.track_cold(found, name) == 5
    assert tracked.track_second_combination(found, name) == 1
    assert tracked.track_cached(found, name) == 0.3
    assert math.isnan(tracked.track_other_type(found, name))


def test_asv_goes_on_without_what_a_commit_lacks(benchmark):
    def fail(row):
        raise RuntimeError("no such solver")

    benchmark["measure"] = fail
    found = benchmark["FirstCall"]().setup_cache()
    assert all(math.isnan(value) for value in found["`relaxed_bp`"])
