from functools import partial

import numpy as np
import pytest

import fastmf as mf


@pytest.fixture
def script(load):
    return load("compare_peers")


@pytest.fixture
def page(load):
    return load("speed_page")


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


def test_epochs_beside_those_of_scikit_learn(load, monkeypatch):
    script = load("speed_table")
    monkeypatch.setattr(script, "images", lambda n: script.np.eye(100, 784, dtype="float32"))
    rows = list(script.epoch(3, 1))
    assert len(rows) == 5 and all("times one thread" in row for row in rows)


@pytest.mark.parametrize("name", ["compare_peers", "compare_graphs", "speed_table"])
def test_the_page_has_the_place_of_each_table(name, load, page):
    text = page.PAGE.read_text(encoding="utf-8")
    assert all(text.count(marker) == 1 for marker in load(name).MARKERS)


@pytest.mark.parametrize("name", ["compare_peers", "speed_table"])
def test_part_of_a_table_does_not_take_the_place_of_the_whole(name, load, tmp_path, monkeypatch):
    script, path = load(name), tmp_path / "SPEED.md"
    path.write_text("\nold\n".join(script.MARKERS))
    part = next(iter(script.SECTIONS))
    monkeypatch.setattr(script, "SECTIONS", script.SECTIONS | {part: lambda repeats: []})
    monkeypatch.setattr("sys.argv", [name, "--only", part, "--write", str(path)])
    with pytest.raises(SystemExit, match="2"):
        script.main()
    assert "old" in path.read_text()


def test_rows_of_the_readme_are_those_of_the_page(page):
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


def test_a_new_table_of_the_page_changes_the_readme(page, tmp_path, monkeypatch):
    for name in ("PAGE", "README"):
        copy = tmp_path / name
        copy.write_bytes(getattr(page, name).read_bytes())
        monkeypatch.setattr(page, name, copy)
    markers = "<!-- speed table: begin -->", "<!-- speed table: end -->"
    table = page.PAGE.read_text(encoding="utf-8").partition(markers[0])[2].partition(markers[1])[0]
    (row,) = (
        line
        for line in table.splitlines()
        if page.ROWS[0][0] in line and f"({page.ROWS[0][1]})" in line
    )
    ours = row.split(" | ")[1]
    page.write_page(page.PAGE, table.replace(f"| {ours} |", "| 3.1415 ms |").strip(), markers)
    readme = page.README.read_text(encoding="utf-8")
    assert f"| {page.ROWS[0][0]} | 2 | 3.1415 ms |" in readme
    assert f"| {page.ROWS[0][0]} | 2 | {ours} |" not in readme


def test_a_ratio_below_one_is_bold_and_counted(page):
    rows = [page.line("a", [1.0], [2.0], "peer"), page.line("b", [2.0], [1.0], "peer")]
    text = page.table(rows, 1)
    assert "| b | 2 s | 1 s (peer) | **0.5** |" in text and "| 2 |" in text
    assert "slower in 1 of 2 rows, whose ratios are bold." in text
    assert "slower in 0 of 1 rows." in page.table(rows[:1], 1)


def test_designs_and_errors_are_what_is_said(script):
    X, w = script.design(20_000, 40, 0.9)
    assert np.count_nonzero(w) == 10
    correlations = np.corrcoef(X.T)
    np.testing.assert_allclose(correlations.diagonal(1), 0.9, atol=0.02)
    np.testing.assert_allclose(correlations.diagonal(5), 0.9**5, atol=0.04)

    class Estimator:
        coef_ = np.where(np.arange(40) == 0, 3.0, w)

        def predict(self, X):
            return X @ self.coef_

    errors = script.errors_of(Estimator(), w, X, X @ w)
    assert errors["features found"] == 10 and errors["false"] == 1
    assert float(errors["error of a coefficient"]) == pytest.approx(3 / np.sqrt(10), rel=0.01)
    assert float(errors["predictions"]) == pytest.approx(3, rel=0.05)
    Estimator.inclusion_probability_ = (abs(w) > 0) * 0.9
    assert script.errors_of(Estimator(), w, X, X @ w)["false"] == 0
    assert script.errors_of(Estimator(), w, X[:4], np.array([0.0, 1, 1, 0]))["wrong classes"]


def test_rows_of_a_comparison_have_the_errors_of_both(script, monkeypatch):
    monkeypatch.setattr(script, "interleaved", lambda solvers, _: {key: [1.0] for key in solvers})
    X, w = script.design(30, 20, 0.0)

    class Known:
        coef_ = w

        def fit(self, X, y):
            return self

        def predict(self, X):
            return X @ w

    (row,) = script.compared("task", {"known": Known()}, {"peer": Known()}, (X, X @ w) * 2, w, 1)
    assert "scikit-learn, peer" in row and "features found 10 : 10; false 0 : 0" in row
