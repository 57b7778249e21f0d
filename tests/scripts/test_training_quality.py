import csv

import numpy as np
import pytest

import fastmf as mf


def test_two_methods_side_by_side(script, mnist, capsys):
    folder = mnist / "quality"
    script.main(
        ["--data", str(mnist), "--output", str(folder), "--hidden", "3", "--epochs", "1", "2",
         "--chains", "5", "--steps", "20", "--methods", "TAP", script.PCD]
    )  # fmt: skip
    assert (folder / "quality.png").read_bytes().startswith(b"\x89PNG")
    with open(folder / "quality.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [(row["method"], row["epoch"]) for row in rows] == [
        (name, epoch) for name in ("TAP", script.PCD) for epoch in ("1", "2")
    ]
    assert "| TAP | 2 |" in capsys.readouterr().out


def test_the_likelihood_is_that_of_enumeration(script):
    rng = np.random.default_rng(0)
    model = mf.RBM(
        rng.normal(size=(9, 4)) / 2, mf.Bernoulli(rng.normal(size=9)), mf.Bernoulli(np.zeros(4))
    )
    X = rng.integers(0, 2, size=(50, 9)).astype(float)
    options = script.parser().parse_args(["--steps", "500"])
    below, error, above = script.quality(model, X, X, options)
    exact = mf.evaluation.log_likelihood(model, X, mf.exact(model).log_partition).mean()
    assert error < 0.1
    assert below == pytest.approx(exact, abs=4 * error)
    assert above == pytest.approx(exact, abs=4 * error)


def test_of_their_rates_the_best_after_each_number_of_epochs_counts(script):
    slow, fast = f"{script.PCD}, rate 0.05", f"{script.PCD}, rate 0.2"
    ours = ("TAP", 1, 1.5, -107.0, 0.3, -107.0)
    theirs = [
        (slow, 1, 3.0, -150.0, 0.1, -149.0), (slow, 2, 6.0, -120.0, 0.1, -119.0),
        (fast, 1, 3.1, -140.0, 0.1, -139.0), (fast, 2, 6.1, -130.0, 0.1, -129.0),
    ]  # fmt: skip
    found = script.best_rate([ours, *theirs])
    name = f"{script.PCD}, best rate"
    assert found == [ours, (name, *theirs[2][1:]), (name, *theirs[1][1:])]


def test_chains_go_on_from_what_mean_field_has_learned(script):
    X = (np.random.default_rng(0).random((200, 9)) < 0.3).astype(np.float32)
    X[:, 1] = X[:, 0]
    options = script.parser().parse_args(["--hidden", "3", "--epochs", "4", "--race"])
    rate_zero = script.CHAINS | {"learning_rate": 0.0}
    ((n_epochs, seconds, both),) = script.by_both(script.RACE["TAP, then PCD"], X, options)
    assert n_epochs == 4
    assert seconds > 0
    still = mf.GeneralizedRBM(init=both, n_epochs=1, random_state=0, **rate_zero).fit(X)
    np.testing.assert_array_equal(still.model_.weights, both.weights)
    (first,) = script.by_fastmf(script.RACE["TAP, then PCD"], X, script.with_epochs(options, [2]))
    assert abs(both.weights - first[2].weights).max() > 0
