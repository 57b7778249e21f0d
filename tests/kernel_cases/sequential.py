"""Cases of a block of units of a sequential sweep, of which the last do not exist."""

from functools import partial

import numpy as np

from fastmf.kernels.ep.sites import BLOCK, SiteSettings
from fastmf.priors._compiled import units_of
from kernel_cases.case import Case
from kernel_cases.sites import machine

CLOSE = {"float64": 1e-10}
START, LAST = 5, BLOCK - 2


def block(size, low_rank):
    """A prior, sites, the vectors x of a block of units, and M and g."""
    prior, _, site = machine(size, None)
    rng, n = np.random.default_rng(7), 2 * BLOCK + 1
    X = np.zeros((n, BLOCK))
    X[:, :LAST] = rng.normal(size=(n, LAST)) / 3
    units = slice(START, START + LAST)
    prior, site = prior._make(f[: units.stop] for f in prior), site[:, : units.stop].copy()
    if low_rank:
        # A negative precision in the block makes the covariance of the data indefinite.
        site[1, units] = rng.gamma(2.0, size=LAST)
        site[1, START + 4] = -0.5
        scaled = X[:, :LAST] / site[1, units]
        matrix = np.linalg.inv(0.3 * np.eye(n) + scaled @ X[:, :LAST].T)
        return prior, site, X, matrix, matrix @ rng.normal(size=n)
    site[1, units] = rng.gamma(2.0, size=LAST) - 0.3
    precision = 0.1 * np.eye(BLOCK) + X.T @ X
    precision.flat[: (BLOCK + 1) * LAST : BLOCK + 1] += site[1, units]
    return prior, site, np.eye(BLOCK), np.linalg.inv(precision), rng.normal(size=BLOCK)


def visit_arguments(size, dtype, rows=None, low_rank=True):
    """Arguments of `visit_block`: units later in the block see the earlier ones."""
    prior, site, X, matrix, vector = block(size, low_rank)
    z = X.T @ matrix
    rows = np.concatenate([z @ X, z], axis=1)
    vector = np.concatenate([X.T @ vector, vector])
    settings = SiteSettings(0.5 + 0 * site[0], 0.1, -np.inf)
    updates = np.full((2, 2 * BLOCK), 9.0)
    return units_of(prior, float), settings, START, low_rank, rows, vector, site, updates


def visit_results(arguments):
    """All that `visit_block` fills, without the rows after the last unit."""
    rows, vector, site, updates = arguments[4:]
    filled = {"rows": rows[:LAST], "vector": vector, "site": site, "updates": updates}
    return {name: a[None] for name, a in filled.items()}


CASES = [
    Case("ep.sites.visit_block", name, partial(visit_arguments, low_rank=low_rank), visit_results,
         CLOSE, large=True)
    for name, low_rank in (("covariance", False), ("data_covariance", True))
]  # fmt: skip
