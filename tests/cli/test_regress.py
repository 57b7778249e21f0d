import csv
import warnings
from pathlib import Path

import numpy as np
import pytest

import fastmf as mf
from fastmf.cli import main


@pytest.fixture
def table(tmp_path, monkeypatch):
    """A table of five named features, of which two matter, and a target in the middle."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 5))
    y = 2 * X[:, 1] - X[:, 4] + 0.1 * rng.normal(size=60)
    names = ["age", "dose, mg", "x", "y", "weight"]
    lines = [";".join(f'"{name}"' for name in (*names[:2], "yield", *names[2:]))]
    table = np.insert(X, 2, y, axis=1)
    lines += [";".join(map(repr, row)).replace(".", ",") for row in table.tolist()]
    (tmp_path / "table.csv").write_text("\n".join(lines))
    return X, y, names


def coefficients(path="coefficients.csv"):
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


def test_table_of_coefficients(table, tmp_path, capsys):
    X, y, names = table
    options = ["--target", "yield", "--plot", "f.png", "--model", "m.npz"]
    assert main(["regress", "table.csv", *options]) == 0
    expected = mf.SpikeSlabRegressor().fit(X, y)
    rows = coefficients()
    assert {rows[0]["feature"], rows[1]["feature"]} == {"dose, mg", "weight"}
    for row in rows:
        j = names.index(row["feature"])
        np.testing.assert_allclose(float(row["coefficient"]), expected.coef_[j], rtol=1e-5)
        found = float(row["inclusion_probability"])
        np.testing.assert_allclose(found, expected.inclusion_probability_[j], rtol=1e-5)
    assert (tmp_path / "f.png").exists()
    np.testing.assert_array_equal(mf.SpikeSlabRegressor.load("m.npz").coef_, expected.coef_)
    assert "2 of 5 features with probability above 1/2" in capsys.readouterr().out


def test_new_rows_are_predicted(table, capsys):
    X, y, _ = table
    assert main(["regress", "table.csv", "--target", "yield", "--model", "m.npz", "-q"]) == 0
    for output in ("p.csv", "p.npy"):  # columns go by their names, the target among them
        assert main(["predict", "m.npz", "table.csv", "-o", output]) == 0
    expected = mf.SpikeSlabRegressor().fit(X, y).predict(X)
    np.testing.assert_allclose(np.load("p.npy"), expected, rtol=1e-9)
    found = [float(row["prediction"]) for row in coefficients("p.csv")]
    np.testing.assert_allclose(found, expected, rtol=1e-9)
    assert "p.npy: 60 rows" in capsys.readouterr().out
    lines = Path("table.csv").read_text().splitlines()
    lines = [f"{'who' if k == 0 else f'no. {k}'};{line}" for k, line in enumerate(lines)]
    Path("named.csv").write_text("\n".join(lines))
    assert main(["predict", "m.npz", "named.csv", "--id", "who", "-o", "n.csv"]) == 0
    assert main(["predict", "m.npz", "named.csv", "-o", "w.csv"]) == 0  # words beside the columns
    assert coefficients("w.csv") == coefficients("p.csv")
    rows = [(f"no. {k}", row["prediction"]) for k, row in enumerate(coefficients("p.csv"), 1)]
    assert [(row["who"], row["prediction"]) for row in coefficients("n.csv")] == rows
    words = np.array(["low", "high"])[(y > 0).astype(int)]
    mf.SpikeSlabClassifier().fit(X, words).save("c.npz")
    np.save("X.npy", X)
    assert main(["predict", "c.npz", "X.npy", "-o", "c.csv"]) == 0
    found = [row["prediction"] for row in coefficients("c.csv")]
    assert found == mf.SpikeSlabClassifier.load("c.npz").predict(X).tolist()


def test_target_by_number_or_in_a_file(table):
    X, y, names = table
    assert main(["regress", "table.csv", "--target", "3", "-o", "a.csv"]) == 0
    np.save("X.npy", X)
    np.save("y.npy", y)
    assert main(["regress", "X.npy", "--target", "y.npy", "-o", "b.csv"]) == 0
    by_name, by_number = coefficients("a.csv"), coefficients("b.csv")
    for row in by_number:
        row["feature"] = names[int(row["feature"].removeprefix("x"))]
    assert by_name == by_number


def test_classes_of_words_beside_columns_of_words(table, capsys):
    X, y, names = table
    lines = [",".join(["who", *(name.split(",")[0] for name in names), "ill"])]
    lines += [f"p{k}," + ",".join(map(repr, row)) for k, row in enumerate(X.tolist())]
    ill = ["ill", *np.where(y > 0, "yes", "no")]
    text = [lines[0], *(f"{line},{word}" for line, word in zip(lines[1:], ill[1:], strict=True))]
    with open("t.csv", "w") as file:
        file.write("\n".join(text))
    command = ["regress", "t.csv", "--target", "ill", "--classify", "--model", "m.npz"]
    assert main([*command, "--ignore", "who"]) == 0
    expected = mf.SpikeSlabClassifier().fit(X, ill[1:])
    np.testing.assert_array_equal(mf.SpikeSlabClassifier.load("m.npz").coef_, expected.coef_)
    for options, message in (
        ([], "'p0' in column 1 ('who') of line 2 is no number"),
        (["--ignore", "whom"], "no column 'whom'"),
    ):
        assert main([*command, *options]) == 1
        assert message in capsys.readouterr().err
    for line, message in (
        (lines[9] + ",", "missing values"),
        (lines[9] + ",perhaps", "two classes, got 3: no, perhaps, yes"),
        (lines[9] + ",Yes", "'Yes' and 'yes': write them alike"),
    ):
        with open("t.csv", "w") as file:
            file.write("\n".join([*text[:9], line, *text[10:]]))
        assert main([*command, "--ignore", "who"]) == 1
        assert message in capsys.readouterr().err


def test_what_cannot_be_predicted_is_said(tmp_path, capsys):
    np.savetxt(tmp_path / "y.csv", np.arange(9.0))
    assert main(["regress", str(tmp_path / "y.csv")]) == 1
    assert "no column beside the target" in capsys.readouterr().err
    np.savetxt(tmp_path / "y.csv", [[1.0, 2], [3, 2]], delimiter=",")
    assert main(["regress", str(tmp_path / "y.csv")]) == 1
    assert "the target has the same value, 2.0, in all 2 rows" in capsys.readouterr().err


@pytest.mark.parametrize(
    "column, cells, code, says",
    [
        ("a", {3: "", 5: "inf"}, 1, "column 'a' has missing values, the first in row 4"),
        ("b", {4: "-inf"}, 1, "column 'b' has infinite values, the first in row 5"),
        ("y", {6: "NA"}, 1, "the target has missing values, the first in row 7"),
        ("a", {3: "-9", 5: "-9"}, 0, "X has the value -9 in column 0 ('a'), unlike"),
        ("b", {3: "999", 7: "999"}, 0, "X has the value 999 in column 1 ('b'), unlike"),
        ("y", {3: "-99", 7: "-99"}, 0, "the target has the value -99, unlike"),
        ("a", {3: "-9"}, 0, ""),  # once
        ("b", {3: "99", 4: "99", 5: "95", 6: "96"}, 0, ""),  # near other values
        ("c", {3: "-9", 4: "-9"}, 0, ""),  # one of several negative numbers
    ],
)
def test_values_that_may_be_missing(tmp_path, monkeypatch, capsys, column, cells, code, says):
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    table = {
        "a": rng.uniform(1, 80, 40), "b": rng.uniform(1, 80, 40), "c": rng.normal(0, 9, 40),
    }  # fmt: skip
    table["y"] = 100 + table["a"] + table["c"] + rng.normal(size=40)
    table = {name: [f"{x:.3f}" for x in values] for name, values in table.items()}
    for row, cell in cells.items():
        table[column][row] = cell
    lines = [",".join(table), *map(",".join, zip(*table.values(), strict=True))]
    (tmp_path / "t.csv").write_text("\n".join(lines))
    with warnings.catch_warnings():
        warnings.simplefilter("default")
        assert main(["regress", "t.csv", "-q"]) == code
    error = capsys.readouterr().err
    assert says in error and bool(says) == ("unlike" in error or "values" in error)


def test_a_target_of_two_values_is_said(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    np.savetxt("t.csv", np.c_[rng.normal(size=(40, 2)), np.arange(40) % 2], delimiter=",")
    with warnings.catch_warnings():
        warnings.simplefilter("default")
        assert main(["regress", "t.csv", "-q"]) == 0
    assert "two values only: --classify" in capsys.readouterr().err


def test_classes_and_columns_that_stay(table):
    X, y, _ = table
    np.save("X.npy", X)
    np.save("y.npy", (y > 0).astype(int))
    options = ["--classify", "--inclusion-probability", "0.4", "--unpenalised", "1"]
    assert main(["regress", "X.npy", "--target", "y.npy", *options]) == 0
    expected = mf.SpikeSlabClassifier(inclusion_probability=0.4, unpenalised=[0]).fit(X, y > 0)
    found = {row["feature"]: float(row["coefficient"]) for row in coefficients()}
    np.testing.assert_allclose(
        [found[f"x{j}"] for j in range(5)], expected.coef_.ravel(), rtol=1e-4
    )


@pytest.mark.parametrize(
    "options, says",
    [
        (["--target", "nothing"], "no file or column 'nothing' among 6 columns: age"),
        (["--target", "7"], "no file or column '7'"),
        (["--target", "yield", "--rows", "0"], "--rows"),
        (["--target", "yield", "--unpenalised", "z"], "column 'z' among 5"),
        (["--target", "yield", "--plot", "x.txt"], "must end in .png"),
    ],
)
def test_errors_name_the_option(table, capsys, options, says):
    assert main(["regress", "table.csv", *options]) == 1
    assert says in capsys.readouterr().err


@pytest.mark.parametrize("options", [[], ["--classify"]])
def test_a_name_of_several_columns_is_refused(tmp_path, monkeypatch, capsys, options):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "t.csv").write_text("a,y,y\n1,0,1\n2,1,1\n4,1,0\n")
    assert main(["regress", "t.csv", "--target", "y", *options]) == 1
    assert "columns 2, 3 are all named 'y'" in capsys.readouterr().err


def test_progress_unless_quiet(table, capsys, monkeypatch):
    from fastmf._common import progress

    monkeypatch.setattr(progress, "SECONDS", 0.0)
    assert main(["regress", "table.csv", "--target", "yield"]) == 0
    assert "log-evidence" in capsys.readouterr().err
    assert main(["regress", "table.csv", "--target", "yield", "--quiet"]) == 0
    assert capsys.readouterr().err == ""
