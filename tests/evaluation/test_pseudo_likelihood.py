import itertools
from typing import NamedTuple

import numpy as np
import pytest

import fastmf as mf


class Digit(NamedTuple):
    """A user's prior with three values."""

    field: np.ndarray
    support = (0.0, 1.0, 3.0)

    def log_prob(self, x):
        return np.where(np.isin(x, self.support), self.field * x, -np.inf)

    def log_partition(self, b, a):
        t = [x * (self.field + b) - a * x * x / 2 for x in self.support]
        return np.logaddexp.reduce(t)

    def moments(self, b, a):
        p = [np.exp(x * (self.field + b) - a * x * x / 2) for x in self.support]
        mean = sum(x * q for x, q in zip(self.support, p, strict=True)) / sum(p)
        square = sum(x * x * q for x, q in zip(self.support, p, strict=True)) / sum(p)
        return mean, square - mean**2


def by_hand(model, X):
    """From the joint probabilities of visible states, with hidden units summed out."""
    values = model.visible.support
    found = []
    for x in X:
        total = 0.0
        for i in range(len(x)):
            states = np.array([[*x[:i], value, *x[i + 1 :]] for value in values])
            log_p = mf.evaluation.log_likelihood(model, states, 0.0)
            total += log_p[values.index(x[i])] - np.logaddexp.reduce(log_p)
        found.append(total)
    return found


@pytest.mark.parametrize("visible", [mf.Bernoulli, mf.Ising, Digit])
@pytest.mark.parametrize("hidden", [mf.Bernoulli, mf.Gaussian])
def test_against_conditionals_by_hand(visible, hidden):
    rng = np.random.default_rng(0)
    prior = hidden(np.ones(3), 4.0) if hidden is mf.Gaussian else hidden(np.ones(3))
    model = mf.RBM(rng.normal(size=(4, 3)), visible(rng.normal(size=4)), prior)
    X = np.array(list(itertools.product(visible.support, repeat=4)))[::7]
    np.testing.assert_allclose(mf.pseudo_log_likelihood(model, X), by_hand(model, X), rtol=1e-10)


def test_uncoupled_units_are_their_likelihood():
    field = np.linspace(-3, 3, 800)
    model = mf.RBM(np.zeros((800, 5)), mf.Bernoulli(field), mf.Bernoulli(np.zeros(5)))
    X = (np.random.default_rng(0).random((700, 800)) < 0.5).astype(float)
    truth = X @ field - np.logaddexp(0, field).sum()
    np.testing.assert_allclose(mf.pseudo_log_likelihood(model, X), truth, rtol=1e-12)


def test_large_weights_stay_finite():
    model = mf.RBM(np.full((3, 2), 400.0), mf.Bernoulli(np.zeros(3)), mf.Bernoulli(np.zeros(2)))
    found = mf.pseudo_log_likelihood(model, [[1.0, 1.0, 1.0], [1.0, 1.0, 0.0]])
    # A third unit that is on weighs 800 more than one that is off.
    np.testing.assert_allclose(found, [0.0, -800.0], atol=1e-10)


def test_refusals():
    model = mf.RBM(np.zeros((2, 2)), mf.Bernoulli([0, 0]), mf.Bernoulli([0, 0]))
    with pytest.raises(ValueError, match="units can take"):
        mf.pseudo_log_likelihood(model, [[0.5, 1]])
    real = mf.RBM(np.zeros((2, 2)), mf.Gaussian([0, 0], 1.0), mf.Bernoulli([0, 0]))
    for other in (real, "model"):
        with pytest.raises(TypeError, match="discrete visible"):
            mf.pseudo_log_likelihood(other, [[0.5, 1]])
