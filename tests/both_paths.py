"""Training by compiled steps beside the general path."""

import numpy as np
import pytest

import fastmf as mf
from fastmf.learning.layered.compiled_steps import CompiledSteps
from fastmf.learning.layered.family import LAYERED_FAMILY, train
from fastmf.learning.training.ascent import initial_state
from fastmf.priors._protocol import learned_fields

# The family whose steps all take the general path.
ONE_BY_ONE = LAYERED_FAMILY._replace(steps=None)


def assert_equal(found, expected, **close):
    """Compare couplings, learned fields of all units, their last step, and persistent states."""

    def arrays(state):
        parts = (*state.model.layers, *state.velocity.layers)
        fields = [field for prior in parts for field in learned_fields(prior)]
        return [*state.model.couplings, *state.velocity.couplings, *state.chains, *fields]

    for one, other in zip(arrays(found), arrays(expected), strict=True):
        np.testing.assert_allclose(one, other, **close)


def states_by_threads(model, X, settings, rows, rate, chains=()):
    """States after compiled steps of one, two and three threads."""
    states = []
    for n_workers in (1, 2, 3):
        state, (n_steps, n_batch) = initial_state(model), rows.shape
        state.chains = chains
        taken = CompiledSteps(model, X, settings, n_batch, n_batch, n_workers)
        taken.take(state, rows, range(n_steps), [rate] * n_steps)
        states.append(state)
    return states


def assert_resumes(model, X, settings, folder, epoch=1):
    """Interrupt a run after an epoch: what goes on from its checkpoint is a whole run, returned."""
    file, whole = folder / "run.npz", train(model, X, settings, seed=3)

    def stop(state):
        if state.epoch == epoch:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(model, X, settings, seed=3, checkpoint=file, checkpoint_every=2, callbacks=[stop])
    resumed = train(model, X, settings, seed=3, checkpoint=file)
    assert_equal(resumed, whole, rtol=0, atol=0)
    return whole


# Options of a short run.
RUN = {"batch_size": 7, "n_epochs": 3, "learning_rate": (0.1, 0.01), "l2": 0.01, "n_sweeps": 2}

every_gradient = pytest.mark.parametrize(
    "options",
    [
        {"gradient": "tap"},
        {"gradient": "mean_field", "centred": False, "l1": 0.01},
        {"gradient": "tap3", "momentum": 0.9},
        {"gradient": "tap", "n_starts": 4},
        {"gradient": "tap", "n_starts": 9},
        {"gradient": "tap", "starts": "persistent", "n_starts": 5, "n_sweeps": 4},
        {"gradient": "cd"},
        {"gradient": "pcd", "n_starts": 9},
    ],
    ids=str,
)


def random_machine(n_visible, n_hidden, dtype):
    """An RBM of binary units."""
    rng = np.random.default_rng(0)
    weights = rng.normal(size=(n_visible, n_hidden)).astype(dtype) / 10
    return mf.RBM(weights, *(mf.Bernoulli(np.zeros(n, dtype)) for n in (n_visible, n_hidden)))
