"""Benchmarks of fastmf; README.md beside this folder says how to run and read them."""

import os
import sys
from pathlib import Path

# BLAS reads these variables when NumPy is imported. By default all cores; see README.md for
# one-thread runs.
THREADS = int(os.environ.get("FASTMF_BENCH_THREADS", os.cpu_count() or 1))
for name in ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"):
    os.environ[name] = str(THREADS)

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))  # for kernel_cases
