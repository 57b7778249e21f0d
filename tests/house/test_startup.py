"""Importing the package is quick, compiles nothing, and brings no optional package with it."""

import json
import os
import subprocess
import sys
from pathlib import Path

import fastmf

ROOT = Path(fastmf.__file__).parent.parent

OPTIONAL = ["sklearn", "matplotlib", "tqdm", "dask", "distributed", "pandas"]
# Parts of the package that are imported when something of theirs is first used.
LATER = ["fastmf.inference", "fastmf.kernels", "fastmf.learning"]


def python(code, *arguments):
    """What `code` prints, as JSON, in a fresh process."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments], env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


IMPORT = """
import json, sys, time
start = time.process_time()
import fastmf
seconds = time.process_time() - start
print(json.dumps([seconds, sorted(set(sys.argv[1:]) & set(sys.modules))]))
"""


def test_import_takes_less_than_a_second_and_needs_no_extra():
    runs = [python(IMPORT, *OPTIONAL, *LATER) for _ in range(5)]
    # Processor time, and the least of it: a busy machine takes more for the same.
    assert min(seconds for seconds, _ in runs) < 1
    assert all(imported == [] for _, imported in runs)


# All public names, except those at home in a part that needs scikit-learn.
USE = """
import json, sys
import numba
from numba.core import event

class Count(event.Listener):
    compiled = 0
    def on_start(self, event):
        self.compiled += 1
    def on_end(self, event):
        pass

count = Count()
event.register("numba:compile", count)
import fastmf
for name in fastmf.__all__:
    if fastmf._HOME.get(name) != "estimators" and name != "estimators":
        getattr(fastmf, name)
before = count.compiled
numba.njit(lambda x: x)(1)
extras = sorted(set(sys.argv[1:]) & set(sys.modules))
print(json.dumps([before, count.compiled, extras]))
"""


def test_using_every_name_compiles_nothing_and_needs_no_extra():
    compiled, with_one_function, extras = python(USE, *OPTIONAL)
    assert compiled == 0
    assert with_one_function > 0  # the count counts
    assert extras == []
