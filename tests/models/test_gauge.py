"""Gauges change parameters, and no probability."""

import numpy as np
import pytest
from potts_data import log_pseudo_likelihood, positions, random_parameters, random_rows

import fastmf as mf
from fastmf.models._gauge import GAUGES, in_gauge

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


@pytest.mark.parametrize("gauge", GAUGES)
def test_energies_differ_by_a_constant(gauge):
    J, h = random_parameters(SIZES)
    machines = [
        mf.BoltzmannMachine(parameters[0], mf.Categorical(np.split(parameters[1], [3, 7])))
        for parameters in ((J, h), in_gauge(J, h, SIZES, gauge, 1))
    ]
    labels = np.indices(SIZES).reshape(3, -1).T
    difference = machines[1].energy(labels) - machines[0].energy(labels)
    np.testing.assert_allclose(difference, difference[0], atol=1e-12)
    block = machines[1].couplings[:3, 3:7]
    np.testing.assert_allclose(block.mean(0) if gauge == "zero-sum" else block[1], 0, atol=1e-15)


def test_a_reference_is_a_state_of_every_group():
    with pytest.raises(ValueError, match="reference must be"):
        in_gauge(*random_parameters(SIZES), SIZES, "lattice", 2)
