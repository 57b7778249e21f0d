import csv

import numpy as np

import fastmf as mf
from fastmf.cli import main


def rows_of(path):
    with open(path, newline="") as file:
        return list(csv.reader(file))


def test_likelihoods_are_exact_and_in_nats_a_row(model, stripes, tmp_path, capsys):
    np.save(tmp_path / "x.npy", stripes[:30])
    output = tmp_path / "scores.csv"
    assert main(["score", str(model), str(tmp_path / "x.npy"), "-o", str(output)]) == 0
    head, *rows = rows_of(output)
    assert head == ["row", "log_likelihood"]
    found = np.array([float(score) for _, score in rows])
    # Enumeration of the hidden units, by an independent sum.
    rbm = mf.GeneralizedRBM.load(model).model_
    W, a, b = (np.asarray(x, float) for x in (rbm.weights, rbm.visible.field, rbm.hidden.field))
    h = ((np.arange(2 ** len(b))[:, None] >> np.arange(len(b))) & 1).astype(float)
    log_z = np.logaddexp.reduce(h @ b + np.logaddexp(0, a + h @ W.T).sum(1))
    v = stripes[:30].astype(float)
    expected = v @ a + np.logaddexp(0, b + v @ W).sum(1) - log_z
    np.testing.assert_allclose(found, expected, atol=2e-4)
    mean = float(capsys.readouterr().out.split("log-likelihood: ")[1].split()[0])
    np.testing.assert_allclose(mean, expected.mean(), rtol=1e-3)
    assert main(["score", str(model), str(tmp_path / "x.npy"), "--energy"]) == 1
    assert "for machines of visible units alone, not a GeneralizedRBM" in capsys.readouterr().err


def test_lower_case_letters_are_taken_on_demand(family, tmp_path, capsys):
    machine_file, alignment, _ = family
    text = alignment.read_text().replace(".", "")
    (tmp_path / "upper.fasta").write_text(text)
    (tmp_path / "lower.fasta").write_text(text.lower())
    command = ["score", str(machine_file), str(tmp_path / "lower.fasta")]
    assert main([*command, "-o", str(tmp_path / "l.csv")]) == 1
    assert "pass --inserts 'keep'" in capsys.readouterr().err
    assert main([*command, "-o", str(tmp_path / "l.csv"), "--inserts", "keep"]) == 0
    command = ["score", str(machine_file), str(tmp_path / "upper.fasta")]
    assert main([*command, "-o", str(tmp_path / "u.csv")]) == 0
    assert rows_of(tmp_path / "l.csv") == rows_of(tmp_path / "u.csv")


def test_energies_of_sequences_and_their_names(family, tmp_path):
    machine_file, alignment, X = family
    output = tmp_path / "e.csv"
    command = ["score", str(machine_file), str(alignment), "--energy", "--rows", "40"]
    assert main([*command, "-o", str(output)]) == 0
    head, *rows = rows_of(output)
    assert head == ["row", "energy"]
    assert [name for name, _ in rows] == [f"s{k}" for k in range(40)]
    machine = mf.PottsMachine.load(machine_file)
    J, h = machine.couplings_, machine.field_
    for (_, energy), x in zip(rows, X, strict=False):
        positions = range(6)
        pairs = sum(J[i, x[i], j, x[j]] for i in positions for j in positions if i < j)
        np.testing.assert_allclose(
            float(energy), -pairs - sum(h[i, x[i]] for i in positions), atol=1e-5
        )


def test_other_columns_are_chosen_or_refused(family, tmp_path, capsys):
    machine_file, alignment, _ = family
    # Seven columns, none of inserts: the machine has seen the first two and the last four.
    (tmp_path / "seven.fasta").write_text(alignment.read_text().replace(".", "A"))
    for name in (alignment, tmp_path / "seven.fasta"):
        assert main(["score", str(machine_file), str(name), "-o", str(tmp_path / "s.npy")]) == 0
        scores = np.load(tmp_path / "s.npy")
        np.testing.assert_allclose(scores[:3], mf.PottsMachine.load(machine_file).score_samples(
            family[2][:3]))  # fmt: skip
    (tmp_path / "short.fasta").write_text(">a\nACG\n>b\nACC\n")
    assert main(["score", str(machine_file), str(tmp_path / "short.fasta")]) == 1
    assert "has 3 columns, the machine 6" in capsys.readouterr().err
