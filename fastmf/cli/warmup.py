"""Compile kernels beforehand, and keep them in the cache, so that no first call has to.

These are the kernels that README.md, `fastmf demo` and the estimators use. Kernels that are in the
cache are not compiled again.

examples:
  fastmf warmup
      after an installation, or in the build of a container
  NUMBA_CACHE_DIR=/srv/cache fastmf warmup
      fill a folder that many users or machines of one kind share

The estimators need scikit-learn: pip install scikit-learn
"""

import os
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import fastmf
from fastmf._jit import cache
from fastmf._threads.workers import n_cores
from fastmf.cli import _options, _warmup_tasks


def add(parser):
    """Add the options to a parser.

    Options
    -------
    -q, --quiet
        no progress
    """


def run(arguments):
    """Compile the standard tasks in a process for each core, and print how long it took."""
    fastmf.GeneralizedRBM  # noqa: B018  says what to install where scikit-learn is missing
    if cache.folder() is None:
        raise OSError(
            "there is no folder for a cache that can be written: set NUMBA_CACHE_DIR to one."
        )
    # Compilation has one thread; more of BLAS would only spin.
    os.environ.update(FASTMF_QUIET="1", OPENBLAS_NUM_THREADS="1")
    names, failures, start = list(_warmup_tasks.STANDARD), [], time.perf_counter()
    with ProcessPoolExecutor(min(n_cores(), len(names)), get_context("spawn")) as processes:
        for name, error in zip(names, processes.map(_warmup_tasks.run, names), strict=True):
            failures += [f"{name}: {error}"] if error else []
            _options.say(f"compiled {name}", arguments.quiet)
    if failures:
        raise OSError(f"of {len(names)} tasks some failed: {'; '.join(failures)}")
    print(f"kernels are in {cache.folder()}, {time.perf_counter() - start:.1f} s")
