"""Whether the maximum of ordinal items exists."""

import numpy as np
import ordinal_data
import pytest
from scipy import optimize

from fastmf.learning.pseudo_likelihood.binary import existence as of_spins
from fastmf.learning.pseudo_likelihood.binary.distinct_rows import distinct_rows
from fastmf.learning.pseudo_likelihood.binary.objective import PseudoLikelihood
from fastmf.learning.pseudo_likelihood.newton import newton
from fastmf.learning.pseudo_likelihood.ordinal import existence as module
from fastmf.learning.pseudo_likelihood.ordinal.existence import (
    certified,
    existence,
    margin_matrix,
    unbounded,
)
from fastmf.learning.pseudo_likelihood.ordinal.objective import OrdinalLikelihood
from fastmf.learning.pseudo_likelihood.ordinal.thresholds import Thresholds
from fastmf.learning.pseudo_likelihood.rows import distinct

SIZES = [3, 2, 4]


def solved(states, sizes=SIZES, kind="free", **options):
    rows, weights, _ = distinct(np.asarray(states), np.ones(len(states)))
    objective = OrdinalLikelihood(rows, weights, Thresholds(sizes, kind), **options)
    return objective, newton(objective, objective.independent(), max_iter=40).parameters


def decided(states, sizes=SIZES, kind="free", **options):
    return existence(*solved(states, sizes, kind, **options))


def test_with_all_states_it_exists():
    assert decided(ordinal_data.all_states(SIZES)).exists is True


def test_empty_categories_are_named():
    states = ordinal_data.all_states(SIZES)
    states = states[(states[:, 2] != 2) & (states[:, 0] != 2)]
    found = decided(states)
    assert found.exists is False and found.units == (0, 2)
    assert "nobody is in category 2 of item 0, category 2 of item 2," in found.message
    assert decided(states, l2=0.1).exists is False
    assert decided(states, l2=0.1, l2_field=0.1).exists is True
    # Two parameters for four categories, of which three are seen.
    only = ordinal_data.all_states(SIZES)
    assert decided(only[only[:, 2] != 2], kind="blume_capel").exists is True
    assert decided(only[only[:, 2] != 3], kind="blume_capel").exists is True
    assert decided(only[only[:, 2] < 2], kind="blume_capel").exists is False


@pytest.mark.parametrize("programme", [False, True])
def test_items_of_two_categories_have_the_verdicts_of_spins(programme, monkeypatch):
    if programme:
        monkeypatch.setattr(module, "certified", lambda *arguments: False)
    seen = []
    for seed in range(30):
        rng = np.random.default_rng(seed)
        states = rng.integers(0, 2, (int(rng.integers(6, 40)), 4))
        if seed % 3 == 0:
            states[:, 0] &= states[:, 1]
        spins = PseudoLikelihood(distinct_rows(2.0 * states - 1))
        expected, found = of_spins.separation(spins), decided(states, [2] * 4)
        assert found.exists == expected.exists
        seen.append(found.exists)
        if (np.ptp(states, axis=0) > 0).all():
            assert found.units == expected.units
    assert 3 < sum(seen) < 27


@pytest.mark.parametrize("kind", ["free", "blume_capel"])
def test_certificates_agree_with_the_programme(kind, monkeypatch):
    verdicts = []
    for seed in range(25):
        rng = np.random.default_rng(seed)
        states, _ = ordinal_data.random_rows(SIZES, int(rng.integers(5, 16)), seed=seed)
        objective, parameters = solved(states, kind=kind)
        proved = certified(objective, parameters)
        with monkeypatch.context() as context:
            context.setattr(module, "certified", lambda *arguments: False)
            found = existence(objective, parameters)
        assert proved <= (found.exists is True)
        verdicts.append((proved, found.exists))
    assert verdicts.count((True, True)) > 3 < verdicts.count((False, False))
    assert verdicts.count((False, True)) <= 2


def test_margins_are_differences_of_log_odds():
    objective, _ = solved(ordinal_data.random_rows(SIZES, 12)[0])
    at = np.random.default_rng(0).normal(size=objective.n_parameters)
    matrix, item = margin_matrix(objective)
    sigma, fields = objective.unpacked(at)
    table = objective.thresholds.table(fields)
    expected = []
    for i in range(3):
        x, s = objective.states[:, i].astype(int), objective.states @ sigma[i]
        for b in range(SIZES[i]):
            margins = table[x, i] - table[b, i] + (x - b) * s
            expected.append(margins[x != b])
    np.testing.assert_allclose(matrix @ at, np.concatenate(expected), atol=1e-12)
    assert (np.bincount(item) == len(objective.weights) * (np.array(SIZES) - 1)).all()


def test_too_large_or_out_of_time_is_undecided(monkeypatch):
    objective, at = solved(ordinal_data.all_states(SIZES))
    monkeypatch.setattr(module, "certified", lambda *arguments: False)
    found = existence(objective, at, seconds=0.0)
    assert found.exists is None and "not decided within 0 s" in found.message
    monkeypatch.setattr(module, "_MAX_PROBLEM_ENTRIES", 1)
    found = existence(objective, at)
    assert found.exists is None and "too many rows and items" in found.message


def test_a_solver_that_stopped_early_is_continued(monkeypatch):
    objective, at = solved(ordinal_data.all_states(SIZES))
    monkeypatch.setattr(module, "_MAX_PROBLEM_ENTRIES", 1)
    assert not certified(objective, at + 0.3)
    assert existence(objective, at + 0.3).exists is True


@pytest.mark.parametrize("kind", ["free", "blume_capel"])
def test_bounds_of_the_certificate(kind):
    """No eigenvalue of H is below the bound, and no derivative of log-odds above."""
    objective, at = solved(ordinal_data.random_rows(SIZES, 200)[0], kind=kind)
    coordinates, H = objective.coordinates(separate=True), objective.hessian(at)
    T = np.transpose([coordinates.to_parameters(e) for e in np.eye(len(H))])
    lowest, margins = [], margin_matrix(objective)
    for i, (indices, block) in enumerate(objective.item_hessians(at)):
        own = coordinates.of_item(i)
        np.testing.assert_allclose(own, T[np.ix_(indices, indices)], atol=1e-12)
        lowest.append(np.linalg.eigvalsh(own.T @ block @ own)[0])
        for matrix, of_all in ((own, T), (None, np.eye(len(H)))):
            derivatives = np.square(margins[0][margins[1] == i] @ of_all).sum(1)
            bound = module._largest_derivative(objective, i, matrix)
            assert derivatives.max() <= bound * (1 + 1e-12) < 3 * derivatives.max()
    assert 0 < min(lowest) <= np.linalg.eigvalsh(T.T @ H @ T)[0] * (1 + 1e-12)


def test_items_own_hessians_prove_it_without_the_whole(monkeypatch):
    objective, at = solved(ordinal_data.random_rows(SIZES, 200)[0])
    monkeypatch.setattr(module, "_MAX_PARAMETERS", 0)
    assert certified(objective, at) and not certified(objective, at + 0.1)


@pytest.mark.parametrize(
    ("kind", "seen", "expected"),
    [
        ("free", [0, 1, 3], True),
        ("free", [0, 1, 2, 3], False),
        ("blume_capel", [0, 1, 3], False),
        ("blume_capel", [0, 2], False),
        ("blume_capel", [1, 2], True),
        ("blume_capel", [0, 3], True),
        ("blume_capel", [2], True),
    ],
)
def test_thresholds_without_a_maximum_of_their_own(kind, seen, expected):
    """Some combination of statistics is nowhere larger than where rows are: a linear programme."""
    states = np.column_stack([np.resize(seen, 12), np.resize([0, 1], 12)])
    objective = OrdinalLikelihood(states, np.ones(12), Thresholds([4, 2], kind, 1))
    _, _, block = objective.thresholds.of_item(0)
    points = np.vstack([np.zeros(block.shape[1]), block])
    differences = np.concatenate([points[c] - points for c in seen])
    # Largest sum of margins that are not negative, for directions in a box.
    found = optimize.linprog(
        -differences.sum(0), -differences, np.zeros(len(differences)), bounds=(-1, 1)
    )
    assert (found.fun < -1e-9) == expected
    assert unbounded(objective).tolist() == ([0] if expected else [])
