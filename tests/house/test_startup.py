"""Importing the package is quick, compiles nothing, and brings no optional package with it."""

import json
import os
from importlib import import_module
from importlib.metadata import version
from pathlib import Path

import forks
import pytest

import fastmf

ROOT = Path(fastmf.__file__).parent.parent

OPTIONAL = ["sklearn", "matplotlib", "tqdm", "dask", "distributed", "pandas"]
# Parts of the package that are imported when something of theirs is first used.
LATER = ["fastmf.inference", "fastmf.kernels", "fastmf.learning"]


ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT)}


def python(code, *arguments):
    """What `code` prints, as JSON, in a fresh process."""
    return json.loads(forks.fresh("-c", code, *arguments).stdout)


def forked(folder, code, *arguments, imports=("numba",)):
    """The same in a process that has imported some packages, but not this one."""
    options = {"out": folder, "environment": ENVIRONMENT, "imports": imports}
    done = forks.python(code, *arguments, compiled=False, **options)
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
    for _ in range(5):  # processor time: a busy machine takes more for the same
        seconds, imported = python(IMPORT, *OPTIONAL, *LATER)
        assert imported == []
        if seconds < 1:
            break
    assert seconds < 1


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
    if not fastmf._HOME.get(name, name).startswith("estimators"):
        getattr(fastmf, name)
before = count.compiled
numba.njit(lambda x: x)(1)
extras = sorted(set(sys.argv[1:]) & set(sys.modules))
print(json.dumps([before, count.compiled, extras]))
"""


def test_using_every_name_compiles_nothing_and_needs_no_extra(tmp_path):
    compiled, with_one_function, extras = forked(tmp_path, USE, *OPTIONAL)
    assert compiled == 0
    assert with_one_function > 0  # the count counts
    assert extras == []


# What has been imported before an estimator is.
BASE = ("numba", "numpy", "scipy.linalg", "sklearn.base")
ESTIMATOR = """
import json, sys, time
before = set(sys.modules)
start = time.process_time()
import fastmf
getattr(fastmf, sys.argv[1])
seconds = time.process_time() - start
print(json.dumps([seconds, sorted(set(sys.modules) - before)]))
"""
# What an estimator may import of scikit-learn and SciPy beyond the class it is derived from.
LIGHT = {"sklearn.utils.multiclass", "sklearn.utils._unique"}


@pytest.mark.parametrize(
    "name", [name for name, part in fastmf._HOME.items() if part == "estimators"]
)
def test_estimators_import_little_more_than_their_base_class(name, tmp_path):
    for _ in range(3):  # on a machine that is busy
        seconds, imported = forked(tmp_path, ESTIMATOR, name, imports=BASE)
        if seconds < 1:
            break
    assert seconds < 1
    imported = set(imported)
    assert {m for m in imported if m.partition(".")[0] in ("sklearn", "scipy")} <= LIGHT
    home = import_module(f"fastmf.{fastmf._HOME[name]}")._HOME
    public = {f"fastmf.estimators.{module}" for module in home.values()}
    assert f"fastmf.estimators.{home[name]}" in imported
    assert len(public & imported) <= 2  # its own, and the one it is derived from


STATISTICS = """
import json, sys
import fastmf
getattr(fastmf, sys.argv[1])
heavy = sorted({"scipy.stats", "scipy.optimize", "scipy.spatial"} & set(sys.modules))
import scipy.stats, sklearn.utils.fixes
mode = int(sklearn.utils.fixes.scipy.stats.mode([1, 2, 2]).mode)
print(json.dumps([heavy, mode, type(sys.modules["scipy.stats"]).__name__]))
"""


@pytest.mark.skipif(
    version("scikit-learn").startswith("1.6."), reason="scikit-learn 1.6 itself imports them"
)
@pytest.mark.parametrize("name", ["FullyVisibleBoltzmannMachine", "GeneralizedRBM"])
def test_estimators_leave_statistics_out_until_they_are_used(name, tmp_path):
    heavy, mode, type_ = forked(tmp_path, STATISTICS, name)
    assert heavy == []
    assert (mode, type_) == (2, "module")
