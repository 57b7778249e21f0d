"""The solves of the asv suite run."""

import subprocess
import sys
from pathlib import Path

import pytest

CODE = """
from benchmarks.systems import TASKS

for make in TASKS.values():
    make()()
"""


@pytest.mark.slow
def test_every_solve_runs():
    folder = Path(__file__).parents[2] / "asv_bench"
    subprocess.run([sys.executable, "-c", CODE], cwd=folder, check=True)
