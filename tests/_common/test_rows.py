import importlib
import sys

import numpy as np
import pytest
from scipy import sparse
from scipy.sparse import csc_array, csr_array

from fastmf._common import rows
from fastmf._common.deferred import deferred
from fastmf._common.rows import canonical, column_moments, column_sums, nonzero_values, row_blocks
from fastmf._common.stored_columns import StoredColumns, column_squares

RNG = np.random.default_rng(0)
DENSE = RNG.integers(-3, 4, (40, 7)) * (RNG.random((40, 7)) < 0.4)
KINDS = [DENSE.astype(np.int8), DENSE.astype(np.float32), csr_array(DENSE.astype(float))]


@pytest.fixture(params=[2**22, 16])
def block_entries(request, monkeypatch):
    monkeypatch.setattr(rows, "BLOCK_ENTRIES", request.param)


@pytest.mark.parametrize("X", KINDS, ids=["int8", "float32", "csr"])
@pytest.mark.parametrize("dense", [False, True])
def test_blocks_have_all_rows_once(block_entries, X, dense):
    blocks = row_blocks(X, dense=dense)
    assert [r for block in blocks for r in range(40)[block]] == list(range(40))
    n_stored = np.count_nonzero(DENSE) if not dense and not isinstance(X, np.ndarray) else 280
    assert max(len(range(40)[b]) for b in blocks) * n_stored <= 40 * max(rows.BLOCK_ENTRIES, 40)


@pytest.mark.parametrize("X", KINDS, ids=["int8", "float32", "csr"])
def test_sums_over_rows_are_those_of_dense_rows(block_entries, X):
    np.testing.assert_array_equal(column_sums(X), DENSE.sum(0))
    shift = np.arange(7.0)
    of_entries = column_sums(X, lambda x, columns: np.cos(x - shift[columns]))
    np.testing.assert_allclose(of_entries, np.cos(DENSE - shift).sum(0), rtol=1e-12)
    mean, var = column_moments(X)
    np.testing.assert_allclose(mean, DENSE.mean(0), rtol=1e-14)
    np.testing.assert_allclose(var, DENSE.var(0), rtol=1e-12)
    np.testing.assert_array_equal(nonzero_values(X), DENSE[DENSE != 0])


def test_entries_stored_twice_are_added_in_a_copy():
    given = csr_array((np.ones(3), [2, 0, 2], [0, 3]), shape=(1, 3))
    np.testing.assert_array_equal(canonical(given).toarray(), [[1, 0, 2]])
    np.testing.assert_array_equal(given.indices, [2, 0, 2])


@pytest.mark.parametrize("kind", [csr_array, csc_array])
@pytest.mark.parametrize("wrong", [-1, 3, 10**6])
def test_indices_out_of_range_are_refused(kind, wrong):
    X = kind(np.eye(3))
    X.indices[1] = wrong  # as those who fill the arrays themselves may do
    with pytest.raises(ValueError, match="X must be a valid sparse matrix"):
        canonical(X)


# --- converted columns against arrays -------------------------------------------------------------


@pytest.mark.parametrize("kind", [np.asarray, sparse.csc_array])
def test_products_are_those_of_the_array(kind, monkeypatch):
    monkeypatch.setattr("fastmf._common.rows.BLOCK_ENTRIES", 100)
    rng = np.random.default_rng(0)
    X = rng.integers(-2, 3, (7, 30)).astype(np.int8)
    rows, scale = rng.random(7), rng.random(30)
    left, right = np.ones((7, 1)), (rows @ X * scale / 7)[None]
    ours = StoredColumns(kind(X), rows, scale, left, right)
    far = StoredColumns(kind(X + 1e3), np.ones(7), scale, left, 1e3 * scale[None])
    assert far.sparse is None and (ours.sparse is None) == (kind is np.asarray)
    expected = rows[:, None] * X * scale - left @ right
    W, E = rng.normal(size=(30, 3)), rng.normal(size=(7, 4))
    more = rng.normal(size=(7, 1)), rng.normal(size=(1, 30))
    mask, mixing = np.arange(30) % 4 == 0, sparse.random_array((30, 30), density=0.1, rng=rng)
    cases = (
        (ours, expected),
        (ours.less(*more), expected - more[0] @ more[1]),
        (ours.without(mask), np.where(mask, 0, expected)),
        (ours.times(scale), expected * scale),
        (ours.mixed(mixing), expected @ mixing.toarray()),
        (StoredColumns.from_arrays(ours.arrays()), expected),
    )
    for mine, array in cases:
        assert mine.shape == array.shape and len(mine) == 7
        np.testing.assert_allclose(mine[:, 3:9], array[:, 3:9], atol=1e-12)
        np.testing.assert_allclose(mine[:, [5, 2]], array[:, [5, 2]], atol=1e-12)
        np.testing.assert_allclose(mine @ W, array @ W, atol=1e-12)
        np.testing.assert_allclose(mine @ W[:, 0], array @ W[:, 0], atol=1e-12)
        np.testing.assert_allclose(mine.T @ E, array.T @ E, atol=1e-12)
        np.testing.assert_allclose(W.T @ mine.T, W.T @ array.T, atol=1e-12)
        np.testing.assert_allclose(column_squares(mine), (array**2).sum(0), atol=1e-12)
    with pytest.raises(IndexError, match="whole columns"):
        ours[:3, :2]


# --- modules that are left out of a block of imports until they are used --------------------------


@pytest.fixture
def name(tmp_path, monkeypatch):
    """A module that can be imported, and has not been."""
    (tmp_path / "seldom_used.py").write_text("VALUE = 3\n")
    monkeypatch.syspath_prepend(tmp_path)
    yield "seldom_used"
    sys.modules.pop("seldom_used", None)


def test_the_import_has_no_effect_until_later(name):
    with deferred(name):
        early = importlib.import_module(name)
        assert "VALUE" not in vars(early)
    assert name not in sys.modules
    late = importlib.import_module(name)
    assert vars(late)["VALUE"] == 3 and late is not early
    assert early.VALUE == 3


def test_use_within_the_block_imports_the_module(name):
    with deferred(name):
        early = importlib.import_module(name)
        assert early.VALUE == 3
        assert vars(sys.modules[name])["VALUE"] == 3
    assert vars(sys.modules[name])["VALUE"] == 3


def test_what_is_not_there_is_missed(name):
    with deferred(name):
        early = importlib.import_module(name)
    with pytest.raises(AttributeError, match="no_such"):
        early.no_such
