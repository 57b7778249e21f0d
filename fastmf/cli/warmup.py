"""Compile kernels beforehand, and keep them in the cache, so that no first call has to.

These are the kernels that README.md, `fastmf demo` and the estimators use. Kernels that are in the
cache are not compiled again.
"""

import os
import subprocess
import sys
import time
from pathlib import Path

import fastmf
from fastmf._common.cores import n_cores
from fastmf._jit import cache
from fastmf.cli import _options

EPILOG = """\
examples:
  fastmf warmup
      after an installation, or in the build of a container
  NUMBA_CACHE_DIR=/srv/cache fastmf warmup
      fill a folder that many users or machines of one kind share

The estimators need scikit-learn: pip install scikit-learn
"""


class Failed(RuntimeError):
    """Not all could be compiled, or it could not be kept."""


# A program that finds the same package, and no import of the script that calls `warmup`: scripts
# need no `if __name__ == "__main__"`.
_WORKER = """
import sys
sys.path.append(sys.argv[1])
from fastmf.cli._warmup_tasks import main
main(sys.argv[3:], verbose=sys.argv[2] == "True")
"""


def add(parser):
    """Add the options to a parser."""
    _options.add_quiet(parser)


def run(arguments):
    """Compile, and print how long it took."""
    seconds = warmup(not arguments.quiet)
    print(f"kernels are in {cache.folder()}, {seconds:.1f} s")


def warmup(verbose):
    """Compile the standard tasks in a process for each core, and return the seconds."""
    fastmf.GeneralizedRBM  # noqa: B018  says what to install where scikit-learn is missing
    if cache.folder() is None:
        raise Failed(
            "there is no folder for a cache that can be written: set NUMBA_CACHE_DIR to one."
        )
    from fastmf.cli import _warmup_tasks

    names, start = list(_warmup_tasks.STANDARD), time.perf_counter()
    n_processes = min(n_cores(), len(names))
    workers = [_worker(names[k::n_processes], verbose) for k in range(n_processes)]
    try:
        outputs = [worker.communicate()[0] for worker in workers]
    finally:
        for worker in workers:  # if interrupted, in the middle of a task
            worker.kill()
            worker.wait()
            worker.stdout.close()
    failures = [line for output in outputs for line in output.splitlines()]
    failures += ["a process has ended" for worker in workers if worker.returncode]
    if failures:
        raise Failed(f"of {len(names)} tasks some failed: {'; '.join(sorted(failures))}")
    return time.perf_counter() - start


def _worker(names, verbose):
    """Start a process that runs tasks, and writes a line for each that fails."""
    # Compilation has one thread; more of BLAS would only spin.
    environment = {**os.environ, "FASTMF_QUIET": "1", "OPENBLAS_NUM_THREADS": "1"}
    folder = str(Path(fastmf.__file__).parent.parent)
    return subprocess.Popen(
        [sys.executable, "-c", _WORKER, folder, str(verbose), *names],
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,  # Ctrl-C reaches this process only, which ends the others
    )
