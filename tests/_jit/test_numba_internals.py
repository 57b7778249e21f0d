"""The parts of Numba that are not documented and that this package leans on, each by its name.

A version of Numba that lacks one of them, or gives it another meaning, fails here first.
"""

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from numba.core.compiler import DefaultPassBuilder, Flags

from fastmf._jit.passes import NOT_NEEDED


def test_passes_that_are_left_out_have_these_names():
    state = SimpleNamespace(func_ir=None, flags=Flags())
    passes = DefaultPassBuilder.define_nopython_pipeline(state).passes
    assert {pass_.name() for pass_, _ in passes} > NOT_NEEDED


@pytest.mark.slow
def test_the_package_compiles_with_the_passes_of_numba_alone():
    """The tests of this folder pass without `fastmf._jit.passes`."""
    command = [sys.executable, "-m", "pytest", "-q", str(Path(__file__).parent)]
    environment = {**os.environ, "FASTMF_PLAIN_NUMBA": "1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-2000:]
