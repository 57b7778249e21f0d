"""Bounds of spectral radii against eigenvalues."""

import itertools

import numpy as np
import pytest
from bp_models import loopy

import fastmf as mf
from fastmf.inference.bp.radius import perron_bound


def test_spectral_radius():
    """The bound is the largest eigenvalue of the edge-to-edge matrix; trees get less than 1."""
    model = loopy(4, 3, prior=mf.Ising, scale=0.4)
    edges = list(itertools.product(range(4), range(3)))
    both = [(("v", i), ("h", j)) for i, j in edges] + [(("h", j), ("v", i)) for i, j in edges]
    strength = dict(zip(edges, np.tanh(abs(model.weights)).ravel(), strict=True))
    matrix = np.zeros((24, 24))
    for a, (source, target) in enumerate(both):
        i, j = (source[1], target[1]) if source[0] == "v" else (target[1], source[1])
        for b, (first, second) in enumerate(both):
            if second == source and first != target:
                matrix[a, b] = strength[i, j]
    expected = abs(np.linalg.eigvals(matrix)).max()
    result = mf.belief_propagation(model)
    assert result.spectral_radius >= expected - 1e-9
    assert result.spectral_radius == pytest.approx(expected, rel=1e-3)
    zero = mf.RBM(np.zeros((3, 2)), mf.Ising(np.zeros(3)), mf.Ising(np.zeros(2)))
    assert mf.belief_propagation(zero).spectral_radius < 1


@pytest.mark.parametrize("max_iter", [1, 3, 200])
@pytest.mark.parametrize("scale", [1e-9, 1.0, 1e9])
def test_bound_of_matrices_holds_after_any_number_of_iterations(max_iter, scale):
    rng = np.random.default_rng(0)
    for share in (0.1, 0.5, 1.0):
        matrix = scale * rng.exponential(size=(12, 12)) * (rng.random((12, 12)) < share)
        exact = abs(np.linalg.eigvals(matrix)).max()
        found = perron_bound(lambda x, matrix=matrix: matrix @ x, np.ones(12), max_iter)
        assert found >= exact * (1 - 1e-9)
        if max_iter == 200 and share > 0.1:
            assert found < exact * (1 + 1e-4)
