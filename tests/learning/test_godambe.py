import numpy as np
import pytest

from fastmf.learning.godambe import adjusted, sandwich, sandwich_errors, wald_tests
from fastmf.learning.maximisation import newton, starting_point
from fastmf.learning.pseudo_likelihood import PseudoLikelihood
from fastmf.learning.rows import Rows
from fastmf.learning.spins import all_states


def test_two_units_have_the_errors_of_a_contingency_table():
    """For two units pseudo-likelihood is likelihood: J is a quarter of the log-odds ratio."""
    cells = np.array([30.0, 12.0, 25.0, 50.0])
    objective = PseudoLikelihood(Rows(all_states(2), cells))
    parameters = newton(objective, starting_point(objective, "independent")).parameters
    signs = np.prod(all_states(2), axis=1)
    assert parameters[2] == pytest.approx(signs @ np.log(cells) / 4, rel=1e-10)
    contrasts = np.vstack([all_states(2).T, signs]) / 4
    expected = contrasts @ np.diag(1 / cells) @ contrasts.T
    np.testing.assert_allclose(sandwich(objective, parameters), expected, rtol=1e-8)


def by_closed_testing(p, local):
    """Largest p-value of any set of hypotheses that holds this one."""
    out = np.zeros(len(p))
    for subset in range(1, 2 ** len(p)):
        members = [i for i in range(len(p)) if subset >> i & 1]
        for i in members:
            out[i] = max(out[i], local(p[members]))
    return out


def test_adjusted_p_values():
    p = np.array([0.04, 0.001, 0.3, 0.02, 0.9])
    bonferroni_of_all = by_closed_testing(p, lambda q: min(1, len(q) * q.min()))
    np.testing.assert_allclose(adjusted(p, "holm"), bonferroni_of_all)
    np.testing.assert_allclose(adjusted(p, "bonferroni"), np.minimum(5 * p, 1))
    np.testing.assert_allclose(
        adjusted(p, "benjamini_hochberg"), [0.2 / 3, 0.005, 0.375, 0.05, 0.9]
    )
    np.testing.assert_allclose(
        adjusted(p, "benjamini_yekutieli"),
        np.minimum(adjusted(p, "benjamini_hochberg") * (1 + 1 / 2 + 1 / 3 + 1 / 4 + 1 / 5), 1),
    )
    np.testing.assert_array_equal(adjusted(p, "none"), p)
    assert len(adjusted(p[:0], "holm")) == 0


def test_wald():
    found = wald_tests(np.array([1.96, 0.0]), np.array([1.0, 2.0]), ([0, 0], [1, 2]), "bonferroni")
    np.testing.assert_allclose(found.p_value, [0.04999579, 1.0], rtol=1e-6)
    np.testing.assert_allclose(found.adjusted, [0.09999158, 1.0], rtol=1e-6)


@pytest.mark.parametrize("l2", [0.0, 0.05])
def test_errors_of_a_few_parameters_are_those_of_the_whole_covariance(l2):
    rng = np.random.default_rng(6)
    states = np.where(rng.random((900, 12)) < 0.4, -1.0, 1.0)
    states[:, 1:] *= np.where(rng.random((900, 11)) < 0.4, states[:, :-1] * states[:, 1:], 1)
    objective = PseudoLikelihood(Rows(states, rng.random(900) + 0.1), l2)
    parameters = newton(objective, starting_point(objective, "independent")).parameters
    places = np.array([0, 7, 12, 40, 77])
    expected = np.sqrt(sandwich(objective, parameters).diagonal()[places])
    found = sandwich_errors(objective, parameters, places)
    np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_a_singular_hessian_is_reported():
    states = np.repeat(all_states(2), 2, axis=1)
    objective = PseudoLikelihood(Rows(states, np.ones(4)))
    with pytest.raises(ValueError, match="nearly singular"):
        sandwich_errors(objective, np.zeros(10), np.array([5]))
