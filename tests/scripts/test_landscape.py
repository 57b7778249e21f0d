import csv

import numpy as np
import pytest


def test_faces(script, tmp_path, capsys):
    faces = np.random.default_rng(0).integers(0, 256, (30, 361), np.uint8)
    np.savez(tmp_path / "cbcl_faces_19x19.npz", faces_train=faces, faces_test=faces)
    folder = tmp_path / "out"
    script.main(
        ["--dataset", "faces", "--data", str(tmp_path), "--output", str(folder), "--hidden", "3",
         "--epochs", "1", "--starts", "30"]
    )  # fmt: skip
    assert (folder / "free-energy.png").read_bytes().startswith(b"\x89PNG")
    assert "epoch 1: " in capsys.readouterr().out
    names = "TAP, log-sum-exp", "TAP, mean", "training, log-sum-exp", "training, mean"
    header, values = rows(folder / "quality.csv")
    assert header == ["epoch", *names]
    # Training and test images are the same, and there is one solution.
    assert len(set(values[1:])) == 1


def rows(path):
    with open(path, newline="") as file:
        return list(csv.reader(file))


def test_a_small_run_gives_all_figures_and_goes_on_where_it_was(script, mnist, capsys):
    folder = mnist / "out"
    command = [
        "--data", str(mnist), "--output", str(folder), "--hidden", "3", "--epochs", "2",
        "--starts", "30", "--steps", "20", "--maps", "1", "2",
    ]  # fmt: skip
    script.main(command)
    for name in ("free-energy", "densities", "quality", "maps", "data-1", "data-2"):
        assert (folder / f"{name}.png").read_bytes().startswith(b"\x89PNG")
    header, *measures = quality = rows(folder / "quality.csv")
    assert header[0] == "epoch"
    assert len(measures) == 2
    # Couplings are weak: one solution, whose log-partition is the sum over all states but little.
    of_last = dict(zip(header, map(float, measures[1]), strict=True))
    model, n_units = script.mf.load(folder / "machine-2.npz"), 16 + 3
    for name, split, n in (("training", "train", 30), ("TAP", "test", 20)):
        images = script.experiment.images("binary", mnist, split).X[:n]
        exact = script.log_likelihood(model, images, script.mf.exact(model).log_partition).mean()
        for measure in ("mean", "log-sum-exp"):
            assert of_last[f"{name}, {measure}"] * n_units == pytest.approx(exact, abs=0.01)
    of_solutions = rows(folder / "solutions.csv")
    for _, n, _, share, mean, lowest, highest, modes in of_solutions[1:]:
        assert int(n) >= int(modes) >= 1 and float(share) == int(n) / 30
        assert float(lowest) <= float(mean) <= float(highest)
    assert "epoch 2: " in capsys.readouterr().out

    (folder / "found-2.npz").unlink()
    script.main(command)
    assert "epoch 1: " not in capsys.readouterr().out  # it was read
    assert rows(folder / "quality.csv") == quality
    assert rows(folder / "solutions.csv") == of_solutions
