import numpy as np
import pytest

import fastmf as mf


def test_two_methods_side_by_side(script, rows, mnist, capsys):
    folder = mnist / "quality"
    script.main(
        ["--data", str(mnist), "--output", str(folder), "--hidden", "3", "--epochs", "1", "2",
         "--chains", "5", "--steps", "20", "--methods", "TAP", "PCD-1"]
    )  # fmt: skip
    assert [(row["method"], row["epoch"]) for row in rows(folder / "quality.csv")] == [
        (name, epoch) for name in ("TAP", "PCD-1") for epoch in ("1", "2")
    ]
    assert "| TAP | 2 |" in capsys.readouterr().out


def test_the_likelihood_is_that_of_enumeration(script):
    rng = np.random.default_rng(0)
    model = mf.RBM(
        rng.normal(size=(9, 4)) / 2, mf.Bernoulli(rng.normal(size=9)), mf.Bernoulli(np.zeros(4))
    )
    X = rng.integers(0, 2, size=(50, 9)).astype(float)
    above, below, error = script.experiment.annealed(model, X, n_steps=500, data=X, rng=0)
    exact = mf.evaluation.log_likelihood(model, X, mf.exact(model).log_partition).mean()
    assert error < 0.1
    assert below == pytest.approx(exact, abs=4 * error)
    assert above == pytest.approx(exact, abs=4 * error)


def test_kinds_of_hidden_units_have_weak_couplings_at_first(script, rows, mnist):
    folder, kinds = mnist / "quality", ["binary units", "Gaussian units"]
    script.main(
        ["--data", str(mnist), "--output", str(folder), "--hidden", "3", "--epochs", "2",
         "--methods", *kinds, "--learning-rate", "0.01"]
    )  # fmt: skip
    test = script.experiment.images("binary", mnist, "test").X
    unit = mf.Bernoulli.from_data(script.experiment.images("binary", mnist, "train").X)
    independent = (unit.log_prob(test) - unit.log_partition(0.0, 0.0)).sum(1).mean()
    table = rows(folder / "quality.csv")
    assert [row["method"] for row in table] == kinds
    for row in table:
        assert abs(float(row["from_above"]) - float(row["from_below"])) < 0.5
        assert abs(float(row["from_below"]) - independent) < 2
