"""The variational bound against sums over states of a product of units."""

import numpy as np

import fastmf as mf
from fastmf.inference.mean_field._layouts import layout_of
from fastmf.inference.mean_field.naive_bound import (
    naive_bound,
    naive_solutions,
    random_starts,
    sides_of,
)
from fastmf.kernels.mean_field.arguments import Tilt


def test_bound_is_average_energy_and_entropy_of_the_product():
    rng = np.random.default_rng(0)
    couplings = rng.normal(size=(4, 4))
    couplings = np.triu(couplings, 1) + np.triu(couplings, 1).T
    model = mf.BoltzmannMachine(couplings, mf.Ising(rng.normal(size=4)))
    b, field, clamped = rng.normal(size=(1, 4)), rng.normal(size=(1, 4)), np.zeros((1, 4), bool)
    clamped[0, 2] = True
    states = 2.0 * (np.arange(16)[:, None] >> np.arange(4) & 1) - 1
    states = states[states[:, 2] == -1]
    free = ~clamped[0]
    log_q = (states * (model.prior.field + b))[:, free].sum(1)
    log_q -= np.log(2 * np.cosh(model.prior.field + b)[0, free]).sum()
    q = np.exp(log_q)
    right = q @ (states @ field[0] - model.energy(states) - log_q)
    tilt = Tilt(field, np.zeros((1, 4)), clamped)
    bound, size = naive_bound(sides_of(model), b, tilt, np.full((1, 4), -1.0))
    assert np.isclose(q.sum(), 1) and np.isclose(bound[0], right)
    assert size[0] >= abs(bound[0])


def test_bound_of_a_solution_is_its_log_partition():
    rng = np.random.default_rng(1)
    weights = rng.normal(size=(6, 4)), rng.normal(size=(4, 3))
    layers = mf.Bernoulli(rng.normal(size=6)), mf.Ising(np.zeros(4)), mf.Bernoulli(np.zeros(3))
    model = mf.DBM(weights, layers)
    layout, zeros = layout_of(model, 1, "blocked"), np.zeros((1, 13))
    starts = random_starts(model, 5, 0)
    assert starts.shape == (6, 6)
    tilt = Tilt(zeros, zeros, zeros.astype(bool))
    found = naive_solutions(mf.tap, model, layout, starts, tilt, zeros)
    right = mf.tap(model, (starts, 0 * starts), order=1).log_partition
    b = layout.join(found.b, np.zeros((6, 13)))
    assert np.allclose(naive_bound(sides_of(model), b, tilt)[0], right)
