"""Cases of `tap` and `free_energy`."""

import numpy as np

from fastmf.inference.mean_field._layout import Layout
from fastmf.kernels.mean_field_types import MeanFieldRecord, TapSettings, Tilt
from kernel_cases.case import Case, chosen, with_options
from kernel_cases.machines import boltzmann_machine, data, rbm

OPTIONS = {
    "order": 2,
    "damping": 0.0,
    "adaptive": True,
    "tol": 1e-8,
    "max_iter": 500,
    "onsager_every": 1,
    "accelerate_after": 10**9,
    "rows_per_worker": 4,
}


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
N_WORKSPACES = 16


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
    rows = chosen(rows, size.n_rows)
    limits = np.finfo(dtype)
    settings = TapSettings(
        **options,
        one_by_one=layout.one_by_one,
        resolution=float(limits.eps),
    )
    record = MeanFieldRecord(
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
    workspaces = np.full(
        (N_WORKSPACES, planes, settings.rows_per_worker, layout.n_units), np.nan, dtype
    )
    queue = np.zeros(2, np.int64)
    return (
        layout.layers,
        layout.blocks,
        layout.max_columns,
        settings,
        tilt,
        workspaces,
        queue,
        record,
    )


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
    rows = chosen(rows, size.n_rows)
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


def _tap(name, large=False, dtypes=("float64", "float32"), close=None, **options):
    close = close or {"float64": 1e-9, "float32": 2e-4}
    counts = ("status", "n_iter")
    build = with_options(tap_arguments, **options)
    return Case("tap.tap", name, build, _record, close, counts, large, dtypes=dtypes)


def _free_energy(name, large=False, dtypes=("float64", "float32"), **options):
    build = with_options(free_energy_arguments, **options)
    close = {"float64": 1e-9, "float32": 1e-3}
    return Case("free_energy.free_energy", name, build, _log_partition, close, (), large,
                dtypes=dtypes)  # fmt: skip


strong_rbm = with_options(rbm, patterns=0.0, noise=7.0)
weak_rbm = with_options(rbm, patterns=2.0, noise=2.0)
antiferromagnet = with_options(boltzmann_machine, noise=0.0, uniform=-1.0)
strong_boltzmann_machine = with_options(boltzmann_machine, noise=2.5)
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
    _tap("accelerated", accelerate_after=2, close={"float64": 1e-7, "float32": 1e-3}),
    _tap("accelerated_later", accelerate_after=20, close={"float64": 1e-7, "float32": 1e-3}),
    _tap("fast", large=True, accelerate_after=2, onsager_every=3,
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
]  # fmt: skip
