import csv
import importlib.util
import json
import subprocess
from pathlib import Path

import pytest
from kernel_cases import CASES
from kernel_cases.moments import MOMENTS

ROOT = Path(__file__).parents[2]
RATIOS = {"part.file.a-b float64": [1.0, 8.0], "part.other float32": [3.0, 2.0]}


@pytest.fixture
def script(load, monkeypatch):
    script = load("benchmark_history")
    monkeypatch.setattr(script, "measured", lambda tree: RATIOS)
    monkeypatch.setattr(script, "KERNELS", ("part.file.a-b", "part.other"))
    monkeypatch.setattr(script, "git", lambda *arguments: f"{arguments[-1]} 2026-02-03")
    return script


def test_a_commit_is_added_in_the_place_of_its_own_rows_by_date(script, tmp_path):
    file = tmp_path / "history.csv"
    later = ("2026-03-01", "later", "part.file.a-b", "float64", "0.5")
    stale = ("2026-02-03", "HEAD", "part.gone", "float64", "0.9")
    script.write(file, [stale, later])
    script.main(["--file", str(file)])
    assert script.read(file) == [
        ("2026-02-03", "HEAD", "part.file.a-b", "float64", "0.125"),
        ("2026-02-03", "HEAD", "part.other", "float32", "1.5"),
        later,
    ]


def test_times_that_have_been_measured_are_taken_and_others_left_out(script, tmp_path):
    file, ratios = tmp_path / "history.csv", tmp_path / "ratios.json"
    ratios.write_text(json.dumps({**RATIOS, "part.unknown float64": [1.0, 1.0]}))
    script.main(["--file", str(file), "--ratios", str(ratios)])
    assert [row[2] for row in script.read(file)] == ["part.file.a-b", "part.other"]


def test_named_commits_are_measured_in_folders_of_their_own(script, tmp_path, monkeypatch):
    trees = []
    monkeypatch.setattr(script, "measured", lambda tree: trees.append(tree) or RATIOS)
    file = tmp_path / "history.csv"
    script.main(["one", "two", "--file", str(file)])
    assert len(set(trees)) == 2 and ROOT not in trees
    assert [row[1] for row in script.read(file)] == ["one", "one", "two", "two"]


def test_kernels_are_measured_by_name_in_a_process(load, monkeypatch, tmp_path):
    script = load("benchmark_history")
    calls = []

    def run(command, check, env):
        calls.append((command, env["PYTHONPATH"]))
        Path(command[-1]).write_text(json.dumps(RATIOS))

    monkeypatch.setattr(subprocess, "run", run)
    assert script.measured(tmp_path) == RATIOS
    ((command, path),) = calls
    assert path == str(tmp_path) and set(script.KERNELS) < set(command)


def test_the_reference_set_is_of_cases_and_has_a_history(load):
    script = load("benchmark_history")
    names = {str(case) for case in [*CASES, *MOMENTS]}
    assert set(script.KERNELS) <= names
    rows = script.read(script.HISTORY)
    assert {row[2] for row in rows} == set(script.KERNELS)
    assert all(0 < float(row[4]) < 10 for row in rows)
    assert rows == sorted(rows, key=lambda row: row[0])


def test_the_page_shows_a_curve_of_each_kernel_and_type(load, tmp_path):
    pytest.importorskip("matplotlib")
    path = ROOT / "docs" / "_ext" / "benchmark_history.py"
    if not path.exists():
        pytest.skip("an installed package has no docs")
    spec = importlib.util.spec_from_file_location("drawing", path)
    drawing = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(drawing)
    table = load("benchmark_history").HISTORY
    commits, parts = drawing.curves(table)
    with open(table, newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(commits) == len({row["commit"] for row in rows})
    points = [point for kernels in parts.values() for curve in kernels.values() for point in curve]
    assert len(points) == len(rows)
    for kernels in parts.values():
        for curve in kernels.values():
            assert [k for k, _ in curve] == sorted({k for k, _ in curve})
    drawing.draw(table, tmp_path / "new" / "history.svg")
    assert "<svg" in (tmp_path / "new" / "history.svg").read_text()
