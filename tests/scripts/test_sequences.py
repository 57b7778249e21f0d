import numpy as np


def test_a_chain_is_found(script, rows, tmp_path):
    script.main(["--quick", "--output", str(tmp_path)])
    models = {row["method"]: row for row in rows(tmp_path / "models.csv")}
    assert set(models) == set(script.METHODS)
    # All neighbours of the chain, and nothing else, before any other pair.
    assert float(models["pseudo-likelihood"]["ppv_half"]) == 1
    assert np.isfinite(float(models["RBM, TAP"]["test_log_likelihood"]))
    assert (tmp_path / "precision.png").exists()
    again = (tmp_path / "chain-pseudo-likelihood.npz").stat().st_mtime_ns
    script.main(["--quick", "--output", str(tmp_path)])
    assert (tmp_path / "chain-pseudo-likelihood.npz").stat().st_mtime_ns == again
