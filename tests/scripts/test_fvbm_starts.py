"""The script runs, and its default start is ahead of zero."""

import csv

import pytest


def test_a_small_comparison(script, tmp_path):
    options = "--units 6 --draws 2 --rows 2000 --max-iter 300 --no-digits".split()
    script.main([*options, "--output", str(tmp_path)])
    with open(tmp_path / "starts.csv") as file:
        rows = list(csv.DictReader(file))
    names = ["paper, 6 units", "weak, 20 units", "equal units"]
    assert [(row["data"], row["start"]) for row in rows] == [
        (name, start) for name in names for start in script.STARTS
    ]
    for row in rows:
        short = [float(row[f"short_{k}"]) for k in script.SWEEPS]
        assert short == sorted(short, reverse=True) and short[-1] >= 0


def test_digits_are_binary_and_of_the_width_asked_for(script):
    pytest.importorskip("sklearn")
    for width in (8, 10):
        states = script.digits(width)
        assert states.shape == (1797, width**2) and set(states.ravel()) == {-1, 1}
