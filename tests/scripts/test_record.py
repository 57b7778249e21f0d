from types import SimpleNamespace

import numpy as np
import pytest

import fastmf as mf

OPTIONS = ["--hidden", "3", "--epochs", "4", "--chains", "20", "--steps", "20"]


def test_a_run_goes_on_with_the_seeds_that_are_missing(script, rows, mnist, capsys):
    folder = mnist / "record"
    options = [*OPTIONS, "--data", str(mnist), "--output", str(folder)]
    script.main([*options, "--seeds", "1"])
    first = (folder / "record.csv").read_text()
    script.main([*options, "--seeds", "3"])
    assert (folder / "record.csv").read_text().startswith(first)
    runs = rows(folder / "record.csv")
    assert [row["seed"] for row in runs] == ["0", "1", "2"]
    assert all(float(row["seconds"]) >= 0 and row["rows"] == "60" for row in runs)
    last = capsys.readouterr().out.splitlines()[-1]
    values = [float(row["from_above"]) for row in runs]
    assert "3 seeds" in last
    assert f"from_above {np.mean(values):.2f} ({min(values):.2f} to {max(values):.2f})" in last


def test_the_figures_are_those_of_enumeration(script, rows, mnist):
    folder = mnist / "record"
    script.main([*OPTIONS, "--data", str(mnist), "--output", str(folder), "--seeds", "1",
                 "--chains", "100", "--steps", "200"])  # fmt: skip
    (row,) = rows(folder / "record.csv")
    model = mf.load(folder / "mnist-3-4-60-0-preconditioned-0.0001.npz")
    log_partition = mf.exact(model).log_partition
    for name, split in (("from_above", "test"), ("from_below", "test"), ("train", "train")):
        X = script.DATA["mnist"](mnist, split)
        expected = mf.evaluation.log_likelihood(model, X, log_partition).mean()
        assert float(row[name]) == pytest.approx(expected, abs=4 * float(row["error"]) + 0.02)


@pytest.mark.parametrize("gradient, n_averaged", [("ordinary", 2), ("preconditioned", 1)])
def test_the_average_is_of_the_last_epochs(script, mnist, gradient, n_averaged):
    options = [*OPTIONS, "--epochs", "8", "--data", str(mnist), "--output", str(mnist / "record")]
    ordinary = ["--ordinary"] if gradient == "ordinary" else []
    script.main([*options, "--seeds", "1", *ordinary])
    models, X = [], script.DATA["mnist"](mnist, "train")
    l1 = 0.0 if ordinary else script.DECAY
    recipe = script.RECIPE | (script.ORDINARY if ordinary else script.PRECONDITIONED) | {"l1": l1}
    mf.GeneralizedRBM(
        3, n_epochs=8, random_state=0, callbacks=[lambda state: models.append(state.model)],
        **recipe,
    ).fit(X)  # fmt: skip
    found = mf.load(mnist / "record" / f"mnist-3-8-60-0-{gradient}-{l1}.npz").weights
    expected = np.mean([model.weights.astype(float) for model in models[-n_averaged:]], 0)
    np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_pixels_are_drawn_several_times_with_their_grey_levels(script, monkeypatch):
    grey = np.random.default_rng(7).random((50, 16), np.float32)
    grey[:, :4], grey[:, 4:8] = 0, 1
    monkeypatch.setattr(script.experiment, "images", lambda *_: SimpleNamespace(X=grey))
    once, ten = (script.DATA[name](None, "train") for name in ("mnist-drawn", "mnist-redrawn"))
    np.testing.assert_array_equal(ten[:50], once)
    draws = ten.reshape(10, *grey.shape)
    assert not draws[:, :, :4].any() and draws[:, :, 4:8].all()
    assert all((draws[0] != other).any() for other in draws[1:])
    error = np.sqrt((grey * (1 - grey)).sum() / 10)
    assert abs((draws.mean(0) - grey).sum()) < 5 * error
    test = script.DATA["mnist-redrawn"](None, "test")
    assert test.shape == grey.shape and (test != once).any()
    np.testing.assert_array_equal(test, script.DATA["mnist-drawn"](None, "test"))


def test_layers_are_added_to_the_rbm_of_the_same_run(script, rows, mnist):
    folder = mnist / "record"
    options = [*OPTIONS, "--data", str(mnist), "--output", str(folder), "--seeds", "1"]
    script.main(options)
    rbm = mf.load(folder / "mnist-3-4-60-0-preconditioned-0.0001.npz")
    # It is not trained again, and its time counts.
    file = folder / "mnist-3-4-60-0-preconditioned-0.0001.seconds.json"
    file.write_text("[[4, 1000.0, 500.0, null]]")
    script.main([*options, "--hidden", "3", "2"])
    _, deep = rows(folder / "record.csv")
    assert (deep["hidden"], deep["epochs"]) == ("3-2", "4+1")
    assert 1000 <= float(deep["seconds"]) < 1100 and 500 <= float(deep["cpu_seconds"]) < 600
    model = mf.load(folder / "mnist-3-2-4+1-60-0-preconditioned-0.0001.npz")
    assert model.sizes[1:] == (3, 2)
    assert 0 < abs(model.weights[0] - rbm.weights).max() < abs(rbm.weights).max()
