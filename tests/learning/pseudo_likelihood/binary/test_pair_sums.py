import numpy as np
import pytest

from fastmf.learning.pseudo_likelihood.binary import pair_sums as module
from fastmf.learning.pseudo_likelihood.binary.pair_sums import ProductSums


def by_matrix_products(states, values):
    """Sums over rows i of v_i z_ik z_il, z = [1, x]."""
    z = np.hstack([np.ones((len(states), 1)), states])
    return np.einsum("ik,il,ic->klc", z, z, values)


# Groups of four units, of which the last is not always full.
@pytest.mark.parametrize("n_rows", [1, 40, 1000])
@pytest.mark.parametrize("n_units", [1, 2, 4, 7, 8, 13])
def test_sums_are_those_of_matrix_products(n_units, n_rows):
    rng = np.random.default_rng(n_units)
    states = np.where(rng.random((n_rows, n_units)) < 0.4, -1.0, 1.0)
    values = rng.normal(size=(n_rows, 3))
    found = ProductSums(states)(values)
    assert found.shape == (n_units + 1, n_units + 1, 3)
    np.testing.assert_allclose(found, by_matrix_products(states, values), rtol=0, atol=1e-11)


def test_tables_in_several_portions_give_the_same(monkeypatch):
    rng = np.random.default_rng(0)
    states = np.where(rng.random((50, 11)) < 0.5, -1.0, 1.0)
    values = rng.normal(size=(50, 2))
    expected = ProductSums(states)(values)
    monkeypatch.setattr(module, "_MAX_TABLE_NUMBERS", 1)
    np.testing.assert_array_equal(ProductSums(states)(values), expected)


def test_the_number_of_threads_does_not_matter():
    rng = np.random.default_rng(1)
    states = np.where(rng.random((2000, 20)) < 0.5, -1.0, 1.0)
    values = rng.normal(size=states.shape)
    expected = ProductSums(states, n_threads=1)(values)
    np.testing.assert_array_equal(ProductSums(states, n_threads=3)(values), expected)
