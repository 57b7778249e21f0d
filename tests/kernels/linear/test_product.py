import numpy as np
import pytest

from fastmf._jit.kernel import kernel
from fastmf._jit.vectors import VECTOR_BYTES, lanes_of
from fastmf._threads.workers import in_parallel
from fastmf.kernels.linear.copies import add_multiple, copy, set_to_zero, transpose_tile
from fastmf.kernels.linear.product import (
    CHUNK_ROWS,
    TILE_ROWS,
    TILE_VECTORS,
    empty_panels,
    fill_panels,
    pack,
    panel_width,
    product,
    product_address,
)
from fastmf.kernels.sampling.layers import (
    LayersPath,
    SampledLayer,
    anneal_layers,
    layers_work,
)
from fastmf.models import RBM
from fastmf.priors import Bernoulli, Ising
from fastmf.priors._compiled import units_of
from fastmf.reference.linear.product import unpacked
from fastmf.reference.sampling.layers import anneal_layers as numpy_layers
from fastmf.reference.sampling.random import uniforms


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


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_no_vector_of_couplings_lies_across_cache_lines(dtype):
    for n_columns in (1, 29, 100):
        assert pack(np.ones((7, n_columns), dtype)).ctypes.data % VECTOR_BYTES == 0


def test_packing_loses_nothing():
    matrix = np.random.default_rng(3).normal(size=(11, 29))
    np.testing.assert_array_equal(unpacked(pack(matrix), 29), matrix)
    assert (pack(matrix)[-1, :, 29 % WIDTH[np.float64] :] == 0).all()


@pytest.mark.parametrize("n_columns", [1, 24, 25])
def test_what_no_column_fills_is_zero(n_columns):
    # No product shows it: those columns are multiplied and then left out.
    panels = empty_panels(3, n_columns, np.float32)
    panels[:] = np.nan
    fill_panels(np.ones((3, n_columns), np.float32), panels)
    whole = panels.swapaxes(0, 1).reshape(3, -1)
    np.testing.assert_array_equal(
        whole, np.broadcast_to(np.arange(whole.shape[1]) < n_columns, whole.shape)
    )


# --- copies ---------------------------------------------------------------------------------------


@kernel(name=None)
def _transposed(source, i, j, target, k, n):
    transpose_tile(source, i, j, target, k, n)


@kernel(name=None)
def _copied_and_cleared(source, target, cleared):
    copy(source, target)
    set_to_zero(cleared)


@kernel(name=None, views=True)
def _moved_on(factor, source, target):
    add_multiple(factor, source, target)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_a_tile_is_transposed(dtype):
    n = lanes_of(dtype)
    source = np.random.default_rng(0).random((n + 3, n + 7)).astype(dtype)
    target = np.full((n + 7, n + 2), -1, dtype)
    _transposed(source, 3, 5, target, 2, n)
    expected = np.full_like(target, -1)
    expected[5 : 5 + n, 2:] = source[3:, 5 : 5 + n].T
    np.testing.assert_array_equal(target, expected)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_as_much_is_copied_as_there_is_room_for(dtype):
    source, target, cleared = np.arange(9, dtype=dtype), np.ones(7, dtype), np.ones(5, dtype)
    _copied_and_cleared(source, target, cleared)
    np.testing.assert_array_equal(target, source[:7])
    assert not cleared.any()


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_a_multiple_is_added_to_arrays_of_any_length(dtype):
    rng, factor = np.random.default_rng(0), dtype(0.7)
    for n in (0, 1, lanes_of(dtype) - 1, lanes_of(dtype), 3 * lanes_of(dtype) + 2):
        source, target = rng.normal(size=(2, n)).astype(dtype)
        expected = target + factor * source
        _moved_on(factor, source, target)
        np.testing.assert_allclose(target, expected, rtol=0, atol=4 * np.finfo(dtype).eps)


# --- layers ---------------------------------------------------------------------------------------


VALUES = {Bernoulli: (0.0, 1.0), Ising: (-1.0, 1.0)}


def arguments(visible, hidden, dtype, n_sweeps=5, seed=7, n_rows=9):
    rng = np.random.default_rng(0)
    model = RBM(
        rng.normal(size=(13, 6)).astype(dtype),
        visible(rng.normal(size=13).astype(dtype)),
        hidden(rng.normal(size=6).astype(dtype)),
    )
    v = rng.choice(VALUES[visible], (n_rows, 13)).astype(dtype)
    units = [units_of(prior, dtype, ("draws", "log_partition")) for prior in model.layers]
    layers = (
        SampledLayer(units[0], pack(model.transposed)),
        SampledLayer(units[1], pack(model.weights)),
    )
    path = LayersPath(*(np.zeros(n, dtype) for n in model.sizes), np.ones(n_sweeps + 1))
    chains = v, np.zeros((n_rows, 6), dtype)
    work = layers_work(*layers, dtype, n_workers=3)
    return product_address(dtype), *layers, path, np.uint64(seed), chains, np.zeros(n_rows), work


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(("visible", "hidden"), [(Bernoulli, Bernoulli), (Ising, Bernoulli)])
def test_kernel_and_twin_draw_the_same(visible, hidden, dtype):
    fast, plain = (arguments(visible, hidden, dtype) for _ in range(2))
    start = fast[5][0].copy()
    anneal_layers(*fast)
    numpy_layers(*plain)
    for compiled, twin in zip(fast[5], plain[5], strict=True):
        np.testing.assert_array_equal(compiled, twin)
    assert set(np.unique(fast[5][0])) == set(VALUES[visible])
    assert (fast[5][0] != start).any() and not fast[6].any()


def test_number_of_threads_and_company_do_not_matter():
    many = arguments(Bernoulli, Bernoulli, float, n_rows=60)
    one = arguments(Bernoulli, Bernoulli, float, n_rows=60)
    few = arguments(Bernoulli, Bernoulli, float, n_rows=4)
    in_parallel(anneal_layers, many, 3)
    for case in (one, few):
        anneal_layers(*case)
    np.testing.assert_array_equal(many[5][0], one[5][0])
    np.testing.assert_array_equal(many[5][0][:4], few[5][0])


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
