import re
from pathlib import Path

import numpy as np
import pytest

import fastmf as mf
from fastmf.cli import main
from fastmf.datasets import load_alignment
from fastmf.datasets.files import read_named


def test_a_table_with_empty_cells(model, stripes, tmp_path, capsys):
    X = stripes[:20].astype(float)
    X[0, :4] = np.nan
    lines = [",".join("" if np.isnan(x) else f"{x:g}" for x in row) for row in X]
    (tmp_path / "x.csv").write_text("\n".join(lines))
    output = tmp_path / "out.npy"
    assert main(["impute", str(model), str(tmp_path / "x.csv"), "-o", str(output)]) == 0
    found = np.load(output)
    seen = ~np.isnan(X)
    np.testing.assert_array_equal(found[seen], X[seen])
    # Enumeration of the missing pixels, hidden units summed.
    rbm = mf.GeneralizedRBM.load(model).model_
    v = np.repeat(X[:1], 16, axis=0)
    v[:, :4] = (np.arange(16)[:, None] >> np.arange(4)) & 1
    log_p = v @ rbm.visible.field + np.logaddexp(0, rbm.hidden.field + v @ rbm.weights).sum(1)
    expected = np.exp(log_p - np.logaddexp.reduce(log_p)) @ v[:, :4]
    np.testing.assert_allclose(found[0, :4], expected, atol=1e-4)
    assert "4 of 320 values were missing" in capsys.readouterr().out


def test_columns_go_by_their_names(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    X = (rng.normal(size=(80, 1)) + rng.normal(size=(80, 4)) > 0).astype(int)
    names = ["a", "b, c", "d", "e"]

    def write(path, order, extra=""):
        lines = [",".join([*(f'"{names[j]}"' for j in order), *extra])]
        lines += [",".join([*(str(row[j]) for j in order), *("7" for _ in extra)]) for row in X]
        Path(path).write_text("\n".join(lines))

    write("t.csv", range(4))
    options = ["--hidden-units", "2", "--epochs", "1", "-q", "--output", "m.npz"]
    assert main(["train", "rbm", "t.csv", *options]) == 0
    write("other.csv", [2, 0, 3, 1], extra="z")
    for name in ("t", "other"):
        assert main(["score", "m.npz", f"{name}.csv", "-o", f"{name}-scores.csv"]) == 0
        assert main(["impute", "m.npz", f"{name}.csv", "-o", f"{name}-all.csv"]) == 0
    assert Path("t-scores.csv").read_text() == Path("other-scores.csv").read_text()
    complete, found = read_named("other-all.csv")
    assert found == names and (complete == X).all()
    assert main(["sample", "m.npz", "-o", "s.csv"]) == 0 and read_named("s.csv")[1] == names
    for name in ("t", "other"):
        options = ["--flip-probability", "0.1", "--candidates", "other.csv", "-o", f"{name}-d.csv"]
        assert main(["denoise", "m.npz", f"{name}.csv", *options]) == 0
    assert Path("t-d.csv").read_text() == Path("other-d.csv").read_text()
    assert read_named("t-d.csv")[1] == names
    np.savetxt("bare.csv", X, delimiter=",")  # without names: by their order
    assert main(["score", "m.npz", "bare.csv", "-o", "bare-scores.csv"]) == 0
    assert Path("t-scores.csv").read_text() == Path("bare-scores.csv").read_text()
    write("short.csv", [0, 2, 3])
    assert main(["score", "m.npz", "short.csv"]) == 1
    error = capsys.readouterr().err
    assert "has no column 'b, c'; the machine has learned from a, b, c, d, e" in error
    assert "warning" not in error


def test_letters_that_are_not_known(family, tmp_path, capsys):
    machine_file, _, _ = family
    (tmp_path / "x.fasta").write_text(">one\nACGUAN\n>two\nACGUAC\n")
    output = tmp_path / "out.fasta"
    assert main(["impute", str(machine_file), str(tmp_path / "x.fasta"), "-o", str(output)]) == 0
    found = load_alignment(output, "rna")
    assert "1 of 12 letters of" in capsys.readouterr().err and found.names == ["one", "two"]
    np.testing.assert_array_equal(found.X[1], [1, 2, 3, 4, 1, 2])
    conditional = mf.PottsMachine.load(machine_file).conditional_proba([[1, 2, 3, 4, 1, 0]])
    assert found.X[0, 5] == conditional[0, -5:].argmax() == 3  # pairs with A: 4 - 1


def test_cells_that_are_there_stay_as_they_are(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    rows = np.random.default_rng(0).normal(size=(40, 2)).round(3) * [1e3, 1] + [1700001087.86, 0.5]
    lines = [f"{a:.2f},{b!r}" for a, b in rows.tolist()]
    (tmp_path / "t.csv").write_text("\n".join(["time,x", *lines]) + "\n")
    train = ["train", "rbm", "t.csv", "--visible", "gaussian", "--hidden-units", "2", "--epochs"]
    assert main([*train, "1", "--output", "m.npz"]) == 0
    printed = float(re.search(r"(-[\d.]+) nats a row", capsys.readouterr().out)[1])
    assert printed == pytest.approx(-np.log(2 * np.pi * np.e * rows.var(0)).sum() / 2, abs=0.05)
    lines[3] = lines[3].partition(",")[0] + ","
    (tmp_path / "u.csv").write_text("\n".join(["time,x", *lines]) + "\n")
    assert main(["impute", "m.npz", "u.csv", "--output", "v.csv"]) == 0
    written = (tmp_path / "v.csv").read_text().splitlines()[1:]
    assert [float(line.split(",")[0]) for line in written] == [
        float(line.split(",")[0]) for line in lines
    ]
    assert written[5].split(",")[0] == str(float(lines[5].split(",")[0]))


def test_codes_of_missing_values_and_empty_rows(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    X = np.random.default_rng(0).integers(0, 2, (30, 3))
    for name, code in (("a", ""), ("b", "-9")):
        cells = [[code if k == j else str(x) for j, x in enumerate(row)] for k, row in enumerate(X)]
        cells += [[code] * 3] * (name == "b")
        (tmp_path / f"{name}.csv").write_text("\n".join(["x,y,z", *map(",".join, cells)]))
        options = ["--missing-code", "-9", "999", "--drop-empty-rows", "--output", f"{name}.npz"]
        train = ["train", "rbm", f"{name}.csv", "-n", "2", "--epochs", "1", "-q"]
        assert main([*train, *options]) == 0
    machines = [mf.GeneralizedRBM.load(f"{name}.npz") for name in "ab"]
    np.testing.assert_array_equal(machines[0].weights_, machines[1].weights_)
    assert "1 of 31 rows of b.csv left out: they have no values" in capsys.readouterr().err


def test_words_are_categories_and_names_of_rows_come_first(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    pandas, rng = pytest.importorskip("pandas"), np.random.default_rng(0)
    kind = rng.integers(0, 2, 100)
    frame = pandas.DataFrame({
        "owns": rng.random(100) < 0.2 + 0.6 * kind,
        "place": np.array(["a b", "none", "c"])[np.where(rng.random(100) < 0.8, kind, 2)],
        "age": rng.normal(50 - 20 * kind, 5).round(1),
    })  # fmt: skip
    frame.loc[3, "place"] = frame.loc[4, "age"] = None
    frame.insert(1, "who", ["NA", *(f"p{k}" for k in range(1, 100))])
    frame.to_csv("t.csv", index=False)
    with open("t.csv", "a") as file:
        file.write(",,,\n" * 2)  # as spreadsheets may
    options = ["--id", "who", "--drop-empty-rows", "-o"]
    train = ["train", "rbm", "t.csv", "-n", "2", "--epochs", "5", "--dtype", "float64", "-q"]
    assert main([*train, *options, "m.npz"]) == 0
    data = frame.drop(columns="who")
    expected = mf.GeneralizedRBM(2, n_epochs=5, random_state=0).fit(data)
    machine = mf.GeneralizedRBM.load("m.npz")
    np.testing.assert_allclose(machine.weights_, expected.weights_)
    frame[["who", "age", "place", "owns"]].to_csv("t.csv", index=False, sep=";", decimal=",")
    for command, output in (("score", "s.csv"), ("impute", "i.csv")):
        assert main([command, "m.npz", "t.csv", *options, output]) == 0
    scores = pandas.read_csv("s.csv", keep_default_na=False)
    assert scores.columns.tolist() == ["who", "log_likelihood"]
    np.testing.assert_allclose(scores["log_likelihood"], expected.score_samples(data), rtol=1e-6)
    complete = pandas.read_csv("i.csv", keep_default_na=False)
    assert scores["who"].tolist() == complete["who"].tolist() == frame["who"].tolist()
    imputed = expected.impute(data)
    assert complete["place"].tolist() == imputed["place"].tolist()
    np.testing.assert_allclose(complete["age"], imputed["age"], rtol=1e-6)
    assert main([*train, *options, "m.npz", "--validation-share", "0.98"]) == 0  # no word is new
    assert main(["impute", "m.npz", "t.csv", *options, "i.npy"]) == 1
    assert main(["train", "rbm", "t.csv", "-q"]) == 1  # each name occurs once
    Path("t.csv").write_text(Path("t.csv").read_text().replace("a b", "A b", 1))
    assert main(["train", "rbm", "t.csv", "-q", "--id", "who"]) == 1
    err = capsys.readouterr().err
    assert "upper and lower case alone, such as 'A b' and 'a b'" in err
    assert "must end in .csv" in err and "'p1' in column 1 ('who') of line 3 is no number" in err


def test_an_output_that_is_a_link_of_the_input_is_refused(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "t.csv").write_text("a,b\n1,0\n0,1\n")
    (tmp_path / "v.csv").hardlink_to(tmp_path / "t.csv")
    assert main(["impute", "m.npz", "t.csv", "--output", "v.csv"]) == 1
    assert "would replace a file that is read" in capsys.readouterr().err
