"""Cases of the rule by which rows of belief propagation end."""

from functools import partial

import numpy as np

from fastmf._outcomes import CONFIRMING
from fastmf.kernels.bp.convergence import ConvergenceRecord, ConvergenceSettings
from kernel_cases.case import Case, chosen

PATIENCE, MAX_ITER = 3, 9


def arguments(size, dtype, rows=None, adaptive=True):
    """Rows at all stages: damped, most strongly, or not, confirming or not, stalled or not."""
    rng, n = np.random.default_rng(5), max(size.n_rows, 200)
    kept = chosen(rows, n)
    damping = rng.choice([0.0, 0.5, 0.96], n)
    confirming = (damping > 0) & (rng.random(n) < 0.5)
    change = 10.0 ** rng.uniform(-12, 0, n)
    change[rng.random(n) < 0.1] = np.inf
    record = ConvergenceRecord(
        status=np.where(confirming, CONFIRMING, 0)[kept],
        n_iter=rng.integers(MAX_ITER, size=n)[kept],
        residual=np.zeros(len(kept)),
        damping=damping[kept],
        min_residual=10.0 ** rng.uniform(-12, 0, n)[kept],
        n_stalled=rng.integers(PATIENCE, size=n)[kept],
        limit=rng.choice([1e-11, 1e-9, np.inf], n)[kept],
        history=np.zeros((len(kept), MAX_ITER)),
    )
    settings = ConvergenceSettings(1e-6, 1e-9, MAX_ITER, adaptive)
    damped = np.where(confirming, 0.0, damping)[kept]
    swept = np.arange(len(kept))
    return settings, record, swept, change[kept], damped, PATIENCE, np.zeros(1, np.int64)


def results(arguments):
    """All that is kept of a row."""
    return dict(arguments[1]._asdict())


CASES = [
    Case("bp.convergence.assess_rows", name, partial(arguments, adaptive=adaptive), results,
         {"float64": 1e-14}, exact=("status", "n_iter", "n_stalled"),
         large=adaptive)
    for name, adaptive in (("stages", True), ("constant", False))
]  # fmt: skip
