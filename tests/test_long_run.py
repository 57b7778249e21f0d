"""Many fits in one process: no memory is kept, and none is slower than the ones before."""

import gc
import time
from pathlib import Path

import numpy as np
import pytest

import fastmf as mf

STATM = Path("/proc/self/statm")
PAGE = 4096


def resident():
    """Bytes of memory that this process holds."""
    gc.collect()
    return int(STATM.read_text().split()[1]) * PAGE


def learners():
    X = (np.random.default_rng(0).random((400, 64)) < 0.3).astype(np.float32)
    fields = np.random.default_rng(1).normal(size=(50, 64))
    model = mf.RBM(np.full((64, 12), 0.01), mf.Bernoulli(np.zeros(64)), mf.Bernoulli(np.zeros(12)))
    return {
        "tap": lambda: mf.GeneralizedRBM(12, n_epochs=1, random_state=0).fit(X).score_samples(X),
        "pseudo": lambda: mf.FullyVisibleBoltzmannMachine(solver="newton", l2=0.1).fit(
            np.where(X[:, :5] > 0, 1.0, -1.0)
        ),
        "beliefs": lambda: mf.belief_propagation(model, field=fields, messages=True),
    }


@pytest.mark.skipif(not STATM.exists(), reason="Linux says how much memory a process holds")
@pytest.mark.parametrize("name", learners())
def test_repeated_work_keeps_no_memory_and_does_not_slow_down(name):
    work = learners()[name]

    def rounds(n):
        seconds = []
        for _ in range(n):
            start = time.thread_time()
            work()
            seconds.append(time.thread_time() - start)
        return np.median(seconds)

    rounds(20)
    before, first = resident(), rounds(20)
    rounds(80)
    last, after = rounds(20), resident()
    # The data, kept in each of a hundred rounds, would be 10 MB; the messages 30 MB.
    assert after - before < 3e6
    assert last < 2 * first + 1e-3


def test_the_check_sees_a_leak():
    if not STATM.exists():
        pytest.skip("Linux says how much memory a process holds")
    kept, before = [], resident()
    kept.extend(np.ones(50_000 // 8) for _ in range(120))
    assert resident() - before > 3e6
    del kept
