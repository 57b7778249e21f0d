import gzip

import numpy as np
import pytest

import fastmf as mf
from fastmf.cli import main


def _facts(path, capsys):
    assert main(["info", str(path)]) == 0
    lines = [line.split("  ", 1) for line in capsys.readouterr().out.splitlines()]
    return {name: value.strip() for name, value in lines}


def test_info_of_a_machine(model, capsys):
    facts = _facts(model, capsys)
    assert facts["machine"].startswith("GeneralizedRBM(") and facts["model"] == "RBM"
    assert facts["visible"] == "16 Bernoulli" and facts["hidden"] == "6 Bernoulli"
    assert facts["weights"] == "16 x 6, float32" and facts["features"] == "16"
    assert "n_components=6" in facts["machine"] and "momentum" not in facts["machine"]


def test_info_of_every_model(tmp_path, capsys):
    W, X = np.ones((3, 2)), np.ones((4, 3))
    two, three = mf.Bernoulli(np.zeros(2)), mf.Bernoulli(np.zeros(3))
    slab = mf.GaussBernoulli(np.zeros(3), 1.0, 0.0)
    for model, facts in [
        (
            mf.DBM((W, W.T), (three, two, three)),
            {"layers": "3 Bernoulli; 2 Bernoulli; 3 Bernoulli"},
        ),
        (
            mf.CRBM(W[:, :0], X.T, np.ones((0, 4)), np.ones(3), np.ones(0)),
            {"weights": "3 x 0, float64"},
        ),
        (
            mf.SparseLinearModel(X, np.ones(4), 0.25, slab),
            {"X": "4 x 3, float64", "noise variance": "0.25", "prior": "3 GaussBernoulli"},
        ),
    ]:
        model.save(tmp_path / "m.npz")
        assert {"model": type(model).__name__, **facts}.items() <= _facts(
            tmp_path / "m.npz", capsys
        ).items()


def test_info_of_every_machine(stripes, tmp_path, capsys):
    for machine in (
        mf.DeepBoltzmannMachine((3, 2), n_epochs=0, pretraining_epochs=0),
        mf.FullyVisibleBoltzmannMachine(l2=1.0),
        mf.PottsMachine(l2=1.0, l2_field=1.0),
        mf.ConditionalRBM(2, n_epochs=0),
    ):
        X = stripes[:, :5]
        machine.fit(X, X) if isinstance(machine, mf.ConditionalRBM) else machine.fit(X)
        machine.save(tmp_path / "m.npz")
        assert main(["info", str(tmp_path / "m.npz")]) == 0
        assert type(machine).__name__ in capsys.readouterr().out
        assert main(["denoise", str(tmp_path / "m.npz"), "x.npy", "--flip-probability", "0.1"]) == 1
        assert "is not a GeneralizedRBM" in capsys.readouterr().err


def test_info_of_a_checkpoint(stripes, tmp_path, capsys):
    path = tmp_path / "run.npz"
    options = {"n_epochs": 3, "callbacks": [mf.evaluation.Checkpoint(path)], "random_state": 1}
    mf.GeneralizedRBM(6, gradient="pcd", **options).fit(stripes)
    facts = _facts(path, capsys)
    assert facts["checkpoint"] == "after 3 of 3 epochs" and facts["model"] == "RBM"
    assert facts["weights"].startswith("16 x 6, float") and facts["visible"] == "16 Bernoulli"


@pytest.mark.parametrize("member", ["run", "position", "model/weights"])
def test_info_of_a_damaged_checkpoint_is_one_line(stripes, tmp_path, capsys, member):
    path = tmp_path / "run.npz"
    mf.GeneralizedRBM(2, n_epochs=1, callbacks=[mf.evaluation.Checkpoint(path)]).fit(stripes)
    with np.load(path) as file:
        np.savez(path, **dict(file) | {member: np.array(["x" * 10**5])})
    assert main(["info", str(path)]) == 1
    err = capsys.readouterr().err
    assert err.count("\n") == 1 and member.partition("/")[0] in err and len(err) < 600


def test_info_of_an_unknown_prior_is_one_line(tmp_path, capsys):
    mf.RBM(np.ones((3, 2)), mf.Bernoulli(np.zeros(3)), mf.Ising(np.zeros(2))).save(
        tmp_path / "m.npz"
    )
    with np.load(tmp_path / "m.npz") as file:
        arrays = dict(file) | {"hidden": np.array(["Theirs"])}
    np.savez(tmp_path / "m.npz", **arrays)
    assert main(["info", str(tmp_path / "m.npz")]) == 1
    err = capsys.readouterr().err
    assert err.count("\n") == 1 and "Theirs" in err and "register" in err


def test_info_of_arrays(tmp_path, capsys):
    field = np.arange(15.0).reshape(3, 5) + 0.5
    np.save(tmp_path / "x.npy", field)
    np.savetxt(tmp_path / "x.csv", field, delimiter=",")
    for name in ("x.npy", "x.csv"):
        assert _facts(tmp_path / name, capsys) == {"array": "3 x 5, float64"}


@pytest.mark.parametrize("content", [b"", b"x", b"\x1f\x8b", b"text\n" * 99, b"\0\0", b"h \n"])
def test_info_of_no_file_of_fastmf_is_one_line(tmp_path, capsys, content):
    (tmp_path / "x").write_bytes(content)
    assert main(["info", str(tmp_path / "x")]) == 1
    err = capsys.readouterr().err
    assert err.count("\n") == 1 and str(tmp_path / "x") in err and len(err) < 600
    assert main(["info", str(tmp_path / "nowhere")]) == 1
    assert "nowhere" in capsys.readouterr().err


def test_info_of_an_alignment(tmp_path, capsys, monkeypatch):
    def sequence_weights(X, identity):
        similar = (X[:, None] == X).mean(2) >= identity
        return 1 / similar.sum(1)

    monkeypatch.setattr(mf.datasets, "sequence_weights", sequence_weights, raising=False)
    path = tmp_path / "x.fa.gz"
    path.write_bytes(gzip.compress(b">a\nACG-aU\n>b\nACGA.U\n>c\nUUUC.A\n>d\nNNN-.U\n"))
    assert main(["info", str(path)]) == 0
    facts = dict(line.split("  ", 1) for line in capsys.readouterr().out.splitlines())
    assert {name: value.strip() for name, value in facts.items()} == {
        "alignment": "3 sequences, 5 columns",
        "alphabet": "-ACGU (5 states)",
        "effective number": "2.0 sequences at 80% identity",
    }
    assert main(["info", str(path), "--alphabet", "ACGU", "--identity", "1"]) == 0
    out = capsys.readouterr().out
    assert "2.0 sequences at 100% identity" in out and "2 sequences, 5" in out
