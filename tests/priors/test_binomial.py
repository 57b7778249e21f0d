"""Binomial units: sums to many digits, extreme tilts, solvers, learning."""

import math

import mpmath
import numpy as np
import pytest

import fastmf as mf
from fastmf.priors import Bernoulli, Binomial
from fastmf.priors._queries import independent_units, largest_variance
from fastmf.priors.ordinal import MAX_SCORE

pytestmark = pytest.mark.filterwarnings("error")


def test_log_prob_is_the_log_of_the_binomial_weight():
    prior = Binomial([0.5, -1.0], [3, MAX_SCORE])
    for x in range(4):
        expected = [math.log(math.comb(n, x)) + f * x for f, n in ((0.5, 3), (-1, MAX_SCORE))]
        np.testing.assert_allclose(prior.log_prob(float(x)), expected, rtol=1e-14)
    np.testing.assert_array_equal(prior.log_prob(np.array([4.0, -1.0])), -np.inf)
    np.testing.assert_array_equal(prior.log_prob(np.array([0.5, np.nan])), -np.inf)


def sums(field, n, b, a):
    """Log-partition, mean and variance to 50 digits."""
    with mpmath.workdps(50):
        t, a = mpmath.mpf(field) + mpmath.mpf(b), mpmath.mpf(a)
        w = [math.comb(n, x) * mpmath.exp(t * x - a * x * x / 2) for x in range(n + 1)]
        total = mpmath.fsum(w)
        mean = mpmath.fsum(x * p for x, p in enumerate(w)) / total
        var = mpmath.fsum((x - mean) ** 2 * p for x, p in enumerate(w)) / total
        return float(mpmath.log(total)), float(mean), float(var)


@pytest.mark.parametrize("n", [1, 7, MAX_SCORE])
def test_every_regime_against_many_digits(n):
    tilts = [(0.3, 0.0), (0.3, 1e-9), (-2.0, 0.4), (30.0, 3.0), (400.0, 1.0), (-40.0, -9.0),
             (-0.05 * n, -0.1), (60.0, 0.0), (-60.0, 0.5), (1e4, -1e4), (1e4, 3.0)]  # fmt: skip
    b, a = np.array(tilts)[:, :, None].transpose(1, 0, 2)
    prior = Binomial([0.25], n)
    expected = np.array([sums(0.25, n, *tilt) for tilt in tilts])
    np.testing.assert_allclose(prior.log_partition(b, a)[:, 0], expected[:, 0], 1e-13, 1e-13)
    mean, var = prior.moments(b, a)
    np.testing.assert_allclose(mean[:, 0], expected[:, 1], rtol=1e-11)
    np.testing.assert_allclose(var[:, 0], expected[:, 2], rtol=1e-10, atol=1e-90)


@pytest.mark.parametrize("wrong", [0, 1.5, -2, MAX_SCORE + 1])
def test_numbers_of_trials_are_checked(wrong):
    with pytest.raises(ValueError, match=f"n must be an integer from 1 to {MAX_SCORE}, got"):
        Binomial(0.0, [1, wrong])


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.uint8])
def test_from_data(dtype):
    X = np.random.default_rng(0).binomial(5, [0.0, 0.3, 1.0], (998, 3)).astype(dtype)
    prior = Binomial.from_data(X)
    np.testing.assert_array_equal(prior.n, 5)
    mean = prior.moments(0.0, 0.0)[0]
    np.testing.assert_allclose(mean, (X.sum(0) + 1) / (998 + 2 / 5), rtol=1e-5)
    assert prior.field.dtype == (np.float32 if dtype == np.float32 else np.float64)
    wider = Binomial(prior.field, [6, 7, 8])
    np.testing.assert_array_equal(independent_units(wider, X).n, [6, 7, 8])
    assert Binomial.from_data(0 * X).n.tolist() == [1, 1, 1]
    for wrong in (X + 0.5, X - 1.0, X + 2.0 * MAX_SCORE):
        with pytest.raises(ValueError, match="integers from 0 to n"):
            Binomial.from_data(wrong)


def test_largest_variance_is_that_of_the_ends():
    prior = Binomial([0.0, 0.0], [1, 10])
    np.testing.assert_array_equal(largest_variance(prior), [0.25, 25])
    # A negative precision leaves both ends, each with half of the mass.
    var = prior.moments(np.array([-50.0, -500.0]), np.array([-100.0, -100.0]))[1]
    np.testing.assert_allclose(var, [0.25, 25], rtol=1e-8)


# --- models ---------------------------------------------------------------------------------------


def machine(scale=0.2):
    rng = np.random.default_rng(1)
    visible = Binomial(rng.normal(size=3), [1, 2, 4])
    hidden = Binomial(rng.normal(size=2), [3, 2])
    return mf.RBM(scale * rng.normal(size=(3, 2)), visible, hidden)


@pytest.mark.parametrize("solve", [mf.tap, mf.relaxed_bp, mf.adaptive_tap])
def test_solvers_are_right_at_weak_couplings(solve):
    errors = []
    for scale in (0.04, 0.02):
        model = machine(scale)
        truth, found = mf.exact(model), solve(model, tol=1e-10)
        assert found.converged
        errors.append(abs(np.hstack(found.mean) - np.hstack(truth.mean)).max())
        assert found.log_partition == pytest.approx(truth.log_partition, abs=scale**2)
    # What they leave out is of the third order in the couplings.
    assert errors[0] < 1e-4
    assert errors[1] < errors[0] / 4


def test_pseudo_likelihood_is_the_likelihood_of_uncoupled_units():
    prior = Binomial([0.4, -1.0, 0.0], [1, 2, 4])
    model = mf.RBM(np.zeros((3, 2)), prior, Bernoulli(np.zeros(2)))
    X = np.array([[0.0, 2, 3], [1, 1, 0]])
    expected = (prior.log_prob(X) - prior.log_partition(0.0, 0.0)).sum(1)
    np.testing.assert_allclose(mf.evaluation.pseudo_log_likelihood(model, X), expected, rtol=1e-12)
    with pytest.raises(ValueError, match="one of 0, 1, 2, got 3 in row 0, column 1"):
        mf.evaluation.pseudo_log_likelihood(model, [[0.0, 3, 3]])


# --- learning -------------------------------------------------------------------------------------


@pytest.mark.parametrize("gradient", ["tap", "pcd"])
def test_a_machine_learns_counts(gradient, tmp_path):
    rng = np.random.default_rng(0)
    X = rng.binomial(6, rng.choice([0.15, 0.8], size=(200, 1)), (200, 5)).astype(float)
    options = {"n_epochs": 10, "learning_rate": 0.03, "l2": 0, "batch_size": 50}
    rbm = mf.GeneralizedRBM(2, visible="binomial", hidden="binomial", gradient=gradient,
                            random_state=0, **options).fit(X)  # fmt: skip
    np.testing.assert_array_equal(rbm.visible_.n, 6)
    independent = rbm.pointwise_.log_prob(X) - rbm.pointwise_.log_partition(0.0, 0.0)
    assert rbm.score(X) > independent.sum(1).mean() + 1
    drawn = rbm.sample(20, random_state=0)
    assert np.isin(drawn, np.arange(7)).all()
    rbm.save(tmp_path / "machine")
    again = mf.GeneralizedRBM.load(tmp_path / "machine")
    assert type(again.visible_) is Binomial
    np.testing.assert_array_equal(again.score_samples(X), rbm.score_samples(X))
    with pytest.raises(ValueError, match=r"Binomial units.*one of 0, 1, ..., 6, got 7"):
        rbm.transform(X + (X == 6))
