"""Kernels that were built ahead: the numbers of compiled kernels, and nothing that does not fit.

Each process here takes its processor for one of x86-64-v3.
"""

import json
import os
import platform
import re
import shutil
import subprocess
import sys
from pathlib import Path

import forks
import pytest

import fastmf

ROOT = Path(fastmf.__file__).parents[1]
LEVEL = "x86-64-v3"

# The library takes as long to build as many tests to run, and each process compiles anew.
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        platform.machine().lower() not in ("x86_64", "amd64") or os.name != "posix",
        reason="of another platform",
    ),
    pytest.mark.skipif(shutil.which("cc") is None, reason="there is no compiler of C"),
]


def python(*arguments, library="0", **variables):
    """A process without a cache of compiled code but the library in a folder."""
    variables = {
        "FASTMF_LIBRARY": str(library), "NUMBA_CPU_NAME": LEVEL, "NUMBA_CPU_FEATURES": "",
        "FASTMF_QUIET": "1",
    } | variables  # fmt: skip
    # No package of the working folder is imported.
    return forks.fresh(*arguments, folder=Path(sys.executable).parent, **variables)


def build(folder, *options):
    python(ROOT / "scripts/build_library.py", "--level", LEVEL, *options, folder)
    return folder


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """A library of what `tap` and `adaptive_tap` need."""
    names = "^(tap|tap, float32|adaptive_tap)$"
    return build(tmp_path_factory.mktemp("built"), "--only", names)


SOLVE = """
import hashlib, json, sys
import numpy as np
import fastmf as mf

digest = hashlib.sha256()
for dtype in np.float64, np.float32:
    layers = mf.Bernoulli(np.linspace(-1, 1, 20, dtype=dtype)), mf.Bernoulli(np.zeros(9, dtype))
    weights = np.random.default_rng(0).normal(0, 0.3, (20, 9)).astype(dtype)
    result = mf.tap(mf.RBM(weights, *layers), np.linspace(0, 1, 100).reshape(5, 20).astype(dtype))
    for array in (*result.mean, *result.var, result.log_partition, result.n_iter):
        digest.update(np.ascontiguousarray(array).tobytes())
couplings = np.full((7, 7), 0.1) - 0.1 * np.eye(7)
result = mf.adaptive_tap(mf.BoltzmannMachine(couplings, mf.Ising(np.linspace(-1, 1, 7))))
digest.update(result.mean.tobytes())
print(json.dumps([digest.hexdigest(), "numba" in sys.modules]))
"""


def test_results_are_those_of_compiled_kernels_without_an_import_of_numba(built):
    ahead, compiled = (json.loads(python("-c", SOLVE, library=x).stdout) for x in (built, "0"))
    assert ahead[0] == compiled[0]
    assert ahead[1] is False and compiled[1] is True


EIGHT = """
import json, numpy as np, fastmf as mf
from everywhere import digests, numbers

arrays, rng = numbers(), np.random.default_rng(3)
rows, answers = (rng.random((100, 12)) < 0.4).astype(float), rng.integers(0, 3, (100, 6))
learning = {"n_epochs": 1, "random_state": 0}
arrays["PottsMachine"] = mf.PottsMachine(l2=0.1).fit(answers).couplings_
arrays["OrdinalMachine"] = mf.OrdinalMachine(l2=0.1).fit(answers).couplings_
arrays["pixels"] = mf.GeneralizedRBM(
    5, visible="truncated_gauss_bernoulli", **learning
).fit(rows * rng.random((100, 12))).components_
print(json.dumps(digests(arrays)))
"""


@pytest.fixture(scope="module")
def complete(tmp_path_factory):
    """The library of a wheel, which takes minutes."""
    return build(tmp_path_factory.mktemp("complete"))


def test_eight_fits_are_those_of_compiled_kernels(complete):
    ahead, compiled = (json.loads(python("-c", EIGHT, library=x).stdout) for x in (complete, "0"))
    assert ahead == compiled and len(ahead) == 8


# Not those that the library is built from, and of other sizes. Numba is imported for compilation.
FIRST_CALLS = """
import sys, warnings
import numpy as np, fastmf as mf
from scipy.sparse import csr_array, random_array, triu

warnings.simplefilter("ignore")  # of fits that do not converge
rng = np.random.default_rng(0)
X = (rng.random((60, 12)) < 0.4).astype(float)
couplings = triu(random_array((50, 50), density=0.1, rng=rng), 1)
labels, wide = X @ rng.normal(size=12) + rng.normal(size=60), rng.normal(size=(40, 90))
answers = rng.integers(0, 3, (60, 9))
calls = {
    "tap": lambda: mf.tap(
        mf.RBM(rng.normal(size=(12, 7)), mf.Bernoulli(np.zeros(12)), mf.Bernoulli(np.zeros(7))), X
    ),
    "belief_propagation": lambda: mf.belief_propagation(
        mf.BoltzmannMachine(csr_array(couplings + couplings.T), mf.Ising(rng.normal(size=50)))
    ),
    "GeneralizedRBM": lambda: mf.GeneralizedRBM(7, random_state=0).fit(X).score(X),
    "ConditionalRBM": lambda: mf.ConditionalRBM(7, random_state=0).fit(X, X[:, :6]).predict(X),
    "SpikeSlabRegressor": lambda: mf.SpikeSlabRegressor().fit(X, labels).predict(X),
    "FullyVisibleBoltzmannMachine": lambda: mf.FullyVisibleBoltzmannMachine().fit(2 * X - 1),
    "PottsMachine": lambda: mf.PottsMachine().fit(answers),
    "frames": lambda: mf.SpikeSlabRegressor().fit(np.asfortranarray(wide), wide[:, 0]),
    "SpikeSlabClassifier": lambda: mf.SpikeSlabClassifier().fit(wide, wide[:, :4].sum(1) > 0),
    "chains": lambda: mf.PottsMachine(solver="likelihood", max_iter=5).fit(answers),
    "effective_couplings": lambda: mf.evaluation.effective_couplings(
        mf.GeneralizedRBM(3, visible="categorical", random_state=0).fit(answers).model_, answers
    ),
}
for name, call in calls.items():
    call()
    assert "numba" not in sys.modules, name
"""


def test_first_calls_compile_nothing(complete):
    python("-c", FIRST_CALLS, library=complete)


@pytest.mark.skipif(shutil.which("objdump") is None, reason="there is no objdump")
def test_the_code_needs_no_other_instructions(built):
    text = subprocess.run(
        ["objdump", "-d", built / f"{LEVEL}.so"], capture_output=True, text=True, check=True
    ).stdout
    assert "ymm" in text
    assert not re.findall(r"%?zmm\d|%k[0-7]\b|ymm(?:1[6-9]|2\d|3[01])", text)


@pytest.mark.skipif(shutil.which("nm") is None, reason="there is no nm")
def test_the_code_needs_the_c_library_alone(built):
    text = subprocess.run(
        ["nm", "-D", "--undefined-only", built / f"{LEVEL}.so"],
        capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    names = {line.split()[-1] for line in text.splitlines()}
    libc = {name for name in names if "@GLIBC" in name}
    optional = {"__gmon_start__", "_ITM_deregisterTMCloneTable", "_ITM_registerTMCloneTable"}
    assert libc and names <= libc | optional


LOADED = "from fastmf._jit import library; print(library.ACTIVE is not None)"


def flip(path, place):
    content = bytearray(path.read_bytes())
    content[place] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize(
    "change, reason",
    [
        (lambda folder: None, None),
        (lambda folder: flip(folder / f"{LEVEL}.so", 5000), "x86-64-v3.so is damaged"),
        (lambda folder: flip(folder / "index.json", -9), "its index is damaged"),
        (lambda folder: (folder / f"{LEVEL}.so").unlink(), "No such file"),
        (lambda folder: (folder / "index.json").unlink(), ""),
    ],
)
def test_a_damaged_library_is_refused(built, tmp_path, change, reason):
    folder = Path(shutil.copytree(built, tmp_path / "built"))
    change(folder)
    done = python("-c", LOADED, library=folder)
    assert done.stdout.strip() == str(reason is None)
    assert (reason or "") in done.stderr
    assert bool(done.stderr) == bool(reason)


def test_a_library_for_other_processors_is_refused(built):
    done = python("-c", LOADED, library=built, NUMBA_CPU_NAME="x86-64-v4")
    assert done.stdout == "False\n"
    assert (
        "not used, but compiled: it has nothing for processors of the kind x86-64-v4" in done.stderr
    )


def test_a_library_of_other_sources_is_refused(built, tmp_path):
    left_out = shutil.ignore_patterns("__pycache__")
    package = Path(shutil.copytree(ROOT / "fastmf", tmp_path / "fastmf", ignore=left_out))
    for source, is_used in ("\n# A remark.\n", False), ("", True):
        module = package / "priors" / "binary.py"
        module.write_text((ROOT / "fastmf/priors/binary.py").read_text() + source)
        done = python("-c", LOADED, library=built, PYTHONPATH=str(tmp_path))
        assert done.stdout == f"{is_used}\n"
        assert ("other sources" in done.stderr) != is_used


USERS = """
import numpy as np, fastmf as mf
from fastmf.special import exp, log

class Own(mf.Bernoulli):
    def moments(self, b, a):
        p = 1 / (1 + exp(-(self.field + b - a / 2)))
        return p, p - p * p

def solve(kind):
    return mf.tap(mf.RBM(np.full((4, 3), 0.2), kind(np.ones(4)), mf.Bernoulli(np.zeros(3))))

one, other = solve(mf.Bernoulli), solve(Own)
print(np.abs(one.mean[0] - other.mean[0]).max() < 1e-12)
"""


def test_units_of_users_are_compiled_beside_it(built):
    assert python("-c", USERS, library=built).stdout == "True\n"


SIGNAL = """
import os, signal, sys, threading, time
import numpy as np, fastmf as mf
from fastmf._jit import library
assert library.ACTIVE

class Ended(Exception):
    pass

def handler(number, frame):
    seen.append(number)
    if raises:
        raise Ended

def solve(n_sweeps):
    mf.tap(model, starts, max_iter=n_sweeps, tol=1e-300, damping=0.0)

# Units 0 and 1 in the place of -1 and 1, for which no sweep is the last.
raises, seen, n, rng = sys.argv[1] == "True", [], 100, np.random.default_rng(0)
weights, starts = rng.normal(0, 1, (n, n)), rng.normal(size=(20, n))
fields = -2 * weights.sum(1), -2 * weights.sum(0)
model = mf.RBM(4 * weights, *map(mf.Bernoulli, fields))
solve(2)
signal.signal(signal.SIGUSR1, handler)
threading.Timer(0.2, lambda: os.kill(os.getpid(), signal.SIGUSR1)).start()
try:
    solve(10**8 if raises else 10**4)
    while not seen:
        time.sleep(0.01)
    print("ended", len(seen))
except Ended:
    print("raised", len(seen))
"""


@pytest.mark.parametrize("raises, expected", [(True, "raised 1"), (False, "ended 1")])
def test_handlers_of_signals_are_run_in_it(built, raises, expected):
    assert python("-c", SIGNAL, raises, library=built).stdout.strip() == expected
