"""A few sweeps of all rows at once are those that `tap` makes of each."""

import numpy as np
import pytest

import fastmf as mf
from fastmf.inference.mean_field.few_sweeps import few_sweeps, repeated
from fastmf.inference.mean_field.tap import TapOptions
from fastmf.kernels.mean_field.arguments import Tilt

N, N_ROWS = 37, 70


def couplings(scale, dtype=np.float64):
    upper = np.triu(scale * np.random.default_rng(0).normal(size=(N, N)), 1).astype(dtype)
    return upper + upper.T


PRIORS = {
    "ising": mf.Ising(np.linspace(-1, 1, N)),
    "bounded": mf.TruncatedGaussian(np.linspace(-1, 1, N), 1.0, -1.0, np.linspace(1, 3, N)),
    "binomial": mf.Binomial(np.linspace(-1, 1, N), np.arange(N) % 3 + 1),
    "mixed": mf.Concatenated(mf.Bernoulli(np.ones(5)), mf.Ising(np.zeros(N - 5))),
}


@pytest.mark.parametrize("name", PRIORS)
@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("n_sweeps", [1, 4])
def test_they_are_those_of_tap(name, order, n_sweeps):
    rng, prior, J = np.random.default_rng(1), PRIORS[name], couplings(0.05)
    mean, var = rng.normal(size=(N_ROWS, N)) / 3, rng.random((N_ROWS, N)) / 4
    tilt = rng.normal(size=(N_ROWS, N)) / 2, rng.random(N) / 5
    machine = mf.BoltzmannMachine(J, prior)
    state = np.array([mean, var, np.zeros_like(mean), np.zeros_like(mean)])
    options = TapOptions(order=order, max_iter=n_sweeps, n_threads=2)
    given = Tilt(tilt[0], np.tile(tilt[1], (N_ROWS, 1)), np.zeros((1, N), bool))
    record, _ = few_sweeps(machine, state, given, options)
    expected = mf.tap(
        machine,
        (mean, var),
        order=order,
        schedule="sequential",
        field=tilt[0],
        precision=tilt[1],
        tol=1e-300,
        max_iter=n_sweeps,
        acceleration=False,
        log_partition=False,
    )
    for name, part in zip(("mean", "var", "b", "a"), record.state, strict=True):
        np.testing.assert_allclose(part, getattr(expected, name), rtol=1e-10, atol=1e-12)


def test_many_sweeps_reach_a_fixed_point():
    J, prior = couplings(0.05, np.float32), mf.Ising(np.linspace(-1, 1, N, dtype=np.float32))
    machine, start = mf.BoltzmannMachine(J, prior), np.zeros((4, N_ROWS, N), np.float32)
    none = np.zeros((1, N), np.float32)
    tilt = Tilt(none, none, none.astype(bool))
    record, _ = few_sweeps(machine, start, tilt, TapOptions(max_iter=50))
    expected = np.tile(mf.tap(machine).mean, (N_ROWS, 1))
    np.testing.assert_allclose(record.state[0], expected, atol=1e-6)


def test_copies_of_units_are_next_to_each_other():
    copies = repeated(PRIORS["mixed"], 3)
    assert copies.n_units() == 3 * N
    np.testing.assert_array_equal(copies.parts[0].field, np.ones(15))
    bounds = repeated(PRIORS["bounded"], 2).upper
    np.testing.assert_array_equal(bounds[::2], PRIORS["bounded"].upper)
    np.testing.assert_array_equal(bounds[1::2], PRIORS["bounded"].upper)
