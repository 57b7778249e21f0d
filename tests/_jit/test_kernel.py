"""Compiled code is found again when nothing changed, and never when something did.

Each test works on a copy of the package, in processes of their own, with a cache of their own.
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import forks
import pytest

import fastmf

PACKAGE = Path(fastmf.__file__).parent

pytestmark = pytest.mark.slow

# A module that a user wrote beside the package: priors, and a function that has kernels call one of
# them. It returns a mean and how many functions were found in the cache, or None for the latter if
# none was looked for.
PRIORS = """
from typing import NamedTuple
import numpy as np
from fastmf.priors import Bernoulli

class Constant(NamedTuple):
    value: np.ndarray
    def moments(self, b, a):
        return 1.0 * self.value, 0 * b
    def log_partition(self, b, a):
        return 0 * b

class Derived(Constant):
    __slots__ = ()
"""
RUN = """
import numpy as np
from fastmf._jit import cache
from fastmf._jit.kernel import kernel
from fastmf.priors import Bernoulli
from fastmf.priors._compiled import tilted_moments, units_of

@kernel(name=None)
def fill(units, zero, mean, var):
    tilted_moments(units, 0, zero, zero, mean, var)

found = []
load = cache.Cache.load_overload

def load_overload(*args):
    loaded = load(*args)
    found.append(loaded is not None)
    return loaded

cache.Cache.load_overload = load_overload

def run(prior):
    found.clear()
    units = units_of(prior, float)
    mean = np.full(1, np.nan)
    fill(units, np.zeros(1), mean, np.zeros(1))
    return [float(mean[0]), sum(found) if found else None]
"""
USER_MODULE = PRIORS + RUN

ON_USER_PRIOR = "run(Constant(np.array([3.0])))"
ON_DERIVED_PRIOR = "run(Derived(np.array([3.0])))"
ON_BERNOULLI = "run(Bernoulli(np.array([0.0])))"


@pytest.fixture
def workshop(tmp_path):
    shutil.copytree(PACKAGE, tmp_path / "fastmf", ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "user.py").write_text(USER_MODULE)
    return tmp_path


def python(folder, code, fresh=False, **environment):
    """What `code` prints, as JSON, in a process that sees only the copied package.

    Processes have the same seed of hashes unless they are to be fresh.
    """
    environment = {
        **{k: v for k, v in os.environ.items() if not k.startswith(("NUMBA_", "COV_"))},
        "NUMBA_CACHE_DIR": str(folder / "cache"),
        "PYTHONPATH": str(folder),
        "PYTHONDONTWRITEBYTECODE": "1",
        **environment,
    }
    environment = {k: v for k, v in environment.items() if v is not None}
    if fresh:
        command = [sys.executable, "-c", code]
        done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    else:
        done = forks.python(code, out=folder, environment=environment, folder=folder)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def run(folder, call, fresh=False, **environment):
    code = f"import json, numpy as np; from user import *; print(json.dumps({call}))"
    return python(folder, code, fresh, **environment)


def edit(file, old, new):
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new))


def test_an_unedited_second_process_hits_the_cache(workshop):
    both = f"[{ON_USER_PRIOR}, {ON_BERNOULLI}]"
    assert run(workshop, both, fresh=True) == [[3.0, 0], [0.5, 0]]
    assert run(workshop, both, fresh=True) == [[3.0, 1], [0.5, 1]]


@pytest.mark.parametrize("call", [ON_USER_PRIOR, ON_DERIVED_PRIOR])
def test_an_edit_of_a_users_prior_is_seen(workshop, call):
    # What runs the kernel lives apart, in a file that is not edited.
    (workshop / "theirs.py").write_text(PRIORS)
    (workshop / "user.py").write_text("from theirs import *\n" + RUN)
    assert run(workshop, call) == [3.0, 0]
    edit(workshop / "theirs.py", "1.0 * self.value", "2.0 * self.value")
    assert run(workshop, call) == [6.0, 0]


def test_an_edit_after_the_import_is_not_kept_as_the_new_source(workshop):
    (workshop / "kernels.py").write_text(RUN)
    (workshop / "user.py").write_text(PRIORS + "from kernels import run\n")
    code = (
        "import json, pathlib, numpy as np; from user import *\n"
        "file = pathlib.Path('user.py')\n"
        "file.write_text(file.read_text().replace('1.0 * self', '2.0 * self'))\n"
        f"print(json.dumps({ON_USER_PRIOR}))"
    )
    assert python(workshop, code) == [3.0, None]
    assert run(workshop, ON_USER_PRIOR) == [6.0, 0]


def test_a_prior_of_one_project_does_not_get_in_the_way_of_another(workshop):
    (workshop / "project").mkdir()
    (workshop / "project" / "theirs.py").write_text(PRIORS)
    (workshop / "user.py").write_text(RUN)
    both = os.pathsep.join([str(workshop), str(workshop / "project")])
    code = (
        "import json, numpy as np; from theirs import *; from user import *; print(json.dumps({}))"
    )
    assert python(workshop, code.format(ON_USER_PRIOR), PYTHONPATH=both) == [3.0, 0]
    assert python(workshop, code.format(ON_USER_PRIOR), PYTHONPATH=both) == [3.0, 1]
    # Where `theirs` cannot be imported, nothing is lost.
    assert run(workshop, ON_BERNOULLI) == [0.5, 0]
    assert run(workshop, ON_BERNOULLI) == [0.5, 1]


def test_a_prior_that_no_other_process_can_import_is_not_cached(workshop):
    call = "[run(type('Local', (Constant,), {'__module__': '__main__'})(np.array([3.0])))]"
    assert run(workshop, call) == [[3.0, None]]
    assert run(workshop, call) == [[3.0, None]]
    assert not list((workshop / "cache").rglob("*.nbc"))


def test_without_the_jit_the_same_source_runs_in_numpy(workshop):
    assert run(workshop, f"[{ON_USER_PRIOR}, {ON_BERNOULLI}]", True, NUMBA_DISABLE_JIT="1") == [
        [3.0, None],
        [0.5, None],
    ]
