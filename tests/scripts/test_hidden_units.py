import csv

import numpy as np


def test_a_small_run_gives_all_figures(load, mnist, capsys):
    script = load("experiments/hidden_units")
    folder, kinds = mnist / "out", ["binary", "gaussian"]
    script.main(
        ["--data", str(mnist), "--output", str(folder), "--kinds", *kinds, "--hidden", "3",
         "--epochs", "2", "--quiet"]
    )  # fmt: skip
    for name in ["likelihood", *(f"fields-{kind}" for kind in kinds)]:
        assert (folder / f"{name}.png").read_bytes().startswith(b"\x89PNG")
    with open(folder / "likelihood.csv", newline="") as file:
        _, *rows = csv.reader(file)
    assert [row[:2] for row in rows] == [[kind, epoch] for kind in kinds for epoch in ("1", "2")]
    assert np.isfinite([float(x) for row in rows for x in row[2:]]).all()
    lines = capsys.readouterr().out.splitlines()
    assert "by AIS" in lines[0] and "margin" in lines[1]
