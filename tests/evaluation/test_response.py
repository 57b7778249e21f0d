"""Linear response against finite differences of the solvers, enumeration and closed forms."""

import itertools

import numpy as np
import pytest
from scipy.sparse import csr_array

import fastmf as mf
from fastmf.evaluation import susceptibility


def couplings(rng, n, strength):
    J = np.triu(rng.normal(size=(n, n)), 1) * strength
    return J + J.T


def machine(kind):
    rng = np.random.default_rng(2)
    J, field = couplings(rng, 7, 0.25), rng.normal(size=7) / 2
    weights = rng.normal(size=(5, 4)) * 0.3
    visible, hidden = mf.Bernoulli(field[:5]), mf.Ising(field[:4])
    return {
        "spins": lambda: mf.BoltzmannMachine(J, mf.Ising(field)),
        "counts": lambda: mf.BoltzmannMachine(csr_array(J / 8), mf.Binomial(field, np.full(7, 3))),
        "layers": lambda: mf.RBM(weights, visible, hidden),
        "deep": lambda: mf.DBM(
            [weights, weights[:4].T[:, :3]], (visible, hidden, mf.Ising(field[:3]))
        ),
        "reals": lambda: mf.RBM(weights, mf.Gaussian(field[:5], np.full(5, 2.0)), hidden),
        "slabs": lambda: mf.BoltzmannMachine(
            J / 4, mf.GaussBernoulli(field, np.full(7, 1.5), np.zeros(7))
        ),
    }[kind]()


def flat(mean):
    return np.concatenate(mean, -1) if isinstance(mean, tuple) else mean


def differences(solve, model, layer=0):
    """d mean / d field of a layer's units, by Richardson's extrapolation."""
    n = len(model.layers[layer].field)
    columns = []
    for step in (2e-2, 1e-2, 5e-3):
        fields = step * np.vstack([np.eye(n), -np.eye(n)])
        parts = [None] * len(model.layers)
        parts[layer] = fields
        mean = flat(solve(model, field=tuple(parts) if len(parts) > 1 else fields).mean)
        columns.append((mean[:n] - mean[n:]) / (2 * step))
    first, second = ((4 * b - a) / 3 for a, b in itertools.pairwise(columns))
    return (16 * second - first) / 15


def naive(model, **options):
    return mf.tap(model, **{"order": 1, "tol": 1e-14, "max_iter": 5000} | options)


def tap(model, **options):
    return naive(model, order=2, **options)


def adaptive(model, **options):
    return mf.adaptive_tap(model, tol=1e-13, **options)


def beliefs(model, **options):
    return mf.belief_propagation(model, tol=1e-14, pairwise=True, **options)


CASES = [
    *((solve, kind) for solve in (naive, tap, adaptive) for kind in ("spins", "counts", "layers")),
    *((solve, kind) for solve in (tap, adaptive) for kind in ("deep", "reals", "slabs")),
    *((beliefs, kind) for kind in ("spins", "layers")),
]


@pytest.mark.parametrize(("solve", "kind"), CASES)
def test_response_is_the_derivative_of_the_solver(solve, kind):
    model = machine(kind)
    chi = susceptibility(model, solve(model))
    start = 0
    for layer, prior in enumerate(model.layers):
        n = len(prior.field)
        expected = differences(solve, model, layer)
        np.testing.assert_allclose(chi[start : start + n], expected, atol=1e-8)
        start += n


def test_response_against_exact_covariances():
    # The errors are of second order in the couplings, of third, and less.
    model, errors = machine("spins"), []
    for strength in (0.5, 0.25):
        weak = mf.BoltzmannMachine(strength * model.couplings, model.prior)
        exact = mf.exact(weak)
        covariance = exact.pairwise - np.outer(exact.mean, exact.mean)
        found = (susceptibility(weak, solve(weak)) for solve in (naive, tap, adaptive, beliefs))
        errors.append([abs(chi - covariance).max() for chi in found])
    assert (np.array(errors) < [[0.2, 0.04, 0.004, 0.04], [0.05, 0.006, 0.001, 0.006]]).all()
    chain = mf.BoltzmannMachine(np.diag(np.ones(6), 1) + np.diag(np.ones(6), -1), model.prior)
    exact = mf.exact(chain)
    covariance = exact.pairwise - np.outer(exact.mean, exact.mean)
    np.testing.assert_allclose(susceptibility(chain, beliefs(chain)), covariance, atol=1e-10)
    reals = mf.BoltzmannMachine(chain.couplings / 4, mf.Gaussian(np.ones(7), np.ones(7)))
    expected = np.linalg.inv(np.eye(7) - reals.couplings)
    np.testing.assert_allclose(susceptibility(reals, adaptive(reals)), expected, atol=1e-9)


@pytest.mark.parametrize("solve", [tap, adaptive, beliefs])
def test_rows_and_clamped_units(solve):
    model = machine("spins")
    fields = np.random.default_rng(0).normal(size=(2, 7))
    found = susceptibility(model, solve(model, field=fields))
    for field, chi in zip(fields, found, strict=True):
        np.testing.assert_allclose(chi, susceptibility(model, solve(model, field=field)), atol=1e-9)
    if solve is not adaptive:
        chi = susceptibility(model, solve(model, clamp=np.r_[1.0, [np.nan] * 6]))
        rest = mf.Ising(model.prior.field[1:] + model.couplings[0, 1:])
        rest = mf.BoltzmannMachine(model.couplings[1:, 1:], rest)
        expected = np.pad(susceptibility(rest, solve(rest)), (1, 0))
        np.testing.assert_allclose(chi, expected, atol=1e-9)


@pytest.mark.parametrize("solve", [naive, tap, beliefs])
def test_solutions_that_are_refused(solve):
    ferromagnet = mf.BoltzmannMachine(2 * (1 - np.eye(20)) / 20, mf.Ising(np.zeros(20)))
    # The paramagnet is a fixed point, but no state.
    with pytest.raises(ValueError, match="not stable"):
        susceptibility(ferromagnet, solve(ferromagnet))
    up = solve(ferromagnet, init="up")
    assert (up.mean > 0.5).all()
    assert susceptibility(ferromagnet, up).min() > 0
    with pytest.raises(ValueError, match="not converged"):
        susceptibility(ferromagnet, mf.tap(ferromagnet, init="up", max_iter=1))
    for unsuited in ({}, {"field": np.zeros((2, 20)), "pairwise": "mean"}):
        with pytest.raises(TypeError, match="pairwise=True"):
            susceptibility(ferromagnet, mf.belief_propagation(ferromagnet, **unsuited))
    with pytest.raises(TypeError, match="result must be a FixedPoint"):
        susceptibility(ferromagnet, ferromagnet)
    with pytest.raises(ValueError, match="result must be of BoltzmannMachine"):
        susceptibility(mf.BoltzmannMachine(np.zeros((9, 9)), mf.Ising(np.zeros(9))), up)
    with pytest.raises(ValueError, match="no solution of the model"):
        susceptibility(ferromagnet, mf.tap(ferromagnet, init="up", precision=np.ones(20), order=1))


@pytest.mark.parametrize("solver", [mf.tap, mf.relaxed_bp, mf.adaptive_tap, mf.belief_propagation])
def test_starts_with_all_units_up(solver):
    layers = mf.RBM(np.full((20, 20), 0.08), mf.Ising(np.zeros(20)), mf.Ising(np.zeros(20)))
    assert min(map(np.min, solver(layers, init="up").mean)) > 0.5
    with pytest.raises(ValueError, match="init must be one of"):
        solver(layers, init="down")
    if solver is mf.tap:
        with pytest.raises(ValueError, match="largest value"):
            solver(machine("reals"), init="up")
