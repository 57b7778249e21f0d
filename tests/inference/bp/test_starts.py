"""Fields, initial messages and assignments of belief propagation, checked."""

import numpy as np
import pytest
from bp_models import SOLVERS, loopy, propagation

import fastmf as mf
from fastmf.inference.bp._binary_units import BinaryUnits
from fastmf.inference.bp.rbm import messages_of

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
    for seed in range(30):
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
    assert n_converged >= 12


def test_categories_of_two_states_start_as_two_valued_units():
    for seed in range(20):
        bits = as_bernoulli(multistable(seed))[0]
        visible = mf.Categorical(np.column_stack([np.zeros(10), bits.visible.field]))
        weights = np.zeros((20, 8))
        weights[1::2] = bits.weights
        groups = mf.RBM(weights, visible, bits.hidden)
        for algorithm in ("sum", "max"):
            one, other = (SOLVERS[algorithm](x, max_iter=7) for x in (bits, groups))
            np.testing.assert_allclose(one.mean[0], other.mean[0][1::2], atol=1e-8)
            np.testing.assert_allclose(one.mean[1], other.mean[1], atol=1e-8)


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
