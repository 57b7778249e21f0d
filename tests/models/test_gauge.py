"""Gauges change parameters, and no probability."""

import numpy as np
import pytest
from potts_data import log_pseudo_likelihood, positions, random_parameters, random_rows

from fastmf.models._gauge import GAUGES, PositionStates, in_gauge, position_in_zero_sum

SIZES = np.array([3, 4, 2])


@pytest.mark.parametrize("gauge", GAUGES)
@pytest.mark.parametrize("reference", [0, 1])
def test_pseudo_likelihoods_are_kept(gauge, reference):
    J, h = random_parameters(SIZES)
    new_J, new_h = in_gauge(J, h, SIZES, gauge, reference)
    labels, _ = random_rows(SIZES)
    expected = log_pseudo_likelihood(J, h, labels, SIZES)
    found = log_pseudo_likelihood(new_J, new_h, labels, SIZES)
    np.testing.assert_allclose(found, expected, rtol=1e-12)
    np.testing.assert_allclose(new_J, new_J.T, atol=1e-15)
    assert abs(new_J[positions(SIZES)[:, None] == positions(SIZES)]).max() < 1e-15
    again = in_gauge(new_J, new_h, SIZES, gauge, reference)
    np.testing.assert_allclose(again[0], new_J, atol=1e-14)
    np.testing.assert_allclose(again[1], new_h, atol=1e-14)


def test_zero_sum():
    groups = PositionStates(SIZES)
    J, h = in_gauge(*random_parameters(SIZES), SIZES, "zero-sum")
    assert abs(groups.means(J)).max() < 1e-15 and abs(groups.means(h)).max() < 1e-15


def test_lattice_gas():
    J, h = in_gauge(*random_parameters(SIZES), SIZES, "lattice", 1)
    kept = [1, 4, 8]
    assert abs(J[kept]).max() < 1e-15 and abs(h[kept]).max() < 1e-15


def test_the_zero_sum_gauge_is_one():
    J, h = random_parameters(SIZES)
    lattice = in_gauge(J, h, SIZES, "lattice")
    for found, expected in zip(
        in_gauge(*lattice, SIZES, "zero-sum"), in_gauge(J, h, SIZES, "zero-sum"), strict=True
    ):
        np.testing.assert_allclose(found, expected, atol=1e-14)


def test_one_position():
    J, h = random_parameters(SIZES)
    expected = in_gauge(J, h, SIZES, "zero-sum")[0][3:7]
    np.testing.assert_allclose(
        position_in_zero_sum(J[3:7], PositionStates(SIZES)), expected, atol=1e-14
    )


@pytest.mark.parametrize("gauge", GAUGES)
def test_several_at_once(gauge):
    both = [random_parameters(SIZES, seed=seed) for seed in (1, 2)]
    J, h = (np.stack(arrays) for arrays in zip(*both, strict=True))
    found = in_gauge(J, h, SIZES, gauge)
    for k in range(2):
        for array, expected in zip(found, in_gauge(J[k], h[k], SIZES, gauge), strict=True):
            np.testing.assert_allclose(array[k], expected, atol=1e-15)
