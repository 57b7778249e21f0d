"""Cases of the passes over a design matrix."""

import numpy as np

from fastmf.kernels.linear.product import product_address
from kernel_cases.case import Case, chosen

CLOSE = {"float64": 1e-10, "float32": 1e-10}


def design(size, dtype):
    """More columns than one panel, task or chunk holds, in no round number."""
    rng = np.random.default_rng(8)
    n, d = size.n_hidden, 10 * size.n_visible + 7
    return rng, rng.normal(size=(n, d)).astype(dtype)


def covariance_arguments(size, dtype, rows=None):
    """Arguments of `data_covariance`; "rows" are rows of X."""
    rng, X = design(size, dtype)
    X, scale = X[chosen(rows, len(X))], rng.gamma(2.0, size=X.shape[1])
    X.flags.writeable = False  # like that of a model
    sums, vector = np.full((3, len(X) + 1, len(X)), np.nan), rng.normal(size=X.shape[1])
    return product_address(float), X, scale, vector, np.zeros(1, np.int64), sums


def covariance_results(arguments):
    """Products with itself, the first row and the vector, which are there for any other rows."""
    sums = arguments[-1]
    return {
        "squares": sums.diagonal(axis1=1, axis2=2).T,
        "products": sums[:, :-1, 0].T,
        "along": sums[:, -1].T,
    }


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
    Case("ep.linear_model.data_covariance", "three_shares", covariance_arguments,
         covariance_results, CLOSE, large=True, any_rows=False),
    Case("ep.linear_model.whitened_columns", "with_directions", whitened_arguments,
         lambda arguments: dict(zip(("squares", "products"), arguments[-1], strict=True)),
         CLOSE, large=True),
]  # fmt: skip
