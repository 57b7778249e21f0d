"""`fastmf warmup`: compile the kernels beforehand, in several processes."""

import os
import subprocess
import sys
import threading
import time
from contextlib import contextmanager, suppress
from pathlib import Path
from queue import Empty, SimpleQueue

import fastmf
from fastmf._common.arguments import count
from fastmf._common.cores import n_cores
from fastmf._jit import cache
from fastmf._jit.messages import to_stderr
from fastmf.cli import _options

DESCRIPTION = """\
Compile what README.md, `fastmf demo` and the estimators use, and keep it in the cache, so that no
first call has to. What is there already is not compiled again.
"""

EPILOG = """\
examples:
  fastmf warmup
      after an installation, or in the build of a container
  NUMBA_CACHE_DIR=/srv/cache fastmf warmup --all
      fill a folder that many users or machines of one kind share

The estimators need scikit-learn: pip install 'fastmf[sklearn]'
"""


class Failed(RuntimeError):
    """Not all could be compiled, or it could not be kept."""


# A program that finds the same package, and no import of the script that calls `warmup`: scripts
# need no `if __name__ == "__main__"`.
_WORKER = """
import sys
sys.path.append(sys.argv[1])
from fastmf.cli._warmup_tasks import main
main()
"""


def add(commands):
    """Add the command to a parser."""
    warmup_parser = _options.command(
        commands,
        run,
        "warmup",
        help="compile the kernels beforehand",
        description=DESCRIPTION,
        epilog=EPILOG,
    )
    warmup_parser.add_argument(
        "--all",
        action="store_true",
        help="both floating-point types, all priors and options (takes minutes)",
    )
    warmup_parser.add_argument(
        "-j", "--processes", type=int, metavar="N", help="[as many as there are cores]"
    )
    _options.add_quiet(warmup_parser)


def run(arguments):
    """Compile, and print how long it took."""
    seconds = warmup(arguments.all, arguments.processes, not arguments.quiet)
    print(f"kernels are in {cache.folder()}, {seconds:.1f} s")


def warmup(everything=False, n_processes=None, verbose=True):
    """Compile kernels beforehand and keep them in the cache, for all later processes.

    Parameters
    ----------
    everything : bool, default False
        Both floating-point types, all priors and options, in place of what the README, `fastmf
        demo` and the estimators use.
    n_processes : int, optional
        Processes that compile; default as many as there are cores.
    verbose : bool, default True
        Show a progress bar.

    Returns
    -------
    float
        Seconds that it took.

    Raises
    ------
    ValueError, TypeError
        If `n_processes` is not a positive integer.
    RuntimeError
        If there is no cache folder, or code cannot be compiled.
    ImportError
        Without scikit-learn, which the estimators need.

    Examples
    --------
    >>> import fastmf as mf
    >>> seconds = mf.warmup(verbose=False)  # doctest: +SKIP
    """
    if n_processes is not None:
        count("n_processes", n_processes)
    fastmf.GeneralizedRBM  # noqa: B018  says what to install where scikit-learn is missing
    if cache.folder() is None:
        raise Failed(
            "there is no folder for a cache that can be written: set NUMBA_CACHE_DIR to one."
        )
    from fastmf.cli import _warmup_tasks

    names = list(_warmup_tasks.everything() if everything else _warmup_tasks.STANDARD)
    start = time.perf_counter()
    failures = _in_processes(names, n_processes or n_cores(), verbose)
    if failures:
        reasons = "; ".join(sorted(failures))
        raise Failed(f"{len(failures)} of {len(names)} tasks failed: {reasons}")
    return time.perf_counter() - start


def _in_processes(names, n_processes, verbose):
    """Run tasks in processes; one line for each that failed."""
    queue, failures, workers, threads = SimpleQueue(), [], [], []
    for name in names:
        queue.put(name)
    with _progress(len(names), verbose) as done:
        try:
            for _ in range(min(n_processes, len(names))):
                workers.append(_worker())
                arguments = workers[-1], queue, failures, done
                threads.append(threading.Thread(target=_serve, args=arguments))
                threads[-1].start()
            for thread in threads:
                thread.join()
        finally:
            _end(workers, threads)  # if interrupted, in the middle of a task
    return failures


def _serve(worker, queue, failures, done):
    """Let a worker run tasks until none is left."""
    with suppress(Empty):
        while True:
            name = queue.get_nowait()
            error = _ask(worker, name)
            if error:
                failures.append(f"{name}: {error}")
            with _LOCK:
                done(name)


_LOCK = threading.Lock()


def _worker():
    environment = {**os.environ, "FASTMF_QUIET": "1"}
    # Compilation has one thread; more of BLAS would only spin.
    environment["OPENBLAS_NUM_THREADS"] = "1"
    return subprocess.Popen(
        [sys.executable, "-c", _WORKER, str(Path(fastmf.__file__).parent.parent)],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,  # Ctrl-C reaches this process only, which ends the others
    )


def _end(workers, threads):
    """End processes, in which nothing is left to be saved, and then the threads that wait."""
    for worker in workers:
        worker.kill()
        worker.wait()
    for thread in threads:
        thread.join()
    for worker in workers:
        worker.stdout.close()
        with suppress(OSError):
            worker.stdin.close()


def _ask(worker, name):
    """Let a worker run a task; what went wrong."""
    try:
        worker.stdin.write(f"{name}\n")
        worker.stdin.flush()
        answer = worker.stdout.readline()
    except OSError:
        answer = ""
    return answer.rstrip("\n") if answer else "the process has ended"


@contextmanager
def _progress(total, verbose):
    """A function that is called with the name of each task that is done."""
    if not verbose:
        yield lambda name: None
        return
    try:
        from tqdm import tqdm
    except ImportError:
        lines = iter(range(1, total + 1))
        yield lambda name: to_stderr(f"fastmf: compiled {next(lines)}/{total}: {name}")
        return
    with tqdm(total=total, desc="compiling", unit="task") as bar:

        def done(name):
            bar.set_postfix_str(name, refresh=False)
            bar.update()

        yield done
