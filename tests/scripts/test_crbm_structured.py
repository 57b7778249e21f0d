import numpy as np
import pytest


def test_a_small_run_gives_tables_and_figures_and_goes_on(script, rows, mnist, capsys):
    pytest.importorskip("matplotlib")
    folder = mnist / "out"
    tasks = ["mnist-noisy-20", "mnist-occluded-1", "mnist-occluded-2"]
    command = ["--data", str(mnist), "--output", str(folder), "--hidden", "3", "--epochs", "2",
               "--logistic-epochs", "40", "--learning-rate", "0.5", "--batch-size", "5",
               "--patience", "40", "--threads", "1", "--tasks", *tasks, "--methods",
               *script.ALL]  # fmt: skip
    script.main(command)
    table = rows(folder / "table.csv")
    assert [(row["task"], row["method"]) for row in table] == [
        (task, method) for task in tasks for method in script.ALL
    ]
    assert table[0]["paper all"] == "4.088" and table[5]["paper changed"] == "10.409"
    # The rows of such an image are equal, so that others tell what was changed.
    for row in table:
        assert float(row["all"]) < (20 if "noisy" in row["task"] else 8)
    assert len(rows(folder / "occlusion.csv")) == 20
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


def test_the_tasks_and_methods_are_the_papers(script):
    options = script.parser().parse_args([])
    cells = [(task, method) for task in options.tasks for method in script.METHODS]
    assert list(script.PAPER) == cells and len(cells) == 6 * 8
    assert (options.hidden, options.epochs, options.train_size) == (256, 50, 50000)
