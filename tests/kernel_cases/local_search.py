"""Cases of local search."""

from functools import partial

import numpy as np

from fastmf.kernels.bp.local_search import ClimbSettings
from fastmf.kernels.bp.messages import BPProblem
from kernel_cases.case import Case, chosen


def climb_arguments(size, dtype, rows=None, joint=False, n_annealed=0):
    """Arguments of `climb`: frustrated weights, random starts."""
    rng = np.random.default_rng(9)
    weights = rng.normal(size=(size.n_visible, size.n_hidden)).astype(dtype)
    rows = chosen(rows, size.n_rows)
    visible_field = (rng.normal(size=(size.n_rows, size.n_visible)) - weights.sum(1) / 2)[rows]
    hidden_field = rng.normal(size=(1, size.n_hidden)) - weights.sum(0) / 2
    visible = (rng.random((size.n_rows, size.n_visible)) < 0.5)[rows]
    exponentials = np.exp(weights[:0] if joint else weights)
    max_factors = int(340 / abs(weights).max())
    fields = visible_field.astype(dtype), hidden_field.astype(dtype)
    problem = BPProblem(weights, exponentials, weights[:0], weights.sum(1), *fields)
    outcome = visible, np.zeros(len(rows)), np.zeros(len(rows), bool)
    temperatures = np.linspace(5, 0.5, n_annealed)
    scale, logs = 1 + abs(weights).sum(1), np.log1p(-rng.random(10_000))
    settings = ClimbSettings(joint, max_factors, scale, temperatures, logs)
    workspaces = np.empty((8, 3, size.n_hidden))
    return settings, problem, workspaces, *outcome, np.zeros(2, np.int64)


def of_climb(arguments):
    """Assignments at which the rows end."""
    return {"visible": arguments[-4], "objective": arguments[-3], "optimal": arguments[-2]}


CASES = [
    Case("bp.local_search.climb", name, partial(climb_arguments, **options), of_climb,
         {"float64": 1e-9}, ("visible", "optimal"), large=not options.get("n_annealed"),
         any_rows=not options.get("n_annealed"))
    for name, options in (
        ("marginal", {"joint": False}),
        ("joint", {"joint": True}),
        ("annealed-marginal", {"joint": False, "n_annealed": 3}),
        ("annealed-joint", {"joint": True, "n_annealed": 3}),
    )
]  # fmt: skip
