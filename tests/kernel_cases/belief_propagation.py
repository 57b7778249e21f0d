"""Cases of belief propagation."""

import numpy as np

from fastmf._outcomes import CONVERGED, RUNNING
from fastmf.inference.bp._binary_units import Bits
from fastmf.inference.bp.belief_propagation import prepared, seats
from fastmf.kernels import bp_types as kernels
from fastmf.special import sigmoid_pair
from kernel_cases.case import Case, chosen, few_rows, with_options
from kernel_cases.machines import rbm


def propagation_arguments(
    size, dtype, rows=None, algorithm=kernels.SUM, damping=None, own=False, noise=3.0,
    max_iter=100, tol=None,
):  # fmt: skip
    """Arguments of `belief_propagation`: rows differ in the fields of the visible units."""
    size = few_rows(size)
    model, rng = rbm(size, dtype, noise=noise), np.random.default_rng(6)
    fields = rng.normal(size=(size.n_rows, size.n_visible))[chosen(rows, size.n_rows)]
    settings, problem, record = prepared(
        algorithm, model, Bits(model, (fields, None)), model.dtype, len(fields), damping,
        1e-6 if tol is None else tol, max_iter, max_iter,
    )  # fmt: skip
    n_seats, n_padded = len(fields) if own else 8, record.hidden.shape[1]
    shape = n_seats, size.n_visible, 0 if algorithm == kernels.MIXED else n_padded
    messages = np.full(shape, 1 if algorithm == kernels.SUM else 0, dtype)
    n_blocks = -(-size.n_visible // kernels.BLOCK)
    partial = seats(8, n_blocks, n_padded, model.dtype, algorithm)
    return settings, problem, messages, record, partial, np.zeros(2, np.int64)


def shared_arguments(size, dtype, rows=None, status=RUNNING, **options):
    """Arguments of `sweep_blocks`: one row, with messages underway."""
    options = {"own": True, **options}
    arguments = propagation_arguments(size, dtype, [0], **options)
    settings, problem, messages, record, partial, queue = arguments
    rng = np.random.default_rng(7)
    if settings.algorithm == kernels.SUM:
        messages[:] = problem.exponentials ** rng.random(problem.exponentials.shape).astype(dtype)
    elif settings.algorithm == kernels.MAX:
        messages[:] = problem.weights * rng.random(problem.weights.shape).astype(dtype)
    record.hidden[:, : size.n_hidden] += rng.normal(size=size.n_hidden)
    record.visible[:] = rng.normal(size=size.n_visible)
    record.status[:] = status
    partial.beliefs[0, :2] = sigmoid_pair(record.hidden[0])
    partial.beliefs[0, 2] = record.hidden[0]
    partial.logs[0, :, : size.n_hidden] = rng.normal(size=size.n_hidden)
    return settings, problem, messages, record, partial, queue[:1]


def conclusion_arguments(*arguments, **options):
    """Arguments of `conclude_sweep`."""
    settings, problem, _, record, partial, _ = shared_arguments(*arguments, **options)
    return settings, problem, record, partial


def pair_arguments(size, dtype, rows=None, mean=False):
    """Arguments of `pair_beliefs`."""
    _, problem, messages, record, _, queue = propagation_arguments(size, dtype, rows, own=True)
    rng = np.random.default_rng(8)
    messages[:] = problem.exponentials ** rng.random(problem.exponentials.shape).astype(dtype)
    record.visible[:] = rng.normal(size=size.n_visible)
    scales = np.full(len(messages), 0.5)
    out = np.zeros((1, *messages.shape[1:]) if mean else messages.shape, dtype)
    return problem, messages, record, scales, queue[:1], out


def exponential_arguments(size, dtype, rows=None):
    """Arguments of `exponentials`, of so many visible units."""
    weights = rbm(size, dtype).weights[chosen(rows, size.n_rows)]
    weights.flags.writeable = False  # like those of a model
    out = np.zeros((len(weights), size.n_hidden + 3), dtype)
    return weights, 2.0, np.zeros(1, np.int64), out


def of_record(arguments):
    """What the rows end with."""
    names = ("visible", "hidden", "best", "objective", "bethe", "status", "n_iter", "residual",
             "history")  # fmt: skip
    return {name: getattr(arguments[3], name) for name in names}


def of_sweep(arguments):
    """What a sweep leaves behind."""
    partial = arguments[4]
    return {"visible": arguments[3].visible, "messages": arguments[2], "logs": partial.logs[:1],
            "change": partial.change[:1], "value": partial.value[:1]}  # fmt: skip


def of_conclusion(arguments):
    """What the end of a sweep changes."""
    record = arguments[2]
    return {"hidden": record.hidden, "residual": record.residual, "bethe": record.bethe,
            "objective": record.objective}  # fmt: skip


CLOSE = {"float64": 1e-9, "float32": 1e-3}
NAME = "belief_propagation.belief_propagation"
EXACT = ("status", "n_iter")

CASES = [
    Case(NAME, "sum", propagation_arguments, of_record, CLOSE, EXACT, large=True),
    Case(NAME, "sum_damped", with_options(propagation_arguments, damping=0.4, own=True),
         of_record, CLOSE, EXACT, dtypes=("float64",)),
    Case(NAME, "max", with_options(propagation_arguments, algorithm=kernels.MAX, max_iter=8),
         of_record, CLOSE, EXACT, large=True),
    Case(NAME, "mixed", with_options(propagation_arguments, algorithm=kernels.MIXED, max_iter=8),
         of_record, CLOSE, EXACT, large=True),
    Case("belief_propagation.sweep_blocks", "sum", shared_arguments, of_sweep, CLOSE, large=True),
    Case("belief_propagation.sweep_blocks", "bethe",
         with_options(shared_arguments, status=CONVERGED), of_sweep, CLOSE),
    Case("belief_propagation.conclude_sweep", "sum", conclusion_arguments, of_conclusion, CLOSE,
         large=True),
    Case("belief_propagation.exponentials", "weights", exponential_arguments,
         lambda arguments: {"out": arguments[-1]}, {"float64": 1e-13, "float32": 1e-5},
         large=True),
    Case("belief_propagation.pair_beliefs", "rows", pair_arguments,
         lambda arguments: {"out": arguments[-1]}, {"float64": 1e-12, "float32": 1e-5},
         large=True),
]  # fmt: skip
