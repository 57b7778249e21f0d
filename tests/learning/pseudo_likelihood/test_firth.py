import numpy as np
import pytest
from populations import population

from fastmf.learning.pseudo_likelihood.distinct_rows import distinct_rows
from fastmf.learning.pseudo_likelihood.firth import firth_scoring, penalty
from fastmf.learning.pseudo_likelihood.objective import PseudoLikelihood


@pytest.mark.parametrize("ones", [0, 3, 10])
def test_firth_for_one_unit_adds_half_a_row_of_each_value(ones):
    states = np.where(np.arange(10) < ones, 1.0, -1.0)[:, None]
    objective = PseudoLikelihood(distinct_rows(states))
    fit = firth_scoring(objective, np.zeros(1), tol=1e-8)
    assert fit.stopped
    assert np.tanh(fit.parameters[0]) == pytest.approx((2 * ones - 10) / 11, abs=1e-9)


def test_the_gradient_of_the_firth_penalty():
    objective, truth = population(d=3)
    numeric = [
        (penalty(objective, truth + e)[0] - penalty(objective, truth - e)[0]) / 2e-5
        for e in 1e-5 * np.eye(len(truth))
    ]
    np.testing.assert_allclose(penalty(objective, truth)[1], numeric, atol=1e-9)
