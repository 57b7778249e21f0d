"""Cases of `tap`."""

from functools import partial

import numpy as np

from fastmf.inference.mean_field._layouts import layout_of, record_from
from fastmf.inference.mean_field.tap import workers_of
from fastmf.kernels.mean_field import units as tap_kernels
from fastmf.kernels.mean_field.tap import given_work
from kernel_cases.case import Case, chosen
from kernel_cases.machines import (
    boltzmann_machine,
    data,
    dbm,
    potts_machine,
    potts_rbm,
    rbm,
    truncated_spiked_rbm,
    uniform_data,
)

OPTIONS = {
    "order": 2,
    "damping": 0.0,
    "adaptive": True,
    "tol": 1e-8,
    "max_iter": 500,
    "early_residual": 0.0,
    "late_residual": 0.0,
    "rows_per_worker": 4,
}


def _tilt(layout, size, dtype, tilted, clamped, rows):
    rng = np.random.default_rng(2)
    shape = (size.n_rows, layout.n_units)
    whole = (rng.normal(size=shape) / 2, rng.random(shape) / 2, rng.random(shape) < 0.2)
    parts = []
    for part, wanted in zip(whole, (tilted, tilted, clamped), strict=True):
        kind = bool if part.dtype == bool else dtype
        part = part[rows] if wanted else np.zeros((1, layout.n_units))
        parts.append(part.astype(kind))
    if tilted == "alike":
        parts[:2] = (part[:1] for part in (whole[0].astype(dtype), whole[1].astype(dtype)))
    return tap_kernels.Tilt(*parts)


# No test or benchmark has more workers.
N_WORKERS = 16


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
    layout = layout_of(model, options["order"], schedule)
    rows = chosen(rows, size.n_rows)
    state = np.zeros((4, len(rows), layout.n_units), dtype)
    record = record_from(state, options["max_iter"], history)
    draw = uniform_data if machine is truncated_spiked_rbm else data
    start = draw(model, size.n_rows) if start is None else start
    record.state[0, :, layout.bounds[0]] = start[rows]
    settings = tap_kernels.TapSettings(
        **options,
        one_by_one=layout.one_by_one,
        resolution=float(np.finfo(dtype).eps),
        **layout.addresses,
    )
    tilt = _tilt(layout, size, dtype, tilted, clamped, rows)
    return (
        *(
            tap_kernels.Sweep(layout.layers, layout.blocks),
            settings,
            tilt,
            _workers(layout, settings),
        ),
        *(np.zeros(2, np.int64), record),
    )


def measured_arguments(size, dtype, rows=None, *, machine=rbm, **options):
    """Arguments of `log_partitions`: means and variances under random tilts, no fixed points."""
    model, arguments = (
        machine(size, dtype),
        tap_arguments(size, dtype, rows, machine=machine, **options),
    )
    _, settings, *_, record = arguments
    layout = layout_of(model, settings.order, "blocked")
    tilts = np.random.default_rng(6).normal(size=(size.n_rows, layout.n_units)) / 2
    for prior, units in zip(model.layers, layout.bounds, strict=True):
        moments = prior.moments(tilts[chosen(rows, size.n_rows), units], 0.1)
        record.state[:2, :, units] = np.asarray(moments, dtype)
    settings = settings._replace(
        finish=tap_kernels.units_address(np.dtype(dtype), measure=True),
        measures=True,
        max_iter=1 + layout.grouped,
    )
    return arguments[0], settings, *arguments[2:], np.full(record.state.shape[1], np.nan)


def _workers(layout, settings):
    workers = workers_of(layout, settings, N_WORKERS)
    for memory in workers:
        memory.fill(np.nan)
    return workers


def _record(arguments):
    record, planes = arguments[-1], ("mean", "var", "b", "a")
    found = dict(zip(planes, record.state, strict=True)) | record._asdict()
    del found["state"]
    if not record.history.size:
        del found["history"]
    return found


def given_arguments(size, dtype, rows=None):
    """Arguments of `moments_given`; rows of states are of visible units."""
    model = rbm(size, dtype)
    X = data(model, size.n_rows)[chosen(rows, size.n_rows)]
    layers = layout_of(model, 1, "blocked").layers
    moments = np.zeros((3, len(X), size.n_hidden), dtype)
    return layers, 1, X, moments, given_work(layers.of_model[1])


def _moments(arguments):
    return dict(zip(("b", "mean", "var"), arguments[3], strict=True))


def _tap(name, large=False, single=False, close=None, **options):
    close = close or {"float64": 1e-9} | ({"float32": 2e-4} if large or single else {})
    build, counts = partial(tap_arguments, **options), ("status", "n_iter")
    return Case("mean_field.tap.tap", name, build, _record, close, counts, large)


def _log_partitions(name, large=False, single=False, **options):
    close = {"float64": 1e-11} | ({"float32": 2e-5} if large or single else {})
    build = partial(measured_arguments, **options)
    return Case("mean_field.tap.log_partitions", name, build, ("values",), close, large=large)


strong_rbm = partial(rbm, patterns=0.0, noise=7.0)
weak_rbm = partial(rbm, patterns=2.0, noise=2.0)
antiferromagnet = partial(boltzmann_machine, noise=0.0, uniform=-1.0)
strong_boltzmann_machine = partial(boltzmann_machine, noise=2.5)
FULLY_VISIBLE = {"machine": boltzmann_machine}

CASES = [
    Case("mean_field.tap.moments_given", "binary", given_arguments, _moments,
         {"float64": 1e-12, "float32": 1e-5}, large=True),
    _tap("mean_field", order=1),
    _tap("blocked", large=True, history=True),
    _tap("ten_sweeps", large=True, tol=0.0, max_iter=10),
    _tap("begun", tol=0.0, max_iter=3, first_block=1),
    _tap("sequential", large=True, schedule="sequential"),
    _tap("third_order", order=3, machine=weak_rbm, single=True),
    _tap("damped", damping=0.5, adaptive=False),
    _tap("oscillating", machine=strong_rbm, close={"float64": 1e-7, "float32": 5e-3}),
    _tap("accelerated", large=True, early_residual=0.05, close={"float64": 1e-7, "float32": 1e-3}),
    _tap("accelerated_later", early_residual=0.001, close={"float64": 1e-7}),
    _tap("tilted", tilted=True),
    _tap("tilted_alike", tilted="alike", order=3, machine=weak_rbm),
    _tap("clamped", clamped=True, tilted=True),
    _tap("fully_visible", **FULLY_VISIBLE),
    _tap("fully_visible_sequential", schedule="sequential", max_iter=30, **FULLY_VISIBLE),
    _tap("fully_visible_third_order", schedule="sequential", order=3, max_iter=30,
         **FULLY_VISIBLE),
    _tap("fully_visible_cycling", machine=antiferromagnet, adaptive=False, max_iter=64),
    _tap("fully_visible_oscillating", machine=strong_boltzmann_machine,
         close={"float64": 1e-7}),
    _tap("groups", machine=potts_rbm, single=True),
    _tap("groups_mean_field", machine=potts_rbm, order=1, max_iter=40),
    _tap("groups_sequential", machine=potts_rbm, schedule="sequential", tilted=True),
    _tap("groups_accelerated", machine=potts_rbm, early_residual=0.05,
         close={"float64": 1e-7}),
    _tap("groups_damped", machine=potts_rbm, damping=0.5, adaptive=False, tilted="alike",
         max_iter=20),
    _tap("groups_fully_visible", machine=potts_machine),
    _log_partitions("first_order", order=1, clamped=True),
    _log_partitions("second_order", large=True),
    _log_partitions("third_order", order=3, clamped=True, tilted=True),
    _log_partitions("fully_visible", machine=boltzmann_machine, tilted="alike"),
    _log_partitions("fully_visible_third_order", machine=boltzmann_machine, order=3),
    _log_partitions("deep", machine=dbm, tilted=True, clamped=True),
    _log_partitions("deep_third_order", machine=dbm, order=3, tilted="alike"),
    _log_partitions("spikes", machine=truncated_spiked_rbm, clamped=True, single=True),
    _log_partitions("groups", machine=potts_rbm, tilted=True, single=True),
    _log_partitions("groups_first_order", machine=potts_rbm, order=1),
    _log_partitions("groups_sequential", machine=potts_rbm, schedule="sequential"),
    _log_partitions("groups_fully_visible", machine=potts_machine),
    _tap("truncated_spikes", large=True, machine=truncated_spiked_rbm, tol=0.0, max_iter=10),
]  # fmt: skip
