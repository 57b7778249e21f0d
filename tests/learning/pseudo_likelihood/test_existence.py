"""Linear programmes that find separated data, and the limit of their time."""

import numpy as np
import pytest
from scipy import sparse
from separated_units import features

from fastmf.learning.pseudo_likelihood.existence import (
    NO_LIMIT,
    TimeLimit,
    linear_programme,
    rising_margins,
    undecided,
)


def random_states(n, d):
    return np.where(np.random.default_rng(0).random((n, d)) < 0.5, 1.0, -1.0)


def test_programmes_end_with_the_time():
    M = features(random_states(60, 30)).reshape(1800, -1)
    programme = {"A_ub": -M, "b_ub": np.zeros(len(M)), "bounds": (-1, 1)}
    assert linear_programme(TimeLimit(1e-3), -M.sum(0), **programme).status == 1
    limit = TimeLimit()
    assert limit.left() == np.inf and TimeLimit(0.0).left() == 0
    small = linear_programme(limit, np.ones(2), A_ub=-np.eye(2), b_ub=-np.ones(2))
    assert small.status == 0 and small.fun == pytest.approx(2)
    assert undecided(TimeLimit(3.0)).exists is None


def test_margins_that_rise_along_different_directions_are_all_found():
    """The second parameter alone raises one margin, the first another; two cancel each other."""
    margins = sparse.csr_array([[1.0, 0, 0], [0, 2.0, 0], [0, 0, 1.0], [0, 0, -1.0], [0, 0, 0]])
    np.testing.assert_array_equal(
        rising_margins(NO_LIMIT, margins), [True, True, False, False, False]
    )
    many = sparse.csr_array(features(random_states(60, 30)).reshape(1800, -1))
    assert rising_margins(TimeLimit(1e-3), many) is None
