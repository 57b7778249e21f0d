"""Cases of the pass over a design matrix."""

import numpy as np

from fastmf.kernels.linear.product import product_address
from kernel_cases.case import Case, chosen

CLOSE = {"float64": 1e-10, "float32": 1e-10}


def design(size, dtype):
    """More columns than one panel, task or chunk holds, in no round number."""
    rng = np.random.default_rng(8)
    n, d = size.n_hidden, 10 * size.n_visible + 7
    return rng, rng.normal(size=(n, d)).astype(dtype)


def whitened_arguments(size, dtype, rows=None):
    """Arguments of `whitened_columns`; "rows" are columns of X."""
    rng, X = design(size, dtype)
    n, k = len(X), 5
    whiten, directions = np.tril(rng.normal(size=(n, n))), rng.normal(size=(k, n)) / n
    X = np.ascontiguousarray(X[:, chosen(rows, X.shape[1])])
    X.flags.writeable = False
    z, offset = rng.normal(size=n), rng.normal(size=k)
    address, queue = product_address(float), np.zeros(1, np.int64)
    return address, X, whiten, directions, z, offset, queue, np.zeros((2, X.shape[1]))


CASES = [
    Case("ep.linear_model.whitened_columns", "with_directions", whitened_arguments,
         lambda arguments: dict(zip(("squares", "products"), arguments[-1], strict=True)),
         CLOSE, large=True),
]  # fmt: skip
