"""One table of cases for every public kernel, shared by tests, pytest-benchmark, asv and scripts.

A case knows how to build arguments for a kernel at any size and type, and which of them are its
results. The NumPy twin takes the same arguments, so that whatever is done with a kernel (compared,
timed, run on several threads) is done with its twin by exchanging one function for the other.
"""

import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import fastmf as mf
from fastmf._numba import fetch_and_increment, kernel
from fastmf._threads import in_parallel
from fastmf.inference._layout import Layout
from fastmf.kernels.product import pack, panel_width
from fastmf.kernels.vocabulary import Record, Settings, Tilt
from fastmf.priors._protocol import tilted_moments


class Size(NamedTuple):
    """Units and rows of a case. A fully visible machine has the visible units only."""

    n_visible: int
    n_hidden: int
    n_rows: int


class Case(NamedTuple):
    """A kernel with arguments.

    Parameters
    ----------
    kernel : str
        "file.function" in `fastmf.kernels`; the twin has the same address in `fastmf.reference`.
    name : str
    build : callable
        build(size, dtype, rows=all): a fresh tuple of arguments. The arguments of
        `rows` are the same whether or not the other rows are there.
    results : callable
        results(arguments): the arrays that the kernel fills, by name, rows first.
    close : dict of dtype to float
        Largest difference between the results of kernel and twin.
    exact : tuple of str
        Results that are equal in float64: counts of sweeps, for instance. In float32 rounding moves
        the sweep at which a row ends; of these only the `status` is compared then.
    large : bool
        Whether the case is worth timing at real sizes.
    any_rows : bool
        Whether rows keep their results in any company; otherwise only if rows before them stay.
    dtypes : tuple
        Types to compile for.
    """

    kernel: str
    name: str
    build: Callable[..., tuple]
    results: Callable[[tuple], dict[str, Any]]
    close: dict
    exact: tuple = ()
    large: bool = False
    any_rows: bool = True
    dtypes: tuple = ("float64", "float32")

    @property
    def compiled(self):
        return self._function("kernels")

    @property
    def twin(self):
        return self._function("reference")

    def run(self, which, arguments, n_workers=1):
        """Call the "compiled" kernel, in so many threads, or its "twin"."""
        if which == "twin" or n_workers == 1:
            getattr(self, which)(*arguments)
        else:
            in_parallel(self.compiled, arguments, n_workers)

    def _function(self, part):
        file, name = self.kernel.split(".")
        return getattr(import_module(f"fastmf.{part}.{file}"), name)

    def __str__(self):
        return f"{self.kernel}-{self.name}"


# --- machines -----------------------------------------------------------------------------------


def rbm(size, dtype="float64", patterns=5.0, noise=3.0):
    """A binary RBM with four planted patterns on random weights.

    The defaults give machines with several solutions, reached in tens of sweeps at any size; strong
    noise without patterns gives machines whose undamped sweeps cycle.
    """
    rng = np.random.default_rng(0)
    n_visible, n_hidden = size.n_visible, size.n_hidden
    weights = rng.normal(size=(n_visible, n_hidden)) * noise / np.sqrt(n_visible + n_hidden)
    left, right = rng.choice([-1, 1], (n_visible, 4)), rng.choice([-1, 1], (n_hidden, 4))
    weights += left @ right.T * patterns / np.sqrt(n_visible * n_hidden)
    # The fields put {0, 1} units at the point where spins would have none.
    visible = rng.normal(size=n_visible) / 10 - weights.sum(1) / 2
    hidden = -weights.sum(0) / 2
    return mf.RBM(
        weights.astype(dtype),
        mf.Bernoulli(visible.astype(dtype)),
        mf.Bernoulli(hidden.astype(dtype)),
    )


def boltzmann_machine(size, dtype="float64", noise=0.8, uniform=0.0):
    """A fully visible machine of Ising units with random couplings around a uniform one."""
    rng = np.random.default_rng(0)
    n = size.n_visible
    upper = np.triu(uniform + rng.normal(size=(n, n)) * noise / np.sqrt(n), 1).astype(dtype)
    return mf.BoltzmannMachine(upper + upper.T, mf.Ising(rng.normal(size=n).astype(dtype) / 5))


def data(model, n_rows):
    """Random rows of the first layer's values."""
    low, high = model.layers[0].support
    rng = np.random.default_rng(1)
    n_units = len(model.layers[0].field)
    return np.where(rng.random((n_rows, n_units)) < 0.5, low, high).astype(model.dtype)


# --- tap and free_energy ------------------------------------------------------------------------

OPTIONS = {
    "order": 2,
    "damping": 0.0,
    "adaptive": True,
    "tol": 1e-8,
    "max_iter": 500,
    "onsager_every": 1,
    "accelerate": False,
    "rows_in_flight": 4,
}


def _some(rows, n_rows):
    return np.arange(n_rows) if rows is None else np.asarray(rows)


def _tilt(layout, size, dtype, tilted, clamped, rows):
    rng = np.random.default_rng(2)
    shape = (size.n_rows, layout.n_units)
    whole = (rng.normal(size=shape) / 2, rng.random(shape) / 2, rng.random(shape) < 0.2)
    parts = []
    for part, wanted in zip(whole, (tilted, tilted, clamped), strict=True):
        kind = bool if part.dtype == bool else dtype
        parts.append(part[rows if wanted else slice(0)].astype(kind))
    if tilted == "alike":
        parts[:2] = (part[:1] for part in (whole[0].astype(dtype), whole[1].astype(dtype)))
    return Tilt(*parts)


# No test or benchmark has more workers.
SEATS = 16


def tap_arguments(
    size,
    dtype,
    rows=None,
    *,
    machine=rbm,
    schedule="blocked",
    tilted=False,
    clamped=False,
    history=False,
    start=None,
    **options,
):
    """Arguments of `tap`: random data as starts, unless given as an array of the first layer."""
    model = machine(size, dtype)
    options = {**OPTIONS, **options}
    layout = Layout(model, options["order"], schedule)
    rows = _some(rows, size.n_rows)
    limits = np.finfo(dtype)
    settings = Settings(
        **options,
        one_by_one=layout.one_by_one,
        resolution=float(limits.eps),
    )
    record = Record(
        state=np.zeros((4, len(rows), layout.n_units), dtype),
        status=np.zeros(len(rows), np.int64),
        n_iter=np.zeros(len(rows), np.int64),
        residual=np.zeros(len(rows), dtype),
        history=np.zeros((len(rows), options["max_iter"]) if history else (0, 0), dtype),
    )
    start = data(model, size.n_rows) if start is None else start
    record.state[0, :, layout.bounds[0]] = start[rows]
    tilt = _tilt(layout, size, dtype, tilted, clamped, rows)
    planes = 5 if settings.order == 3 else 4
    seats = np.full((SEATS, planes, settings.rows_in_flight, layout.n_units), np.nan, dtype)
    queue = np.zeros(2, np.int64)
    return layout.layers, layout.visits, layout.block, settings, tilt, seats, queue, record


def _record(arguments):
    record = arguments[-1]
    mean, var, b, a = record.state
    found = {"mean": mean, "var": var, "b": b, "a": a, **record._asdict()}
    del found["state"]
    if not record.history.size:
        del found["history"]
    return found


def free_energy_arguments(
    size, dtype, rows=None, *, machine=rbm, order=2, tilted=False, clamped=False
):
    """Arguments of `free_energy`: random states, not fixed points."""
    model = machine(size, dtype)
    layout = Layout(model, order, "blocked")
    rows = _some(rows, size.n_rows)
    state = np.zeros((4, size.n_rows, layout.n_units), dtype)
    rng = np.random.default_rng(3)
    state[0] = rng.random(state[0].shape)
    state[1] = state[0] * (1 - state[0])
    state = np.ascontiguousarray(state[:, rows])
    tilt = _tilt(layout, size, dtype, tilted, clamped, rows)
    queue = np.zeros(1, np.int64)
    return layout.layers, state, order, tilt, queue, np.zeros(len(rows))


def _log_partition(arguments):
    state, out = arguments[1], arguments[-1]
    return {"log_partition": out, "b": state[2], "a": state[3]}


# --- gibbs and fill_panels ----------------------------------------------------------------------


def gibbs_arguments(size, dtype, rows=None, *, n_sweeps=3):
    """Arguments of `gibbs`."""
    model = rbm(size, dtype)
    v = data(model, size.n_rows)[_some(rows, size.n_rows)]
    n_rows, n_visible = v.shape
    values = model.visible.support, model.hidden.support
    return (
        *(model.weights, np.ascontiguousarray(model.weights.T), *model.layers, *values),
        *(np.uint64(7), n_sweeps, v, np.zeros((n_rows, size.n_hidden), dtype)),
        np.zeros((n_rows, max(n_visible, size.n_hidden)), dtype),
        np.zeros(1, np.int64),
    )


def _chains(arguments):
    return {"v": arguments[8], "h": arguments[9]}


def fill_panels_arguments(size, dtype, rows=None, *, power=1, fortran=False):
    """Arguments of `fill_panels`; "rows" are panels of couplings, and there is no queue."""
    matrix = rbm(size, dtype).weights
    matrix = np.asfortranarray(matrix) if fortran else matrix
    width = panel_width(matrix.dtype)
    n_panels = -(-size.n_hidden // width)
    return matrix, power, np.zeros((n_panels, size.n_visible, width), dtype)


def _panels(arguments):
    return {"panels": arguments[-1]}


# --- tilted moments, for the clock only: inside the package they are part of other kernels --------


@kernel
def moments_of_rows(prior, b, a, mean, var, queue):
    """Means and variances of rows of tilted units, computed as `tap` computes them."""
    while True:
        row = fetch_and_increment(queue)
        if row >= b.shape[0]:
            break
        tilted_moments(prior, 0, b[row], a[row], mean[row], var[row])


def moments_arguments(prior, n_rows):
    """Arguments of `moments_of_rows`: tilts of every kind."""
    rng = np.random.default_rng(4)
    shape = n_rows, len(prior[0])
    b, a = rng.normal(size=shape) * 10, rng.normal(size=shape) * 10
    return prior, b, a, np.zeros(shape), np.zeros(shape), np.zeros(1, np.int64)


# --- statistics of learning ---------------------------------------------------------------------


def conditional_arguments(size, dtype, rows=None):
    """Arguments of `conditional_moments`."""
    model = rbm(size, dtype)
    states = data(model, size.n_rows)[_some(rows, size.n_rows)]
    filled = np.zeros((3, len(states), size.n_hidden), dtype)
    return model.hidden, pack(model.weights), states, np.zeros(1, np.int64), *filled


def pair_arguments(size, dtype, rows=None):
    """Arguments of `pair_averages`; "rows" are visible units. The terms differ in length."""
    model, rng = rbm(size, dtype), np.random.default_rng(5)
    units = _some(rows, size.n_visible)
    counts = np.array([size.n_rows, size.n_rows - 2, size.n_rows - 1])
    lefts = rng.normal(size=(3, size.n_rows, size.n_visible)).astype(dtype)[:, :, units]
    rights = rng.normal(size=(3, size.n_rows, size.n_hidden)).astype(dtype)
    weights = np.array(model.weights[units])
    return (
        *(np.ascontiguousarray(lefts), np.stack([pack(right) for right in rights]), counts),
        *(1 / counts, np.array([0, 1, 2]), weights, np.zeros(1, np.int64)),
        np.zeros_like(weights),
    )


# --- the table ----------------------------------------------------------------------------------


def _with(function, **options):
    return lambda *args, **kwargs: function(*args, **{**options, **kwargs})


def _tap(name, large=False, dtypes=("float64", "float32"), close=None, **options):
    close = close or {"float64": 1e-9, "float32": 2e-4}
    counts = ("status", "n_iter")
    build = _with(tap_arguments, **options)
    return Case("tap.tap", name, build, _record, close, counts, large, dtypes=dtypes)


def _free_energy(name, large=False, dtypes=("float64", "float32"), **options):
    build = _with(free_energy_arguments, **options)
    close = {"float64": 1e-9, "float32": 1e-3}
    return Case("free_energy.free_energy", name, build, _log_partition, close, (), large,
                dtypes=dtypes)  # fmt: skip


strong_rbm = _with(rbm, patterns=0.0, noise=7.0)
weak_rbm = _with(rbm, patterns=2.0, noise=2.0)
antiferromagnet = _with(boltzmann_machine, noise=0.0, uniform=-1.0)
strong_boltzmann_machine = _with(boltzmann_machine, noise=2.5)
FULLY_VISIBLE = {"machine": boltzmann_machine, "dtypes": ("float64",)}

CASES = [
    _tap("mean_field", order=1),
    _tap("blocked", large=True, history=True),
    _tap("ten_sweeps", large=True, tol=0.0, max_iter=10),
    _tap("sequential", large=True, schedule="sequential"),
    _tap("third_order", order=3, machine=weak_rbm),
    _tap("damped", damping=0.5, adaptive=False),
    _tap("oscillating", machine=strong_rbm, close={"float64": 1e-7, "float32": 5e-3}),
    _tap("lagged_onsager", onsager_every=3),
    _tap("aitken", accelerate=True, close={"float64": 1e-7, "float32": 1e-3}),
    _tap("fast", large=True, accelerate=True, onsager_every=3,
         close={"float64": 1e-7, "float32": 1e-3}),
    _tap("tilted", tilted=True),
    _tap("tilted_alike", tilted="alike", order=3, machine=weak_rbm),
    _tap("clamped", clamped=True, tilted=True),
    _tap("fully_visible", **FULLY_VISIBLE),
    _tap("fully_visible_sequential", schedule="sequential", **FULLY_VISIBLE),
    _tap("fully_visible_third_order", schedule="sequential", order=3, **FULLY_VISIBLE),
    _tap("fully_visible_cycling", machine=antiferromagnet, adaptive=False, max_iter=64,
         dtypes=("float64",)),
    _tap("fully_visible_oscillating", machine=strong_boltzmann_machine, dtypes=("float64",),
         close={"float64": 1e-7}),
    _free_energy("mean_field", order=1),
    _free_energy("tap", large=True),
    _free_energy("third_order", order=3),
    _free_energy("tilted_and_clamped", tilted=True, clamped=True),
    _free_energy("fully_visible", order=3, **FULLY_VISIBLE),
    Case("gibbs.gibbs", "block", gibbs_arguments, _chains, {"float64": 0, "float32": 0}, large=True,
         any_rows=False),
    Case("statistics.conditional_moments", "hidden", conditional_arguments,
         lambda arguments: dict(zip(("b", "mean", "var"), arguments[-3:], strict=True)),
         {"float64": 1e-12, "float32": 1e-4}, large=True),
    Case("statistics.pair_averages", "three_terms", pair_arguments,
         lambda arguments: {"out": arguments[-1]}, {"float64": 1e-12, "float32": 1e-4}, large=True),
    *(
        Case("product.fill_panels", name, _with(fill_panels_arguments, **options), _panels,
             {"float64": 1e-15, "float32": 1e-6}, large=options["power"] == 2, any_rows=False)
        for name, options in {
            "couplings": {"power": 1},
            "transposed": {"power": 1, "fortran": True},
            "squares": {"power": 2},
            "cubes": {"power": 3},
        }.items()
    ),
]  # fmt: skip


def case(name):
    """The case of that name, such as "tap.tap-blocked"."""
    return next(c for c in CASES if str(c) == name)


def main():
    """Run the named cases at a size given as "30,14,5"; save their results to an .npz file."""
    path, size, *names = sys.argv[1:]
    size = Size(*map(int, size.split(",")))
    found = {}
    for name in names:
        arguments = case(name).build(size, "float64")
        case(name).compiled(*arguments)
        found.update({f"{name}/{k}": v for k, v in case(name).results(arguments).items()})
    np.savez(Path(path), **found)


if __name__ == "__main__":
    main()
