import csv

import numpy as np
import pytest

import fastmf as mf
from fastmf.cli import main
from fastmf.datasets import load_alignment, read_array


def test_samples_are_those_of_the_machine(model, tmp_path):
    output = tmp_path / "out.csv"
    command = ["sample", str(model), "-n", "20", "--sweeps", "3", "--seed", "5", "-o", str(output)]
    assert main([*command, "--start", "data"]) == 0
    machine = mf.GeneralizedRBM.load(model)
    expected = machine.sample(20, n_sweeps=3, start="data", random_state=5)
    np.testing.assert_array_equal(read_array(output), expected)


def test_sequences_have_the_distribution_of_the_machine(family, tmp_path):
    machine_file, _, _ = family
    output = tmp_path / "out.fasta"
    assert main(["sample", str(machine_file), "-n", "4000", "-o", str(output)]) == 0
    found = load_alignment(output, "rna")
    exact = mf.exact(mf.PottsMachine.load(machine_file).model_, averages=True).mean.reshape(6, 5)
    frequencies = np.stack([(found.X == state).mean(0) for state in range(5)], axis=1)
    # Four standard deviations of 4,000 draws.
    np.testing.assert_allclose(frequencies, exact, atol=4 * 0.5 / np.sqrt(4000))


@pytest.mark.parametrize(
    "arguments, says",
    [
        (["MODEL", "-o", "x.fasta"], "give --alphabet"),
        (["FAMILY", "--start", "data"], "--start is for machines with hidden units"),
        (["MODEL", "-o", "x.png"], "must end in .npy"),
        (["BARE"], "no method 'sample'"),
        (["nowhere.npz"], "nowhere.npz"),
        (["MODEL", "-n", "0"], "--n-samples must"),
    ],
)
def test_errors_name_the_option(model, family, tmp_path, monkeypatch, capsys, arguments, says):
    monkeypatch.chdir(tmp_path)
    mf.GeneralizedRBM.load(model).model_.save(tmp_path / "bare.npz")
    files = {"MODEL": str(model), "FAMILY": str(family[0]), "BARE": "bare.npz"}
    assert main(["sample", *(files.get(word, word) for word in arguments)]) == 1
    assert says in capsys.readouterr().err


def test_categories_that_are_texts(tmp_path, capsys):
    rng = np.random.default_rng(0)
    X = np.array(["no", "yes, sometimes", "yes"])[rng.integers(0, 3, (100, 3))]
    mf.PottsMachine(l2=0.1, l2_field=0.1).fit(X).save(tmp_path / "m.npz")
    command = ["sample", str(tmp_path / "m.npz"), "-n", "7", "-o"]
    assert main([*command, str(tmp_path / "x.csv")]) == 0
    with open(tmp_path / "x.csv", newline="") as file:
        rows = list(csv.reader(file))
    expected = mf.PottsMachine.load(tmp_path / "m.npz").sample(7, random_state=0)
    assert rows == expected.tolist()
    assert main([*command, str(tmp_path / "x.npy")]) == 1
    assert "categories are texts" in capsys.readouterr().err
