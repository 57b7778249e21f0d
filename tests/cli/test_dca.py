import csv
import os
from pathlib import Path

import numpy as np
import pytest

import fastmf as mf
from fastmf.cli import main

N_COLUMNS = 9


class Machine:
    """The interface of `PottsMachine`, with scores of plain correlations of states."""

    made = ()

    def __init__(self, *, n_states, l2, l2_field, verbose):
        self.n_states, self.l2, self.l2_field, self.verbose = n_states, l2, l2_field, verbose
        Machine.made = (*Machine.made, self)

    def fit(self, X, sample_weight):
        self.X, self.weights = X, sample_weight
        return self

    def contact_scores(self, *, ignore):
        self.ignored = ignore
        one_hot = np.eye(self.n_states)[np.where(self.X < 0, 0, self.X)]
        one_hot -= one_hot.mean(0)
        return abs(np.einsum("sia,sjb->iajb", one_hot, one_hot)).sum((1, 3))


@pytest.fixture
def alignment(tmp_path, monkeypatch):
    """Random RNA in which columns 0 and 6 pair (2 is an insert); run in its folder."""
    rng = np.random.default_rng(0)
    X = rng.integers(0, 4, (400, N_COLUMNS))
    X[:, 6] = 3 - X[:, 0]
    rows = ["".join("ACGU"[k] for k in row) for row in X]
    rows[0] = "-" + rows[0][1:]
    text = "".join(f">s{k}\n{row[:2]}.{row[2:]}\n" for k, row in enumerate(rows))
    (tmp_path / "x.fa").write_text(text)
    monkeypatch.chdir(tmp_path)
    return tmp_path / "x.fa"


@pytest.fixture
def machine(monkeypatch):
    monkeypatch.setattr(Machine, "made", ())
    monkeypatch.setattr(mf, "PottsMachine", Machine, raising=False)
    monkeypatch.setattr(
        mf.datasets, "sequence_weights", lambda X, identity: np.full(len(X), identity),
        raising=False,
    )  # fmt: skip
    return Machine


def table(path="contacts.csv"):
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


def test_the_best_pairs_are_written(alignment, machine, capsys):
    assert main(["dca", str(alignment), "--l2", "0.1", "--identity", "0.5"]) == 0
    rows = table()
    assert len(rows) == N_COLUMNS
    best = rows[0]
    assert (best["i"], best["j"], best["column_i"], best["column_j"]) == ("1", "7", "1", "8")
    scores = [float(row["score"]) for row in rows]
    assert scores == sorted(scores, reverse=True)
    assert all(int(row["j"]) - int(row["i"]) >= 5 for row in rows)
    (made,) = machine.made
    assert (made.n_states, made.l2, made.l2_field, made.ignored) == (5, 0.1, 0.1, 0)
    np.testing.assert_array_equal(made.weights, np.full(400, 0.5))
    out = capsys.readouterr().out
    assert "9 best pairs of 9 columns, from 400 sequences (200.0 effective)" in out


def test_gaps_as_missing_data_and_the_columns_of_a_focus(alignment, machine):
    command = ["dca", str(alignment), "--alphabet", "rna", "--gaps", "missing", "--focus", "s0"]
    assert main([*command, "--out", "x.csv", "--top", "100"]) == 0
    (made,) = machine.made
    assert (made.n_states, made.ignored) == (4, None) and made.X.shape == (400, N_COLUMNS - 1)
    assert len(table("x.csv")) == 3 * 4 // 2
    assert [row["column_i"] for row in table("x.csv") if row["i"] == "2"] == ["4", "4"]
    letters = Path("x.fa").read_text().split("\n")[1].replace("-", "").replace(".", "")
    for row in table("x.csv"):
        for k in "ij":
            place = int(row[k])
            assert row[f"residue_{k}"] == f"{letters[place - 1]}{place}"


def test_pictures_and_precision(alignment, machine, capsys):
    distances = np.full((N_COLUMNS, N_COLUMNS), 20.0)
    distances[0, 6] = distances[6, 0] = 3
    np.save("d.npy", distances)
    command = ["dca", str(alignment), "--distances", "d.npy", "--top", "2"]
    assert main([*command, "--plot", "map.png"]) == 0
    assert "precision of the best 2 pairs: 0.500" in capsys.readouterr().out
    assert main(["dca", str(alignment), "--plot", "alone.pdf"]) == 0
    for name, begin in (("map.png", b"\x89PNG"), ("alone.pdf", b"%PDF")):
        assert Path(name).read_bytes().startswith(begin)


def test_a_structure_without_coordinates_has_no_precision(alignment, machine, capsys):
    np.save("d.npy", np.full((N_COLUMNS, N_COLUMNS), np.nan))
    assert main(["dca", str(alignment), "--distances", "d.npy", "--plot", "map.png"]) == 0
    assert "precision" not in capsys.readouterr().out


@pytest.mark.parametrize(
    "arguments, says",
    [
        (["nowhere.fa"], "there is no such file"),
        (["x.fa", "--out", "x.txt"], "must end in .csv"),
        (["x.fa", "--plot", "x.gif"], "must end in .png"),
        (["x.fa", "--out", "nowhere/x.csv"], "there is no folder"),
        (["x.fa", "--top", "0"], "--top must be at least 1"),
        (["x.fa", "--focus", "nobody"], "no sequence's title begins"),
        (["x.fa", "--alphabet", "DEF"], "Pass another alphabet"),
        (["x.fa", "--distances", "d.npy"], "expected (9, 9)"),
        (["short.fa"], "none are 5 apart"),
    ],
)
def test_errors_are_one_line(alignment, machine, capsys, arguments, says):
    np.save("d.npy", np.zeros((3, 3)))
    Path("short.fa").write_text(">a\nACGU\n")
    assert main(["dca", *arguments]) == 1
    err = capsys.readouterr().err
    assert says in err and err.count("\n") == 1
    assert not Path("contacts.csv").exists()


def test_sequences_that_are_left_out_are_said(machine, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    rows = ["".join(rng.choice(list("ACDEFGHIKLMNPQRSTVWY"), 12)) for _ in range(120)]
    rows = [row[:-1] + "X" if k < 72 else row for k, row in enumerate(rows)]
    text = "".join(f">s{k}\n{row}\n" for k, row in enumerate(rows))
    for content in (text, "#A3M#\n" + text.replace("\n>", "*\n>")):
        Path("x.fa").write_text(content)
        assert main(["dca", "x.fa", "--identity", "1"]) == 0
        out, err = capsys.readouterr()
        assert "from 48 sequences" in out and err.count("\n") == 1
        assert "72 of 120 sequences left out: letters outside the alphabet -ACDEF" in err
        assert "(X)" in err


def test_gappy_sequences_and_columns_are_left_out(machine, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    rows = ["".join(rng.choice(list("ACDEFGHIKLMNPQRSTVWY"), 12)) for _ in range(20)]
    rows[0], rows[1] = "A" + "-" * 11, "ACDXX" + rows[1][5:]
    rows[5:15] = [row[:-1] + "-" for row in rows[5:15]]
    Path("x.fa").write_text("".join(f">s{k}\n{row}\n" for k, row in enumerate(rows)))
    options = ["--outside", "gap", "--max-gaps", "0.5", "0.3", "--identity", "1"]
    assert main(["dca", "x.fa", *options]) == 0
    out, err = capsys.readouterr()
    assert "of 11 columns, from 19 sequences" in out
    assert err.splitlines() == [
        "fastmf: 1 of 20 sequences left out: more than 50% gaps",
        "fastmf: 1 of 12 columns left out: more than 30% gaps",
    ]
    Path("y.fa").write_text(">a\nacdefg\n>b\nacdefh\n")
    assert main(["dca", "y.fa", "--inserts", "keep"]) == 0
    assert main(["dca", "y.fa", "--max-gaps", "1", "1", "1"]) == 1
    assert "--max-gaps must be a number or two" in capsys.readouterr().err


@pytest.mark.parametrize(
    "rows, options, says",
    [
        (["ACDEFGHIKLMN"], (), "12 of 12 columns hold one letter only"),
        (["ACDEFGHIKLM-", "ACDEFGHIKLMN"], ("--gaps", "missing"), "12 of 12 columns"),
        (["A" * 10 + x + y for x in "CDEFGH" for y in "KLMNP"], ("--identity", "1"), "10 of 12"),
        (["AC" * 10 + "CA", "CA" + "AC" * 10], (), "the effective number of sequences is 1.0"),
    ],
)
def test_alignments_that_tell_nothing(tmp_path, monkeypatch, capsys, rows, options, says):
    monkeypatch.chdir(tmp_path)
    Path("x.fa").write_text("".join(f">s\n{row}\n" for row in rows))
    assert main(["dca", "x.fa", "--alphabet", "protein", *options]) == 0
    err = [line for line in capsys.readouterr().err.splitlines() if "compiling" not in line]
    assert len(err) == 1 and says in err[0] and "told" in err[0]
    if len(set(rows)) == 1:  # all pairs are alike
        assert max(abs(float(row["score"])) for row in table()) < 1e-6


def test_a_pair_of_columns_is_found(alignment, capsys):
    assert main(["dca", str(alignment), "--plot", "map.png"]) == 0
    first, second = table()[:2]
    assert (first["i"], first["j"]) == ("1", "7")
    assert float(first["score"]) > 5 * abs(float(second["score"]))
    assert os.path.getsize("map.png") > 1000
