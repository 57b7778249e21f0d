import itertools

import numpy as np
import pytest

from fastmf.inference.sampling.spins import all_states, sample
from fastmf.learning.pseudo_likelihood import existence as module
from fastmf.learning.pseudo_likelihood.distinct_rows import distinct_rows
from fastmf.learning.pseudo_likelihood.existence import (
    certified,

    existence,
    separation,
)
from fastmf.learning.pseudo_likelihood.newton import newton
from fastmf.learning.pseudo_likelihood.objective import PseudoLikelihood
from fastmf.learning.pseudo_likelihood.separation import diverging_units
from fastmf.learning.pseudo_likelihood.starts import starting_point
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
    monkeypatch.setattr(module, "_MAX_NEWTON_PARAMETERS", 3)
    assert certified(objective, parameters)
    assert not certified(objective, parameters + 1)
    # Where a solver stopped too early, some more iterations of L-BFGS lead to a proof.
    monkeypatch.setattr(module, "separation", None)
    assert existence(objective, parameters + 1).exists
