"""Cases of products with sparse rows."""

import numpy as np
from scipy.sparse import csr_array

from fastmf.kernels.linear.sparse_rows import CompressedRows
from kernel_cases.case import Case, chosen


def product_arguments(size, dtype, rows=None):
    """Arguments of `add_sparse_product`: one row is empty, others have 1 to all entries."""
    rng = np.random.default_rng(7)
    X = rng.normal(size=(size.n_rows, size.n_visible)).astype(dtype)
    fractions = np.concatenate([[0, 1], rng.uniform(0, 0.1, size.n_rows)])[: size.n_rows, None]
    X *= rng.random(X.shape) < fractions
    matrix = rng.normal(size=(size.n_visible, size.n_hidden)).astype(dtype)
    out = rng.normal(size=(size.n_rows, size.n_hidden)).astype(dtype)
    X, out = csr_array(X[chosen(rows, size.n_rows)]), out[chosen(rows, size.n_rows)]
    matrix.flags.writeable = False  # like a model's
    bounds = np.array([X.indptr[:-1], X.indptr[1:]], np.int64)
    sparse = CompressedRows(X.data, X.indices.astype(np.int32), *bounds)
    return sparse, matrix, 2, np.zeros(1, np.int64), out


CASES = [
    Case("linear.sparse_rows.add_sparse_product", "few_entries", product_arguments,
         ("out",), {"float64": 1e-12, "float32": 1e-4}, large=True),
]  # fmt: skip
