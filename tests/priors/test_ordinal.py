"""Ordinal units: refusals, fits, sums to many digits, and machines by enumeration."""

import itertools

import mpmath
import numpy as np
import pytest

import fastmf as mf
from fastmf._jit.kernel import kernel
from fastmf.evaluation import annealed_importance_sampling
from fastmf.inference.sampling.gibbs import gibbs
from fastmf.priors._compiled import UNITS_PER_BLOCK, tilted_log_partition, tilted_moments, units_of

TABLE = np.array([[0.0, -1.0, 0.5], [0.3, 0.1, -np.inf], [0.0, 0.8, 0.2]])


def test_two_scores_are_a_bernoulli_unit_and_binomial_weights_a_binomial_one():
    b, a = np.array([0.3, -2.0]), np.array([0.5, 0.0])
    table = np.log([[1.0, 3, 3, 1]]) + 0.4 * np.arange(4)
    for one, other in (
        (mf.Ordinal([[0.2, 1.0], [0.0, -0.7]]), mf.Bernoulli([0.8, -0.7])),
        (mf.Ordinal(np.tile(table, (2, 1))), mf.Binomial([0.4, 0.4], 3)),
    ):
        np.testing.assert_allclose(one.moments(b, a), other.moments(b, a), rtol=1e-14)
    np.testing.assert_allclose(one.log_partition(b, a), other.log_partition(b, a), rtol=1e-14)


@pytest.mark.parametrize("table, message", [
    ([0.0, 1.0], r"shape \(n_units, m \+ 1\)"), ([[0.0]], "two scores"),
    ([[0.0, np.nan]], "finite"), ([[0.0, np.inf]], "finite"),
    ([[-np.inf, 0.0]], "finite for the scores 0 and 1"),
    ([[0.0, -np.inf, 1.0]], "finite for the scores 0 and 1"),
    ([[0.0, 1.0, -np.inf, 1.0]], "beyond"),
])  # fmt: skip
def test_tables_are_checked(table, message):
    with pytest.raises(ValueError, match=message):
        mf.Ordinal(table)


def test_other_types_are_refused():
    for wrong in ("text", None, [[1j, 0.0]]):
        with pytest.raises(TypeError, match="Ordinal: log_weights"):
            mf.Ordinal(wrong)
    assert mf.Ordinal(np.zeros((0, 3))).moments(0.0, 0.0)[0].shape == (0,)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_frequencies(dtype):
    X = np.array([[0, 1, 2], [2, 0, 0], [2, 1, 0]], dtype)
    prior = mf.Ordinal.from_data(X, pseudocount=0.5)
    assert prior.log_weights.dtype == dtype
    assert prior.n_scores.tolist() == [3, 2, 3]
    p = np.exp(prior.log_weights)
    p /= p.sum(1, keepdims=True)
    expected = [[3 / 9, 1 / 9, 5 / 9], [3 / 8, 5 / 8, 0], [5 / 9, 1 / 9, 3 / 9]]
    np.testing.assert_allclose(p, expected, rtol=1e-6)
    assert prior.refit(X[:1]).n_scores.tolist() == [3, 2, 3]
    for wrong in (X - 1, X + 0.5):
        with pytest.raises(ValueError, match="integers"):
            mf.Ordinal.from_data(wrong, 3)
    with pytest.raises(ValueError, match="pseudocount"):
        mf.Ordinal.from_data(X, pseudocount=0.0)


# --- machines -------------------------------------------------------------------------------------


def machine(strength=0.4):
    couplings = strength * np.array([[0.0, 1.0, -0.5], [1.0, 0.0, 0.7], [-0.5, 0.7, 0.0]])
    return mf.BoltzmannMachine(couplings, mf.Ordinal(TABLE))


def enumerated(model):
    """All states of a machine of the table's units, and their probabilities."""
    states = np.array([x for x in itertools.product(range(3), repeat=3) if x[1] < 2], float)
    fields = TABLE[np.arange(3), states.astype(int)].sum(1)
    weights = np.exp(((states @ model.couplings) * states).sum(1) / 2 + fields)
    return states, weights / weights.sum(), np.log(weights.sum())


@pytest.mark.parametrize("schedule", ["blocked", "sequential"])
def test_tap_is_near_to_enumeration(schedule):
    weak = machine(0.1)
    states, p, log_partition = enumerated(weak)
    found = mf.tap(weak, schedule=schedule)
    assert found.converged.all()
    np.testing.assert_allclose(found.mean, p @ states, atol=3e-3)
    np.testing.assert_allclose(found.log_partition, log_partition, atol=3e-3)


def rbm(dtype=float):
    weights = np.array([[0.5, -0.3], [0.2, 0.8], [-0.6, 0.1]], dtype)
    hidden = mf.Bernoulli(np.array([0.1, -0.4], dtype))
    return mf.RBM(weights, mf.Ordinal(TABLE.astype(dtype)), hidden)


def visible_marginals(model):
    """States of the visible units and their probabilities, hidden ones summed out."""
    states = np.array([x for x in itertools.product(range(3), repeat=3) if x[1] < 2], float)
    log_p = TABLE[np.arange(3), states.astype(int)].sum(1)
    log_p += np.logaddexp(0, states @ model.weights + model.hidden.field).sum(1)
    return states, np.exp(log_p - np.logaddexp.reduce(log_p)), np.logaddexp.reduce(log_p)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_gibbs_samples_an_rbm(dtype):
    model = rbm(dtype)
    states, p, _ = visible_marginals(model)
    start = np.zeros((20_000, 3), dtype)
    found = gibbs(model, start, 20, np.random.default_rng(0))
    sampled = found[0] if isinstance(found, tuple) else found
    # Five standard errors.
    assert abs(sampled.mean(0) - p @ states).max() < 5 / np.sqrt(20_000)


def test_annealing_finds_the_log_partition_of_an_rbm():
    expected = visible_marginals(rbm())[2]
    found = annealed_importance_sampling(rbm(), 500, 200, rng=0)
    assert abs(found.log_partition - expected) < 0.05


def test_rbms_of_ratings_learn():
    rng = np.random.default_rng(0)
    factor = rng.normal(size=(400, 1))
    X = np.digitize(2 * factor + rng.normal(size=(400, 6)), [-1, 1]).astype(float)
    machine = mf.GeneralizedRBM(
        2, visible=mf.Ordinal.from_data(X), n_epochs=50, learning_rate=0.1, random_state=0
    )
    machine.fit(X)
    independent = (
        machine.pointwise_.log_prob(X).sum(1)
        - machine.pointwise_.log_partition(np.zeros(6), 0.0).sum()
    )
    assert machine.score(X) > independent.mean() + 0.3
    assert np.isfinite(machine.visible_.log_weights).all()
    assert abs(machine.visible_.log_weights - mf.Ordinal.from_data(X).log_weights).max() > 0.1


@kernel(name=None)
def fill_rows(units, b, a, mean, var, value):
    for k in range(b.shape[0]):
        tilted_moments(units, 0, b[k], a[k], mean[k], var[k])
        tilted_log_partition(units, 0, b[k], a[k], value[k])


def with_many_digits(log_weights, b, a):
    """Log-partition, mean and variance to 50 digits."""
    with mpmath.workdps(50):
        b, a, scores = mpmath.mpf(b), mpmath.mpf(a), range(np.isfinite(log_weights).sum())
        w = [mpmath.exp(mpmath.mpf(log_weights[x]) + b * x - a * x * x / 2) for x in scores]
        total = mpmath.fsum(w)
        mean = mpmath.fsum(x * p for x, p in enumerate(w)) / total
        var = mpmath.fsum((x - mean) ** 2 * p for x, p in enumerate(w)) / total
        return float(mpmath.log(total)), float(mean), float(var)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_compiled_sums_of_several_blocks_against_many_digits(dtype):
    # More units than a block has, from 2 to 40 scores; moderate, extreme and infinite tilts.
    rng, n = np.random.default_rng(3), 2 * UNITS_PER_BLOCK + 7
    table = rng.normal(scale=2.0, size=(n, 40))
    table[np.arange(40) >= rng.integers(2, 41, n)[:, None]] = -np.inf
    prior = mf.Ordinal(table.astype(dtype))
    tilts = np.array([(0.3, 0.0), (-2.0, 0.4), (60.0, 3.0), (-9.0, -0.5), (0.0, -30.0), (1e4, 3.0),
                      (-800.0, 0.0), (1e4, -1e4), (1e30, 0.0), (0.0, 1e30)], dtype)  # fmt: skip
    b, a = (np.repeat(tilt[:, None], n, axis=1) for tilt in tilts.T)
    mean, var, value = np.empty((3, *b.shape), dtype)
    units = units_of(prior, dtype, ("moments", "log_partition"))
    fill_rows(units, b, a, mean, var, value)
    for unit in (0, 1, UNITS_PER_BLOCK - 1, UNITS_PER_BLOCK, n - 1):
        expected = np.array(
            [with_many_digits(prior.log_weights[unit].tolist(), *tilt) for tilt in tilts.tolist()]
        )
        close = 1e-12 if dtype == np.float64 else 1e-6
        np.testing.assert_allclose(value[:, unit], expected[:, 0], close, 4 * close)
        np.testing.assert_allclose(mean[:, unit], expected[:, 1], close, 1e-38)
        np.testing.assert_allclose(var[:, unit], expected[:, 2], 10 * close, 1e-37)
    b[0, 3] = np.nan
    fill_rows(units, b, a, mean, var, value)
    assert np.isnan([mean[0, 3], var[0, 3], value[0, 3]]).all()
    assert np.isnan([mean, var, value]).sum() == 3
