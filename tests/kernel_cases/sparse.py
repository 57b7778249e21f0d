"""Cases of sweeps of machines with sparse couplings, and of colouring their graphs."""

from functools import partial

import numpy as np
from scipy import sparse

import fastmf as mf
from fastmf.inference.mean_field._layouts import record_from
from fastmf.inference.mean_field._sparse_layout import SparseLayout, rows_and_memory
from fastmf.kernels.mean_field.units import INFINITE, STEP_DOT, TapSettings, Tilt
from kernel_cases.case import Case, chosen

N_WORKERS = 16


def graph(n, rng):
    """A ring with some chords."""
    i = np.concatenate([np.arange(n), rng.integers(n, size=n)])
    j = np.concatenate([np.roll(np.arange(n), 1), rng.integers(n, size=n)])
    kept = i != j
    half = sparse.coo_array((rng.normal(size=kept.sum()), (i[kept], j[kept])), shape=(n, n)).tocsr()
    return sparse.csr_array(half + half.T)


def machine(size, dtype, kind="spins"):
    """A sparse machine of spins, of groups of three states, or of both."""
    rng, n = np.random.default_rng(5), size.n_visible
    couplings, field = 0.3 * graph(n, rng), rng.normal(size=n) / 2
    if kind == "spins":
        return mf.BoltzmannMachine(couplings.astype(dtype), mf.Ising(field.astype(dtype)))
    n = max(n // 3, 3)
    couplings = sparse.kron(graph(n, rng), 0.3 * rng.normal(size=(3, 3)))
    couplings = sparse.csr_array(couplings + couplings.T).astype(dtype)
    return mf.BoltzmannMachine(couplings, mf.Categorical(rng.normal(size=(n, 3)).astype(dtype)))


def sweep_arguments(size, dtype, rows=None, *, kind="spins", schedule="blocked", order=2, slot=()):
    """Arguments of `sweep_chunks` for the first colour."""
    model, rng = machine(size, dtype, kind), np.random.default_rng(6)
    layout = SparseLayout(model, order, schedule)
    n, kept = layout.n_units, chosen(rows, size.n_rows)
    tilts = 0.5 * rng.normal(size=(size.n_rows, n))
    mean, var = layout.prior.moments(tilts, 0.0)
    state = np.stack([mean, var, 0 * mean, 0 * mean])[:, kept].astype(dtype)
    record = record_from(state, 0, history=False)
    settings = TapSettings(order, 1e-8, 100, one_by_one=layout.one_by_one, **layout.addresses)
    tilt = Tilt(
        (tilts[kept] / 3).astype(dtype), np.full((1, n), 0.1, dtype), np.zeros((1, n), bool)
    )
    work = rows_and_memory(layout, record, settings, N_WORKERS)
    for entry, value in slot:
        work.slots[..., entry] = value
    active = np.arange(len(kept))
    return layout.layer, layout.graph, layout.colours[0], active, settings, tilt, work


def _swept(arguments):
    work, chunks = arguments[-1], arguments[2]
    measures = work.measures[:, chunks[:, 2], 0, 0, INFINITE : STEP_DOT + 1]
    return {"state": work.state[:, :, 0], "measures": measures}


def assess_arguments(size, dtype, rows=None, *, confirms=0.0, scale=1.0):
    """Arguments of `assess_rows`, with random measures."""
    *others, work = sweep_arguments(size, dtype, rows)
    settings, rng, kept = others[4], np.random.default_rng(7), chosen(rows, size.n_rows)
    measures = scale * rng.random((size.n_rows, *work.measures.shape[1:4], 8))[kept]
    measures[..., 0] = 0
    work.measures[..., INFINITE : STEP_DOT + 1] = measures
    slots = work.slots[:, 0, 0]
    slots[:, 1] = rng.integers(1, 99, size.n_rows)[kept]
    slots[:, [4, 5]] = rng.integers(2, size=(size.n_rows, 2))[kept]
    slots[:, 16:20] = rng.random((size.n_rows, 4))[kept]
    slots[:, 7] = confirms
    record = record_from(np.swapaxes(work.state[:, :4, 0], 0, 1).copy(), 0, history=False)
    status = np.zeros(len(kept), np.int64)
    return np.arange(len(kept)), settings, work, status, record


def _assessed(arguments):
    work, status = arguments[2], arguments[3]
    slots = work.slots[:, 0, 0]
    running = np.where((status <= 0)[:, None], slots, 0)
    return {
        "status": status,
        "sweep": slots[:, 1],
        "slots": running[:, 1:],
        "state": work.state[:, :2],
    }


def colour_arguments(size, dtype, rows=None):
    """Arguments of `greedy_colours`."""
    couplings = graph(size.n_visible, np.random.default_rng(8))
    degree = np.diff(couplings.indptr).max()
    return (
        couplings.indptr.astype(np.int64),
        couplings.indices.astype(np.int32),
        np.full(degree + 2, -1),
        np.full(size.n_visible, -1),
        np.zeros(1, np.int64),
    )


CLOSE_DOUBLE = {"float64": 1e-10}
CLOSE = CLOSE_DOUBLE | {"float32": 2e-4}
TENTH = 1.0 / 10


def _sweep(name, large=False, **options):
    build = partial(sweep_arguments, **options)
    close = CLOSE if large else CLOSE_DOUBLE
    return Case("mean_field.tap.sweep_chunks", name, build, _swept, close, large=large)


def _assess(name, **options):
    build, exact, large = partial(assess_arguments, **options), ("status", "sweep"), not options
    close = CLOSE if large else CLOSE_DOUBLE
    return Case("mean_field.tap.assess_rows", name, build, _assessed, close, exact, large)


CASES = [
    _sweep("spins", large=True),
    _sweep("mean_field", order=1),
    _sweep("third_order", order=3),
    _sweep("sequential", schedule="sequential"),
    _sweep("oscillating", slot=((2, 0.5), (3, TENTH), (5, 1.0))),
    _sweep("groups", kind="groups", large=True),
    _sweep("groups_mean_field", kind="groups", order=1),
    _sweep("groups_sequential", kind="groups", schedule="sequential"),
    _assess("running"),
    _assess("converged", scale=1e-12),
    _assess("confirmed", scale=1e-12, confirms=1.0),
    _assess("not_confirmed", confirms=1.0),
    Case("mean_field.tap.greedy_colours", "chords", colour_arguments,
         lambda arguments: {"colours": arguments[3]}, {"float64": 0, "float32": 0}, ("colours",),
         large=True, any_rows=False),
]  # fmt: skip
