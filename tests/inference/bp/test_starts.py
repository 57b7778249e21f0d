"""Fields, initial messages and assignments of belief propagation, checked."""

import functools
from typing import NamedTuple

import numpy as np
import pytest
from bp_models import SOLVERS, loopy, propagation

import fastmf as mf
from fastmf.inference.bp.rbm import BinaryUnits, messages_of
from fastmf.special import exp, log

UNITS = BinaryUnits(loopy(prior=mf.Ising), (None, None))


def test_an_earlier_result_as_init():
    result = mf.belief_propagation(UNITS.model, max_iter=3)
    with pytest.raises(ValueError, match="pairwise=True"):
        mf.belief_propagation(UNITS.model, init=result)
    result = mf.belief_propagation(UNITS.model, max_iter=3, pairwise=True)
    assert messages_of(result) is result.messages
    best = mf.most_probable(UNITS.model, sum_hidden=True)
    again = mf.most_probable(UNITS.model, sum_hidden=True, init=best, search=False, max_iter=1)
    assert again.score >= best.score - 1e-12


def test_initial_messages_are_clipped_to_their_range():
    """Messages lie between 1 and exp(weight): others are moved to the nearest end."""
    w = 4 * UNITS.model.weights  # of {0, 1} units
    large = 100 * np.sign(w)
    options = {"max_iter": 1, "tol": 0}
    clipped = mf.belief_propagation(UNITS.model, init=w, **options)
    found = mf.belief_propagation(UNITS.model, init=large, **options)
    for x, y in zip(found.mean, clipped.mean, strict=True):
        np.testing.assert_array_equal(x, y)


# --- the start does not depend on the coding ------------------------------------------------------

# Names of results, and whether each layer of spins is negated.
FLIPS = {"no unit": (0, 0), "all units": (1, 1), "visible units": (1, 0), "some units": (0.5, 0.5)}


def as_bernoulli(model):
    """The same machine with units (x + 1) / 2 in the place of spins x, and the energies' offset."""
    w, (b, c) = model.weights, (layer.field for layer in model.layers)
    visible, hidden = mf.Bernoulli(2 * (b - w.sum(1))), mf.Bernoulli(2 * (c - w.sum(0)))
    return mf.RBM(4 * w, visible, hidden), w.sum() - b.sum() - c.sum()


def flipped(model, signs):
    """The same machine with some spins negated."""
    v, h = signs
    fields = [s * layer.field for s, layer in zip(signs, model.layers, strict=True)]
    return mf.RBM(v[:, None] * model.weights * h, *map(mf.Ising, fields))


def torus(size, temperature, field, dtype=np.float64):
    """The ferromagnet on a square lattice, its sites coloured like a chessboard, as an RBM."""
    sites = np.indices((size, size)).reshape(2, -1).T
    near = [np.abs((sites[:, None] - sites + size // 2) % size - size // 2).sum(-1) == 1]
    even = sites.sum(1) % 2 == 0
    weights = (near[0][even][:, ~even] / temperature).astype(dtype)
    priors = (mf.Ising(np.full(n, field, dtype)) for n in weights.shape)
    return mf.RBM(weights, *priors)


@functools.cache
def bethe_lattice(temperature, field):
    """Mean of a spin of the ferromagnet with four neighbours, from spins of mean 0, by fields.

    A message is a field u on the neighbour: tanh u = tanh(1 / T) tanh(field + 3 u).
    """
    u = 0.0
    for _ in range(10_000):
        u = np.arctanh(np.tanh(1 / temperature) * np.tanh(field + 3 * u))
    return np.tanh(field + 4 * u)


@pytest.mark.parametrize("dtype, tol", [(np.float64, 1e-6), (np.float32, 1e-3)])
@pytest.mark.parametrize("field", [0.0, 0.001, 0.01, -0.01, 0.3])
@pytest.mark.parametrize("size, temperature", [(16, 2.5), (16, 2.0), (4, 2.0), (6, 4.0)])
def test_a_ferromagnet_follows_its_field(size, temperature, field, dtype, tol):
    """Without a field no spin prefers a value, whatever the phases; with one all follow it."""
    model = torus(size, temperature, field, dtype)
    expected = bethe_lattice(temperature, field)
    spins = mf.belief_propagation(model)
    bits = mf.belief_propagation(as_bernoulli(model)[0])
    assert spins.converged and bits.converged
    for mean in (*spins.mean, *(2 * mean - 1 for mean in bits.mean)):
        np.testing.assert_allclose(mean, expected, atol=tol)
    assert np.sign(expected) == np.sign(field)
    if size == 4:
        exact = mf.exact(model)
        assert (np.sign(np.round(exact.mean[0], 12)) == np.sign(field)).all()
    for algorithm in ("max", "mixed") if field else ():
        found = SOLVERS[algorithm](model, search=False)
        assert all((x == np.sign(field)).all() for x in found.assignment)


def multistable(seed, n=10, m=8):
    """Spins in small fields, of couplings for which there are many fixed points."""
    rng = np.random.default_rng(seed)
    weights = rng.normal(size=(n, m)) * rng.choice([0.3, 0.7, 1.5])
    return mf.RBM(weights, *(mf.Ising(0.3 * rng.normal(size=k)) for k in (n, m)))


@pytest.mark.parametrize("algorithm", ["sum", "max", "mixed"])
def test_results_do_not_depend_on_the_coding(algorithm):
    """Negated spins have negated means, and units in {0, 1} those of the spins."""
    n_converged = 0
    for seed in range(15):
        model, rng = multistable(seed), np.random.default_rng(seed)
        spins = propagation(model, algorithm)
        bits, constant = as_bernoulli(model)
        bits = propagation(bits, algorithm)
        assert spins.converged == bits.converged
        if not spins.converged:
            continue
        n_converged += 1
        for x, y in zip(spins.mean, bits.mean, strict=True):
            np.testing.assert_allclose(x, 2 * y - 1, atol=1e-6)
        assert spins.log_partition == pytest.approx(bits.log_partition + constant, abs=1e-6)
        for fractions in FLIPS.values():
            parts = zip(fractions, model.weights.shape, strict=True)
            signs = [np.where(rng.random(n) < fraction, -1, 1) for fraction, n in parts]
            mirror = propagation(flipped(model, signs), algorithm)
            assert mirror.converged and mirror.n_iter == spins.n_iter
            for x, y, s in zip(spins.mean, mirror.mean, signs, strict=True):
                np.testing.assert_allclose(x, s * y, atol=1e-6)
    assert n_converged >= 6


def test_rows_start_alike_however_messages_are_kept():
    """Messages of each row, those of a worker, and those of a single large row."""
    model, rng = multistable(3), np.random.default_rng(3)
    field = 0.1 * rng.normal(size=(5, 10))
    for algorithm in ("sum", "max"):
        options = {"field": field, "max_iter": 6, "tol": 0}
        each = propagation(model, algorithm, messages=True, **options)
        rows = propagation(model, algorithm, n_threads=1, **options)
        for x, y in zip(each.mean, rows.mean, strict=True):
            np.testing.assert_array_equal(x, y)
    given = mf.belief_propagation(model, init=2 * model.weights, **options)
    for x, y in zip(mf.belief_propagation(model, **options).mean, given.mean, strict=True):
        np.testing.assert_allclose(x, y, atol=1e-9)


# --- binary units of any values as {0, 1} units: energies by enumeration, and bad input -----------


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


def test_models_that_are_not_binary():
    with pytest.raises(TypeError, match="discrete units"):
        mf.belief_propagation(
            mf.RBM(np.ones((2, 2)), mf.Gaussian(np.zeros(2), np.ones(2)), mf.Ising(np.zeros(2)))
        )
    spins = mf.Ising(np.zeros(2))
    with pytest.raises(TypeError, match="RBM or a BoltzmannMachine"):
        mf.belief_propagation(mf.DBM((np.ones((2, 2)), np.ones((2, 2))), (spins, spins, spins)))
    with pytest.raises(ValueError, match="weights"):
        mf.belief_propagation(loopy(scale=1e4))
    with pytest.raises(ValueError, match="field"):
        mf.most_probable(loopy(dtype="float32"), field=np.full(9, 1e32))


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
    for layer, b, a, mean in zip(model.layers, found.b, found.a, truth.mean, strict=True):
        np.testing.assert_allclose(layer.moments(b, a)[0], mean, rtol=1e-8)


def test_units_of_more_values_make_a_graph():
    model = mf.RBM(np.ones((2, 1)) / 3, mf.Bernoulli(np.zeros(2)), mf.Binomial(np.zeros(1), 3))
    found, exact = mf.belief_propagation(model), mf.exact(model)  # as a graph
    assert found.log_partition == pytest.approx(exact.log_partition, rel=1e-12)


# --- the result of belief propagation: axes of rows, assignments and objectives -------------------


def test_rows_lead_where_there_are_rows():
    model = loopy()
    options = {"pairwise": True}
    one = mf.belief_propagation(model, **options)
    rows = mf.belief_propagation(model, field=np.zeros((2, 9)), **options)
    assert one.mean[0].shape == (9,) and rows.mean[1].shape == (2, 7)
    assert one.messages.shape == one.pairwise.shape == (9, 7)
    assert rows.messages.shape == rows.pairwise.shape == (2, 9, 7)
    assert one.history.shape == (one.n_iter,) and rows.history.shape == (2, rows.n_iter.max())
    assert np.ndim(one.log_partition) == 0 and rows.log_partition.shape == (2,)
    assert isinstance(one.message, str) and rows.message.tolist() == [one.message] * 2
    for name in ("log_partition", "n_iter", "residual", "damping"):
        np.testing.assert_array_equal(getattr(rows, name), [getattr(one, name)] * 2)


@pytest.mark.parametrize("prior", [mf.Bernoulli, mf.Ising])
def test_sum_product_decodes_the_more_probable_values(prior):
    low, high = prior.support
    result = mf.belief_propagation(loopy(prior=prior))
    assert result.objective is None and result.local_maximum is None
    for values, mean in zip(result.assignment, result.mean, strict=True):
        np.testing.assert_array_equal(values, np.where(mean > (low + high) / 2, high, low))
