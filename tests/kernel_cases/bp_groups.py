"""Cases of `group_propagation`."""

from functools import partial

import numpy as np

import fastmf as mf
from fastmf.inference.bp._options import BPOptions
from fastmf.inference.bp.rbm import GroupUnits, _prepared, _workspace
from kernel_cases.case import Case, chosen, few_rows


def group_arguments(size, dtype, rows=None, damping=None, scale=1.0, max_iter=100, tol=1e-8):
    """Arguments of `group_propagation`: groups of 2 to 5 states, fields that differ by row."""
    size = few_rows(size)
    rng = np.random.default_rng(8)
    sizes = [2 + k % 4 for k in range(max(1, size.n_visible // 3))]
    units = mf.Categorical([rng.normal(size=q) for q in sizes])
    weights = scale * rng.normal(size=(sum(sizes), size.n_hidden))
    weights *= 3 / np.sqrt(len(sizes) + size.n_hidden)
    model = mf.RBM(weights, units, mf.Ising(rng.normal(size=size.n_hidden)))
    fields = rng.normal(size=(size.n_rows, sum(sizes)))[chosen(rows, size.n_rows)]
    options = BPOptions(damping=damping, tol=tol, max_iter=max_iter)
    units = GroupUnits(model, (fields, None))
    settings, record = _prepared(options, units, len(fields))
    workspace = _workspace(units.problem, 1)
    return settings, units.problem, record, workspace, np.zeros(2, np.int64)


def _record(arguments):
    found = arguments[2]._asdict()
    return {name: found[name] for name in found if name not in ("min_residual", "n_stalled")}


def _case(name, large=False, **options):
    exact = ("status", "n_iter", "damping")
    return Case(
        "bp.groups.group_propagation", name, partial(group_arguments, **options), _record,
        {"float64": 1e-9}, exact, large=large,
    )  # fmt: skip


CASES = [
    _case("sum", large=True),
    _case("sum-damped", damping=0.4, max_iter=15),
    _case("sum-strong", scale=6.0, max_iter=12),
]
