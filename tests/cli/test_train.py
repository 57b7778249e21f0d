import gzip
import re
import struct

import numpy as np
import pytest
from sklearn.datasets import load_wine

from fastmf import GeneralizedRBM
from fastmf.cli import main

SHORT = ["--hidden-units", "3", "--epochs", "2", "--batch-size", "20", "--quiet"]


def train(data, output, *options):
    return main(["train", "rbm", str(data), "--output", str(output), *SHORT, *options])


def test_train_writes_the_machine_that_fit_would_give(stripes, tmp_path, capsys):
    np.save(tmp_path / "data.npy", stripes)
    assert train(tmp_path / "data.npy", tmp_path / "m.npz", "--seed", "3", "--l2", "0.01") == 0
    direct = GeneralizedRBM(3, n_epochs=2, batch_size=20, random_state=3, l2=0.01)
    direct.fit(stripes.astype(np.float32))
    np.testing.assert_array_equal(GeneralizedRBM.load(tmp_path / "m.npz").weights_, direct.weights_)
    out = capsys.readouterr().out
    assert "16 visible and 3 hidden units, 2 epochs, log-likelihood -" in out


def test_images_of_bytes_are_scaled_cut_and_thresholded(stripes, tmp_path):
    grey = (stripes * 200 + 20).reshape(-1, 4, 4)
    header = struct.pack(">4B3I", 0, 0, 8, 3, *grey.shape)
    (tmp_path / "x.gz").write_bytes(gzip.compress(header + grey.tobytes()))
    np.savetxt(tmp_path / "x.csv", stripes[:50], delimiter=",")
    options = ["--scale", "255", "--threshold", "0.5", "--rows", "50"]
    assert train(tmp_path / "x.gz", tmp_path / "grey.npz", *options) == 0
    assert train(tmp_path / "x.csv", tmp_path / "csv.npz") == 0
    grey, csv = (GeneralizedRBM.load(tmp_path / name).weights_ for name in ("grey.npz", "csv.npz"))
    np.testing.assert_array_equal(grey, csv)
    assert grey.dtype == np.float32


def test_columns_of_words_are_ignored_on_demand(stripes, tmp_path, capsys):
    names = [f"c{j}" for j in range(stripes.shape[1])]
    rows = [",".join([f"person {k}", *map(str, row)]) for k, row in enumerate(stripes.tolist())]
    (tmp_path / "x.csv").write_text("\n".join([",".join(["who", *names]), *rows]))
    np.save(tmp_path / "x.npy", stripes)
    assert train(tmp_path / "x.csv", tmp_path / "a.npz") == 1
    assert "('who') of line 2 is no number; leave the column out" in capsys.readouterr().err
    assert train(tmp_path / "x.csv", tmp_path / "a.npz", "--ignore", "who") == 0
    assert train(tmp_path / "x.npy", tmp_path / "b.npz") == 0
    found, expected = (GeneralizedRBM.load(tmp_path / f"{x}.npz").weights_ for x in "ab")
    np.testing.assert_array_equal(found, expected)
    assert train(tmp_path / "x.npy", tmp_path / "b.npz", "--ignore", "who") == 1
    assert "no names of columns" in capsys.readouterr().err


def test_a_raw_table_with_names_and_empty_cells_is_learned(tmp_path, capsys):
    """What is printed is the likelihood of what was seen, nats a row, in the table's own units."""
    wine = load_wine().data[:100]  # as many rows as the likelihood is monitored on
    wine[np.random.default_rng(0).random(wine.shape) < 0.1] = np.nan
    lines = [",".join("" if np.isnan(x) else f"{x:g}" for x in row) for row in wine]
    (tmp_path / "t.csv").write_text("\n".join([",".join("abcdefghijklm"), *lines]))
    options = ["--visible", "gaussian", "--epochs", "50", "--dtype", "float64"]
    assert train(tmp_path / "t.csv", tmp_path / "m.npz", *options) == 0
    printed = float(re.search(r"(-[\d.]+) nats a row", capsys.readouterr().out)[1])
    machine = GeneralizedRBM.load(tmp_path / "m.npz")
    assert machine.feature_names_in_.tolist() == list("abcdefghijklm")
    del machine.feature_names_in_
    assert printed == pytest.approx(machine.score(wine), abs=0.02)
    by_column = (1 + np.log(2 * np.pi * np.nanvar(wine, 0))) / 2
    assert printed > -(by_column * (~np.isnan(wine)).mean(0)).sum() + 1


def test_validation_two_rates_and_double_precision(stripes, tmp_path, capsys):
    np.savez(tmp_path / "x.npz", a=stripes, b=1 - stripes)
    options = ["--validation-share", "0.25", "--learning-rate", "0.1", "0.01"]
    options += ["--early-stopping", "9", "--dtype", "float64"]
    assert train(f"{tmp_path / 'x.npz'}:b", tmp_path / "m.npz", *options) == 0
    assert "(validation -" in capsys.readouterr().out
    machine = GeneralizedRBM.load(tmp_path / "m.npz")
    assert machine.history_["learning_rate"] == pytest.approx([0.1, 0.01])
    assert machine.early_stopping == 9
    assert machine.weights_.dtype == np.float64


def test_what_is_said_is_of_the_model_that_is_kept(stripes, tmp_path, capsys):
    np.save(tmp_path / "x.npy", stripes)
    options = ["--validation-share", "0.25", "--early-stopping", "1", "--epochs", "40"]
    assert train(tmp_path / "x.npy", tmp_path / "m.npz", *options, "--learning-rate", "2") == 0
    scores = GeneralizedRBM.load(tmp_path / "m.npz").history_["validation_log_likelihood"]
    assert scores[-1] < max(scores)
    assert f"(validation {max(scores):.4f})" in capsys.readouterr().out


def test_nothing_is_said_of_a_checkpoint_that_is_not_there(stripes, tmp_path, monkeypatch, capsys):
    np.save(tmp_path / "x.npy", stripes)

    def interrupted(self, *args, **kwargs):
        raise KeyboardInterrupt

    monkeypatch.setattr(GeneralizedRBM, "fit", interrupted)
    options = ["--checkpoint", str(tmp_path / "run.npz")]
    assert train(tmp_path / "x.npy", tmp_path / "m.npz", *options) == 130
    assert capsys.readouterr().err == "fastmf: interrupted\n"


def test_a_checkpoint_is_resumed(stripes, tmp_path, monkeypatch, capsys):
    np.save(tmp_path / "x.npy", stripes)
    options = ["--checkpoint", str(tmp_path / "run.npz")]
    assert train(tmp_path / "x.npy", tmp_path / "whole.npz") == 0

    fit = GeneralizedRBM.fit

    def interrupted(self, *args, **kwargs):
        def stop(state):
            raise KeyboardInterrupt

        return fit(self.set_params(callbacks=[*self.callbacks, stop]), *args, **kwargs)

    monkeypatch.setattr(GeneralizedRBM, "fit", interrupted)
    assert train(tmp_path / "x.npy", tmp_path / "m.npz", *options) == 130
    assert "resumes there" in capsys.readouterr().err
    assert not (tmp_path / "m.npz").exists()
    monkeypatch.undo()
    assert train(tmp_path / "x.npy", tmp_path / "m.npz", *options) == 0
    whole, resumed = (GeneralizedRBM.load(tmp_path / f) for f in ("whole.npz", "m.npz"))
    np.testing.assert_array_equal(whole.weights_, resumed.weights_)


@pytest.mark.parametrize(
    "options, message",
    [
        (["--epochs", "-1"], "--epochs must be at least 0"),
        (["--learning-rate", "1", "2", "3"], "--learning-rate"),
        (["--validation-share", "1"], "nothing on one side"),
        (["--visible", "nonsense"], "visible must be one of"),
        (["--rows", "0"], "--rows must be at least 1"),
        (["--validation-share", "nan"], "nothing on one side"),
        (["--early-stopping", "0"], "early-stopping must be at least 1"),
        (["--scale", "0"], "--scale must be positive"),
        (["--scale", "inf"], "--scale must be positive and finite"),
        (["--threshold", "nan"], "--threshold must be a number"),
        (["--scale", "0.1"], "expected each to be in [0, 1], got 10"),
        (["--output", "m.txt"], "must end in .npz"),
        (["--output", "nowhere/m.npz"], "no folder nowhere"),
    ],
)
def test_errors_of_options_are_one_line(stripes, tmp_path, capsys, monkeypatch, options, message):
    monkeypatch.chdir(tmp_path)
    np.save("x.npy", stripes)
    assert train("x.npy", "m.npz", *options) == 1
    err = capsys.readouterr().err
    assert err.count("\n") == 1 and message in err
    assert [path.name for path in tmp_path.iterdir()] == ["x.npy"]


@pytest.mark.parametrize(
    "array, message",
    [
        (np.zeros(5), "expected one sample per row"),
        (np.full((5, 2), np.nan), "a value in each row"),
        (np.full((5, 2), np.inf), "infinity"),
        ([[1.0, np.nan]], "neither above nor below"),
    ],
)
def test_errors_of_data_are_one_line(tmp_path, capsys, array, message):
    np.save(tmp_path / "x.npy", array)
    options = ["--threshold", "0.5"] * message.startswith("neither")
    assert train(tmp_path / "x.npy", tmp_path / "m.npz", *options) == 1
    err = capsys.readouterr().err
    assert err.count("\n") == 1 and message in err


def test_an_alignment_is_learned_as_categorical_units(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    letters = np.array(list("ACGU-"))
    rows = rng.integers(0, 4, (40, 6))
    rows[:, 5] = rows[:, 0]
    text = "".join(f">s{i}\n{''.join(letters[row])}\n" for i, row in enumerate(rows))
    (tmp_path / "family.fa").write_text(text)
    options = ["-n", "3", "--epochs", "2", "-o", "rbm.npz", "-q", "--validation-share", "0.2"]
    assert main(["train", "rbm", "family.fa", *options]) == 0
    machine = GeneralizedRBM.load("rbm.npz")
    np.testing.assert_array_equal(machine.visible_.sizes, [5] * 6)
    assert machine.sample(3, n_sweeps=1, random_state=0).shape == (3, 6)
    assert main(["info", "rbm.npz"]) == 0
    assert "visible=Categorical" in capsys.readouterr().out
    assert main(["train", "rbm", "family.fa", *options, "--visible", "categorical"]) == 0
    for visible in ("gaussian", "bernoulli"):
        assert main(["train", "rbm", "family.fa", *options, "--visible", visible]) == 1
        err = capsys.readouterr().err
        assert f"categorical units, not {visible} ones" in err and err.count("\n") == 1
    (tmp_path / "family.fa").write_text(text + ">x\nACGUAB\n>y\nACGNNA\n")
    assert main(["train", "rbm", "family.fa", *options, "--outside", "missing"]) == 0
    assert "left out" not in capsys.readouterr().err
    assert main(["train", "rbm", "family.fa", *options, "--outside", "gap"]) == 0
    assert "left out" not in capsys.readouterr().err
    assert main(["train", "rbm", "family.fa", *options]) == 0
    assert "2 of 42 sequences left out: letters outside the alphabet -ACGU (N B)" in (
        capsys.readouterr().err
    )
