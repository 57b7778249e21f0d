"""States of discrete columns, and batches of rows that lack some."""

import numpy as np

import fastmf as mf
from fastmf.inference.sampling.states import batches_of_rows, flat_states, one_hot_states


def test_all_states():
    states = one_hot_states([2, 3])
    expected = [np.r_[np.eye(2)[a], np.eye(3)[b]] for a in range(2) for b in range(3)]
    np.testing.assert_array_equal(states, expected)
    assert one_hot_states([]).shape == (1, 0)


def test_rows_with_as_many_missing_columns_are_one_batch():
    sizes, rng = np.array([2, 4, 2, 3, 4]), np.random.default_rng(0)
    offsets = np.append(0, np.cumsum(sizes))
    missing = rng.random((200, 5)) < 0.5
    seen = []
    for rows, states, own in batches_of_rows(missing, offsets):
        seen += rows.tolist()
        for row, columns in zip(rows, states, strict=True):
            assert sorted(sizes[missing[row]]) == own.tolist()
            of_row = np.flatnonzero(np.repeat(missing[row], sizes))
            assert sorted(columns) == of_row.tolist()
    assert sorted(seen) == list(range(200))
    assert len(list(batches_of_rows(missing[:, :1], offsets[:2]))) == 2


def test_states_of_units_of_any_kind():
    units = mf.Concatenated(
        mf.Ising(np.array([0.3])), mf.Categorical([[0.0, 1, 2]]), mf.Binomial(np.array([0.5]), 2)
    )
    found = flat_states(units)
    assert found.offsets.tolist() == [0, 2, 5, 8] and found.first_units.tolist() == [0, 1, 4]
    values = np.zeros((8, 5))
    values[:2, 0], values[2:5, 1:4], values[5:, 4] = [-1, 1], np.eye(3), [0, 1, 2]
    np.testing.assert_array_equal(found.values.toarray(), values)
    of_binomial = units.parts[2].log_prob(np.array([[0.0], [1], [2]]))[:, 0]
    np.testing.assert_allclose(found.log_weights, [-0.3, 0.3, 0, 1, 2, *of_binomial])
    p = np.full((1, 8), 0.5)
    np.testing.assert_allclose(found.means(p), [[0, 0.5, 0.5, 0.5, 1.5]])
    gaps = np.array([[1, np.nan, np.nan, np.nan, 0]])
    np.testing.assert_array_equal(found.missing(gaps), [[False, True, False]])
    assert flat_states(mf.Gaussian(np.zeros(2), np.ones(2))) is None
