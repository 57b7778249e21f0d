import csv

import pytest

pytest.importorskip("matplotlib")
SIZES = {"hidden_units": "25", "log_likelihood_per_unit": "-0.2", "validation": "-0.3"}


def test_every_table_has_a_picture(script, tmp_path, capsys):
    script.main(["--output", str(tmp_path)])
    drawn = {path.stem for path in tmp_path.iterdir()}
    assert drawn == set(script.PICTURES)
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in tmp_path.iterdir())
    assert len(capsys.readouterr().out.splitlines()) == len(drawn)


def test_curves_are_those_of_the_table(script, tmp_path, monkeypatch):
    with open(tmp_path / "tap_likelihood.csv", "w", newline="") as file:
        writer = csv.DictWriter(file, ["epoch", *SIZES])
        writer.writeheader()
        writer.writerows([{"epoch": epoch} | SIZES for epoch in (1, 2, 5)])
    figures = []
    monkeypatch.setattr(script.experiment, "picture", lambda figure, path: figures.append(figure))
    script.main(["tap_likelihood", "--tables", str(tmp_path), "--output", str(tmp_path)])
    training, validation = figures[0].axes[0].lines
    assert training.get_xydata().tolist() == [[1, -0.2], [2, -0.2], [5, -0.2]]
    assert validation.get_ydata().tolist() == [-0.3] * 3
