"""Cases of belief propagation."""

from functools import partial

import numpy as np

from fastmf.inference.bp._options import BPOptions, new_workspaces, prepared
from fastmf.inference.bp.rbm import BinaryUnits
from fastmf.special import sigmoid_pair
from kernel_cases.case import Case, chosen, few_rows
from kernel_cases.machines import rbm


def propagation_arguments(
    size, dtype, rows=None, algorithm="sum", damping=None, one_for_each_row=False, noise=3.0,
    max_iter=100, tol=1e-6,
):  # fmt: skip
    """Arguments of `belief_propagation`: rows differ in the fields of the visible units."""
    size = few_rows(size)
    model, rng = rbm(size, dtype, noise=noise), np.random.default_rng(6)
    fields = rng.normal(size=(size.n_rows, size.n_visible))[chosen(rows, size.n_rows)]
    options = BPOptions(algorithm=algorithm, damping=damping, tol=tol, max_iter=max_iter)
    units = BinaryUnits(model, (fields, None))
    settings, problem, record = prepared(options, units, model.dtype, len(fields))
    n_messages = len(fields) if one_for_each_row else 8
    shape = n_messages, size.n_visible, 0 if algorithm == "mixed" else record.hidden.shape[1]
    messages = np.full(shape, 1 if algorithm == "sum" else 0, dtype)
    workspaces = new_workspaces(8, record, model.dtype, settings.algorithm)
    return settings, problem, messages, record, workspaces, np.zeros(2, np.int64)


def pair_arguments(size, dtype, rows=None):
    """Arguments of `pair_beliefs`."""
    arguments = propagation_arguments(size, dtype, rows, one_for_each_row=True)
    _, problem, messages, record, _, queue = arguments
    rng = np.random.default_rng(8)
    messages[:] = problem.exponentials ** rng.random(problem.exponentials.shape).astype(dtype)
    record.visible[:] = rng.normal(size=size.n_visible)
    scales = 0.5 * sigmoid_pair(record.visible)[0].astype(dtype)
    beliefs = np.stack(sigmoid_pair(record.hidden)).astype(dtype)
    return problem, messages, beliefs, scales, queue[:1], np.zeros_like(messages)


def of_record(arguments):
    """Beliefs and convergence record of the rows."""
    names = ("visible", "hidden", "best", "objective", "bethe", "status", "n_iter", "residual",
             "history")  # fmt: skip
    return {name: getattr(arguments[3], name) for name in names}


CLOSE, EXACT = {"float64": 1e-9, "float32": 1e-3}, ("status", "n_iter")


def _case(name, close=CLOSE, large=True, **options):
    build = partial(propagation_arguments, **options)
    kernel = "bp.belief_propagation.belief_propagation"
    return Case(kernel, name, build, of_record, close, EXACT, large)


def exponential_arguments(size, dtype, rows=None):
    """Arguments of `exponentials`."""
    weights = rbm(size, dtype).weights[chosen(rows, size.n_visible)]
    weights.flags.writeable = False  # like those of a model
    roots, out = np.zeros((2, len(weights), size.n_hidden + 3), dtype)
    return weights, 2.0, np.zeros(1, np.int64), roots, out


CASES = [
    _case("sum"),
    _case("sum_damped", {"float64": 1e-9}, large=False, damping=0.4, one_for_each_row=True),
    _case("max", algorithm="max", max_iter=8),
    _case("mixed", algorithm="mixed", max_iter=8),
    Case("bp.belief_propagation.exponentials", "weights", exponential_arguments, ("roots", "out"),
         {"float64": 1e-13, "float32": 1e-5}, large=True),
    Case("bp.belief_propagation.pair_beliefs", "rows", pair_arguments, ("out",),
         {"float64": 1e-12, "float32": 1e-5}, large=True),
]  # fmt: skip
