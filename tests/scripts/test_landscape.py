import csv

import numpy as np


def test_faces(script, tmp_path, capsys):
    faces = np.random.default_rng(0).integers(0, 256, (30, 361), np.uint8)
    np.savez(tmp_path / "cbcl_faces_19x19.npz", faces_train=faces, faces_test=faces)
    folder = tmp_path / "out"
    script.main(
        ["--dataset", "faces", "--data", str(tmp_path), "--output", str(folder), "--hidden", "3",
         "--epochs", "1", "--starts", "30", "--quiet"]
    )  # fmt: skip
    assert (folder / "free-energy.png").read_bytes().startswith(b"\x89PNG")
    assert "epoch 1: " in capsys.readouterr().out


def test_a_small_run_gives_all_figures(script, mnist, capsys):
    folder = mnist / "out"
    script.main(
        ["--data", str(mnist), "--output", str(folder), "--hidden", "3", "--epochs", "2",
         "--starts", "30", "--steps", "20", "--quiet"]
    )  # fmt: skip
    names = ["free-energy", "quality", *(f"{kind}-{k}" for kind in ("map", "data") for k in (1, 2))]
    for name in names:
        assert (folder / f"{name}.png").read_bytes().startswith(b"\x89PNG")
    with open(folder / "quality.csv", newline="") as file:
        header, *rows = csv.reader(file)
    assert header[0] == "epoch"
    assert len(rows) == 2
    assert "epoch 2: " in capsys.readouterr().out
