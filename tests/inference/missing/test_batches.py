"""Batches of rows that lack as many columns."""

import numpy as np

from fastmf.inference.missing.batches import batches_of_rows, one_hot_states


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
