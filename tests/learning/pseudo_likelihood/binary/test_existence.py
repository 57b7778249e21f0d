import itertools
import time

import numpy as np
import pytest
from separated_units import separated

from fastmf.inference.sampling.spins import all_states, sample
from fastmf.learning.pseudo_likelihood.binary import existence as module
from fastmf.learning.pseudo_likelihood.binary.distinct_rows import distinct_rows
from fastmf.learning.pseudo_likelihood.binary.existence import (
    certified,
    existence,
    separation,
)
from fastmf.learning.pseudo_likelihood.binary.objective import PseudoLikelihood
from fastmf.learning.pseudo_likelihood.binary.separation import diverging_units
from fastmf.learning.pseudo_likelihood.binary.starts import starting_point
from fastmf.learning.pseudo_likelihood.lbfgs import lbfgs
from fastmf.learning.pseudo_likelihood.newton import newton
from fastmf.models import BoltzmannMachine
from fastmf.priors import Ising

# WeightedRows where unit 1 follows from the others by couplings of its own, but not by shared ones.
SHARED = np.array([
    [1, -1, -1, -1], [1, 1, -1, -1], [-1, -1, 1, -1], [-1, 1, 1, -1],
    [-1, 1, -1, 1], [1, 1, -1, 1], [1, -1, 1, 1], [1, 1, 1, 1],
], float)  # fmt: skip


def solved(states):
    objective = PseudoLikelihood(distinct_rows(np.asarray(states, float)))
    return objective, newton(objective, starting_point(objective, "independent")).parameters


@pytest.mark.parametrize("present", list(itertools.product([False, True], repeat=4)))
def test_two_units_have_a_maximum_if_all_four_rows_occur(present):
    if not any(present):
        return
    objective, parameters = solved(all_states(2)[list(present)])
    assert separation(objective).exists == all(present)
    assert certified(objective, parameters) == all(present)


def test_couplings_are_shared():
    objective, parameters = solved(SHARED)
    assert module._separated_alone(SHARED, 1, np.array([0, 2, 3]))
    assert separation(objective).exists
    assert certified(objective, parameters)


@pytest.mark.parametrize("at_once", [0, module._MAX_JOINT_ENTRIES])
def test_the_two_proofs_agree(at_once, monkeypatch):
    monkeypatch.setattr(module, "_MAX_JOINT_ENTRIES", at_once)
    rng = np.random.default_rng(0)
    states, verdicts = all_states(4), []
    for _ in range(40):
        some = states[rng.random(16) < 0.75]
        objective, parameters = solved(some)
        verdicts.append(certified(objective, parameters))
        programme = separation(objective)
        assert programme.exists == verdicts[-1]
        assert existence(objective, parameters) == programme
    assert 5 < sum(verdicts) < 35


def test_directions_found_from_where_newton_stopped():
    """Strongly coupled units: the same verdicts and units as by linear programmes, mostly alone."""
    rng, found = np.random.default_rng(5), 0
    for _ in range(12):
        J = np.triu(rng.normal(size=(7, 7)), 1)
        model = BoltzmannMachine(J + J.T, Ising(rng.normal(size=7)))
        objective, parameters = solved(sample(model, 300, rng))
        programme = separation(objective)
        assert existence(objective, parameters).units == programme.units
        # Some separated units may be missing, but all that are named are separated.
        units = diverging_units(objective, parameters)
        assert set(units) <= set(programme.units)
        found += tuple(units) == programme.units != ()
    assert found > 6


def test_the_separated_units_are_named():
    rng = np.random.default_rng(1)
    states = np.where(rng.random((500, 6)) < 0.5, 1.0, -1.0)
    states[:, 4] = states[:, 1]
    result = separation(PseudoLikelihood(distinct_rows(states)))
    assert result.exists is False and result.units == (1, 4)
    assert "units 1, 4" in result.message and "l2" in result.message
    states[:, 2] = 1
    assert 2 in separation(PseudoLikelihood(distinct_rows(states))).units


def test_a_small_gradient_proves_no_maximum():
    states = all_states(3)
    objective, parameters = solved(states[states[:, 0] <= states[:, 1]])
    gradient = objective.value_and_gradient(parameters)[1]
    assert abs(gradient).max() < 1e-9  # looks converged
    assert existence(objective, parameters).exists is False
    ridge = PseudoLikelihood(objective.rows, l2=1e-3)
    assert existence(ridge, parameters).exists


def test_certificate_of_many_parameters(monkeypatch):
    rng = np.random.default_rng(2)
    states = np.where(rng.random((400, 5)) < 0.5, 1.0, -1.0)
    objective, parameters = solved(states)
    exact = np.linalg.eigvalsh(objective.hessian(parameters))[0]
    bounds = [module._min_curvature(objective, parameters, size) for size in (1, 2, 5)]
    assert 0.1 * exact < bounds[2] < bounds[1] < bounds[0] <= exact
    few = module._min_curvature(objective, parameters, 5, budget=1250 + 20 * 25)
    assert 0 < few < bounds[2]
    monkeypatch.setattr(module, "_MAX_DENSE_PARAMETERS", 3)
    assert certified(objective, parameters)
    assert not certified(objective, parameters + 1)
    # Where a solver stopped too early, some more iterations of L-BFGS lead to a proof.
    monkeypatch.setattr(module, "separation", None)
    assert existence(objective, parameters + 1).exists


@pytest.mark.parametrize(
    "n, d, ones", [(50, 200, 0.3), (200, 60, 0.05), (2000, 100, 0.03), (150, 40, 0.1)]
)
def test_few_rows_and_rare_units_take_neither_iterations_nor_programmes(n, d, ones, monkeypatch):
    """Whatever the speed of the machine: nothing that takes long is called."""
    states = np.where(np.random.default_rng(0).random((n, d)) < ones, 1.0, -1.0)
    objective = PseudoLikelihood(distinct_rows(states))
    for name in ("newton", "lbfgs", "hessian_solver", "linear_programme"):
        monkeypatch.setattr(module, name, None)
    found = existence(objective, starting_point(objective, "independent"))
    assert found.exists is False and found.units == tuple(range(d))
    # The direction of fewer rows than units needs no field.
    if n < d:
        P = states.T @ np.linalg.solve(states @ states.T, states)
        vector = objective.packed(P - np.diag(P.diagonal()), np.zeros(d))
        assert module.margins(objective, vector).min() > 0


def test_a_point_that_separates_all_rows_is_a_proof(monkeypatch):
    states = np.where(np.random.default_rng(0).random((250, 200)) < 0.5, 1.0, -1.0)
    objective = PseudoLikelihood(distinct_rows(states))
    found = lbfgs(objective, starting_point(objective, "auto"))
    monkeypatch.setattr(module, "_continued", None)
    assert existence(objective, found.parameters).units == tuple(range(200))


@pytest.mark.parametrize("units", [30, 110])
def test_residuals_prove_a_maximum(units, monkeypatch):
    """Without any Hessian: the gradient is smaller than residuals allow where data separate."""
    states = np.where(np.random.default_rng(1).random((4 * units, units)) < 0.4, 1.0, -1.0)
    objective = PseudoLikelihood(distinct_rows(states))
    parameters = lbfgs(objective, starting_point(objective, "auto"), tol=1e-9).parameters
    monkeypatch.setattr(module, "_min_curvature", lambda *arguments: 0.0)
    monkeypatch.setattr(PseudoLikelihood, "hessian", None)
    monkeypatch.setattr(module, "_MAX_DENSE_PARAMETERS", 0)
    assert existence(objective, parameters).exists is True
    assert not certified(objective, parameters + 0.1)


@pytest.mark.parametrize("size", [0, module._MAX_SMALL_ENTRIES, np.inf])
def test_verdicts_and_units_against_an_independent_programme(size, monkeypatch):
    """Rare, constant and copied units, with and without weights."""
    monkeypatch.setattr(module, "_MAX_SMALL_ENTRIES", size)
    seen = []
    for seed in range(24):
        rng = np.random.default_rng(seed)
        n, d = int(rng.integers(5, 60)), int(rng.integers(2, 6))
        states = np.where(rng.random((n, d)) < rng.choice([0.1, 0.3, 0.5]), 1.0, -1.0)
        if seed % 4 == 0:
            states[:, 0] = states[:, -1]
        if seed % 7 == 0:
            states[:, 1] = 1
        weights = rng.integers(0, 3, n).astype(float) if seed % 2 else None
        objective = PseudoLikelihood(distinct_rows(states, weights))
        parameters = newton(objective, starting_point(objective, "minorant")).parameters
        found, expected = existence(objective, parameters), separated(objective.rows.states)
        assert found.exists == (len(expected) == 0)
        assert set(found.units) <= set(expected)
        assert size == 0 or found.units == tuple(expected)
        seen.append(found.exists)
    assert 4 < sum(seen) < 20


def test_out_of_time_is_undecided_and_says_so():
    states = np.where(np.random.default_rng(3).random((60, 6)) < 0.5, 1.0, -1.0)
    objective = PseudoLikelihood(distinct_rows(states))
    start = np.zeros(objective.n_parameters)
    found = existence(objective, start, seconds=0.0)
    assert found.exists is None and found.units == ()
    assert "not decided within 0 s" in found.message and "existence_seconds" in found.message
    assert existence(objective, start).exists is True


def test_work_ends_with_the_clock(monkeypatch):
    """Each look at the clock finds a second gone: solvers and programmes stop after few calls."""
    seconds, calls = itertools.count(), []
    monkeypatch.setattr(time, "monotonic", lambda: next(seconds))

    def counted(function):
        return lambda *arguments, **options: (
            calls.append(function) or function(*arguments, **options)
        )

    for name in ("newton", "linear_programme"):
        monkeypatch.setattr(module, name, counted(getattr(module, name)))
    states = np.where(np.random.default_rng(0).random((70, 40)) < 0.5, 1.0, -1.0)
    objective = PseudoLikelihood(distinct_rows(states))
    found = existence(objective, np.zeros(objective.n_parameters), seconds=3.0)
    assert found.exists is None and 1 <= len(calls) <= 2


def test_too_large_for_programmes(monkeypatch):
    monkeypatch.setattr(module, "_MAX_PROGRAMME_SIZE", 10)
    monkeypatch.setattr(module, "_continued", lambda objective, parameters, limit: (parameters, 0))
    states = np.where(np.random.default_rng(3).random((60, 6)) < 0.5, 1.0, -1.0)
    objective = PseudoLikelihood(distinct_rows(states))
    found = existence(objective, np.zeros(objective.n_parameters))
    assert found.exists is None and "too many rows and units" in found.message


def test_progress_of_programmes_is_logged(caplog, monkeypatch):
    monkeypatch.setattr(module, "_MAX_JOINT_ENTRIES", 0)
    caplog.set_level("INFO", "fastmf")
    states = np.where(np.random.default_rng(3).random((80, 5)) < 0.5, 1.0, -1.0)
    assert separation(PseudoLikelihood(distinct_rows(states))).exists is True
    assert "5 of 5 units left" in caplog.text
