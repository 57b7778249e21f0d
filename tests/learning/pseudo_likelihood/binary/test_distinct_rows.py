import numpy as np
import pytest

from fastmf.learning.pseudo_likelihood.binary.distinct_rows import distinct_rows


def counted(states, weights):
    """Weight of every distinct row, one row at a time."""
    total = {}
    for row, weight in zip(states.tolist(), weights, strict=True):
        total[tuple(row)] = total.get(tuple(row), 0) + weight
    return {row: weight for row, weight in total.items() if weight > 0}


@pytest.mark.parametrize("n_units", [1, 5, 52, 53, 70])
@pytest.mark.parametrize("weighted", [False, True])
def test_equal_rows_are_merged_and_their_weights_added(n_units, weighted):
    rng = np.random.default_rng(n_units)
    patterns = np.where(rng.random((7, n_units)) < 0.5, -1.0, 1.0)
    patterns[1, :-1], patterns[1, -1] = patterns[0, :-1], -patterns[0, -1]
    states = patterns[rng.integers(7, size=60)]
    weights = rng.integers(3, size=60).astype(float) if weighted else None
    rows = distinct_rows(states, weights)
    expected = counted(states, np.ones(60) if weights is None else weights)
    assert dict(zip(map(tuple, rows.states.tolist()), rows.weights, strict=True)) == expected
    assert rows.total == sum(expected.values())


@pytest.mark.parametrize("n_units", [40, 60])
def test_rows_that_all_differ_stay_with_their_weights(n_units):
    rng = np.random.default_rng(0)
    states = np.where(rng.random((50, n_units)) < 0.5, -1.0, 1.0)
    weights = rng.random(50)
    rows = distinct_rows(states, weights)
    expected = counted(states, weights)
    assert dict(zip(map(tuple, rows.states.tolist()), rows.weights, strict=True)) == expected


def test_moments():
    rng = np.random.default_rng(1)
    states, weights = np.where(rng.random((30, 3)) < 0.5, -1.0, 1.0), rng.random(30)
    mean, second = distinct_rows(states, weights).moments()
    np.testing.assert_allclose(mean, np.average(states, axis=0, weights=weights), rtol=1e-13)
    products = states[:, :, None] * states[:, None, :]
    np.testing.assert_allclose(second, np.average(products, axis=0, weights=weights), rtol=1e-13)
