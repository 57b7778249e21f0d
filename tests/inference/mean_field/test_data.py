import numpy as np
import pytest
from scipy.sparse import csr_array

from fastmf._common import rows
from fastmf.inference.mean_field.data import add_pair_average, data_fields
from fastmf.priors import Bernoulli, Categorical

RNG = np.random.default_rng(0)
X = (RNG.random((50, 300)) < 0.1) * RNG.random((50, 300))
X[7] = 0
WEIGHTS, HIDDEN = RNG.normal(size=(300, 11)), RNG.random((50, 11))
VISIBLE = Bernoulli(np.zeros(300))


@pytest.mark.parametrize("dtype, close", [("f8", 1e-13), ("f4", 1e-5)])
@pytest.mark.parametrize("make", [csr_array, np.asarray])
def test_fields_are_products(dtype, close, make):
    found = data_fields(VISIBLE, make(X), WEIGHTS.astype(dtype))
    np.testing.assert_allclose(found, X @ WEIGHTS, rtol=close, atol=10 * close)
    assert found.dtype == dtype


def test_fields_of_integers_are_those_of_the_same_numbers(monkeypatch):
    monkeypatch.setattr(rows, "BLOCK_ENTRIES", 3000)
    counts = np.ceil(3 * X)
    found = data_fields(VISIBLE, counts.astype(np.int8), WEIGHTS)
    np.testing.assert_allclose(found, counts @ WEIGHTS, rtol=1e-13, atol=1e-13)


def test_fields_of_integer_labels_are_sums_of_couplings():
    labels, weights = RNG.integers(0, 3, (9, 4)), RNG.normal(size=(12, 5))
    expected = weights.reshape(4, 3, 5)[np.arange(4), labels].sum(1)
    found = data_fields(Categorical(np.zeros((4, 3))), labels, weights)
    np.testing.assert_allclose(found, expected, rtol=1e-13)


def test_averages_of_pairs_are_added():
    out = RNG.normal(size=(300, 11))
    expected = out + X.T @ HIDDEN / 50
    add_pair_average(csr_array(X), HIDDEN, out)
    np.testing.assert_allclose(out, expected, rtol=1e-13, atol=1e-14)


def test_results_do_not_depend_on_the_number_of_threads():
    weights = RNG.normal(size=(300, 1000))
    found = [data_fields(VISIBLE, csr_array(X), weights, n_threads) for n_threads in (1, 2, 3)]
    np.testing.assert_array_equal(found[0], found[1])
    np.testing.assert_array_equal(found[0], found[2])
