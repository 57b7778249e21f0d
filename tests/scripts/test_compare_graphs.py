from importlib.util import find_spec

import pytest


@pytest.fixture
def script(load, monkeypatch):
    script = load("compare_graphs")
    sizes = {"GRIDS": (4,), "MAX_GRIDS": (4, 3), "STRIP": (2, 3), "TREE": 7}
    for name, value in sizes.items():
        monkeypatch.setattr(script, name, value)
    return script


@pytest.mark.filterwarnings("ignore")  # of the peers, about what they import
def test_peers_solve_the_same_problems(script, monkeypatch, capsys):
    monkeypatch.setattr(script, "interleaved", lambda solvers, _: {key: [1.0] for key in solvers})
    n_rows = {"sum_product": 2, "max_product": 2, "elimination": 2}
    for name, section in script.SECTIONS.items():
        peer = "pgmpy" if name == "elimination" else "pgmax"
        rows = list(section(1))
        assert len(rows) == (n_rows[name] if find_spec(peer) else 0)
        assert (f"{peer} is left out" in capsys.readouterr().out) is not bool(rows)
