"""The script runs, and finds what theory says."""

import numpy as np
import pytest


def test_a_small_simulation(script, rows, tmp_path, capsys):
    pytest.importorskip("matplotlib")
    options = "--units 3 --draws 4 --rows 2000 --starts 2 --max-iter 3000 --data nowhere".split()
    script.main([*options, "--output", str(tmp_path)])
    existing = [row for row in rows(tmp_path / "simulation.csv") if row["exists"] == "True"]
    assert existing
    for row in existing:
        # The mean over six parameters of a squared error is a few times its variance at most.
        assert float(row["asymptotic_variance"]) >= 1 / 2000
        assert float(row["newton_mse"]) < 10 * float(row["asymptotic_variance"])
        assert float(row["distance_to_maximum"]) < float(row["newton_mse"]) / 100
    assert (tmp_path / "sequences.png").read_bytes().startswith(b"\x89PNG")
    sweeps = rows(tmp_path / "sequences.csv")
    # From two starts the same maximum; BSLM never falls.
    last = {row["start"]: float(row["log_pseudo_likelihood"]) for row in sweeps}
    assert set(last) == {"0", "1"} and np.ptp(list(last.values())) < 0.01
    assert all(float(row["increment"]) >= 0 for row in sweeps)
    (summary,) = rows(tmp_path / "existence.csv")
    errors = [float(row["newton_mse"]) for row in existing]
    assert float(summary["newton_mse_mean_where_exists"]) == pytest.approx(np.mean(errors))
    assert float(summary["newton_mse_median_where_exists"]) == pytest.approx(np.median(errors))
    assert "Senate is left out" in capsys.readouterr().out
