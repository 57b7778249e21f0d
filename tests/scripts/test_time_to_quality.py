import numpy as np
import pytest

import fastmf as mf


@pytest.fixture
def script(load, monkeypatch):
    pytest.importorskip("threadpoolctl")
    for variable in ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"):
        monkeypatch.setenv(variable, "1")  # restored, as the script sets them
    script = load("time_to_quality")
    X = np.random.default_rng(0).random((600, 12)) < np.linspace(0.1, 0.9, 12)
    monkeypatch.setattr(script, "images", lambda n: X.astype(np.float32))
    return script


@pytest.mark.parametrize("method", ["default options", "peer"])
def test_a_run_is_looked_at_after_each_number_of_seconds(script, monkeypatch, method):
    monkeypatch.setattr(script, "SECONDS", (0.2, 0.4))
    peers = [name for name in script.METHODS if name.startswith(script.PEER)]
    name = peers[-1] if method == "peer" else method
    found = script.run(name, 3, 0, quick=True)
    assert len(found) == 2
    # Columns are independent: their entropy is the best that can be had, in nats a row.
    p = np.linspace(0.1, 0.9, 12)
    entropy = -(p * np.log(p) + (1 - p) * np.log(1 - p)).sum()
    for value in found:
        assert -1.5 * entropy < value < -0.5 * entropy


def test_the_likelihood_is_that_of_enumeration(script, monkeypatch):
    rng = np.random.default_rng(0)
    fields = (mf.Bernoulli(rng.normal(size=n)) for n in (12, 3))
    model = mf.RBM(rng.normal(size=(12, 3)), *fields)
    test = (rng.random((50, 12)) < 0.5).astype(float)
    log_z = mf.exact(model).log_partition
    exact = mf.tap(model, clamp=test).log_partition.mean() - log_z
    assert script.quality(model, test, test, 200) == pytest.approx(exact, abs=0.2)
    failed = mf.evaluation.annealed_importance_sampling(model, 20, 20, rng=0)._replace(
        lower_bound=log_z + 9
    )
    monkeypatch.setattr(script, "annealed_quietly", lambda *_, **__: failed)
    assert np.isnan(script.quality(model, test, test, 200))
