"""Whether the maximum exists."""

import numpy as np
import pytest
from potts_data import random_rows

from fastmf.inference.sampling.categories import all_labels
from fastmf.learning.potts.existence import existence
from fastmf.learning.potts.fitting import Options, fit
from fastmf.learning.potts.objective import PottsData

SIZES = np.array([2, 3, 2])


def decided(labels, sizes=SIZES, l2=0.0, l2_field=0.0, symmetric=True):
    labels = np.asarray(labels)
    return existence(PottsData(labels, np.ones(len(labels)), sizes), l2, l2_field, symmetric)


@pytest.mark.parametrize("symmetric", [True, False])
@pytest.mark.parametrize("l2_field", [0.0, 0.1])
def test_with_all_states_it_exists(symmetric, l2_field):
    assert decided(all_labels(SIZES), symmetric=symmetric, l2_field=l2_field).exists is True


def test_a_state_that_is_not_seen():
    labels = all_labels([2, 2, 2])
    found = decided(labels)
    assert found.exists is False and found.units == (1,) and "never seen" in found.message
    assert decided(labels, l2=0.1).exists is False
    assert decided(labels, l2=0.1, l2_field=0.1).exists is True
    # Couplings of the others with it fall without end.
    assert "never meet" in decided(labels, l2_field=0.1).message


def test_states_that_never_meet():
    labels = np.array([row for row in all_labels(SIZES) if not (row[0] == 1 and row[1] == 2)])
    found = decided(labels)
    assert found.exists is False and found.units == (0, 1) and "never meet" in found.message
    assert decided(labels, l2=0.1).exists is True


def majority():
    """x3 = [x0 + x1 + x2 >= 2]: separated, though all pairs of states are seen."""
    labels = all_labels([2, 2, 2])
    return np.column_stack([labels, labels.sum(1) >= 2]).astype(int)


@pytest.mark.parametrize("symmetric", [True, False])
def test_separation_that_pairs_do_not_show(symmetric):
    found = decided(majority(), np.full(4, 2), symmetric=symmetric)
    assert found.exists is False and 3 in found.units and "separated" in found.message
    labels = np.vstack([majority(), [[1, 1, 1, 0]], [[0, 0, 0, 1]]])
    assert decided(labels, np.full(4, 2), symmetric=symmetric).exists is True


def test_rows_with_absent_sites():
    """Where all others are absent a site has a field of its own, without couplings."""
    labels = np.vstack([all_labels(SIZES), [[-1, 0, -1]]])
    assert decided(labels).units == (1,)
    labels = np.vstack([labels, [[-1, 1, -1], [-1, 2, -1]]])
    assert decided(labels).exists is True


def test_the_verdict_is_what_fits_find():
    """Where a maximum exists the gradient vanishes; elsewhere parameters grow without end."""
    verdicts = []
    for seed in range(12):
        labels, weights = random_rows([2, 2, 2], 14, seed=seed)
        data = PottsData(labels, weights, np.full(3, 2))
        verdicts.append(existence(data, 0.0, 0.0).exists)
        found = fit(data, Options(0.0, 0.0, "newton", tol=1e-14, max_iter=100))
        largest = abs(found.couplings.dense()).max()
        assert (largest < 4) == verdicts[-1], seed
    assert True in verdicts and False in verdicts


def test_too_many_rows_are_not_decided(monkeypatch):
    monkeypatch.setattr("fastmf.learning.potts.existence._MAX_ENTRIES", 10)
    assert decided(all_labels(SIZES)).exists is None


@pytest.mark.parametrize("symmetric", [True, False])
def test_out_of_time_is_undecided(symmetric, monkeypatch):
    monkeypatch.setattr("fastmf.learning.potts.existence.linear_programme", None)
    labels = all_labels(SIZES)
    data = PottsData(labels, np.ones(len(labels)), SIZES)
    found = existence(data, 0.0, 0.0, symmetric, seconds=0.0)
    assert found.exists is None and "not decided within 0 s" in found.message
