from functools import partial

import numpy as np
import pytest

import fastmf as mf


@pytest.fixture
def script(load):
    return load("compare_peers")


def test_peers_solve_the_same_problems(script):
    X = script.chain(4, 500)
    ours = mf.FullyVisibleBoltzmannMachine(solver="newton").fit(X)
    np.testing.assert_allclose(script.scipy_maximum(X), ours.couplings_, atol=1e-5)
    model = script.machine(20, 10, "float64")
    found = mf.belief_propagation(model, max_iter=10, tol=0, damping=0.0)
    peers = [partial(peer, model, 10) for peer in (script.by_odds, script.by_the_paper)]
    for peer in peers:
        for beliefs, mean in zip(peer(), found.mean, strict=True):
            np.testing.assert_allclose(beliefs, mean, atol=1e-10)


def test_the_table_goes_between_its_markers(script, load, tmp_path):
    page = load("speed_page")
    path = tmp_path / "SPEED.md"
    path.write_text("before\n" + "\nold\n".join(script.MARKERS) + "\nafter\n")
    row = page.line("a task", [0.1, 0.3], [1.0, 3.0], "a peer")
    page.write_page(path, page.table([row], 1), script.MARKERS)
    text = path.read_text()
    assert text.startswith("before\n" + script.MARKERS[0]) and text.endswith("\nafter\n")
    assert "| a task | 200 ms | 2 s (a peer) | 10 |" in text and "old" not in text


def test_epochs_beside_those_of_scikit_learn(load, monkeypatch):
    script = load("speed_table")
    monkeypatch.setattr(script, "images", lambda n: script.np.eye(100, 784, dtype="float32"))
    rows = list(script.epoch(3, 1))
    assert len(rows) == 5 and all("times one thread" in row for row in rows)


def test_rows_of_the_readme_are_those_of_the_page(load):
    page = load("speed_page")
    text = page.PAGE.read_text(encoding="utf-8")
    readme = page.README.read_text(encoding="utf-8")
    table = readme.partition(page.MARKERS[0])[2].partition(page.MARKERS[1])[0].strip()
    assert table == page.excerpt(text)
    assert len(table.splitlines()) == 4 + len(page.ROWS) == 8
    task, other = page.ROWS[0]
    (row,) = (line for line in text.splitlines() if task in line and f"({other})" in line)
    _, ours, theirs, ratio, _ = (cell.strip() for cell in row.strip("|").split("|"))
    assert f"| {task} | 2 | {ours} | {theirs} | {ratio} |" in table
    with pytest.raises(SystemExit, match="lacks rows"):
        page.excerpt(text.replace(task, "another task"))
