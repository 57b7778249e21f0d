"""Peers solve the same problems, and tables are on the pages."""

import numpy as np
import pytest

import fastmf as mf


@pytest.fixture
def script(load, monkeypatch):
    script = load("speed")
    sizes = {"GRIDS": (4,), "MAX_GRIDS": (4, 3), "STRIP": (2, 3), "TREE": 7}
    for name, value in sizes.items():
        monkeypatch.setattr(script, name, value)
    monkeypatch.setattr(script.timing, "images", lambda n: np.eye(100, 784, dtype="float32"))
    return script


def test_peers_solve_the_same_problems(script):
    X = script.chain(4, 500)
    ours = mf.FullyVisibleBoltzmannMachine(solver="newton").fit(X)
    np.testing.assert_allclose(script.scipy_maximum(X), ours.couplings_, atol=1e-5)


@pytest.mark.filterwarnings("ignore")  # of the peers, about what they import
@pytest.mark.parametrize(
    ("part", "peer"), [("sum_product", "pgmax"), ("max_product", "pgmax"), ("elimination", "pgmpy")]
)
def test_peers_solve_the_same_graphs(script, monkeypatch, part, peer):
    pytest.importorskip(peer)
    monkeypatch.setattr(script, "interleaved", lambda solvers, _: {key: [1.0] for key in solvers})
    assert len(list(script.PARTS[part](1))) == 2


def test_sweeps_of_numpy_are_those_of_the_kernel(script):
    model = script.rbm(script.Size(60, 40, 1), "float64")
    sweep = script.NumPySweep(model, 1)
    sweep(100)
    solution = mf.tap(model, tol=1e-12)
    for mean, expected in zip(sweep.mean, solution.mean, strict=True):
        np.testing.assert_allclose(mean[0], expected, atol=1e-8)


def test_the_table_goes_between_its_markers(script, monkeypatch, tmp_path, capsys):
    path, row = tmp_path / "SPEED.md", script.line("a task", [0.1, 0.3], [1.0, 3.0], "a peer")
    begin, end = (f"<!-- peers table: {what} -->" for what in ("begin", "end"))
    path.write_text(f"before\n{begin}\nold\n{end}\nafter\n")
    monkeypatch.setattr(script.timing, "PAGE", path)
    monkeypatch.setattr(script, "TABLES", {"peers": {"part": lambda repeats: [row]}})
    script.main(["--write"])
    text = path.read_text()
    assert text.startswith("before\n" + begin) and text.endswith("\nafter\n")
    assert "| a task | 200 ms | 2 s (a peer) | 10 |" in text and "old" not in text
    assert row in capsys.readouterr().out


def test_epochs_beside_those_of_scikit_learn(script):
    rows = list(script.epoch(3, "float32", 1))
    assert len(rows) == 5 and all("times one thread" in row for row in rows)


def test_parts_have_rows_of_every_size_and_type(script):
    part = script.of_sizes(lambda n, dtype, repeats: [(n, dtype, repeats)], (1, 2))
    types = "float64", "float32"
    assert list(part(5)) == [(n, dtype, 5) for n in (1, 2) for dtype in types]


def test_rows_of_the_readme_are_on_the_page(script):
    readme = (script.timing.PAGE.parents[1] / "README.md").read_text(encoding="utf-8")
    begin, end = "<!-- speed rows: begin -->", "<!-- speed rows: end -->"
    rows = readme.partition(begin)[2].partition(end)[0].strip().splitlines()[4:]
    lines = script.timing.PAGE.read_text(encoding="utf-8").splitlines()
    for row in rows:
        task, _, *rest = row.strip("| ").split(" | ")
        assert any(line.startswith(" | ".join(["| " + task, *rest])) for line in lines), row
    assert len(rows) == 4
