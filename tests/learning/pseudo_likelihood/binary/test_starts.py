import numpy as np
import pytest

from fastmf.learning.pseudo_likelihood.binary.objective import PseudoLikelihood
from fastmf.learning.pseudo_likelihood.rows import distinct_rows


@pytest.mark.parametrize("factor", [2.0**-40, 2.0**40])
def test_the_start_does_not_depend_on_what_weights_add_up_to(factor):
    rng = np.random.default_rng(7)
    states, weights = np.where(rng.random((200, 6)) < 0.4, 1.0, -1.0), rng.random(200)
    states[:, 2] = 1
    objectives = [PseudoLikelihood(distinct_rows(states, c * weights)) for c in (1, factor)]
    first, second = (objective.independent() for objective in objectives)
    np.testing.assert_array_equal(first, second)
    assert np.isfinite(first).all()
    # With the weight of all rows, half a row of each value is Firth's penalty of single units.
    field = objectives[0].independent(objectives[0].total)[:6]
    total = weights.sum()
    np.testing.assert_allclose(np.tanh(field), objectives[0].mean * total / (total + 1))
