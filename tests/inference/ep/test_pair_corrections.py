"""Corrections by pairs against enumeration: exact where units are coupled two by two."""

import numpy as np
import pytest

import fastmf as mf
from fastmf.inference.ep.pair_corrections import pair_corrections, value_table

COUPLINGS = np.zeros((5, 5))
COUPLINGS[0, 1] = COUPLINGS[1, 0] = 0.8
COUPLINGS[2, 3] = COUPLINGS[3, 2] = -1.1
SCORES = [[0, 0.1, 0.2], [0, 0.5, -np.inf], [0, 0.1, 0.2], [0.3, 0.5, -np.inf], [0, 1, 2]]


def corrections(model):
    found = mf.adaptive_tap(model, tol=1e-12)
    covariance = np.linalg.inv(np.diag(found.sites[1]) - model.couplings)
    cavity = np.stack([found.b, found.a])
    return found, pair_corrections(value_table(model.prior), found.mean, cavity, covariance)


@pytest.mark.parametrize(
    ("prior", "width"),
    [
        (mf.Ising([0.2, -0.3, 0.5, 0.1, 0.4]), 2),
        (mf.Bernoulli([0.2, -0.3, 0.5, 0.1, 0.4]), 1),
        (mf.Ordinal(SCORES), [2, 1, 2, 1, 2]),
        (mf.Binomial(np.linspace(-1, 1, 5), [1, 2, 3, 1, 5]), [1, 2, 3, 1, 5]),
    ],
)
def test_pairs_alone_are_exact(prior, width):
    model = mf.BoltzmannMachine(COUPLINGS, prior)
    (found, correction), exact = corrections(model), mf.exact(model)
    lacking = exact.log_partition - found.log_partition
    assert abs(lacking) > 1e-4  # so that there is something to correct
    np.testing.assert_allclose(correction.log_partition, lacking, atol=1e-9)
    np.testing.assert_allclose(correction.changes, (exact.mean - found.mean) / width, atol=1e-9)


def test_frozen_units_and_others_change_nothing():
    field = np.array([800.0, -800.0, 0.3, 0.2, 0.0])
    model = mf.BoltzmannMachine(2 * COUPLINGS, mf.Ising(field))
    covariance = np.diag([0.0, 0.0, 1.0, 1.0, 1.0])
    mean = np.tanh(field)
    found = pair_corrections(value_table(model.prior), mean, np.zeros((2, 5)), covariance)
    assert abs(found.log_partition) < 1e-15 and abs(found.changes).max() < 1e-15


def test_tables_hold_discrete_units_alone():
    zeros, ones = np.zeros(2), np.ones(2)
    parts = mf.Ising(zeros), mf.Gaussian(zeros, ones), mf.Binomial(np.zeros(1), 2)
    prior = mf.Concatenated(*parts)
    table = value_table(prior)
    np.testing.assert_array_equal(table.units, [0, 1, 4])
    np.testing.assert_array_equal(table.values, [[-1, -1, 0], [1, 1, 1], [1, 1, 2]])
    np.testing.assert_allclose(np.exp(table.log_weights), [[1, 1, 1], [1, 1, 2], [0, 0, 1]])
    assert value_table(mf.Gaussian(zeros, ones)).values.size == 0
