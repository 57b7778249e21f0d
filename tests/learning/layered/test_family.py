import numpy as np
from stripes import quick, start, stripes

from fastmf.learning.layered.family import STEPS_PER_EPOCH, quasi_newton_family
from fastmf.learning.layered.quasi_newton_steps import Objective, take_step
from fastmf.learning.training.ascent import initial_state


def test_a_quasi_newton_batch_is_all_rows_whatever_it_holds():
    X, settings = stripes(), quick(gradient="exact", batch_size=len(stripes()))
    family = quasi_newton_family(X, None, settings)
    found, expected = initial_state(start()), initial_state(start())
    family.plan(start(), settings, 1)(found, X[:0], 0.0, None)
    for _ in range(STEPS_PER_EPOCH):
        take_step(expected, Objective(X, None, settings.l2))
    np.testing.assert_array_equal(found.model.weights, expected.model.weights)
    assert (found.model.weights != start().weights).any()
