"""Factorisations of positive definite matrices, and Newton's steps, against NumPy's own."""

import numpy as np
import pytest
from numpy.linalg import LinAlgError

from fastmf._common import linalg


@pytest.fixture
def rng():
    return np.random.default_rng(0)


@pytest.fixture
def matrix(rng):
    root = rng.normal(size=(7, 9))
    return root @ root.T


def test_the_factorisation_solves_and_inverts(matrix, rng):
    factor = linalg.cholesky(matrix)
    right = rng.normal(size=(7, 3))
    np.testing.assert_allclose(factor.lower @ factor.lower.T, matrix)
    np.testing.assert_allclose(factor.solve(right), np.linalg.solve(matrix, right))
    np.testing.assert_allclose(factor.solve(right[:, 0]), np.linalg.solve(matrix, right[:, 0]))
    np.testing.assert_allclose(factor.inverse(), np.linalg.inv(matrix))
    np.testing.assert_allclose(factor.inverse_lower(), np.tril(np.linalg.inv(matrix)))
    np.testing.assert_allclose(factor.inverse_factor() @ factor.lower, np.eye(7), atol=1e-12)
    assert factor.half_log_determinant == pytest.approx(np.linalg.slogdet(matrix)[1] / 2)


@pytest.mark.parametrize("n", [1, 300])
def test_an_inverse_factor_whitens(rng, n):
    root = rng.normal(size=(n, 2 * n)) / np.sqrt(n)
    matrix = root @ root.T
    whiten, half_log_determinant = linalg.inverse_factor(matrix.copy())
    assert whiten.flags.c_contiguous and (np.triu(whiten, 1) == 0).all()
    np.testing.assert_allclose(whiten @ matrix @ whiten.T, np.eye(n), atol=1e-11)
    assert half_log_determinant == pytest.approx(np.linalg.slogdet(matrix)[1] / 2, abs=1e-10)


def test_a_matrix_is_overwritten_only_if_it_may_be(matrix):
    kept = np.asfortranarray(matrix)
    linalg.cholesky(kept)
    np.testing.assert_array_equal(kept, matrix)
    lower = linalg.cholesky(kept, overwrite=True).lower
    assert np.shares_memory(lower, kept)
    factor = linalg.Cholesky(lower)
    expected = np.linalg.inv(matrix)
    assert not np.shares_memory(factor.inverse(), lower)
    inverse = factor.inverse(overwrite=True)
    assert np.shares_memory(inverse, lower)
    np.testing.assert_allclose(inverse, expected)


@pytest.mark.parametrize("bad", [-1.0, 0.0, np.nan, np.inf])
def test_what_is_not_positive_definite_is_an_error(matrix, bad):
    matrix[3, 3] = bad
    for function in (linalg.cholesky, linalg.scaled_cholesky):
        with pytest.raises(LinAlgError, match="not positive definite"):
            function(matrix)
    with pytest.raises(LinAlgError, match="not positive definite"):
        linalg.solve_positive_definite(matrix, np.ones(7))


def test_a_ridge_is_added_only_where_it_is_needed(matrix):
    np.testing.assert_array_equal(
        linalg.cholesky_with_ridge(matrix).lower, linalg.cholesky(matrix).lower
    )
    shifted = linalg.cholesky_with_ridge(matrix, 0.5).lower
    np.testing.assert_allclose(shifted @ shifted.T, matrix + 0.5 * np.eye(7))


@pytest.mark.parametrize("negative", [1e-9, 1.0])
def test_the_ridge_of_a_singular_or_indefinite_matrix_is_of_its_order(matrix, negative):
    values, vectors = np.linalg.eigh(matrix)
    values[0] = -negative
    matrix = (vectors * values) @ vectors.T
    lower = linalg.cholesky_with_ridge(matrix).lower
    ridge = (lower @ lower.T - matrix).diagonal()
    np.testing.assert_allclose(ridge, ridge.mean(), atol=1e-12)
    assert negative < ridge.mean() <= 10 * negative * (1 + 1e-6)


def test_no_ridge_makes_a_matrix_with_nan_positive_definite(matrix):
    matrix[2, 1] = np.nan
    with pytest.raises(LinAlgError, match="not finite"):
        linalg.cholesky_with_ridge(matrix)


def test_the_scaled_factorisation_solves_with_elements_of_any_order(matrix, rng):
    scale = 10.0 ** rng.integers(-60, 60, 7)
    expected = np.linalg.solve(matrix, np.ones(7))
    factor = linalg.scaled_cholesky(scale[:, None] * matrix * scale)
    np.testing.assert_allclose(factor.solve(scale) * scale, expected)
    right = np.stack([scale, 2 * scale], axis=1)
    np.testing.assert_allclose(
        factor.solve(right) * scale[:, None], np.stack([expected, 2 * expected], 1)
    )


def test_the_step_on_a_convex_function_is_newtons(matrix, rng):
    gradient = rng.normal(size=7)
    expected = -np.linalg.solve(matrix, gradient)
    np.testing.assert_allclose(linalg.newton_step(matrix, gradient, 1e9), expected)
    steps = linalg.newton_step(np.stack([matrix, 2 * matrix]), np.stack([gradient] * 2), 1e9)
    np.testing.assert_allclose(steps, [expected, expected / 2])


def test_the_step_on_a_saddle_has_the_moduli_of_the_curvatures(rng):
    vectors = np.linalg.qr(rng.normal(size=(3, 3)))[0]
    hessian, gradient = (vectors * [-2.0, 1e-3, 4.0]) @ vectors.T, rng.normal(size=3)
    step = linalg.newton_step(hessian, gradient, 0.1)
    np.testing.assert_allclose(vectors.T @ step, -(vectors.T @ gradient) / [2.0, 0.1, 4.0])
    assert step @ gradient < 0
    batch = linalg.newton_step(np.stack([hessian, np.eye(3)]), np.stack([gradient] * 2), 0.1)
    np.testing.assert_allclose(batch, [step, -gradient])
