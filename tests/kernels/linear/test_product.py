import numpy as np
import pytest

from fastmf._jit.kernel import kernel
from fastmf.kernels.linear.product import (
    CHUNK_ROWS,
    TILE_ROWS,
    TILE_VECTORS,
    pack,
    panel_width,
    product,
    product_address,
)
from fastmf.reference.sampling.annealing import uniforms


@kernel(name=None)
def some_rows(address, states, n_rows, source, packed, out, n_columns):
    product(address, states, n_rows, source, packed, out, n_columns)


def run(states, matrix, source=0, n_rows=None):
    packed = pack(matrix)
    n_rows = len(states) if n_rows is None else n_rows
    # Whatever was there before must not show.
    out = np.full((n_rows + 1, packed.shape[0] * packed.shape[2]), np.nan, matrix.dtype)
    some_rows(product_address(matrix.dtype), states, n_rows, source, packed, out, matrix.shape[1])
    assert np.isnan(out[n_rows:]).all()
    return out[:n_rows, : matrix.shape[1]]


WIDTH = {np.float32: panel_width(np.float32), np.float64: panel_width(np.float64)}


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("n_source", [1, 7, CHUNK_ROWS - 1, CHUNK_ROWS, 2 * CHUNK_ROWS + 3])
@pytest.mark.parametrize("n_rows", [1, 2, 3, TILE_ROWS, 2 * TILE_ROWS + 3])
def test_product_is_that_of_numpy(n_rows, n_source, dtype):
    rng = np.random.default_rng(0)
    states = rng.normal(size=(n_rows, n_source)).astype(dtype)
    width, lanes = WIDTH[dtype], WIDTH[dtype] // TILE_VECTORS
    for n_columns in (
        1,
        lanes,
        lanes + 1,
        width - 1,
        width,
        width + 1,
        2 * width - lanes,
        2 * width + 5,
    ):
        matrix = rng.normal(size=(n_source, n_columns)).astype(dtype)
        expected = states.astype(float) @ matrix.astype(float)
        size = abs(states.astype(float)) @ abs(matrix.astype(float))
        error = abs(run(states, matrix) - expected) / size
        assert error.max() < n_source**0.5 * np.finfo(dtype).eps


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_rows_beside_it_do_not_change_a_row(dtype):
    rng = np.random.default_rng(1)
    states = rng.normal(size=(3 * TILE_ROWS + 3, 700)).astype(dtype)
    matrix = rng.normal(size=(700, 50)).astype(dtype)
    whole = run(states, matrix)
    for rows in (slice(5, 6), slice(3, 5), slice(1, None, 2), slice(None, None, -1)):
        np.testing.assert_array_equal(run(np.ascontiguousarray(states[rows]), matrix), whole[rows])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_source_and_order_of_the_matrix(dtype):
    rng = np.random.default_rng(2)
    states = rng.normal(size=(5, 30)).astype(dtype)
    matrix = rng.normal(size=(20, 33)).astype(dtype)
    expected = run(np.ascontiguousarray(states[:, 7:27]), matrix)
    np.testing.assert_array_equal(run(states, matrix, source=7), expected)
    np.testing.assert_array_equal(run(states, matrix, source=7, n_rows=2), expected[:2])
    np.testing.assert_array_equal(run(states, np.asfortranarray(matrix), source=7), expected)


def test_uniforms_are_uniform_and_uncorrelated():
    u = np.stack([uniforms(3, step, (400, 50)) for step in range(4)])
    n = u.size
    assert u.min() >= 0
    assert u.max() < 1
    assert abs(u.mean() - 0.5) < 4 / np.sqrt(12 * n)
    assert abs((u**2).mean() - 1 / 3) < 4 * np.sqrt(4 / 45 / n)
    u = (u - 0.5) * np.sqrt(12)
    for other in (u[:, :, 1:], u[:, 1:, :], u[1:]):
        same = u[: other.shape[0], : other.shape[1], : other.shape[2]]
        assert abs((same * other).mean()) < 4 / np.sqrt(other.size)
