import numpy as np
import pytest
from separated_units import separated

from fastmf.learning.pseudo_likelihood.binary import separation as module
from fastmf.learning.pseudo_likelihood.binary.distinct_rows import distinct_rows
from fastmf.learning.pseudo_likelihood.binary.objective import PseudoLikelihood
from fastmf.learning.pseudo_likelihood.binary.separation import (
    dependent_units,
    diverging_units,
    gram,
    margins,
    units_that_never_meet,
)
from fastmf.learning.pseudo_likelihood.binary.starts import starting_point
from fastmf.learning.pseudo_likelihood.existence import TimeLimit
from fastmf.learning.pseudo_likelihood.lbfgs import lbfgs
from fastmf.learning.pseudo_likelihood.newton import newton


def rows(n, d, ones, seed=0):
    return np.where(np.random.default_rng(seed).random((n, d)) < ones, 1.0, -1.0)


def direction_of(objective, vector):
    """Whether no margin falls along a vector, and the units of which some rise."""
    changes = margins(objective, vector)
    return changes.min() >= -1e-9, np.flatnonzero((changes > 1e-6).any(0))


@pytest.mark.parametrize("n, d", [(5, 9), (20, 30)])
def test_fewer_rows_than_units_have_a_closed_form(n, d):
    """Couplings P - diag(P) with the projection P on the rows predict each unit from others."""
    states = rows(n, d, 0.4)
    P = states.T @ np.linalg.solve(states @ states.T, states)
    objective = PseudoLikelihood(distinct_rows(states))
    vector = objective.packed(P - np.diag(P.diagonal()), np.zeros(d))
    expected = np.broadcast_to(1 - P.diagonal(), states.shape)
    np.testing.assert_allclose(margins(objective, vector), expected, atol=1e-10)
    np.testing.assert_array_equal(dependent_units(states), np.arange(d))
    assert direction_of(objective, vector)[0]


def test_constant_units_and_copies_depend_on_others():
    states = rows(300, 9, 0.5)
    assert len(dependent_units(states)) == 0
    states[:, 2], states[:, 6], states[:, 7] = 1, states[:, 1], -states[:, 4]
    np.testing.assert_array_equal(dependent_units(states), [1, 2, 4, 6, 7])
    np.testing.assert_allclose(gram(states)[0, 1:], states.sum(0))


@pytest.mark.parametrize("seed", range(15))
def test_all_that_is_named_is_separated(seed):
    rng = np.random.default_rng(seed)
    states = rows(rng.integers(6, 40), rng.integers(2, 5), rng.choice([0.1, 0.3]), seed)
    if seed % 3 == 0:
        states[:, 1] = -1
    objective = PseudoLikelihood(distinct_rows(states))
    parameters = newton(objective, starting_point(objective, "independent")).parameters
    expected = separated(objective.rows.states)
    for units in (
        dependent_units(states), units_that_never_meet(states),
        diverging_units(objective, parameters),
    ):  # fmt: skip
        assert set(units) <= set(expected)


def test_two_values_that_never_meet():
    """The coupling and fields that lower the probability of one pair of values alone."""
    states = rows(400, 5, 0.5)
    assert len(units_that_never_meet(states)) == 0
    states = states[(states[:, 1] < 0) | (states[:, 3] > 0)]
    np.testing.assert_array_equal(units_that_never_meet(states), [1, 3])
    objective = PseudoLikelihood(distinct_rows(states))
    J, h = np.zeros((5, 5)), np.array([0.0, -1.0, 0.0, 1.0, 0.0])
    J[1, 3] = J[3, 1] = 1
    none_falls, rising = direction_of(objective, objective.packed(J, h))
    assert none_falls and rising.tolist() == [1, 3]
    # A constant unit has its own value with each of another: only itself is separated.
    constant = rows(50, 3, 0.5)
    constant[:, 0] = 1
    np.testing.assert_array_equal(units_that_never_meet(constant), [0])


def test_a_direction_among_many_parameters_takes_few_projections(monkeypatch):
    """1,830 parameters and 6,000 margins: linear programmes of this size take minutes."""
    objective = PseudoLikelihood(distinct_rows(rows(100, 60, 0.3)))
    found = lbfgs(objective, starting_point(objective, "auto"), max_iter=300)
    projections, projection = [], module._projection

    def counted(*arguments):
        projections.append(projection(*arguments))
        return projections[-1]

    monkeypatch.setattr(module, "_projection", counted)
    units = diverging_units(objective, found.parameters)
    assert len(units) > 50 and 0 < len(projections) <= 20
    changes = margins(objective, projections[-1])
    assert changes.min() > -1e-9 * changes.max()
    np.testing.assert_array_equal(units, np.flatnonzero((changes > 1e-6 * changes.max()).any(0)))


def test_no_projection_without_large_margins_or_time(monkeypatch):
    monkeypatch.setattr(module, "_projection", None)
    states = rows(60, 4, 0.5)
    objective = PseudoLikelihood(distinct_rows(states))
    assert len(diverging_units(objective, np.zeros(10))) == 0
    large = objective.packed(3 * (1 - np.eye(4)), np.zeros(4))
    assert len(diverging_units(objective, large, TimeLimit(0.0))) == 0
