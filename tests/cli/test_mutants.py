import csv

import numpy as np
import pytest

import fastmf as mf
from fastmf.cli import main


def test_mutations_are_differences_of_energies(family, tmp_path, capsys):
    machine_file, alignment, X = family
    output, plot = tmp_path / "m.csv", tmp_path / "m.png"
    command = ["mutants", str(machine_file), str(alignment), "--sequence", "s7"]
    assert main([*command, "-o", str(output), "--plot", str(plot)]) == 0
    with open(output, newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 6 * 4
    assert plot.read_bytes()[1:4] == b"PNG"
    machine = mf.PottsMachine.load(machine_file)
    before = machine.energy(X[7:8])[0]
    for row in rows[::5]:
        x = X[7].copy()
        site = int(row["site"]) - 1
        assert "-ACGU"[x[site]] == row["from"]
        assert int(row["column"]) == site + 1 + (site >= 2)  # column 3 holds inserts
        x[site] = "-ACGU".index(row["to"])
        np.testing.assert_allclose(
            float(row["effect"]), before - machine.energy(x[None])[0], atol=1e-5
        )
    best = max(rows, key=lambda row: float(row["effect"]))
    said = capsys.readouterr().out
    number = best["residue"] or f"(column {best['column']})"
    assert f"largest change: {best['from']}{number}{best['to']} " in said


def test_a_name_goes_up_to_the_slash(family, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "x.fasta").write_text(">s1/1-6\nACGUAA\n>s10/1-6\nACGUAC\n")
    assert main(["mutants", str(family[0]), "x.fasta", "--sequence", "s1"]) == 0
    assert "mutations of s1/1-6" in capsys.readouterr().out
    assert main(["mutants", str(family[0]), "x.fasta", "--sequence", "s"]) == 1


@pytest.mark.parametrize(("title", "first"), [("s1/24-30", 24), ("s1", 1)])
def test_residues_have_the_numbers_of_the_title(family, tmp_path, monkeypatch, title, first):
    """Gaps have none, and inserts, which a machine has no column for, count."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "x.fasta").write_text(f">{title}\nACg-UAA\n>s2\nAC.GUAC\n")
    assert main(["mutants", str(family[0]), "x.fasta", "-o", "m.csv"]) == 0
    with open("m.csv", newline="") as file:
        found = dict.fromkeys((row["site"], row["residue"]) for row in csv.DictReader(file))
    expected = [str(first), str(first + 1), "", *(str(first + k) for k in (3, 4, 5))]
    assert [residue for _, residue in found] == expected


@pytest.mark.parametrize(
    "text, options, says",
    [
        (">a\nACGUAN\n", [], "lacks a letter of the alphabet -ACGU at site 6"),
        (">a\nACGUAA\n", ["--sequence", "b"], "0 sequences are named b"),
        ("1,2,3,4,1,2\n", [], "is no alignment"),
    ],
)
def test_errors(family, tmp_path, monkeypatch, capsys, text, options, says):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "x.csv").write_text(text)
    assert main(["mutants", str(family[0]), "x.csv", *options]) == 1
    assert says in capsys.readouterr().err
