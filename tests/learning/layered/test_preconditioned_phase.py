"""Compiled steps along preconditioned gradients are those of the general path."""

import numpy as np
from both_paths import ONE_BY_ONE, assert_equal
from stripes import N_VISIBLE, quick, stripes

import fastmf as mf
from fastmf.learning.layered.compiled_steps import CompiledSteps
from fastmf.learning.layered.family import train
from fastmf.learning.layered.preconditioned_phase import Preconditioners
from fastmf.learning.layered.preconditioning import prepare
from fastmf.learning.layered.settings import LayeredSettings
from fastmf.learning.training.ascent import initial_state
from fastmf.reference.linear.product import unpacked


def binary(*sizes):
    return tuple(mf.Bernoulli(np.zeros(n)) for n in sizes)


def test_matrices_are_packed_too():
    rng = np.random.default_rng(0)
    held = Preconditioners(mf.RBM(np.zeros((5, 3)), *binary(5, 3)))
    given = [rng.normal(size=(n, n)) for n in (5, 3)]
    held.load(given)
    for matrix, packed, expected in zip(held._matrices, held._packed, given, strict=True):
        np.testing.assert_array_equal(matrix, expected)
        np.testing.assert_array_equal(unpacked(packed, len(expected)), expected)


def test_the_number_of_threads_does_not_matter():
    """Of machines so large that several threads have tasks, and panels in both directions."""
    rng = np.random.default_rng(0)
    weights = rng.normal(size=(300, 90)).astype(np.float32) / 10
    model = mf.RBM(weights, *(mf.Bernoulli(np.zeros(n, np.float32)) for n in weights.shape))
    X = (rng.random((200, 300)) < 0.3).astype(np.float32)
    settings = LayeredSettings(gradient="pcd", batch_size=60, preconditioning=0.2)
    rows = np.stack([rng.permutation(200)[:60] for _ in range(20)])
    states = []
    for n_workers in (1, 2, 3):
        state = initial_state(model)
        prepare(state, X, settings)
        taken = CompiledSteps(model, X, settings, 60, 60, n_workers)
        taken.take(state, rows, range(20), [0.5] * 20)
        states.append(state)
    assert abs(states[0].model.weights - weights).max() > 0.01
    for other in states[1:]:
        assert_equal(other, states[0], rtol=0, atol=0)


def test_deep_machines_take_the_steps_of_the_general_path():
    rng, sizes = np.random.default_rng(1), (N_VISIBLE, 5, 3)
    couplings = tuple(0.1 * rng.normal(size=pair) for pair in (sizes[:2], sizes[1:]))
    model, X = mf.DBM(couplings, binary(*sizes)), stripes()
    for l1 in (0.0, 0.01):
        settings = quick(preconditioning=0.2, gradient="tap", n_sweeps=3, l1=l1)
        found = train(model, X, settings, seed=0)
        expected = train(model, X, settings, seed=0, family=ONE_BY_ONE)
        assert abs(found.model.couplings[1] - couplings[1]).max() > 1e-5
        assert_equal(found, expected, rtol=1e-9, atol=1e-12)
