"""Which phases the steps of a machine have."""

import numpy as np
import pytest

import fastmf as mf
from fastmf.learning.layered.compiled_steps import phases_of
from fastmf.learning.layered.phases import Problem
from fastmf.learning.layered.settings import LayeredSettings
from fastmf.models.dbm import machine_of


def spiked(field):
    return mf.GaussBernoulli(field, np.full(len(field), 2.0), 0 * field)


BINARY = (mf.Bernoulli,) * 3
RBM_OF_PIXELS = mf.Bernoulli, mf.Ising


@pytest.mark.parametrize(
    "kinds, options, sparse, names",
    [
        (RBM_OF_PIXELS, {}, False, "DenseRows Solve MoveCouplings MoveFields"),
        (RBM_OF_PIXELS, {"gradient": "cd"}, True, "SparseRows Sample MoveCouplings MoveFields"),
        ((mf.Bernoulli, spiked), {}, False, "DenseRows Solve MoveCouplings MoveScaled"),
        ((spiked, spiked), {}, False, "DenseRows Solve MoveCouplings MoveUnits"),
        (BINARY, {"gradient": "pcd"}, False, "DeepRows Sample MoveCouplings MoveUnits"),
    ],
)
def test_a_step_is_a_list_of_phases(kinds, options, sparse, names):
    layers = [kind(np.zeros(4)) for kind in kinds]
    model = machine_of([np.zeros((4, 4))] * (len(kinds) - 1), layers)
    problem = Problem(model, LayeredSettings(**options), sparse)
    assert [phase.__name__ for phase in phases_of(problem)] == names.split()
    for phase in phases_of(problem):
        assert all(phase.requires(problem).values())
