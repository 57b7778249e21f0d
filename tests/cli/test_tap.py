import csv

import numpy as np
import pytest

import fastmf as mf
from fastmf.cli import main


def marginals(path):
    with open(path, newline="") as file:
        rows = list(csv.DictReader(file))
    return np.array([[float(row[name] or "nan") for name in row] for row in rows])


@pytest.mark.parametrize("method", ["tap", "bp", "relaxed_bp", "adaptive_tap", "exact"])
def test_weak_couplings_are_as_enumerated(tmp_path, capsys, method):
    rng = np.random.default_rng(0)
    model = mf.RBM(0.05 * rng.normal(size=(5, 4)), mf.Bernoulli(rng.normal(size=5)),
                   mf.Ising(rng.normal(size=4)))  # fmt: skip
    model.save(tmp_path / "m.npz")
    output = tmp_path / "out.csv"
    assert main(["tap", str(tmp_path / "m.npz"), "--method", method, "-o", str(output)]) == 0
    found, expected = marginals(output), mf.exact(model)
    np.testing.assert_allclose(found[:, 2], np.concatenate(expected.mean), atol=1e-4)
    np.testing.assert_array_equal(found[:, 0], [1] * 5 + [2] * 4)
    value = float(capsys.readouterr().out.split("log-partition: ")[1].split()[0])
    np.testing.assert_allclose(value, expected.log_partition, atol=1e-4)


def test_a_uai_network_with_evidence(tmp_path, capsys):
    # Two variables, of which the second is seen in state 2: probabilities 0 and 2 in sum 2.
    (tmp_path / "pair.uai").write_text("MARKOV 2  2 3  2  1 0  2 0 1  2  1 3  6  1 1 1 2 0 2")
    (tmp_path / "pair.evid").write_text("1 1 2")
    output = tmp_path / "out.csv"
    command = ["tap", str(tmp_path / "pair.uai"), "--evidence", str(tmp_path / "pair.evid")]
    assert main([*command, "--method", "bp", "-o", str(output)]) == 0
    np.testing.assert_allclose(marginals(output)[:2, 2], [1 / 7, 6 / 7], atol=1e-6)
    value = float(capsys.readouterr().out.split("log-partition: ")[1].split()[0])
    np.testing.assert_allclose(value, np.log(7), rtol=1e-6)


def test_a_machine_is_solved_as_its_model(model, tmp_path):
    output = tmp_path / "out.csv"
    assert main(["tap", str(model), "-o", str(output)]) == 0
    found = mf.tap(mf.GeneralizedRBM.load(model).model_)
    np.testing.assert_allclose(marginals(output)[:, 2], np.concatenate(found.mean), rtol=1e-6)


@pytest.mark.parametrize(
    "options, says",
    [
        (["--evidence", "x.evid"], "--evidence is for networks in UAI format"),
        (["--method", "exact", "--max-iter", "3"], "leave out --max-iter"),
        (["-o", "x.npy"], "must end in .csv"),
    ],
)
def test_errors_name_the_option(model, capsys, options, says):
    assert main(["tap", str(model), *options]) == 1
    assert says in capsys.readouterr().err
