from typing import NamedTuple

import numpy as np
import pytest

from fastmf import models
from fastmf.models import RBM
from fastmf.priors import Bernoulli, Gaussian, Ising


def random_rbm(rng, n_visible=4, n_hidden=3, dtype=float):
    return RBM(
        rng.normal(size=(n_visible, n_hidden)).astype(dtype),
        Bernoulli(rng.normal(size=n_visible)),
        Gaussian(rng.normal(size=n_hidden), rng.uniform(5, 6, n_hidden)),
    )


class Own(NamedTuple):
    shift: np.ndarray
    width: float

    def log_partition(self, b, a):
        return self.shift * b + self.width * a

    def moments(self, b, a):
        return self.shift + 0 * b, self.width + 0 * a


@pytest.mark.parametrize(
    ("given", "kept"), [("f4", "f4"), ("f8", "f8"), ("i8", "f8"), ("bool", "f8"), ("f2", "f8")]
)
def test_everything_has_the_type_of_the_weights(given, kept):
    weights = np.asfortranarray(np.ones((4, 3), given))
    rbm = RBM(weights, Bernoulli(np.zeros(4)), Ising(np.zeros(3, np.float32)))
    assert rbm.dtype == rbm.visible.field.dtype == rbm.hidden.field.dtype == kept
    assert rbm.weights.flags.c_contiguous


def test_couplings_are_copied_unless_their_owner_has_frozen_them():
    layers = Bernoulli(np.zeros(4)), Ising(np.zeros(3))
    weights = np.ones((4, 3))
    view = weights[:]
    view.flags.writeable = False
    kept = [RBM(w, *layers).weights for w in (weights, view)]
    weights[0] = 2
    assert all((w == 1).all() and not w.flags.writeable for w in kept)
    weights.flags.writeable = False
    assert np.shares_memory(RBM(weights, *layers).weights, weights)


def test_own_prior_with_numbers_among_its_fields():
    rbm = RBM(np.ones((4, 3), np.float32), Own(np.zeros(4), 1.5), Bernoulli(np.zeros(3)))
    assert rbm.visible.width.shape == (4,)
    assert rbm.visible.width.dtype == np.float32
    with pytest.raises(TypeError, match="log_prob"):
        rbm.energy(np.zeros(4), np.zeros(3))


def test_energy_is_the_sum_over_pairs_and_units():
    rng = np.random.default_rng(1)
    rbm = random_rbm(rng)
    v, h = rng.integers(0, 2, (5, 4)), rng.normal(size=(5, 3))
    expected = [
        -sum(v[r, i] * rbm.weights[i, j] * h[r, j] for i in range(4) for j in range(3))
        - v[r] @ rbm.visible.field
        - h[r] @ rbm.hidden.field
        + h[r] ** 2 @ rbm.hidden.precision / 2
        for r in range(5)
    ]
    np.testing.assert_allclose(rbm.energy(v, h), expected, rtol=1e-13)
    assert rbm.energy(v[0], h[0]) == pytest.approx(expected[0])
    assert rbm.energy(v + 0.5, h).tolist() == [np.inf] * 5


@pytest.mark.parametrize(
    ("weights", "visible", "hidden", "error", "message"),
    [
        (np.ones(4), 4, 3, ValueError, r"weights must be a non-empty matrix, got shape \(4,\)"),
        (np.ones((0, 3)), 1, 3, ValueError, "non-empty"),
        (np.full((4, 3), np.nan), 4, 3, ValueError, "finite"),
        (np.full((4, 3), -np.inf), 4, 3, ValueError, "finite"),
        ("weights", 4, 3, TypeError, "real numbers"),
        ([[1.0], [2.0, 3.0]], 4, 3, TypeError, "real numbers"),
        (np.ones((4, 3), complex), 4, 3, TypeError, "real numbers"),
        (np.ones((4, 3)), 3, 3, ValueError, "visible must have 4 units.*got 3"),
        (np.ones((4, 3)), 4, 1, ValueError, "hidden must have 3 units.*got 1"),
    ],
)
def test_bad_parameters(weights, visible, hidden, error, message):
    with pytest.raises(error, match=message):
        RBM(weights, Bernoulli(np.zeros(visible)), Bernoulli(np.zeros(hidden)))


def test_parameters_too_large_for_single_precision():
    with pytest.raises(ValueError, match=r"Bernoulli has a parameter of 1e\+300, too large for f"):
        RBM(np.ones((4, 3), np.float32), Bernoulli([0, 1, 1e300, 2]), Bernoulli(np.zeros(3)))


@pytest.mark.parametrize("prior", [Bernoulli, "bernoulli", np.zeros(4), None])
def test_bad_prior(prior):
    with pytest.raises(TypeError, match="visible must be a unit prior"):
        RBM(np.ones((4, 3)), prior, Bernoulli(np.zeros(3)))


@pytest.mark.parametrize(
    ("visible", "hidden", "error"),
    [
        (np.zeros(3), np.zeros(3), ValueError),
        (np.zeros(4), np.float64(0), ValueError),
        (np.zeros(4), np.array(["a"] * 3), TypeError),
        (np.full(4, np.nan), np.zeros(3), ValueError),
        (np.zeros(4), np.full(3, np.inf), ValueError),
    ],
)
def test_bad_states(visible, hidden, error):
    with pytest.raises(error, match=r"hidden|visible"):
        random_rbm(np.random.default_rng(0)).energy(visible, hidden)


class Careless(NamedTuple):
    field: np.ndarray

    def log_partition(self, b, a):
        return (self.field + b).sum(keepdims=True)

    def moments(self, b, a):
        return self.field + b, 1 + 0 * a


class Forgetful(Careless):
    def moments(self, b, a):
        return self.field + b


def test_methods_of_ones_own_prior_are_tried():
    hidden = Bernoulli(np.zeros(3))
    with pytest.raises(ValueError, match=r"log-partition of Careless must have the shape \(4,\)"):
        RBM(np.ones((4, 3)), Careless(np.zeros(4)), hidden)
    with pytest.raises(TypeError, match=r"moments\(b, a\) of Forgetful must return mean and var"):
        RBM(np.ones((4, 3)), Forgetful(np.zeros(4)), hidden)


def test_one_unit_a_layer():
    rbm = RBM([[2.0]], Bernoulli(1.0), Bernoulli(-1.0))
    assert rbm.energy([1.0], [1.0]) == -2
    assert models.exact(rbm).log_partition == pytest.approx(
        np.log(1 + np.e + np.exp(-1) + np.exp(2))
    )
