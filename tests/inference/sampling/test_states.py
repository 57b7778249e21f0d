"""States of discrete columns, and batches of rows that lack some."""

import numpy as np

import fastmf as mf
from fastmf.inference.sampling.states import flat_states


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
