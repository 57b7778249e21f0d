import numpy as np
import pytest

import fastmf as mf
from fastmf.inference.ep import block_loop
from fastmf.inference.ep.block_sites import block_problem
from fastmf.inference.gaussian.blocks import Blocks


def hard(seed):
    """Features in correlated groups, of which single damped parallel steps often cycle."""
    rng = np.random.default_rng(seed)
    groups = rng.normal(size=(60, 6)) + 0.5 * rng.normal(size=(60, 1))
    X = np.repeat(groups, 5, axis=1) + 0.3 * rng.normal(size=(60, 30))
    y = X @ np.where(rng.random(30) < 0.1, 1.0, 0.0) + 0.5 * rng.normal(size=60)
    prior = mf.GaussBernoulli(np.zeros(30), np.ones(30), np.full(30, -3.0))
    return mf.SparseLinearModel(X, y, 0.25, prior), np.repeat(np.arange(6), 5)


@pytest.mark.parametrize("seed", range(3))
def test_the_energy_never_rises_and_ends_at_the_fixed_point(seed):
    model, labels = hard(seed)
    found = mf.expectation_propagation(model, blocks=labels, schedule="convergent", history=True,
                                       tol=1e-7)  # fmt: skip
    assert found.converged and found.schedule == "convergent"
    assert (np.diff(found.energies) <= 1e-9).all()
    other = mf.expectation_propagation(model, blocks=labels, tol=1e-9)
    if other.converged:
        np.testing.assert_allclose(found.mean, other.mean, atol=1e-4)
        np.testing.assert_allclose(found.log_evidence, other.log_evidence, atol=1e-4)


def points():
    """A problem, its first inner point, and a direction in which matrices are symmetric."""
    model, labels = hard(0)
    blocks = Blocks([np.flatnonzero(labels == k) for k in range(5)], 30)
    problem = block_problem(model, blocks, (-np.inf, 1e-8, 100, None))
    found = mf.expectation_propagation(model, blocks=np.where(labels < 5, labels, np.arange(30)),
                                       max_iter=1)  # fmt: skip
    matrices = [T.ravel() for _, T in found.block_sites]
    site = np.concatenate([found.sites[0], found.sites[1, blocks.singles], *matrices])
    state = problem.state_of(site)
    marginal = state.site + state.cavity
    direction = np.random.default_rng(1).normal(size=len(site))
    for T in blocks.matrices(blocks.parts(direction)[2]):
        T[:] = (T + np.swapaxes(T, 1, 2)) / 2
    return problem, marginal, block_loop.evaluate(problem, marginal, site), direction


def test_the_gradient_is_that_of_differences():
    problem, marginal, point, direction = points()
    h = 1e-6
    up, down = (
        block_loop.evaluate(problem, marginal, point.site + sign * h * direction).value
        for sign in (1, -1)
    )
    derivative = block_loop.gradient_of(problem, point) @ direction
    np.testing.assert_allclose((up - down) / (2 * h), derivative, rtol=1e-5, atol=1e-7)


def test_the_curvature_of_each_block_is_exact():
    """In directions within one block, where other blocks play no part."""
    problem, marginal, point, direction = points()
    blocks = problem.blocks
    inverse = block_loop.Curvature(problem, point)
    linear, single, elements = blocks.parts(direction)
    own = blocks.members[2]
    linear[np.setdiff1d(np.arange(30), own)] = 0
    single[:] = 0
    keep = np.arange(len(elements))
    elements[(keep < blocks.squares[2]) | (keep >= blocks.squares[3])] = 0
    step = inverse(direction)
    h = 1e-5 / abs(step).max()
    up, down = (
        block_loop.gradient_of(
            problem, block_loop.evaluate(problem, marginal, point.site + sign * h * step)
        )
        for sign in (1, -1)
    )
    change = -(up - down) / (2 * h)
    np.testing.assert_allclose(step @ change, step @ direction, rtol=1e-4)
