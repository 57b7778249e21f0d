import numpy as np
import pytest
from stripes import quick

import fastmf as mf
from fastmf.inference.mean_field.likelihood import log_likelihood
from fastmf.learning.layered.step import metrics
from fastmf.learning.training.ascent import initial_state


def two_phases(coupling, n_layers=2):
    """Spins with two solutions if they are coupled strongly, and rows that lead to one or both."""
    weights = (np.full((9, 9), coupling),) * (n_layers - 1)
    layers = (mf.Ising(np.zeros(9)),) * n_layers
    model = mf.RBM(*weights, *layers) if n_layers == 2 else mf.DBM(weights, layers)
    return model, np.ones((3, 9)), np.vstack([np.ones((3, 9)), -np.ones((3, 9))])


@pytest.mark.parametrize("n_layers", [2, 3])
def test_solutions_found_are_kept_until_they_are_no_more(n_layers):
    def figure(rows):
        return metrics(state, rows, None, quick(), 1)["log_likelihood"]

    model, one, both = two_phases(0.4, n_layers)
    state = initial_state(model)
    alone = figure(one)
    assert len(state.solutions) == 2 * n_layers and {len(s) for s in state.solutions} == {1}
    with_both = figure(both)
    assert alone - with_both == pytest.approx(np.log(2) / (9 * n_layers), rel=1e-3)
    # No row leads to the second solution any more, and still it counts, also a little further on.
    assert figure(one) == pytest.approx(with_both, abs=1e-9)
    state.model = two_phases(0.38, n_layers)[0]
    beside = initial_state(state.model)
    assert figure(one) == pytest.approx(
        metrics(beside, both, None, quick(), 1)["log_likelihood"], abs=1e-6
    )
    # Of weak couplings there is one solution only.
    state.model = two_phases(0.01, n_layers)[0]
    reached = mf.tap(state.model, one[:1]).log_partition
    options = {} if n_layers == 2 else {"tol": 1e-8}
    expected = log_likelihood(state.model, one, reached[0], **options).mean() / (9 * n_layers)
    assert figure(one) == pytest.approx(expected, abs=1e-5)
    assert {len(s) for s in state.solutions} == {1}
