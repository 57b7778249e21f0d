import numpy as np
import pytest

import fastmf as mf
from fastmf.learning.pseudo_likelihood.binary.inverse_ising import naive_mean_field, tap_inversion


def machine(d=8, scale=0.2):
    rng = np.random.default_rng(0)
    J = np.triu(scale * rng.normal(size=(d, d)), 1)
    return mf.BoltzmannMachine(J + J.T, mf.Ising(rng.normal(size=d) / 2))


@pytest.mark.parametrize("order, invert", [(1, naive_mean_field), (2, tap_inversion)])
def test_inversion_undoes_mean_field_theory(order, invert):
    """Means and linear responses of the mean-field equations give the machine back exactly."""
    model = machine()
    J, h = model.couplings, model.prior.field
    m = mf.tap(model, order=order, tol=1e-14).mean
    # The Jacobian of h(m), which by linear response is the inverse of the covariance.
    inverse = -J.copy()
    if order == 2:
        inverse -= 2 * J**2 * np.outer(m, m)
    diagonal = 1 / (1 - m**2)
    if order == 2:
        diagonal += (J**2) @ (1 - m**2)
    np.fill_diagonal(inverse, diagonal)
    couplings, field = invert(m, np.linalg.inv(inverse))
    np.testing.assert_allclose(couplings, J, atol=1e-12)
    np.testing.assert_allclose(field, h, atol=1e-12)


def test_errors_of_weak_couplings_shrink_as_theory_says():
    errors = {naive_mean_field: [], tap_inversion: []}
    for scale in (0.1, 0.05):
        model = machine(scale=scale)
        exact = mf.exact(model)
        covariance = exact.pairwise - np.outer(exact.mean, exact.mean)
        for invert, found in errors.items():
            couplings = invert(exact.mean, covariance)[0]
            found.append(abs(couplings - model.couplings).max())
    # Second order in the couplings for the naive formula, third for TAP.
    naive, tap = errors[naive_mean_field], errors[tap_inversion]
    assert 3 < naive[0] / naive[1] < 5.5
    assert 6 < tap[0] / tap[1] < 11
    assert tap[0] < naive[0]


@pytest.mark.parametrize("invert", [naive_mean_field, tap_inversion])
def test_bad_input(invert):
    with pytest.raises(ValueError, match="mean must be in"):
        invert([1.0, 0.0], np.eye(2))
    with pytest.raises(ValueError, match="invertible"):
        invert([0.0, 0.0], np.ones((2, 2)))
    with pytest.raises(ValueError, match="shape"):
        invert([0.0, 0.0], np.eye(3))
    with pytest.raises(ValueError, match="finite"):
        invert([0.0, np.nan], np.eye(2))


def test_without_a_real_root_the_closest_approach():
    couplings, field = tap_inversion([0.9, 0.9], [[0.19, -0.15], [-0.15, 0.19]])
    assert couplings[0, 1] == pytest.approx(-1 / (4 * 0.81))
    assert np.isfinite(field).all()
