import numpy as np
import pytest
from scipy import sparse

from fastmf.estimators.sparse_regression._moments import absent_of, blocks_of, rows_of_moments


@pytest.mark.parametrize("shape", [(30, 8), (8, 30), (20, 20)])
@pytest.mark.parametrize("scale", [1.0, 1e-6, 1e6])
def test_rows_have_the_moments(shape, scale):
    rng = np.random.default_rng(0)
    X, y = scale * rng.normal(size=shape), rng.normal(size=shape[0])
    X[:, 3], X[:, 5] = X[:, 2], 0  # equal columns, and a constant one
    rows, target, absent = rows_of_moments(X.T @ X, X.T @ y, y @ y)
    np.testing.assert_allclose(rows.T @ rows, X.T @ X, atol=1e-10 * scale**2)
    np.testing.assert_allclose(rows.T @ target, X.T @ y, atol=1e-9 * scale)
    assert len(rows) == np.linalg.matrix_rank(X)
    assert target @ target + absent == pytest.approx(y @ y)


def test_moments_of_no_data_are_refused():
    with pytest.raises(ValueError, match="gram must be positive semidefinite"):
        rows_of_moments(np.array([[1.0, 2.0], [2.0, 1.0]]), np.ones(2), 1.0)
    with pytest.raises(ValueError, match="moment must be X'y"):
        rows_of_moments(np.ones((2, 2)), np.array([1.0, -1.0]), 1.0)
    with pytest.raises(ValueError, match="y_square must be y'y"):
        rows_of_moments(np.eye(2), np.array([1.0, 1.0]), 1.0)


def test_blocks_are_found():
    a, b = np.array([[1.0, 0.5], [0.5, 1.0]]), np.eye(1)
    listed = blocks_of([a, b])
    assert [list(units) for units, _ in listed] == [[0, 1], [2]]
    large = sparse.block_diag([sparse.csr_array(a)] * 300).tocsr()
    mixed = np.random.default_rng(0).permutation(600)
    found = blocks_of(large[mixed][:, mixed])
    assert 1 < len(found) < 10
    whole = np.zeros((600, 600))
    for units, block in found:
        whole[np.ix_(units, units)] = block
    np.testing.assert_array_equal(whole, large.toarray()[np.ix_(mixed, mixed)])
    with pytest.raises(ValueError, match="must be a square matrix"):
        blocks_of([a[:1]])


def test_what_blocks_explain_beyond_the_whole_is_not_negative():
    assert absent_of([np.ones(2), np.ones(3)], 7.0, 10.0) == (10.0, 2.0)
    assert absent_of([np.ones(2), np.ones(3)], 4.0, 10.0) == (5.0, 0.0)
    assert absent_of([np.ones(2), np.ones(3)], 7.0, 4.0) == (5.0, 0.0)
