"""Own workers beside Numba's parallel loops: one mechanism for the threads of a package.

Six kernels of different kinds are run both ways: tasks that workers of `fastmf` take from a queue,
and `prange` under each of Numba's threading layers that is installed. Both call the same compiled
task, and their results are compared bit by bit. Measured are, on two processors: compilation from
nothing (seconds of the processor), a call on one and two threads (milliseconds, medians), alone and
beside a busy process, calls from several Python threads, and calls in a forked child. Times of a
machine that does other work are worthless.

The tables are Markdown: python scripts/experiments/threads.py > threads.md
"""

import argparse
import json
import os
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from pathlib import Path
from statistics import median

SELF = Path(__file__)
ROOT = SELF.parents[2]
WORKERS = "own workers"
LAYERS = "omp", "tbb", "workqueue"
# Seconds in which a call is repeated, and after which a child is given up.
SECONDS, PATIENCE = 0.8, 20.0
N_CALLERS = 4


# --- measurements, each in a process of its own ---------------------------------------------------


def milliseconds(call, seconds):
    """Median time of a call that is repeated for some seconds."""
    found, end = [], time.perf_counter() + seconds
    while time.perf_counter() < end or len(found) < 5:
        start = time.perf_counter()
        call()
        found.append(1e3 * (time.perf_counter() - start))
    return median(found)


def times(way, seconds):
    """Seconds of compilation, a hash of the result, and milliseconds of calls of all kernels."""
    from _thread_kernels import kinds, with_prange, with_workers

    found, calls = {}, {}
    for kind in kinds():
        call = calls[kind.name] = (with_workers if way == WORKERS else with_prange)(kind)
        start = time.process_time()
        call(1)
        compiled = time.process_time() - start
        found[kind.name] = [compiled, kind.arguments[2].tobytes().hex().__hash__()]
        call(2)
    for n_busy in (0, 1):
        with busy(n_busy):
            for name, call in calls.items():
                for n_threads in (1, 2):
                    found[name].append(milliseconds(lambda: call(n_threads), seconds))  # noqa: B023
    return found


@contextmanager
def busy(n):
    """Other processes that do nothing but work."""
    command = [sys.executable, "-c", "while True: pass"]
    processes = [subprocess.Popen(command) for _ in range(n)]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


def callers(way, seconds):
    """Milliseconds of a call while several Python threads call the same function."""
    import numpy as np
    from _thread_kernels import kinds, with_prange, with_workers

    kind = kinds()[0]
    call = (with_workers if way == WORKERS else with_prange)(kind)
    call(2)
    results = [(*kind.arguments[:2], np.empty_like(kind.arguments[2])) for _ in range(N_CALLERS)]
    found = [0.0] * N_CALLERS

    def repeat(k):
        found[k] = milliseconds(lambda: call(2, results[k]), seconds)

    threads = [threading.Thread(target=repeat, args=(k,)) for k in range(N_CALLERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all((result[2] == kind.arguments[2]).all() for result in results)
    return f"{median(found):.2f}"


def forked(way, seconds):
    """What becomes of a call in a child that is forked after one."""
    from _thread_kernels import kinds, with_prange, with_workers

    call = (with_workers if way == WORKERS else with_prange)(kinds()[0])
    call(2)
    child = os.fork()
    if child == 0:
        call(2)
        os._exit(0)
    end = time.monotonic() + PATIENCE / 2
    while time.monotonic() < end:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return "works" if status == 0 else "aborts"
        time.sleep(0.02)
    os.kill(child, 9)
    os.waitpid(child, 0)
    return "hangs"


MEASUREMENTS = {"times": times, "callers": callers, "forked": forked}


def measured(name, way, seconds):
    """A measurement in a new process; None if it has ended otherwise."""
    environment = {**os.environ, "NUMBA_NUM_THREADS": "2", "FASTMF_QUIET": "1"}
    environment["PYTHONHASHSEED"] = "0"
    environment["PYTHONPATH"] = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    if way != WORKERS:
        environment["NUMBA_THREADING_LAYER"] = way
    command = [sys.executable, str(SELF), "--measure", name, way, "--seconds", str(seconds)]
    try:
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=10 * PATIENCE
        )
    except subprocess.TimeoutExpired:
        return None
    return json.loads(done.stdout.splitlines()[-1]) if done.returncode == 0 else None


# --- tables ---------------------------------------------------------------------------------------


def named(way):
    """A way as tables call it."""
    return way if way == WORKERS else f"`prange`, {way}"


def table_of_times(found):
    """Compilation and calls, a row for each kernel and way."""
    yield "| kernel | by | compiled, s | 1 thread, ms | 2 threads | 1, beside a busy process | 2 |"
    yield "|---|---|---|---|---|---|---|"
    for kernel in next(iter(found.values())):
        results = {rows[kernel][1] for rows in found.values()}
        assert len(results) == 1, f"{kernel}: the results differ"
        for way, rows in found.items():
            compiled, _, *calls = rows[kernel]
            cells = " | ".join(f"{value:.2f}" for value in (compiled, *calls))
            yield f"| {kernel} | {named(way)} | {cells} |"


def table_of_calls(ways, seconds):
    """Calls from several Python threads and in a forked child, a row for each way."""
    yield f"| by | a product called by {N_CALLERS} Python threads, ms | in a forked child |"
    yield "|---|---|---|"
    for way in ways:
        cells = [measured(name, way, seconds) or "aborts" for name in ("callers", "forked")]
        yield f"| {named(way)} | {' | '.join(cells)} |"


def lines_of_code():
    """Lines that own workers need: the pool, waiting, and what calls kernels in it."""
    folder = ROOT / "fastmf" / "_threads"
    names = "pool.py", "waiting.py", "workers.py"
    return sum(len((folder / name).read_text(encoding="utf-8").splitlines()) for name in names)


def main(arguments=None):
    """Measure, and print the tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="a tenth of a second for each time")
    parser.add_argument("--seconds", type=float, default=SECONDS, help=argparse.SUPPRESS)
    parser.add_argument("--measure", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:2])
    if options.measure:
        name, way = options.measure
        print(json.dumps(MEASUREMENTS[name](way, options.seconds)))
        return
    seconds = 0.1 if options.quick else options.seconds
    found = {way: measured("times", way, seconds) for way in (WORKERS, *LAYERS)}
    found = {way: rows for way, rows in found.items() if rows}
    print("\n".join(table_of_times(found)), end="\n\n")
    print("\n".join(table_of_calls(found, seconds)), end="\n\n")
    print(f"Lines of the pool, of waiting and of calls: {lines_of_code()}.")


if __name__ == "__main__":
    main()
