"""Numba is imported when code is first compiled, and then knows the functions of the package."""

import subprocess
import sys

import pytest

PROGRAM = """
from fastmf.special import exp
import sys
assert "numba" not in sys.modules
import numba

@numba.njit
def f(x):
    return exp(x)

assert abs(f(1.0) - 2.718281828459045) < 1e-15
"""


@pytest.mark.slow
def test_users_functions_call_special_ones_whichever_is_imported_first():
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
