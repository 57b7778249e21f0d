import numpy as np

import fastmf as mf
from fastmf.cli import main


def test_info_of_a_machine(model, capsys):
    assert main(["info", str(model)]) == 0
    facts = dict(line.split("  ", 1) for line in capsys.readouterr().out.splitlines())
    facts = {name: value.strip() for name, value in facts.items()}
    assert facts["machine"] == "GeneralizedRBM" and facts["model"] == "RBM"
    assert facts["visible units"] == "16 Bernoulli" and facts["hidden units"] == "6 Bernoulli"
    assert facts["weights"].startswith("16 x 6, float32")
    assert facts["trained for"].startswith("100 epochs")
    assert facts["log likelihood"].endswith("nats per unit")
    assert "n_components=6" in facts["options"] and "momentum" not in facts["options"]


def test_info_of_a_bare_model(tmp_path, capsys):
    rng = np.random.default_rng(0)
    J = rng.normal(size=(3, 3))
    mf.BoltzmannMachine(J + J.T - 2 * np.diag(J.diagonal()), mf.Ising(np.zeros(3))).save(
        tmp_path / "bm.npz"
    )
    assert main(["info", str(tmp_path / "bm.npz")]) == 0
    out = capsys.readouterr().out
    assert "BoltzmannMachine" in out and "3 Ising" in out and "3 x 3, float64" in out


def test_info_of_something_else(tmp_path, capsys):
    np.savez(tmp_path / "x.npz", a=1)
    assert main(["info", str(tmp_path / "x.npz")]) == 1
    err = capsys.readouterr().err
    assert err.count("\n") == 1 and "is not a model" in err
