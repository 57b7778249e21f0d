"""Two-valued units of any prior as units with the values 0 and 1."""

from typing import NamedTuple

import numpy as np
import pytest

import fastmf as mf
from fastmf.special import exp, log


class Switch(NamedTuple):
    """Units with the values 1 and 3, the second of weight exp(field)."""

    field: np.ndarray

    support = (1.0, 3.0)

    def log_partition(self, b, a):
        return log(exp(b - a / 2) + exp(self.field + 3 * b - 9 * a / 2))

    def moments(self, b, a):
        p = 1 / (1 + exp(-(self.field + 2 * b - 4 * a)))
        return 1 + 2 * p, 4 * p * (1 - p)

    def log_prob(self, x):
        return np.where(x == 3, self.field, np.where(x == 1, 0 * self.field, -np.inf))


def test_units_of_a_users_own_two_values():
    # On a tree belief propagation is exact.
    rng = np.random.default_rng(0)
    visible, hidden = Switch(rng.normal(size=4)), mf.Ising(rng.normal(size=1))
    model = mf.RBM(rng.normal(size=(4, 1)), visible, hidden)
    truth, found = mf.exact(model), mf.belief_propagation(model)
    assert found.log_partition == pytest.approx(truth.log_partition, rel=1e-10)
    for got, mean in zip(found.mean, truth.mean, strict=True):
        np.testing.assert_allclose(got, mean, rtol=1e-8)
    for got, var in zip(found.var, truth.var, strict=True):
        np.testing.assert_allclose(got, var, rtol=1e-7)


def test_units_of_more_values_are_refused():
    counts = mf.Binomial(np.zeros(2), 3)
    with pytest.raises(TypeError, match=r"two-valued units.*the hidden ones are Binomial"):
        mf.belief_propagation(mf.RBM(np.ones((2, 2)), mf.Bernoulli(np.zeros(2)), counts))
