"""Some blocks alone, given the sites of all other units."""

import numpy as np
import pytest

import fastmf as mf
from fastmf.inference.ep.block_sites import block_problem
from fastmf.inference.ep.some_blocks import SomeBlocks, moving_blocks
from fastmf.inference.gaussian.blocks import Blocks

MEMBERS = [np.array([1, 4]), np.array([2, 0, 6]), np.array([3, 7]), np.array([5, 9, 11])]


def state_of(n, p=14):
    """A state with sites that are not those of a fixed point, with blocks and single units."""
    rng = np.random.default_rng(n)
    X = rng.normal(size=(n, p))
    y = X[:, :3].sum(1) + rng.normal(size=n)
    prior = mf.GaussBernoulli(np.zeros(p), np.ones(p), np.full(p, -2.0))
    blocks = Blocks(MEMBERS, p)
    problem = block_problem(mf.SparseLinearModel(X, y, 1.0, prior), blocks, (-np.inf, 1e-9, 99, 1))
    matrices = []
    for units in blocks.members:
        half = rng.normal(size=(len(units),) * 2)
        matrices.append(half @ half.T + np.eye(len(units)))
    single = rng.gamma(2.0, size=len(blocks.singles))
    return problem.state_of(np.concatenate([rng.normal(size=p), single, *map(np.ravel, matrices)]))


@pytest.mark.parametrize("n", [40, 5])
def test_moments_under_other_sites_are_those_of_all_units(n):
    """By a matrix of units, and by the Woodbury identity."""
    state, chosen = state_of(n), np.array([True, False, False, True])
    some = SomeBlocks(state, chosen, 1e-6)
    alone = some.problem.state_of(some.site)
    for factor in (1.0, 1.7):
        own = factor * some.site
        alone = some.problem.state_of(own)
        whole = state.problem.state_of(some.with_sites(state.site, own))
        units = np.concatenate([state.problem.blocks.members[k] for k in (0, 3)])
        blocks = state.problem.blocks
        mean, _, elements = blocks.parts(whole.gaussian)
        expected = list(blocks.matrices(elements))
        expected = np.concatenate([mean[units], expected[0][0].ravel(), expected[1][1].ravel()])
        np.testing.assert_allclose(alone.gaussian, expected, atol=1e-10)
        proposal, _, elements = blocks.parts(whole.proposal)
        matrices = list(blocks.matrices(elements))
        proposal = np.concatenate([proposal[units], matrices[0][0].ravel(), matrices[1][1].ravel()])
        np.testing.assert_allclose(alone.proposal, proposal, rtol=1e-7, atol=1e-8)


def test_sites_of_other_units_stay():
    state, chosen = state_of(40), np.array([False, True, False, False])
    some = SomeBlocks(state, chosen, 1e-6)
    changed = some.with_sites(state.site, some.site + 1) - state.site
    mean, single, elements = state.problem.blocks.parts(changed)
    own = state.problem.blocks.members[1]
    assert set(np.flatnonzero(mean)) == set(own) and not single.any()
    np.testing.assert_allclose(changed[changed != 0], 1)
    assert np.count_nonzero(elements) == len(own) ** 2


def test_the_blocks_that_move_most_are_found():
    """If they are few, and single units do not move as much."""
    state = state_of(40)
    blocks = state.problem.blocks
    gaussian = state.tilted.moments.copy()
    gaussian[blocks.members[2]] += 1e-3
    gaussian[blocks.members[0]] += 2e-5
    moved = state._replace(gaussian=gaussian)
    assert moving_blocks(moved).tolist() == [False, False, True, False]
    for units in (blocks.singles[:1], np.concatenate(blocks.members)):
        other = gaussian.copy()
        other[units] += 1e-3
        assert moving_blocks(state._replace(gaussian=other)) is None
