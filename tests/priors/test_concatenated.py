"""Several priors side by side."""

import copy
import pickle
from typing import NamedTuple

import numpy as np
import pytest

from fastmf._jit.kernel import kernel
from fastmf.priors import Bernoulli, Concatenated, Gaussian, Ising
from fastmf.priors._compiled import third_cumulants, tilted_log_partition, tilted_moments, units_of
from fastmf.priors._protocol import contains, has_log_prob, n_units

pytestmark = pytest.mark.filterwarnings("error")

PARTS = Bernoulli([0.3, -1.0, 2.0]), Ising([0.1, 0.2]), Gaussian([0.0, 1.0], [1.0, 2.0])


def test_parts_are_independent():
    prior = Concatenated(*PARTS)
    rng = np.random.default_rng(0)
    b, a = rng.normal(size=(4, 7)), rng.random((4, 7))
    start = 0
    for part in PARTS:
        units = slice(start, start + n_units(part))
        tilt = b[:, units], a[:, units]
        np.testing.assert_array_equal(
            prior.log_partition(b, a)[:, units], part.log_partition(*tilt)
        )
        for whole, own in zip(prior.moments(b, a), part.moments(*tilt), strict=True):
            np.testing.assert_array_equal(whole[:, units], own)
        start = units.stop
    x = np.array([0, 1, 2, -1, 0, 5, -5.0])
    np.testing.assert_array_equal(contains(prior, x), [1, 1, 0, 1, 0, 1, 1])


@kernel(name=None)
def moments_and_log_partition(units, start, b, a, out):
    mean, var, log_partition = out
    tilted_moments(units, start, b, a, mean, var)
    tilted_log_partition(units, start, b, a, log_partition)


@kernel(name=None)
def third_cumulants_of(units, start, mean, out):
    cumulant, derivative = out
    third_cumulants(units, start, mean, cumulant, derivative)


def test_rows_may_cut_across_parts():
    prior = Concatenated(*PARTS)
    rng = np.random.default_rng(1)
    b, a = rng.normal(size=7), rng.random(7)
    expected = *prior.moments(b, a), prior.log_partition(b, a)
    table = units_of(prior, float, ("moments", "log_partition"))
    for start in range(7):
        for stop in range(start + 1, 8):
            units = slice(start, stop)
            found = tuple(np.full((3, stop - start), np.nan))
            moments_and_log_partition(table, start, b[units], a[units], found)
            np.testing.assert_allclose(found[0], expected[0][units], rtol=1e-14)
            np.testing.assert_allclose(found[1], expected[1][units], rtol=1e-14)
            np.testing.assert_allclose(found[2], expected[2][units], rtol=1e-13)
    prior = Concatenated(*PARTS[:2], Bernoulli([0.1, 0.2, 0.5, -1.0]))
    mean, _ = prior.moments(0.0, 0.0)
    expected, table = prior.third_cumulant(mean), units_of(prior, float, ("third_cumulants",))
    for start in range(9):
        for stop in range(start + 1, 10):
            found = tuple(np.full((2, stop - start), np.nan))
            third_cumulants_of(table, start, mean[start:stop], found)
            for here, whole in zip(found, expected, strict=True):
                np.testing.assert_allclose(here, whole[start:stop], rtol=1e-13, atol=1e-15)


def test_precision_is_single_only_if_all_parts_are():
    single = [Bernoulli(np.float32([0.5])), Ising(np.float32([0.5]))]
    tilt = np.zeros(2, np.float32)
    assert Concatenated(*single).moments(tilt, tilt)[0].dtype == np.float32
    assert Concatenated(*single, PARTS[0]).parts[0].field.dtype == np.float64


def test_what_is_refused():
    with pytest.raises(TypeError, match="unit priors, got ndarray"):
        Concatenated(PARTS[0], np.zeros(3))
    with pytest.raises(TypeError, match="at least one"):
        Concatenated()
    with pytest.raises(ValueError, match="7 units on the last axis"):
        Concatenated(*PARTS).moments(np.zeros(6), 0.0)
    with pytest.raises(ValueError, match="step of 2"):
        Concatenated(*PARTS).take(slice(0, 6, 2))
    with pytest.raises(TypeError, match="unit priors, got <class"):
        Concatenated(PARTS[0], Bernoulli)


def test_a_part_without_a_density():
    class Bare(NamedTuple):
        shift: np.ndarray
        moments = log_partition = Gaussian.moments

    prior = Concatenated(PARTS[0], Bare(np.zeros(2)))
    x = np.array([0, 1, 0.5, 7, 7])
    np.testing.assert_array_equal(contains(prior, x), [True, True, False, True, True])
    assert not has_log_prob(prior)
    with pytest.raises(AttributeError, match="log_prob"):
        prior.log_prob(x)


def test_copies_and_pickles():
    # As scikit-learn's `clone` and joblib make them.
    prior = Concatenated(*PARTS)
    for same in (copy.deepcopy(prior), pickle.loads(pickle.dumps(prior))):
        assert type(same) is Concatenated
        np.testing.assert_array_equal(same.moments(0.5, 0.1), prior.moments(0.5, 0.1))
