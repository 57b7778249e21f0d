"""Seconds of first calls: with nothing compiled, with compiled code, and with kernels built ahead.

Each row is measured in two processes that share a new cache folder. The first calls a solver or
estimator for the first time; then with other priors, another depth or another shape; then in the
other floating-point type. The second makes the first call again, with code that the first has
compiled; a third, with an empty cache, with the library of `make wheel`, if there is one. Modules
that are imported when they are needed count, `import fastmf` does not.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "project" / "performance.md"
# Kernels built ahead, by `make wheel`.
LIBRARY = ROOT / "build" / "library"
MARKERS = "<!-- first calls: begin -->", "<!-- first calls: end -->"

# What calls are made of: the text of a program, in which nothing is imported but fastmf and NumPy.
DEFINITIONS = """
def units(name, n, dtype):
    zeros, ones = np.zeros(n, dtype), np.ones(n, dtype)
    n_fields = {"Gaussian": 2, "GaussBernoulli": 3, "TruncatedGaussBernoulli": 5}.get(name, 1)
    return getattr(mf, name)(*(zeros, ones, zeros, zeros, ones)[:n_fields])

def machine(names, dtype="float64"):
    weights = tuple(np.full((4, 4), 0.1, dtype) for _ in names[1:])
    layers = tuple(units(name, 4, dtype) for name in names)
    return mf.RBM(weights[0], *layers) if len(names) == 2 else mf.DBM(weights, layers)

def binary(dtype="float64"):
    return machine(("Bernoulli", "Bernoulli"), dtype)

def pixels(dtype="float64", hidden="Bernoulli"):
    return machine(("TruncatedGaussBernoulli", hidden), dtype)

def spins(name="Ising", dtype="float64"):
    couplings = np.full((4, 4), 0.1, dtype)
    np.fill_diagonal(couplings, 0)
    return mf.BoltzmannMachine(couplings, units(name, 4, dtype))

def ring(dtype="float64", name="Ising"):
    from scipy.sparse import csr_array
    couplings = np.roll(0.1 * np.eye(6, dtype=dtype), 1, 1)
    return mf.BoltzmannMachine(csr_array(couplings + couplings.T), units(name, 6, dtype))

def linear(dtype="float64", name="GaussBernoulli"):
    X = np.random.default_rng(0).normal(size=(6, 9)).astype(dtype)
    return mf.SparseLinearModel(X, X[:, 0], 0.1, units(name, 9, dtype))

def rows(dtype="float64", n=5):
    return (np.random.default_rng(0).random((20, n)) < 0.5).astype(dtype)

def grey(dtype="float64"):
    return rows(dtype) * np.linspace(0.2, 1, 20, dtype=dtype)[:, None]

def fit_rbm(X, **options):
    mf.GeneralizedRBM(3, n_epochs=1, random_state=0, **options).fit(X)

def fit_deep(sizes=(3, 2), dtype="float64"):
    options = dict(n_epochs=1, pretraining_epochs=1, random_state=0)
    mf.DeepBoltzmannMachine(sizes, **options).fit(rows(dtype))

def fit_conditional(dtype="float64", **options):
    X = rows(dtype)
    mf.ConditionalRBM(3, n_epochs=1, random_state=0, **options).fit(X, X).predict(X)

def fit_linear(kind, n_features=2, dtype="float64"):
    X = np.random.default_rng(0).normal(size=(6, n_features)).astype(dtype)
    y = X[:, 0] if kind.endswith("Regressor") else np.arange(6) % 2
    getattr(mf, kind)().fit(X, y).predict(X)

def fit_spins(solver, n=3):
    mf.FullyVisibleBoltzmannMachine(solver=solver, l2=0.1).fit(2 * rows(n=n) - 1)

def potts(dtype="float64", q=3):
    groups = mf.Categorical(np.zeros((2, q), dtype))
    return mf.RBM(np.full((2 * q, 4), 0.1, dtype), groups, units("Bernoulli", 4, dtype))

def labels(dtype="int64"):
    return np.random.default_rng(0).integers(0, 3, (20, 4)).astype(dtype)

def own():
    from own_prior import ThreeLevels
    return mf.RBM(np.ones((4, 4)), ThreeLevels(np.zeros(4)), units("Bernoulli", 4, "float64"))
"""

# A prior of one's own, in a module, so that its code can be kept.
OWN_PRIOR = """
from typing import NamedTuple
import numpy as np
from fastmf.special import exp, log

class ThreeLevels(NamedTuple):
    field: np.ndarray

    def log_partition(self, b, a):
        t = self.field + b
        return log(1 + exp(-a / 2) * (exp(t) + exp(-t)))

    def moments(self, b, a):
        t = self.field + b
        up, down = exp(t - a / 2), exp(-t - a / 2)
        z = 1 + up + down
        mean = (up - down) / z
        return mean, (up + down) / z - mean * mean
"""

PROGRAM = """
import json, time, warnings
warnings.simplefilter("ignore")  # nobody waits for convergence
clock = time.{clock}
start = clock()
import fastmf as mf
import numpy as np
seconds = [clock() - start]
{definitions}
for call in ({calls},):
    start = clock()
    call()
    seconds.append(clock() - start)
print(json.dumps(seconds))
"""


class Row(NamedTuple):
    """Expressions of the first call, of a second combination and of the other type, if any."""

    first: str
    second: str | None = None
    other: str | None = None


ROWS = {
    "`tap`, two Bernoulli layers": Row(
        "mf.tap(binary())",
        "mf.tap(machine(('Ising', 'Gaussian')))",
        "mf.tap(binary('float32'))",
    ),
    "`tap`, truncated spike-and-slab visible": Row(
        "mf.tap(pixels())",
        "mf.tap(machine(('GaussBernoulli', 'Gaussian')))",
        "mf.tap(pixels('float32'))",
    ),
    "`tap`, Bernoulli, then truncated spike-and-slab": Row("mf.tap(binary())", "mf.tap(pixels())"),
    "`tap`, Bernoulli, then a prior of one's own": Row("mf.tap(binary())", "mf.tap(own())"),
    "`tap`, two layers, then three": Row("mf.tap(binary())", "mf.tap(machine(('Bernoulli',) * 3))"),
    "`tap`, fully visible, blocked": Row(
        "mf.tap(spins())", "mf.tap(spins('Bernoulli'))", "mf.tap(spins(dtype='float32'))"
    ),
    "`tap`, fully visible, sequential": Row(
        "mf.tap(spins(), schedule='sequential')",
        "mf.tap(spins('Bernoulli'), schedule='sequential')",
        "mf.tap(spins(dtype='float32'), schedule='sequential')",
    ),
    "`belief_propagation`": Row(
        "mf.belief_propagation(binary())",
        "mf.belief_propagation(machine(('Ising', 'Ising')))",
        "mf.belief_propagation(binary('float32'))",
    ),
    "`belief_propagation`, sparse graph": Row(
        "mf.belief_propagation(ring())",
        "mf.belief_propagation(ring(name='Bernoulli'))",
        "mf.belief_propagation(ring('float32'))",
    ),
    "`relaxed_bp`": Row(
        "mf.relaxed_bp(binary())",
        "mf.relaxed_bp(machine(('Ising', 'Gaussian')))",
        "mf.relaxed_bp(binary('float32'))",
    ),
    "`adaptive_tap`": Row(
        "mf.adaptive_tap(spins())",
        "mf.adaptive_tap(spins('Bernoulli'))",
        "mf.adaptive_tap(spins(dtype='float32'))",
    ),
    "`expectation_propagation`": Row(
        "mf.expectation_propagation(linear())",
        "mf.expectation_propagation(linear(name='TruncatedGaussBernoulli'))",
        "mf.expectation_propagation(linear('float32'))",
    ),
    "`GeneralizedRBM.fit`, binary": Row(
        "fit_rbm(rows())", "fit_rbm(rows(), hidden='gaussian')", "fit_rbm(rows('float32'))"
    ),
    "`GeneralizedRBM.fit`, spike-and-slab pixels": Row(
        "fit_rbm(grey(), visible='truncated_gauss_bernoulli')",
        "fit_rbm(grey(), visible='truncated_gauss_bernoulli', hidden='ising')",
        "fit_rbm(grey('float32'), visible='truncated_gauss_bernoulli')",
    ),
    "`DeepBoltzmannMachine.fit`": Row(
        "fit_deep()", "fit_deep((3, 2, 2))", "fit_deep(dtype='float32')"
    ),
    "`ConditionalRBM.fit`": Row(
        "fit_conditional()",
        "fit_conditional(inference='mean_field')",
        "fit_conditional('float32')",
    ),
    "`SpikeSlabRegressor.fit`": Row(
        "fit_linear('SpikeSlabRegressor')",
        "fit_linear('SpikeSlabRegressor', 9)",
        "fit_linear('SpikeSlabRegressor', dtype='float32')",
    ),
    "`SpikeSlabClassifier.fit`": Row(
        "fit_linear('SpikeSlabClassifier')",
        "fit_linear('SpikeSlabClassifier', 9)",
        "fit_linear('SpikeSlabClassifier', dtype='float32')",
    ),
    "`FullyVisibleBoltzmannMachine.fit`, newton": Row(
        "fit_spins('newton')", "fit_spins('newton', 6)"
    ),
    "`FullyVisibleBoltzmannMachine.fit`, bslm": Row("fit_spins('bslm')", "fit_spins('bslm', 6)"),
    "`tap`, categorical visible": Row(
        "mf.tap(potts())", "mf.tap(potts(q=4))", "mf.tap(potts('float32'))"
    ),
    "`tap`, Bernoulli, then categorical": Row("mf.tap(binary())", "mf.tap(potts())"),
    "`belief_propagation`, categorical visible": Row(
        "mf.belief_propagation(potts())", "mf.belief_propagation(potts(q=4))"
    ),
    "`GeneralizedRBM.fit`, categorical": Row(
        "fit_rbm(labels(), visible='categorical')",
        "fit_rbm(labels(), visible='categorical', hidden='gaussian')",
        "fit_rbm(labels('float32'), visible='categorical')",
    ),
    "`PottsMachine.fit`": Row(
        "mf.PottsMachine(l2=0.1).fit(labels())",
        "mf.PottsMachine(l2=0.1, solver='asymmetric').fit(labels())",
    ),
}


class Seconds(NamedTuple):
    """The measurement of a row; None for what the row does not have."""

    cold: float
    second: float | None
    other: float | None
    cached: float
    ahead: float | None
    imported: float


def run(calls, folder, clock="perf_counter", library="0"):
    """Seconds of the import, and of each of several calls, in a new process.

    Parameters
    ----------
    calls : list of str
        Expressions.
    folder : path
        Of the cache.
    clock : str
        A function of the module `time`: "process_time" on a busy machine.
    library : path
        Folder of kernels built ahead; by default none are used.
    """
    (Path(folder) / "own_prior.py").write_text(OWN_PRIOR)
    program = PROGRAM.format(
        clock=clock, definitions=DEFINITIONS, calls=", ".join(f"lambda: {call}" for call in calls)
    )
    path = os.pathsep.join(filter(None, [str(folder), *_package(), os.environ.get("PYTHONPATH")]))
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(folder), "PYTHONPATH": path}
    environment |= {"FASTMF_QUIET": "1", "FASTMF_LIBRARY": str(library)}
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=environment,
        capture_output=True,
        text=True,
    )
    if done.returncode:
        raise RuntimeError(f"{calls} failed:\n{done.stderr}")
    return json.loads(done.stdout)


def _package():
    """Folder of the package that this process would import, whether or not it is installed."""
    from importlib.util import find_spec

    spec = find_spec("fastmf")
    return [str(Path(spec.origin).parents[1])] if spec else [str(ROOT)]


def measure(row, clock="perf_counter"):
    """Measure a row in new processes, with a cache of their own."""
    calls = [call for call in row if call]
    with tempfile.TemporaryDirectory() as folder:
        _, *seconds = run(calls, folder, clock)
        _, cached = run([row.first], folder, clock)
    ahead = None
    with tempfile.TemporaryDirectory() as folder:
        if (LIBRARY / "index.json").exists():
            imported, ahead = run([row.first], folder, clock, LIBRARY)
        else:
            imported, _ = run(["None"], folder, clock)
    by_call = dict(zip(calls, seconds, strict=True))
    return Seconds(
        by_call[row.first], by_call.get(row.second), by_call.get(row.other), cached, ahead, imported
    )


def line(name, seconds):
    """A row of the table."""
    values = [seconds.cold, seconds.second, seconds.other, seconds.cached, seconds.ahead]
    cells = ["" if value is None else f"{value:.2g}" for value in values]
    return f"| {name} | {' | '.join(cells)} |"


def table(measured, clock):
    """All rows as Markdown, with what they were measured on."""
    import numba

    kind = "" if clock == "perf_counter" else " of the processor"
    imported = min(seconds.imported for seconds in measured.values())
    return "\n".join(
        [
            f"Seconds{kind} of first calls ({platform.machine()}, {os.cpu_count()} cores, Python "
            f"{platform.python_version()}, Numba {numba.__version__}): with nothing compiled; in "
            "the same process with other priors, another depth or shape, and in the other "
            "floating-point type; in a later process, with what was compiled; and from an empty "
            "cache with kernels that were built ahead. `import fastmf` takes "
            f"{imported:.2g} s.",
            "",
            "| first call | cold | second combination | other type | cached | built ahead |",
            "|---|---|---|---|---|---|",
            *(line(name, seconds) for name, seconds in measured.items()),
        ]
    )


def main():
    """Measure, print the table, and write it to the page if asked to."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--cpu", dest="clock", action="store_const", const="process_time", default="perf_counter",
        help="count the time of the processor: on a busy machine",
    )  # fmt: skip
    parser.add_argument(
        "--only", metavar="TEXT", help="rows whose name contains this, such as 'belief'"
    )
    parser.add_argument(
        "--write", nargs="?", type=Path, const=PAGE, metavar="FILE",
        help="put the table between its markers in FILE (docs/project/performance.md)",
    )  # fmt: skip
    arguments = parser.parse_args()
    if arguments.write and arguments.only:
        parser.error("--write would leave out of the table what --only does not name")
    measured = {}
    for name, row in ROWS.items():
        if (arguments.only or "") in name:
            measured[name] = measure(row, arguments.clock)
            print(line(name, measured[name]), flush=True)
    if not measured:
        parser.error(f"no row contains {arguments.only!r}")
    text = table(measured, arguments.clock)
    if arguments.write:
        from speed_page import write

        write(arguments.write, text, MARKERS)


if __name__ == "__main__":
    main()
