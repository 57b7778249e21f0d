from importlib.util import find_spec
from itertools import product

import numpy as np
import pytest

import fastmf as mf


@pytest.fixture
def script(load, monkeypatch):
    script = load("compare_graphs")
    sizes = {"GRIDS": (4,), "MAX_GRIDS": (4, 3), "STRIP": (2, 3), "TREE": 7}
    for name, value in sizes.items():
        monkeypatch.setattr(script, name, value)
    return script


def test_graphs_have_their_edges(script):
    assert sorted(map(tuple, script.grid(2, 3).tolist())) == [
        *((0, 1), (0, 3), (1, 2), (1, 4), (2, 5), (3, 4), (4, 5)),
    ]
    edges = script.tree(50)
    assert len(edges) == 49 and (edges[:, 0] < edges[:, 1]).all()
    model, couplings = script.spins(script.grid(2, 3))
    states = np.array(list(product(script.SPIN, repeat=6)))
    pairs = script.grid(2, 3)
    log_weights = states @ model.prior.field + states[:, pairs].prod(2) @ couplings
    weights = np.exp(log_weights)
    np.testing.assert_allclose(mf.exact(model).mean, weights @ states / weights.sum())


@pytest.mark.filterwarnings("ignore")  # of the peers, about what they import
def test_peers_solve_the_same_problems(script, monkeypatch, capsys):
    monkeypatch.setattr(script, "interleaved", lambda solvers, _: {key: [1.0] for key in solvers})
    n_rows = {"sum_product": 2, "max_product": 2, "elimination": 2}
    for name, section in script.SECTIONS.items():
        peer = "pgmpy" if name == "elimination" else "pgmax"
        rows = list(section(1))
        assert len(rows) == (n_rows[name] if find_spec(peer) else 0)
        assert (f"{peer} is left out" in capsys.readouterr().out) is not bool(rows)


def test_a_table_without_rows_is_not_written(script, tmp_path, monkeypatch):
    path = tmp_path / "SPEED.md"
    path.write_text("\nold\n".join(script.MARKERS))
    monkeypatch.setattr(script, "find_spec", lambda package: None)
    monkeypatch.setattr("sys.argv", ["compare_graphs", "--write", str(path)])
    with pytest.raises(SystemExit, match="No peer"):
        script.main()
    assert "old" in path.read_text()


def test_the_table_goes_between_its_markers(script, tmp_path, monkeypatch):
    path = tmp_path / "SPEED.md"
    path.write_text("before\n" + "\nold\n".join(script.MARKERS) + "\nafter\n")
    row = script.line("a task", [0.1], [1.0], "a peer")
    monkeypatch.setattr(script, "SECTIONS", {"part": lambda repeats: [row]})
    monkeypatch.setattr("sys.argv", ["compare_graphs", "--write", str(path)])
    script.main()
    text = path.read_text()
    assert text.startswith("before\n" + script.MARKERS[0]) and text.endswith("\nafter\n")
    assert "| a task | 100 ms | 1 s (a peer) | 10 |" in text and "old" not in text
