import itertools
from typing import NamedTuple

import numpy as np
import pytest
from scipy import sparse

import fastmf as mf
from fastmf import models


def random_rbm(rng, n_visible=4, n_hidden=3, dtype=float):
    return mf.RBM(
        rng.normal(size=(n_visible, n_hidden)).astype(dtype),
        mf.Bernoulli(rng.normal(size=n_visible)),
        mf.Gaussian(rng.normal(size=n_hidden), rng.uniform(5, 6, n_hidden)),
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
    rbm = mf.RBM(weights, mf.Bernoulli(np.zeros(4)), mf.Ising(np.zeros(3, np.float32)))
    assert rbm.dtype == rbm.visible.field.dtype == rbm.hidden.field.dtype == kept
    assert rbm.weights.flags.c_contiguous


def test_couplings_are_copied_unless_their_owner_has_frozen_them():
    layers = mf.Bernoulli(np.zeros(4)), mf.Ising(np.zeros(3))
    weights = np.ones((4, 3))
    view = weights[:]
    view.flags.writeable = False
    kept = [mf.RBM(w, *layers).weights for w in (weights, view)]
    weights[0] = 2
    assert all((w == 1).all() and not w.flags.writeable for w in kept)
    weights.flags.writeable = False
    assert np.shares_memory(mf.RBM(weights, *layers).weights, weights)


def test_own_prior_with_numbers_among_its_fields():
    rbm = mf.RBM(np.ones((4, 3), np.float32), Own(np.zeros(4), 1.5), mf.Bernoulli(np.zeros(3)))
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
        mf.RBM(weights, mf.Bernoulli(np.zeros(visible)), mf.Bernoulli(np.zeros(hidden)))


def test_parameters_too_large_for_single_precision():
    with pytest.raises(ValueError, match=r"Bernoulli has a parameter of 1e\+300, too large for f"):
        mf.RBM(
            np.ones((4, 3), np.float32), mf.Bernoulli([0, 1, 1e300, 2]), mf.Bernoulli(np.zeros(3))
        )


@pytest.mark.parametrize("prior", [mf.Bernoulli, "bernoulli", np.zeros(4), None])
def test_bad_prior(prior):
    with pytest.raises(TypeError, match="visible must be a unit prior"):
        mf.RBM(np.ones((4, 3)), prior, mf.Bernoulli(np.zeros(3)))


@pytest.mark.parametrize("visible, hidden, error", [
    (np.zeros(3), np.zeros(3), ValueError), (np.zeros(4), np.float64(0), ValueError),
    (np.zeros(4), np.array(["a"] * 3), TypeError), (np.full(4, np.nan), np.zeros(3), ValueError),
    (np.zeros(4), np.full(3, np.inf), ValueError),
])  # fmt: skip
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
    hidden = mf.Bernoulli(np.zeros(3))
    with pytest.raises(ValueError, match=r"log-partition of Careless must have the shape \(4,\)"):
        mf.RBM(np.ones((4, 3)), Careless(np.zeros(4)), hidden)
    with pytest.raises(TypeError, match=r"moments\(b, a\) of Forgetful must return mean and var"):
        mf.RBM(np.ones((4, 3)), Forgetful(np.zeros(4)), hidden)


def test_one_unit_a_layer():
    rbm = mf.RBM([[2.0]], mf.Bernoulli(1.0), mf.Bernoulli(-1.0))
    assert rbm.energy([1.0], [1.0]) == -2
    assert models.exact(rbm).log_partition == pytest.approx(
        np.log(1 + np.e + np.exp(-1) + np.exp(2))
    )


# --- boltzmann ------------------------------------------------------------------------------------


def random_couplings(rng, n=5):
    couplings = np.triu(rng.normal(size=(n, n)), 1)
    return couplings + couplings.T


def test_energy_counts_every_pair_once():
    rng = np.random.default_rng(0)
    machine = mf.BoltzmannMachine(random_couplings(rng), mf.Ising(rng.normal(size=5)))
    x = rng.choice([-1, 1], (3, 5))
    expected = [
        -sum(r[i] * machine.couplings[i, j] * r[j] for i in range(5) for j in range(i))
        - r @ machine.prior.field
        for r in x
    ]
    np.testing.assert_allclose(machine.energy(x), expected, rtol=1e-13)
    assert machine.energy(np.zeros(5)) == np.inf


# --- crbm -----------------------------------------------------------------------------------------


def crbm(n=4, m=3, f=2, dtype=float):
    rng = np.random.default_rng(0)
    shapes = (n, m), (n, f), (m, f), n, m
    return mf.CRBM(*(rng.normal(size=shape).astype(dtype) for shape in shapes))


def test_free_energy_is_the_sum_over_hidden_states():
    model, X = crbm(), np.random.default_rng(1).normal(size=(2, 2))
    hidden = ((np.arange(8)[:, None] >> np.arange(3)) & 1).astype(float)
    for v in np.eye(4):
        for x in X:
            energies = model.energy(np.tile(v, (8, 1)), hidden, np.tile(x, (8, 1)))
            expected = -np.logaddexp.reduce(-energies)
            assert model.free_energy(v[None], x[None])[0] == pytest.approx(expected, abs=1e-12)


def test_given_features_it_is_an_rbm():
    model, x = crbm(), np.array([0.5, -1.0])
    states = ((np.arange(16)[:, None] >> np.arange(4)) & 1).astype(float)
    log_partition = np.logaddexp.reduce(-model.free_energy(states, np.tile(x, (16, 1))))
    assert mf.exact(model.given(x)).log_partition == pytest.approx(log_partition, abs=1e-12)


def test_bad_parameters_are_refused():
    good = crbm()
    parts = [good.weights, good.visible_weights, good.hidden_weights, good.visible_bias]
    with pytest.raises(ValueError, match=r"hidden_bias must have shape \(3,\)"):
        mf.CRBM(*parts, np.zeros(4))
    with pytest.raises(ValueError, match="hidden_bias must be finite"):
        mf.CRBM(*parts, np.full(3, np.nan))
    with pytest.raises(ValueError, match=r"hidden_bias must be finite, got .* in float32"):
        mf.CRBM(*(part.astype(np.float32) for part in parts), np.full(3, 1e300))
    with pytest.raises(TypeError, match="hidden_bias must be an array of real numbers"):
        mf.CRBM(*parts, np.array(["a"] * 3))


def test_features_of_any_kind_give_the_same_fields():
    model, X = crbm(), np.array([[0.0, 2.0], [1.0, 0.0]])
    for kind in (np.ndarray.tolist, sparse.csr_matrix, sparse.lil_matrix):
        for part, other in zip(model.fields(X), model.fields(kind(X)), strict=True):
            np.testing.assert_array_equal(part, other)


@pytest.mark.parametrize(
    "X, error",
    [
        (np.zeros((1, 5)), r"shape \(..., 2\)"),
        (sparse.csr_array(np.zeros((1, 5))), r"shape \(..., 2\)"),
        ([[0.0, np.nan]], "X must be finite"),
        (sparse.csr_array([[0.0, np.nan]]), "finite fields, got NaN"),
        (sparse.lil_array([[np.inf, 1.0]]), "finite fields"),
        (np.full((1, 2), 1e308), "finite fields, got NaN or infinity in float64"),
    ],
)
def test_bad_features_are_refused(X, error):
    with pytest.raises(ValueError, match=error):
        crbm().fields(X)
    with pytest.raises(TypeError, match="real numbers"):
        crbm().free_energy(np.zeros((1, 4)), [["a", "b"]])
    for bad in ("text", None):
        with pytest.raises((ValueError, TypeError), match="X must"):
            crbm().fields(bad)


# --- models with categorical units, by plain sums over their states -------------------------------


def test_hidden_states_are_enumerated_beside_many_groups():
    rng = np.random.default_rng(2)
    visible = mf.Categorical(rng.normal(size=(53, 21)))
    model = mf.RBM(rng.normal(size=(53, 21, 3)) / 5, visible, mf.Bernoulli(np.zeros(3)))
    expected = np.logaddexp.reduce(
        [
            sum(
                np.logaddexp.reduce(t)
                for t in visible.by_group(visible.field + model.weights @ np.array(h))
            )
            for h in itertools.product((0, 1), repeat=3)
        ]
    )
    assert mf.exact(model).log_partition == pytest.approx(expected, abs=1e-10)


def test_couplings_within_a_group_are_refused():
    couplings = np.zeros((4, 4))
    couplings[0, 1] = couplings[1, 0] = 1
    with pytest.raises(ValueError, match="states of one group"):
        mf.BoltzmannMachine(couplings, mf.Categorical(np.zeros((2, 2))))


def test_energies_at_another_temperature():
    rng = np.random.default_rng(0)
    x, weights = rng.integers(0, 2, (6, 3)).astype(float), rng.normal(size=(3, 3))
    truncated = mf.TruncatedGaussian(x[0], x[1], np.zeros(3), np.ones(3))
    ordinal = mf.Ordinal(weights.astype(np.float32))
    table = np.zeros((4, 4))
    table[0, 2], table[1, 3] = -np.inf, 1
    graph = mf.BoltzmannMachine(sparse.csr_array(table + table.T), mf.Categorical(np.eye(2)))
    for model, states in (
        (mf.RBM(weights, mf.Gaussian(x[2], x[1] + 1), mf.Bernoulli(x[3])), (x, x)),
        (mf.DBM([weights, weights], (truncated, mf.Ising(x[4]), ordinal)), (x, 2 * x - 1, x)),
        (graph, (np.array([[0, 1], [1, 1], [0, 0]]),)),
        (mf.BoltzmannMachine(np.zeros((3, 3), np.float32), ordinal), (x,)),
    ):
        hot = model.at_temperature(3)
        assert (type(hot), hot.dtype) == (type(model), model.dtype)
        np.testing.assert_allclose(hot.energy(*states) * 3, model.energy(*states), rtol=1e-6)
    counts = mf.BoltzmannMachine([[0.0]], mf.Binomial([1.0], 4)).at_temperature(2)
    assert mf.exact(counts).mean == pytest.approx(4 / (1 + np.exp(-0.5)))
    spikes = mf.BoltzmannMachine([[0.0]], mf.GaussBernoulli([0.0], [1.0], [0.0]))
    with pytest.raises(TypeError, match="not available for GaussBernoulli units"):
        spikes.at_temperature(2)
