import csv
import json

import numpy as np
import pytest

import fastmf as mf


def rows(path):
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


def test_a_small_run_gives_tables_and_figures_and_goes_on(script, mnist, capsys):
    pytest.importorskip("matplotlib")
    folder = mnist / "out"
    command = ["--data", str(mnist), "--output", str(folder), "--hidden", "3", "--epochs", "2",
               "--logistic-epochs", "40", "--learning-rate", "0.5", "--batch-size", "5",
               "--patience", "40", "--tasks", "mnist-noisy-20", "--sides", "1", "2",
               "--threads", "1"]  # fmt: skip
    script.main(command)
    table = rows(folder / "table.csv")
    tasks = ["mnist-noisy-20", "mnist-occluded-1", "mnist-occluded-2"]
    assert [(row["task"], row["method"]) for row in table] == [
        (task, method) for task in tasks for method in script.METHODS
    ]
    assert table[0]["paper all"] == "4.088" and table[5]["paper changed"] == "10.409"
    # The rows of such an image are equal, so that others tell what was changed.
    for row in table:
        assert float(row["all"]) < (20 if "noisy" in row["task"] else 8)
    assert len(rows(folder / "occlusion.csv")) == 16
    assert {row["epoch"] for row in rows(folder / "convergence.csv")} >= {"1", "2"}
    names = ["occlusion", "convergence", *(f"pictures-{task}" for task in tasks)]
    for name in names:
        assert (folder / f"{name}.png").read_bytes().startswith(b"\x89PNG")

    machine = (folder / "mnist-occluded-2-MSSVM.npz").read_bytes()
    (folder / "mnist-occluded-2-MSSVM.npz").unlink()
    (folder / "mnist-noisy-20-LR.json").unlink()
    script.main(command)
    assert (folder / "mnist-occluded-2-MSSVM.npz").read_bytes() == machine
    assert [(r["all"], r["changed"]) for r in rows(folder / "table.csv")] == [
        (r["all"], r["changed"]) for r in table
    ]


def test_corruption(script):
    rng, clean = np.random.default_rng(0), np.random.default_rng(1).integers(0, 2, (500, 30))
    noisy = script.corrupt(clean, "noisy", 20, rng, (5, 6))
    assert (noisy != clean).mean() == pytest.approx(0.2, abs=0.02)
    images = script.corrupt(np.ones((500, 30)), "occluded", 3, rng, (5, 6)).reshape(-1, 5, 6) == 0
    assert (images.sum((1, 2)) == 9).all()
    assert (images.any(1).sum(1) == 3).all() and (images.any(2).sum(1) == 3).all()
    assert len(np.unique(images, axis=0)) == 3 * 4
    with pytest.raises(ValueError, match="noisy or occluded"):
        script.corrupt(clean, "blurred", 3, rng, (5, 6))


def test_errors_are_percentages_of_all_and_of_changed(script):
    clean, corrupted = np.array([[0, 0, 1, 1]]), np.array([[1, 0, 0, 1]])
    assert script.errors(np.array([[0, 1, 0, 1]]), corrupted, clean) == (50.0, 50.0)
    assert script.errors(clean, corrupted, clean) == (0.0, 0.0)


def test_the_threshold_of_beliefs_allows_no_more_errors_elsewhere(script):
    clean, corrupted = np.array([[0, 0, 1, 1, 1]]), np.array([[0, 0, 0, 0, 0]])
    beliefs = np.array([[0.1, 0.6, 0.9, 0.7, 0.4]])
    assert script.matched_error(beliefs, corrupted, corrupted, clean) == pytest.approx(100 / 3)
    assert script.matched_error(beliefs, np.array([[0, 1, 0, 0, 0]]), corrupted, clean) == 0
    assert np.isnan(script.matched_error(1 - clean, corrupted, corrupted, clean))


def test_the_tasks_and_methods_are_the_papers(script):
    options = script.parser().parse_args([])
    assert options.tasks == list(script.PAPER) and len(options.tasks) == 6
    assert all(len(line.split()) == len(script.METHODS) == 8 for line in script.PAPER.values())
    assert (options.hidden, options.epochs, options.train_size) == (256, 50, 50000)


def test_a_search_takes_what_validation_prefers_and_goes_on(script, mnist):
    pytest.importorskip("matplotlib")
    folder = mnist / "out"
    command = ["--data", str(mnist), "--output", str(folder), "--hidden", "3", "--epochs", "2",
               "--logistic-epochs", "2", "--tasks", "mnist-noisy-20", "--methods", "LR", "CD-1",
               "--search-rates", "1e-9", "0.5", "--search-batch-sizes", "2", "5",
               "--search-epochs", "3", "--search-validation", "1", "--sampling-epochs", "4",
               "--threads", "1"]  # fmt: skip
    script.main(command)
    path = folder / "mnist-noisy-20-CD-1-search.jsonl"
    errors = dict(map(json.loads, path.read_text().splitlines()))
    assert set(errors) == {"2 1e-09", "2 0.5", "5 1e-09", "5 0.5"}
    # Percent of the 16 pixels of one image.
    assert all(0.16 * error == pytest.approx(round(0.16 * error)) for error in errors.values())
    best = min(errors, key=errors.get)
    machine = mf.ConditionalRBM.load(folder / "mnist-noisy-20-CD-1.npz")
    assert f"{machine.batch_size} {machine.learning_rate:g}" == best
    assert machine.n_epochs == 4
    # A setting that was tried before is not tried again.
    lines = [json.dumps([name, -float(name == "5 1e-09")]) for name in errors]
    path.write_text("\n".join([*lines, ""]))
    for name in ("mnist-noisy-20-CD-1.npz", "checkpoint-mnist-noisy-20-CD-1.npz"):
        (folder / name).unlink()
    script.main(command)
    machine = mf.ConditionalRBM.load(folder / "mnist-noisy-20-CD-1.npz")
    assert (machine.batch_size, machine.learning_rate) == (5, 1e-9)
