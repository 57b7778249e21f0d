"""Cases of local search."""

import numpy as np

from fastmf.kernels.bp.arguments import BPProblem
from fastmf.kernels.bp.local_search import ClimbSettings
from kernel_cases.case import Case, chosen, with_options


def climb_arguments(size, dtype, rows=None, joint=False):
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
    settings = ClimbSettings(joint, max_factors, 1 + abs(weights).sum(1))
    workspaces = np.empty((8, 3, size.n_hidden))
    return settings, problem, workspaces, *outcome, np.zeros(2, np.int64)


def of_climb(arguments):
    """Assignments at which the rows end."""
    return {"visible": arguments[-4], "objective": arguments[-3], "optimal": arguments[-2]}


CASES = [
    Case("bp.local_search.climb", name, with_options(climb_arguments, joint=joint), of_climb,
         {"float64": 1e-9}, ("visible", "optimal"), large=True, dtypes=("float64",))
    for name, joint in (("marginal", False), ("joint", True))
]  # fmt: skip
