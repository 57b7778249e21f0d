import numpy as np
import pytest

import fastmf as mf
from fastmf.learning.pseudo_likelihood.binary.inverse_ising import tap_inversion


def machine(d=8, scale=0.2):
    rng = np.random.default_rng(0)
    J = np.triu(scale * rng.normal(size=(d, d)), 1)
    return mf.BoltzmannMachine(J + J.T, mf.Ising(rng.normal(size=d) / 2))


def test_inversion_undoes_mean_field_theory():
    """Means and linear responses of the TAP equations give the machine back exactly."""
    model = machine()
    J, h = model.couplings, model.prior.field
    m = mf.tap(model, tol=1e-14).mean
    # The Jacobian of h(m), which by linear response is the inverse of the covariance.
    inverse = -J - 2 * J**2 * np.outer(m, m)
    np.fill_diagonal(inverse, 1 / (1 - m**2) + (J**2) @ (1 - m**2))
    couplings, field = tap_inversion(m, np.linalg.inv(inverse))
    np.testing.assert_allclose(couplings, J, atol=1e-12)
    np.testing.assert_allclose(field, h, atol=1e-12)


def test_errors_of_weak_couplings_shrink_as_theory_says():
    errors = []
    for scale in (0.1, 0.05):
        model = machine(scale=scale)
        exact = mf.exact(model)
        covariance = exact.pairwise - np.outer(exact.mean, exact.mean)
        couplings = tap_inversion(exact.mean, covariance)[0]
        errors.append(abs(couplings - model.couplings).max())
    # Third order in the couplings.
    assert 6 < errors[0] / errors[1] < 11


def test_bad_input():
    with pytest.raises(ValueError, match="mean must be in"):
        tap_inversion([1.0, 0.0], np.eye(2))
    with pytest.raises(ValueError, match="covariance must be invertible"):
        tap_inversion([0.0, 0.0], np.ones((2, 2)))


def test_without_a_real_solution_couplings_are_at_the_edge():
    couplings, field = tap_inversion([0.9, 0.9], [[0.19, -0.15], [-0.15, 0.19]])
    assert couplings[0, 1] == pytest.approx(-1 / (4 * 0.81))
    assert np.isfinite(field).all()
