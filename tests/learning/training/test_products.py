import numpy as np
import pytest
from scipy import sparse

from fastmf._threads.workers import one_blas_thread
from fastmf.learning.training.products import TASK_COLUMNS, products_over_rows


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("n_threads", [1, 2, 3])
def test_products_are_those_of_numpy_for_any_number_of_threads(n_threads, dtype):
    rng = np.random.default_rng(0)
    shapes = (20, TASK_COLUMNS + 1), (20, 300), (20, 3), (20, 2 * TASK_COLUMNS)
    a, b, c, d = (rng.normal(size=shape).astype(dtype) for shape in shapes)
    factors = [(a, b), (c, d), (a, d), (a, sparse.csr_array(d))]
    with one_blas_thread():
        found = products_over_rows(factors, n_threads)
        alone = products_over_rows(factors, 1)
    for (left, right), product, expected in zip(factors, found, alone, strict=True):
        assert product.dtype == dtype
        right = right.toarray() if sparse.issparse(right) else right
        np.testing.assert_allclose(product, left.T @ right, atol=1e4 * np.finfo(dtype).eps)
        np.testing.assert_array_equal(product, expected)
