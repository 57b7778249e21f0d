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
    name = f"{script.PEER}: {script.RATES[0]:g}" if method == "peer" else method
    found = script.run(name, 3, 0, quick=True)
    assert len(found) == 2
    # Columns are independent: their entropy is the best that can be had, in nats a row.
    p = np.linspace(0.1, 0.9, 12)
    entropy = -(p * np.log(p) + (1 - p) * np.log(1 - p)).sum()
    for below, above in found:
        assert -1.5 * entropy < below and above < -0.5 * entropy


def test_the_likelihood_is_that_of_enumeration(script):
    rng = np.random.default_rng(0)
    fields = (mf.Bernoulli(rng.normal(size=n)) for n in (12, 3))
    model = mf.RBM(rng.normal(size=(12, 3)), *fields)
    test = (rng.random((50, 12)) < 0.5).astype(float)
    log_z = mf.exact(model).log_partition
    exact = mf.tap(model, clamp=test).log_partition.mean() - log_z
    below, above = script.quality(model, test, test, 200)
    assert below == pytest.approx(exact, abs=0.5) and above == pytest.approx(exact, abs=0.5)


def test_the_best_rate_of_the_peer_counts_at_each_time(script):
    k = len(script.SECONDS)
    found = {name: [[(-100.0, -100.0)] * k] for name in script.METHODS}
    first, last = (f"{script.PEER}: {script.RATES[i]:g}" for i in (0, -1))
    found[first] = [[(-90.0, -90.0)] + [(-120.0, -120.0)] * (k - 1)]
    found[last] = [[(-120.0, -120.0)] * (k - 1) + [(-81.0, -79.0)]]
    rows = script.rows_of(7, found)
    assert len(rows) == len(script.METHODS) - len(script.RATES) + 1
    assert rows[-1].split(" | ")[2:] == ["-90.0", "-100.0", "-80.0 (± 1.0) |"]
    assert script.table(rows, "a seed").endswith(rows[-1])


def test_the_page_has_the_place_of_the_table(script, load):
    text = load("speed_page").PAGE.read_text(encoding="utf-8")
    assert all(text.count(marker) == 1 for marker in script.MARKERS)
