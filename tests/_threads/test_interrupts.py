"""Ctrl-C ends calls that would take minutes, whatever kernel they are in, and nothing else."""

import os
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np
import pytest
from everywhere import solution

import fastmf as mf
from fastmf._jit.kernel import kernel
from fastmf._jit.messages import _WATCH
from fastmf._threads import workers
from fastmf._threads.workers import STOPPED, for_each, in_parallel, next_task, stopped
from fastmf.datasets.alignments import sequence_weights
from fastmf.evaluation import annealed_importance_sampling, effective_couplings, gibbs_chains

# Seconds after which a signal comes, and in which a call must have ended then: machines are busy.
DELAY, PATIENCE = 0.3, 5.0

needs_signals = pytest.mark.skipif(os.name != "posix", reason="a process cannot signal itself")
in_main_thread = pytest.mark.skipif(
    threading.current_thread() is not threading.main_thread(), reason="signals reach another thread"
)
pytestmark = [needs_signals, in_main_thread]


@pytest.fixture(autouse=True)
def python_handles_ctrl_c():
    """Processes that a shell starts in the background ignore Ctrl-C."""
    old = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, old)


def ising(n, scale=1.0, hidden=mf.Ising):
    rng = np.random.default_rng(0)
    return mf.RBM(rng.normal(0, scale, (n, n)), mf.Ising(np.zeros(n)), hidden(np.zeros(n)))


def bernoulli(n, scale=3.0):
    zeros = np.zeros(n)
    return mf.RBM(ising(n, scale).weights, mf.Bernoulli(zeros), mf.Bernoulli(zeros))


def categorical(n, scale=4.0):
    visible = mf.Categorical(np.zeros((n, 3)))
    weights = np.random.default_rng(0).normal(0, scale, (3 * n, n))
    return mf.RBM(weights, visible, mf.Bernoulli(np.zeros(n)))


def fields(n_rows, n):
    return np.random.default_rng(1).normal(size=(n_rows, n))


def linear_model(n_rows, n):
    X = fields(n_rows, n)
    prior = mf.GaussBernoulli(np.zeros(n), np.ones(n), np.zeros(n))
    return mf.SparseLinearModel(X, X[:, 0], 0.1, prior)


def labels(n_rows, n):
    return np.random.default_rng(2).integers(0, 4, (n_rows, n))


LONG = {"max_iter": 10**7, "tol": 1e-300, "damping": 0.0}
ROWS = {"field": (np.zeros((9, 100)), np.zeros(100))}

# Calls that take minutes, of which the first few are tried always and the others among slow tests:
# functions that return one, when its arguments have been made.
CALLS = {
    "tap": lambda: partial(mf.tap, ising(100), fields(20, 100), **LONG),
    "belief_propagation": lambda: partial(mf.belief_propagation, bernoulli(100), **ROWS, **LONG),
    "gibbs_chains": lambda: partial(gibbs_chains, ising(60), n_draws=1, n_warmup=10**8, rng=0),
    "one_thread": lambda: partial(mf.tap, ising(100), fields(20, 100), n_threads=1, **LONG),
    "one_large_row": lambda: partial(mf.tap, ising(1500), fields(1, 1500)[0], **LONG),
    "categorical": lambda: partial(mf.tap, categorical(50, 1.0), fields(9, 150), **LONG),
    "relaxed_bp": lambda: partial(mf.relaxed_bp, ising(100), fields(9, 100), **LONG),
    "max_product": lambda: partial(
        mf.most_probable, bernoulli(2000), max_iter=1, n_starts=501, rng=0
    ),
    "local_search": lambda: partial(
        mf.most_probable,
        bernoulli(2000), sum_hidden=True, max_iter=1, n_starts=501, rng=0,
    ),
    "belief_propagation_of_groups": lambda: partial(
        mf.belief_propagation, categorical(50), **LONG
    ),
    "annealing": lambda: partial(
        annealed_importance_sampling, bernoulli(100), n_steps=10**7, rng=0
    ),
    "annealing_of_units": lambda: partial(
        annealed_importance_sampling, ising(100), n_steps=10**7, rng=0
    ),
    "parallel_schedule": lambda: partial(
        mf.expectation_propagation,
        linear_model(300, 20_000), schedule="parallel", max_iter=10**6, tol=1e-300,
    ),
    "sequential_schedule": lambda: partial(
        mf.expectation_propagation,
        linear_model(1000, 20_000), schedule="sequential", max_iter=10**6, tol=1e-300,
    ),
    "convergent_schedule": lambda: partial(
        mf.expectation_propagation,
        linear_model(300, 10_000), schedule="convergent", max_iter=10**6, tol=1e-300,
    ),
    "adaptive_tap": lambda: partial(
        mf.adaptive_tap, ising(600, 0.3), max_iter=10**6, tol=1e-300
    ),
    "effective_couplings": lambda: partial(
        effective_couplings, categorical(300), labels(2000, 300) % 3, n_background=2000
    ),
    "sequence_weights": lambda: partial(sequence_weights, labels(200_000, 300)),
    "potts_machine": lambda: partial(
        mf.PottsMachine(l2=1e-9, tol=1e-300, max_iter=10**6).fit, labels(20_000, 100)
    ),
    "separate_sites": lambda: partial(
        mf.PottsMachine(l2=1e-9, solver="asymmetric", tol=1e-300, max_iter=10**6).fit,
        labels(20_000, 100),
    ),
    "coordinate_ascent": lambda: partial(
        mf.FullyVisibleBoltzmannMachine(solver="bslm", tol=1e-300, max_iter=10**5).fit,
        np.sign(fields(50_000, 100)),
    ),
    "quadrature": lambda: partial(
        mf.TruncatedGaussBernoulli(*np.outer([0, 1, 0, -1, 2], np.ones(3000))).moments,
        np.tile(fields(1, 3000), (10_000, 1)), np.ones((10_000, 3000)),
    ),
    "training": lambda: partial(
        mf.GeneralizedRBM(64, n_epochs=10**6, learning_rate=1e-9, random_state=0).fit,
        np.sign(fields(2000, 64)) > 0,
    ),
}  # fmt: skip
FAST = list(CALLS)[:3]


def with_signal(call, number=signal.SIGINT, delay=DELAY):
    """Seconds of CPU time from a signal to the end of a call, and what the call raises."""
    sent, ended = [], threading.Event()

    def send():
        # A call that is interrupted ends when its kernels have been compiled.
        compiled = -1.0
        while _WATCH._depth or compiled != _WATCH._seconds:
            compiled = _WATCH._seconds
            if ended.wait(delay):
                return
        sent.append(time.process_time())
        os.kill(os.getpid(), number)

    sender, error = threading.Thread(target=send), None
    sender.start()
    try:
        call()
    except BaseException as raised:
        error = raised
    now = time.process_time()
    ended.set()
    sender.join()
    return now - sent[0] if sent else None, error


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[] if n in FAST else pytest.mark.slow) for n in CALLS]
)
def test_ctrl_c_ends_a_call_and_harms_no_other(name):
    before, call = solution(), CALLS[name]()
    with ThreadPoolExecutor(1) as other:
        seconds, error = with_signal(call)
        assert isinstance(error, KeyboardInterrupt)
        assert 0 <= seconds < PATIENCE
        assert other.submit(solution).result() == before
    assert solution() == before


def test_what_a_handler_raises_reaches_the_caller():
    def handler(number, frame):
        raise TimeoutError(f"signal {number}")

    old = signal.signal(signal.SIGUSR1, handler)
    try:
        seconds, error = with_signal(CALLS["tap"](), signal.SIGUSR1)
    finally:
        signal.signal(signal.SIGUSR1, old)
    assert repr(error) == f"TimeoutError('signal {int(signal.SIGUSR1)}')"
    assert error.__traceback__.tb_next is not None
    assert 0 <= seconds < PATIENCE


def test_a_handler_that_raises_nothing_ends_no_call():
    def solve():
        return mf.tap(ising(60), fields(200, 60), max_iter=1500, tol=1e-300, damping=0.0)

    seen, found, expected = [], [], solve()
    old = signal.signal(signal.SIGUSR1, lambda number, frame: seen.append(number))
    try:
        # It ends some time after the signal.
        _, error = with_signal(lambda: found.append(solve()), signal.SIGUSR1, 0.05)
    finally:
        signal.signal(signal.SIGUSR1, old)
    assert error is None and seen == [signal.SIGUSR1]
    for one, other in zip(found[0].mean, expected.mean, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.slow
def test_calls_in_other_threads_go_on():
    def solve():
        return mf.tap(ising(60), fields(200, 60), max_iter=4000, tol=1e-300, damping=0.0)

    expected = solve().mean[0]
    with ThreadPoolExecutor(1) as other:
        found = other.submit(solve)
        _, error = with_signal(CALLS["tap"]())
        assert isinstance(error, KeyboardInterrupt)
        np.testing.assert_array_equal(found.result().mean[0], expected)


def test_tasks_of_python_functions_end_too():
    done, started = [], threading.Event()

    def work(task):
        started.set()
        time.sleep(0.01)
        done.append(task)

    seconds, error = with_signal(lambda: for_each(work, range(100_000), 2))
    assert isinstance(error, KeyboardInterrupt) and 0 <= seconds < PATIENCE
    assert 0 < len(done) < 1000
    for_each(done.append, ["more"] * 3, 2)
    assert done[-3:] == ["more"] * 3


@kernel(views=True)
def take_tasks(queue, out):
    task = next_task(queue)
    while task < out.shape[0]:
        out[task] += 1
        if stopped(queue):
            return
        task = next_task(queue)


def test_a_marked_queue_has_no_tasks():
    for n_workers in (1, 2):
        out = np.zeros(1000, np.int64)
        in_parallel(take_tasks, (np.full(1, STOPPED), out), n_workers)
        assert (out == 0).all()
        in_parallel(take_tasks, (np.zeros(1, np.int64), out), n_workers)
        assert (out == 1).all()
    queue = np.array([3])
    assert next_task(queue) == 3 and not stopped(queue)
    workers.stop(take_tasks, (queue, out))
    assert next_task(queue) == STOPPED and stopped(queue)
