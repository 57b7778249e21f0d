"""Many fits in one process: no memory is kept, and none is slower than the ones before."""

import gc
import time
import tracemalloc

import numpy as np
import pytest

import fastmf as mf

X = (np.random.default_rng(0).random((400, 64)) < 0.3).astype(np.float32)
FIELDS = np.random.default_rng(1).normal(size=(50, 64))
MODEL = mf.RBM(np.full((64, 12), 0.01), mf.Bernoulli(np.zeros(64)), mf.Bernoulli(np.zeros(12)))
LEARNER = mf.GeneralizedRBM(12, n_epochs=1, batch_size=200, random_state=0)
WORK = {
    "tap": lambda: LEARNER.fit(X).score_samples(X),
    "pseudo-likelihood": lambda: mf.FullyVisibleBoltzmannMachine(solver="newton", l2=0.1).fit(
        np.where(X[:, :5] > 0, 1.0, -1.0)
    ),
    "beliefs": lambda: mf.belief_propagation(MODEL, field=FIELDS, pairwise=True),
}
# The data, kept in each of 8 rounds, would be 0.8 MB; the messages 2.5 MB.
ROUNDS, ALLOWED = 8, 4e5


def kept(work):
    """Bytes of arrays and objects that are there after some rounds and were not before."""
    tracemalloc.start()
    try:
        for _ in range(5):
            work()
        gc.collect()
        before = tracemalloc.get_traced_memory()[0]
        for _ in range(ROUNDS):
            work()
        gc.collect()
        return tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("name", WORK)
def test_repeated_work_keeps_no_memory(name):
    assert kept(WORK[name]) < ALLOWED


def test_the_check_sees_a_leak():
    leak = []
    assert kept(lambda: leak.append(X.copy())) > ALLOWED


@pytest.mark.slow
@pytest.mark.parametrize("name", WORK)
def test_repeated_work_does_not_slow_down(name):
    def median_seconds(n):
        seconds = []
        for _ in range(n):
            start = time.thread_time()
            WORK[name]()
            seconds.append(time.thread_time() - start)
        return np.median(seconds)

    median_seconds(10)
    first = median_seconds(20)
    median_seconds(60)
    assert median_seconds(20) < 3 * first + 1e-3
