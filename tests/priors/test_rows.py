"""Priors and rows of data of any kind: dense floating-point rows are the oracle."""

from typing import NamedTuple

import numpy as np
import pytest
from scipy.sparse import csr_array

import fastmf as mf
from fastmf._common import rows
from fastmf.priors._protocol import log_prob_gradient, parts_of
from fastmf.priors._queries import fitted, independent_units, mean_log_prob
from fastmf.priors._values import log_prob_of_rows, mean_log_prob_gradient, states

RNG = np.random.default_rng(0)
FIELD = RNG.normal(size=6)
X = (RNG.random((30, 6)) < 0.3).astype(float)
REAL = X * RNG.random((30, 6))


class Quartic(NamedTuple):
    """A user's own prior, exp(field x - x^4), with what learning from data needs."""

    field: np.ndarray

    def log_partition(self, b, a):
        return 0 * (self.field + b + a)

    def moments(self, b, a):
        return 0 * (self.field + b + a), 1 + 0 * (self.field + b + a)

    def log_prob(self, x):
        return self.field * x - x**4

    @classmethod
    def from_data(cls, X):
        assert type(X) is np.ndarray and X.dtype.kind == "f"
        return cls(X.mean(0))


UNITS = [
    (mf.Bernoulli(FIELD), X),
    (mf.Bernoulli(FIELD), REAL),
    (mf.Ising(FIELD), X),
    (mf.Binomial(FIELD, np.full(6, 3.0)), 3 * X),
    (mf.Ordinal(np.outer(FIELD, np.arange(4))), 3 * X),
    (mf.Gaussian(FIELD, np.exp(FIELD)), REAL),
    (mf.TruncatedGaussian(FIELD, np.exp(FIELD), np.zeros(6), np.ones(6)), REAL),
    (mf.GaussBernoulli(FIELD, np.exp(FIELD), FIELD), REAL),
    (mf.TruncatedGaussBernoulli(FIELD, np.exp(FIELD), FIELD, np.zeros(6), np.ones(6)), REAL),
    (mf.Concatenated(mf.Bernoulli(FIELD[:2]), mf.Gaussian(FIELD[2:], np.exp(FIELD[2:]))), X),
    (Quartic(FIELD), REAL),
]
NAMES = [type(prior).__name__ for prior, _ in UNITS]


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    monkeypatch.setattr(rows, "BLOCK_ENTRIES", 16)


@pytest.mark.parametrize("prior, X", UNITS, ids=NAMES)
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_log_probabilities_of_sparse_rows(prior, X, dtype):
    expected = mean_log_prob(prior, X).sum(1)
    found = log_prob_of_rows(prior, csr_array(X), np.dtype(dtype))
    tolerance = 1e-12 if dtype == "float64" else 1e-5
    np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance)
    assert found.dtype == np.float64
    np.testing.assert_allclose(log_prob_of_rows(prior, X, np.dtype("f8")), expected, rtol=1e-14)


@pytest.mark.parametrize("prior, X", UNITS, ids=NAMES)
def test_gradients_over_sparse_rows(prior, X):
    found = mean_log_prob_gradient(prior, csr_array(X))
    expected = log_prob_gradient(prior, X)
    for mine, theirs in zip(parts_of(found), parts_of(expected), strict=True):
        for name in getattr(prior, "parameters", mine._fields):
            mean = np.broadcast_to(getattr(theirs, name), X.shape[:1] + getattr(mine, name).shape)
            np.testing.assert_allclose(getattr(mine, name), mean.mean(0), rtol=1e-9, atol=1e-12)


FITTED = [
    (mf.Bernoulli, X), (mf.Ising, X), (mf.Binomial, 3 * X), (mf.Gaussian, X),
    (mf.TruncatedGaussian, X), (mf.GaussBernoulli, 2 * X), (mf.TruncatedGaussBernoulli, 2 * X),
    (Quartic, X),
]  # fmt: skip


@pytest.mark.parametrize("class_, X", FITTED, ids=[c.__name__ for c, _ in FITTED])
@pytest.mark.parametrize("make", [csr_array, lambda X: X.astype(np.int8)], ids=["csr", "int8"])
def test_fits_to_sparse_rows_and_integers_are_those_to_dense_ones(class_, X, make):
    X = X.copy()
    X[:, 2] = 0  # a column without a value that is not zero
    expected = fitted(class_, X)
    for found in (fitted(class_, make(X)), independent_units(expected, make(X))):
        for mine, theirs in zip(found, expected, strict=True):
            np.testing.assert_allclose(mine, theirs, rtol=1e-9, atol=1e-12)
            assert mine.dtype == np.float64


def test_a_fit_to_sparse_rows_keeps_float32():
    assert fitted(mf.Bernoulli, csr_array(X.astype(np.float32))).field.dtype == np.float32


def test_slabs_are_kept_where_all_sparse_rows_are_zero():
    prior = mf.GaussBernoulli(FIELD, np.exp(FIELD), FIELD)
    dense, sparse = (independent_units(prior, x) for x in (0 * X, csr_array(X.shape)))
    np.testing.assert_array_equal(dense, sparse)


@pytest.mark.parametrize("make", [csr_array, lambda X: X.astype(np.int8)], ids=["csr", "int8"])
@pytest.mark.parametrize("wrong", [-1, 4])
def test_counts_out_of_range_are_named(make, wrong):
    counts = X.copy()
    counts[3, 4] = wrong
    with pytest.raises(ValueError, match=f"got {wrong}"):
        mf.Binomial.from_data(make(counts), 3)


LABELS = RNG.integers(0, 3, (30, 4)).astype(np.int8)


def test_integer_labels_become_states_and_are_fitted():
    prior = mf.Categorical(RNG.normal(size=(4, 3)))
    flat = prior.one_hot(LABELS)
    np.testing.assert_array_equal(states(prior, LABELS, np.float32), flat)
    expected = independent_units(prior, flat).field
    np.testing.assert_array_equal(independent_units(prior, LABELS).field, expected)
    np.testing.assert_array_equal(independent_units(prior, csr_array(flat)).field, expected)


def test_integer_labels_beside_other_units_are_fitted():
    prior = mf.Concatenated(mf.Categorical(np.zeros((4, 3))), mf.Bernoulli(np.zeros(6)))
    both = np.hstack([LABELS, X.astype(np.int8)])
    groups, binary = independent_units(prior, both).parts
    np.testing.assert_array_equal(groups.field, parts_of(prior)[0].refit(LABELS).field)
    np.testing.assert_array_equal(binary.field, mf.Bernoulli.from_data(X).field)
