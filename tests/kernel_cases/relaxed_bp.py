"""Cases of `relaxed_bp`."""

from functools import partial

import numpy as np

from fastmf.inference.mean_field._layouts import record_from
from fastmf.inference.mean_field.relaxed_bp import _layer_views
from fastmf.kernels.mean_field.relaxed_bp import RelaxedBPSettings, relaxed_bp_work, update_address
from kernel_cases.case import Case, chosen, few_rows
from kernel_cases.machines import boltzmann_machine, data, rbm


def relaxed_bp_arguments(size, dtype, rows=None, *, machine=rbm, damping=0.0):
    """Arguments of `relaxed_bp`: data as starts."""
    size = few_rows(size)
    model = machine(size, dtype)
    rows = chosen(rows, size.n_rows)
    n_first = len(model.layers[0].field)
    n_units = sum(len(prior.field) for prior in model.layers)
    state = np.zeros((4, len(rows), n_units), dtype)
    state[0, :, :n_first] = data(model, size.n_rows)[rows]
    record = record_from(state, 200, history=True)
    resolution, update = float(np.finfo(dtype).eps), update_address(dtype)
    settings = RelaxedBPSettings(damping, not damping, 1e-8, 200, resolution, update)
    tilt = np.random.default_rng(4).normal(size=(2, size.n_rows, n_units)).astype(dtype) / 9
    layers = _layer_views(model)
    work = relaxed_bp_work(1, n_units, layers[0].couplings.size, dtype)
    return (*layers, settings, tilt[0, rows], abs(tilt[1, rows]), work,
            record, np.zeros(len(rows)))  # fmt: skip


def _found(arguments):
    record = arguments[6]
    mean, var, b, a = record.state
    return {"mean": mean, "var": var, "b": b, "a": a, "status": record.status,
            "n_iter": record.n_iter, "history": record.history,
            "log_partition": arguments[7]}  # fmt: skip


CASES = [
    Case("mean_field.relaxed_bp.relaxed_bp", "rbm", relaxed_bp_arguments, _found,
         {"float64": 1e-6, "float32": 5e-3}, ("status",), large=True),
    Case("mean_field.relaxed_bp.relaxed_bp", "fully_visible",
         partial(relaxed_bp_arguments, machine=boltzmann_machine, damping=0.3), _found,
         {"float64": 1e-6}, ("status",)),
]  # fmt: skip
