import csv

import numpy as np


def test_a_small_run(script, tmp_path):
    options = "--images 500 --folds 2 --hidden 4 --epochs 6 --learning-rate 0.1 --chains 1"
    script.main([*options.split(), "--penalty", "1", "--output", str(tmp_path)])
    with open(tmp_path / "table.csv", newline="") as file:
        rows = {row["method"]: row for row in csv.DictReader(file)}
    assert list(rows) == ["independent", "chain", "chains", "CRBM", "CRBM, MAP"]
    _, labels, *_ = script.data()
    # Each label at its commoner value, without a look at the image.
    blind = 100 * np.minimum(labels.mean(0), 1 - labels.mean(0)).mean()
    for row in rows.values():
        assert float(row["hamming error %"]) < blind
    assert (tmp_path / "pictures.png").read_bytes().startswith(b"\x89PNG")


def test_scores_and_labels(script):
    truth = np.array([[0, 1], [1, 1]])
    assert script.scores(truth, truth) == (0.0, 100.0)
    assert script.scores(np.array([[0, 1], [0, 1]]), truth) == (25.0, 50.0)
    features, labels, kept, shape = script.data()
    assert features.shape == (1797, 32) and labels.shape == (1797, kept.sum()) and shape == (8, 8)
    assert (labels.min(0) == 0).all() and (labels.max(0) == 1).all()
