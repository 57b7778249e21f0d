"""Cases of ordinal items with unequal numbers of categories."""

from functools import partial

import numpy as np

from fastmf.kernels.pseudo_likelihood.ordinal import ROWS_AT_A_TIME
from kernel_cases.case import Case, chosen


def conditional_arguments(size, dtype, rows=None, *, strength=1.0):
    """Arguments of `conditionals`."""
    rng = np.random.default_rng(11)
    d, n_categories = size.n_visible, 5
    m = 1 + np.arange(d) % (n_categories - 1)
    states = rng.integers(0, m + 1, (size.n_rows, d)).astype(dtype)
    thresholds = rng.normal(size=(n_categories, d)).astype(dtype)
    thresholds[0] = 0
    thresholds[np.arange(n_categories)[:, None] > m] = -np.inf
    products = (strength * rng.normal(size=states.shape)).astype(dtype)
    wanted = chosen(rows, size.n_rows)
    n = len(wanted)
    return (
        *(products[wanted], thresholds, states[wanted]),
        np.empty((8, n_categories + 3, ROWS_AT_A_TIME * d), dtype),
        np.zeros(2, np.int64),
        *(np.zeros((n_categories, n, d), dtype), np.zeros((n, d), dtype), np.zeros(n, dtype)),
    )


def _filled(arguments):
    p, residuals, value = arguments[-3:]
    return {"probabilities": p.transpose(1, 0, 2), "residuals": residuals, "value": value}


CASES = [
    Case("pseudo_likelihood.ordinal.conditionals", name,
         partial(conditional_arguments, strength=strength), _filled,
         {"float64": 1e-12, "float32": 1e-4}, large=name == "plain")
    for name, strength in (("plain", 1.0), ("certain", 300.0))
]  # fmt: skip
