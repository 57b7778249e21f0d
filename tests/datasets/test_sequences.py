"""Weights of similar sequences."""

import numpy as np
import pytest

from fastmf.datasets import sequence_weights


def related(n_rows, n_columns, n_letters, seed=0):
    """Rows with some of the first row's letters, more in some than in others; some negative."""
    rng = np.random.default_rng(seed)
    X = rng.integers(-1, n_letters - 1, (n_rows, n_columns))
    kept = rng.random((n_rows, n_columns)) < rng.random((n_rows, 1))
    return np.where(kept, X[0], X)


def by_definition(X, identity):
    n_equal = (X[:, None] == X).sum(2)
    return 1 / (n_equal >= identity * X.shape[1] - 1e-9).sum(1)


@pytest.mark.parametrize("identity", [0, 0.3, 0.62, 0.8, 1])
@pytest.mark.parametrize("shape", [(1, 1), (40, 7), (300, 50), (70, 700)])
def test_weights_are_those_of_all_pairs(shape, identity):
    X = related(*shape, 5)
    X = X[np.random.default_rng(1).integers(len(X), size=len(X))]  # with repeated rows
    np.testing.assert_array_equal(sequence_weights(X, identity), by_definition(X, identity))


@pytest.mark.parametrize("identity, n_columns", [(0.8, 100), (0.7, 10), (0.29, 100), (0.9, 1000)])
def test_rows_at_the_threshold_are_similar(identity, n_columns):
    n_equal = round(identity * n_columns)
    X = np.zeros((3, n_columns), np.int8)
    X[1, n_equal:], X[2, n_equal - 1 :] = 1, 2
    np.testing.assert_array_equal(sequence_weights(X, identity), [1 / 2, 1 / 2, 1])


def test_threads_do_not_matter():
    X = related(900, 60, 4)
    np.testing.assert_array_equal(
        sequence_weights(X, n_threads=2), sequence_weights(X, n_threads=1)
    )


@pytest.mark.parametrize(
    "X, identity, error, message",
    [
        (np.zeros((2, 3)), 0.8, TypeError, "integer labels"),
        (np.zeros(3, int), 0.8, ValueError, r"\(n_rows, n_groups\)"),
        (np.zeros((0, 3), int), 0.8, ValueError, "with rows"),
        (np.zeros((2, 3), int), 1.2, ValueError, "identity"),
        (np.arange(300)[:, None] + 500, 0.8, ValueError, "256"),
    ],
)
def test_bad_input_is_refused(X, identity, error, message):
    with pytest.raises(error, match=message):
        sequence_weights(X, identity)
