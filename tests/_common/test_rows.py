import numpy as np
import pytest
from scipy.sparse import csc_array, csr_array

from fastmf._common import rows
from fastmf._common.rows import canonical, column_moments, column_sums, nonzero_values, row_blocks

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
