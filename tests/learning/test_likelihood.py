from types import SimpleNamespace

import numpy as np
import pytest

from fastmf.learning.likelihood import log_likelihood, log_partition_estimate
from fastmf.models import RBM, exact
from fastmf.priors import Bernoulli, Gaussian


def solutions(means, log_partition):
    means = np.array(means, dtype=float)
    return SimpleNamespace(mean=(means, means), log_partition=np.array(log_partition, dtype=float))


@pytest.mark.parametrize("hidden", [Bernoulli([0.1, -0.4]), Gaussian([0.1, -0.4], [2.0, 3.0])])
def test_probabilities_of_all_states_add_up_to_one(hidden):
    model = RBM(np.random.default_rng(0).normal(size=(4, 2)), Bernoulli(np.arange(4) / 4), hidden)
    states = (np.arange(16)[:, None] >> np.arange(4) & 1).astype(float)
    p = np.exp(log_likelihood(model, states, exact(model).log_partition))
    assert p.sum() == pytest.approx(1, abs=1e-13)


def test_estimates_count_each_solution_once():
    reached = solutions([[0], [1], [0]], [1.0, 3.0, 1.0])
    assert log_partition_estimate(reached) == pytest.approx(np.log(np.exp(1) + np.exp(3)))
    assert log_partition_estimate(reached, "mean") == pytest.approx(2)
    with pytest.raises(ValueError, match="'median'"):
        log_partition_estimate(reached, "median")


def test_diverged_solutions_do_not_count():
    reached = solutions([[0], [1]], [-np.inf, 3.0])
    assert log_partition_estimate(reached) == 3
    assert log_partition_estimate(reached, "mean") == 3
