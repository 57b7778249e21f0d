import os
import subprocess
import sys
from pathlib import Path

import forks
import pytest

import fastmf
from fastmf.cli import machines, main
from fastmf.cli.command import COMMANDS

ROOT = Path(fastmf.__file__).parent.parent


def replace_info(monkeypatch, function):
    function.__doc__ = machines.info.__doc__  # its options
    monkeypatch.setattr(machines, "info", function)


def python_m(*arguments, **environment):
    return subprocess.run(
        [sys.executable, "-m", "fastmf", *arguments],
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
        capture_output=True,
        text=True,
    )


def test_help_in_a_process():
    done = python_m("--help")
    assert done.returncode == 0
    assert "examples:" in done.stdout
    for name in ("demo", "train", "denoise", "dca", "info", "sample", "score", "impute", "tap"):
        assert name in done.stdout


def test_a_process_reads_a_machine(family, tmp_path):
    """Its class is known before anything else has imported estimators."""
    done = python_m("mutants", *family[:2], "-o", tmp_path / "mutants.csv")
    assert done.stderr == "" and (tmp_path / "mutants.csv").exists()


def test_letters_that_a_console_lacks_are_escaped():
    done = python_m("info", "größe.npz", PYTHONIOENCODING="ascii")
    assert done.returncode == 1 and "gr\\xf6\\xdfe.npz" in done.stderr


def test_an_error_is_one_line_and_a_traceback_can_be_had(tmp_path):
    def forked(*arguments, **environment):
        environment = {**os.environ, "PYTHONPATH": str(ROOT), **environment}
        code = "import runpy; runpy.run_module('fastmf', run_name='__main__')"
        return forks.python(code, *arguments, out=tmp_path, environment=environment)

    done = forked("info", "nowhere.npz")
    assert done.returncode == 1
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert line.startswith("fastmf: error: ") and "nowhere.npz" in line
    assert "Traceback" in forked("info", "nowhere.npz", FASTMF_DEBUG="1").stderr


@pytest.mark.parametrize(
    "arguments",
    [[], ["nonsense"], ["train"], ["train", "rbm"], ["train", "rbm", "x.npy", "--epochs", "many"],
     ["denoise", "m.npz", "x.npy"], ["dca"], ["sample"], ["score", "m.npz"], ["impute", "m.npz"],
     ["mutants", "m.npz"], ["regress"], ["predict", "m.npz"], ["tap"],
     ["tap", "m.npz", "--method", "guess"], ["dca", "x.fa", "--gaps", "none"],
     ["denoise", "m.npz", "x.npy", "--flip-probability", "0.1", "--noise-variance", "1"]],
)  # fmt: skip
def test_wrong_usage_is_2(arguments, capsys):
    with pytest.raises(SystemExit) as exit:
        main(arguments)
    assert exit.value.code == 2
    assert "usage: fastmf" in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments", [[name] for name in COMMANDS] + [["train", "rbm"]], ids=" ".join
)
def test_every_command_has_help_that_teaches(arguments, capsys):
    with pytest.raises(SystemExit) as exit:
        main([*arguments, "--help"])
    assert exit.value.code == 0
    text = capsys.readouterr().out
    assert arguments == ["train"] or "example" in text
    assert max(map(len, text.splitlines())) <= 100


def test_version(capsys):
    with pytest.raises(SystemExit):
        main(["--version"])
    assert capsys.readouterr().out == f"fastmf {fastmf.__version__}\n"


@pytest.mark.parametrize(
    "error, code, line",
    [
        (KeyboardInterrupt(), 130, "fastmf: interrupted"),
        (ValueError("two\n  lines"), 1, "fastmf: error: two lines"),
        (MemoryError(), 1, "fastmf: error: MemoryError"),
    ],
)
def test_how_a_command_ends(monkeypatch, capsys, error, code, line):
    def run(arguments):
        raise error

    monkeypatch.delenv("FASTMF_DEBUG", raising=False)
    replace_info(monkeypatch, run)
    assert main(["info", "x.npz"]) == code
    assert capsys.readouterr().err == line + "\n"


def test_a_bug_is_not_passed_off_as_an_error_of_the_user(monkeypatch):
    def run(arguments):
        raise AssertionError

    replace_info(monkeypatch, run)
    with pytest.raises(AssertionError):
        main(["info", "x.npz"])


def test_a_warning_is_one_line(monkeypatch, capsys):
    import warnings

    replace_info(monkeypatch, lambda _: warnings.warn("look\nout", stacklevel=1))
    with warnings.catch_warnings():
        warnings.simplefilter("default")
        assert main(["info", "x.npz"]) == 0
    assert capsys.readouterr().err == "fastmf: warning: look out\n"


@pytest.mark.parametrize(
    "arguments",
    [["train", "rbm", "f.npz:X", "--output", "./f.npz"],
     ["train", "rbm", "x.npy", "--output", "f.npz", "--checkpoint", "f.npz"],
     ["score", "m.npz", "f.npy", "-o", "f.npy"], ["score", "f.npz", "x.npy", "-o", "f.npz"],
     ["sample", "f.npz", "-o", "f.npz"], ["impute", "m.npz", "f.csv", "-o", "f.csv"],
     ["denoise", "m.npz", "f.npy", "--flip-probability", "0.1", "-o", "f.npy"],
     ["dca", "x.fa", "--distances", "f.csv", "--out", "f.csv"],
     ["dca", "x.fa", "--out", "other.csv", "--model", "f.npz", "--distances", "f.npz"],
     ["mutants", "m.npz", "f.csv", "-o", "f.csv"], ["regress", "f.csv", "-o", "f.csv"],
     ["regress", "x.csv", "--target", "f.csv", "-o", "../{}/f.csv"],
     ["network", "f.csv", "-o", "f.html"], ["tap", "m.uai", "--evidence", "f.csv", "-o", "f.csv"]],
)  # fmt: skip
def test_no_output_replaces_a_file_that_is_read(arguments, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    files = [tmp_path / f"f.{suffix}" for suffix in ("csv", "npy", "npz")]
    for file in files:
        file.write_text("1,2\n")
    assert main([argument.format(tmp_path.name) for argument in arguments]) == 1
    assert "would replace a file that is read" in capsys.readouterr().err
    assert {file.read_text() for file in tmp_path.iterdir()} == {"1,2\n"}
    assert sorted(tmp_path.iterdir()) == files


def test_two_outputs_have_two_names(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["regress", "x.csv", "-o", "../" + tmp_path.name + "/y.csv", "--model", "m.npz"])
    assert "x.csv: there is no such file" in capsys.readouterr().err
    (tmp_path / "link.pdf").symlink_to(tmp_path / "m.npz")
    assert main(["regress", "x.csv", "--plot", "link.pdf", "--model", "m.npz"])
    assert "would replace another output" in capsys.readouterr().err


def test_an_error_of_an_estimator_names_the_option(tmp_path, monkeypatch, capsys):
    import numpy as np

    monkeypatch.chdir(tmp_path)
    np.save("x.npy", np.eye(6))
    assert main(["train", "rbm", "x.npy", "--epochs", "-1"]) == 1
    found = capsys.readouterr().err
    assert "--epochs" in found and "n_epochs" not in found
