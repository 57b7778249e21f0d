"""Whether the maximum exists."""

import numpy as np
import pytest
from potts_data import one_hot, penalised, random_parameters, random_rows

from fastmf.inference.sampling.categories import all_labels
from fastmf.learning.pseudo_likelihood.existence import Existence
from fastmf.learning.pseudo_likelihood.potts import existence as module
from fastmf.learning.pseudo_likelihood.potts.couplings import DenseCouplings
from fastmf.learning.pseudo_likelihood.potts.existence import existence
from fastmf.learning.pseudo_likelihood.potts.fitting import Options, fit
from fastmf.learning.pseudo_likelihood.potts.objective import PottsData
from fastmf.models._gauge import in_gauge

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


def test_rows_with_absent_positions():
    """Where all others are absent a position has a field of its own, without couplings."""
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
    monkeypatch.setattr("fastmf.learning.pseudo_likelihood.potts.existence._MAX_ENTRIES", 10)
    assert decided(all_labels(SIZES)).exists is None


@pytest.mark.parametrize("symmetric", [True, False])
def test_out_of_time_is_undecided(symmetric, monkeypatch):
    monkeypatch.setattr("fastmf.learning.pseudo_likelihood.existence.linear_programme", None)
    labels = all_labels(SIZES)
    data = PottsData(labels, np.ones(len(labels)), SIZES)
    found = existence(data, 0.0, 0.0, symmetric, seconds=0.0)
    assert found.exists is None and "not decided within 0 s" in found.message


def by_estimate(labels, sizes, monkeypatch, **options):
    """The verdict of a fit without linear programmes."""
    monkeypatch.setattr(module, "_by_programmes", lambda *arguments: Existence(None))
    data = PottsData(labels, np.ones(len(labels)), np.asarray(sizes))
    found = fit(data, Options(0.0, 0.0, tol=1e-4))
    return existence(data, 0.0, 0.0, estimate=(found.couplings, found.field), **options)


@pytest.mark.parametrize("missing", [0.0, 0.1])
def test_estimates_prove_that_the_maximum_exists(missing, monkeypatch):
    """Of as many rows as one likes."""
    labels, _ = random_rows([3] * 6, 3000, missing=missing)
    assert by_estimate(labels, [3] * 6, monkeypatch).exists is True


def test_estimates_that_separate_are_a_proof(monkeypatch):
    """Two states, where pairs all meet, and about as many rows as positions."""
    labels = np.random.default_rng(0).integers(0, 2, (45, 40))
    assert by_estimate(labels, [2] * 40, monkeypatch).units == tuple(range(40))


def test_estimates_prove_nothing_that_programmes_deny(monkeypatch):
    programmes, seen = module._by_programmes, []
    for seed in range(25):
        sizes = [2, 3, 2, 2] if seed % 2 else [2] * 5
        labels, _ = random_rows(sizes, 12 + 3 * seed, seed=seed, missing=0.1 * (seed % 3 == 0))
        found = by_estimate(labels, sizes, monkeypatch)
        monkeypatch.setattr(module, "_by_programmes", programmes)
        expected = existence(PottsData(labels, np.ones(len(labels)), np.array(sizes)), 0.0, 0.0)
        assert found.exists in (None, expected.exists)
        seen.append(found.exists)
    assert True in seen and False in seen


def test_the_bound_behind_the_proof():
    """|margins| >= sigma |D| for directions in the zero-sum gauge; other numbers by definition."""
    sizes = np.array([2, 3, 4])
    labels, weights = random_rows(sizes, 200, missing=0.1)
    data = PottsData(labels, weights, sizes)
    sigma, rng = module._smallest_singular_value(data), np.random.default_rng(2)
    assert sigma > 0
    first = np.cumsum(sizes) - sizes
    for _ in range(20):
        J, h = in_gauge(*random_parameters(sizes, seed=rng.integers(1000)), sizes, "zero-sum")
        eta = one_hot(data.labels, sizes) @ J + h
        squares = 0.0
        for i, (f, q) in enumerate(zip(first, sizes, strict=True)):
            present = data.labels[:, i] >= 0
            mine = eta[present, f : f + q]
            own = np.take_along_axis(mine, data.labels[present, i, None].astype(np.int64), 1)
            squares += ((own - mine) ** 2).sum()
        assert np.sqrt(squares) >= sigma * np.sqrt((J**2).sum() / 2 + h @ h)
    J, h = random_parameters(sizes)
    at = module._looked_at(data, DenseCouplings(J, sizes), h)
    pairs = np.argwhere(np.triu(J != 0))
    rows = data.labels, data.weights / data.total
    directions = [*(np.eye(9)[u] for u in range(9)), *pairs]
    gradient = []
    for k, direction in enumerate(directions):
        change_J, change_h = np.zeros_like(J), np.zeros_like(h)
        if k < 9:
            change_h = 1e-5 * direction
        else:
            u, v = direction
            change_J[u, v] = change_J[v, u] = 1e-5
        values = [
            penalised(J + s * change_J, h + s * change_h, rows, sizes, 0.0, 0.0) for s in (1, -1)
        ]
        gradient.append((values[0] - values[1]) / 2e-5)
    assert at.gradient == pytest.approx(np.linalg.norm(gradient), rel=1e-6)
    eta, margins, residuals = one_hot(data.labels, sizes) @ J + h, [], []
    for s, i in np.argwhere(data.labels >= 0):
        mine, x = eta[s, first[i] : first[i] + sizes[i]], int(data.labels[s, i])
        p = np.exp(mine) / np.exp(mine).sum()
        margins += [mine[x] - mine[b] for b in range(sizes[i]) if b != x]
        residuals += [rows[1][s] * p[b] for b in range(sizes[i]) if b != x]
    assert at.margin == pytest.approx(min(margins))
    assert at.residual == pytest.approx(min(residuals))
