"""Fits: all ways to the same maximum."""

import numpy as np
import pytest
from potts_data import one_hot, penalised, positions, random_rows

from fastmf.learning.pseudo_likelihood.fit import newton
from fastmf.learning.pseudo_likelihood.potts import fitting
from fastmf.learning.pseudo_likelihood.potts.dense import DenseObjective
from fastmf.learning.pseudo_likelihood.potts.fitting import Options, fit
from fastmf.learning.pseudo_likelihood.potts.objective import PottsData

SIZES = np.array([3, 4, 2, 5, 3, 6, 4, 4, 4])
L2, L2_FIELD = 0.1, 0.03


def data_of(**options):
    rows = random_rows(SIZES, **options)
    return PottsData(*rows, SIZES), rows


def by_newton(rows):
    """Couplings and field by Newton's method in all parameters."""
    objective = DenseObjective(*rows, SIZES, L2, L2_FIELD)
    found = newton(objective, objective.independent(), tol=1e-8)
    assert found.stopped
    return objective.unpacked(found.parameters)


def gradient_per_row(J, h, rows, l2=0.0, l2_field=0.0):
    """Derivatives by couplings and field of the log-pseudo-likelihood of a row, less penalties."""
    labels, weights = rows
    x, position = one_hot(labels, SIZES), positions(SIZES)
    e = np.exp(x @ J + h)
    p = e / np.stack([e[:, position == i].sum(1) for i in range(len(SIZES))], 1)[:, position]
    R = weights[:, None] / weights.sum() * (x - p * (labels >= 0)[:, position])
    by_couplings = R.T @ x + x.T @ R - l2 * J
    by_couplings[position[:, None] == position] = 0
    return by_couplings, R.sum(0) - l2_field * h


@pytest.mark.parametrize("missing", [0.0, 0.15])
def test_solvers_agree(missing):
    data, rows = data_of(missing=missing)
    J, h = by_newton(rows)
    for gradient in gradient_per_row(J, h, rows, L2, L2_FIELD):
        np.testing.assert_allclose(gradient, 0, atol=1e-9)
    value, options = penalised(J, h, rows, SIZES, L2, L2_FIELD), Options(L2, L2_FIELD, tol=1e-14)
    found = fit(data, options)
    assert found.history[-1] == pytest.approx(value, rel=1e-12)
    assert found.stopped
    np.testing.assert_allclose(found.couplings, J, atol=1e-6)
    np.testing.assert_allclose(found.field, h, atol=1e-5)


def test_asymmetric_couplings_are_near_symmetric_ones():
    data, _ = data_of(missing=0.1)
    options = Options(L2, L2_FIELD, False, tol=1e-14)
    found = fit(data, options)
    assert found.stopped
    symmetric = fit(data, options._replace(symmetric=True)).couplings
    assert 0 < abs(found.couplings - symmetric).max() < 0.2 * abs(symmetric).max()


def test_single_precision_is_near(monkeypatch):
    data, _ = data_of()
    options = Options(L2, L2_FIELD, tol=1e-7)
    exact = fit(data, options).couplings
    monkeypatch.setattr(fitting, "_MIN_SINGLE_PARAMETERS", 1)
    for symmetric in (True, False):
        found = fit(data, options._replace(symmetric=symmetric)).couplings
        assert abs(found - exact).max() < (2e-3 if symmetric else 0.05)
        assert (found != exact).any()


def test_without_memory_it_says_what_to_do(monkeypatch):
    monkeypatch.setattr("fastmf._common.memory.memory_of_the_machine", lambda: 1000)
    data, _ = data_of()
    for options in (Options(L2, L2_FIELD), Options(L2, L2_FIELD, False)):
        with pytest.raises(MemoryError, match="GiB"):
            fit(data, options)


@pytest.mark.parametrize("symmetric", [True, False])
def test_threads_do_not_matter(symmetric):
    sizes = np.full(30, 6)
    rows = random_rows(sizes, 600)
    options = Options(0.05, 0.05, symmetric, tol=1e-2, max_iter=8, single=True)
    results = [fit(PottsData(*rows, sizes, n_threads), options) for n_threads in (1, 2)]
    for one, two in zip(*((r.couplings, r.field, r.history) for r in results), strict=True):
        np.testing.assert_array_equal(one, two)


FITS = {
    "lbfgs": fit,
    "single": lambda data, options: fit(data, options._replace(single=True)),
    "asymmetric": lambda data, options: fit(data, options._replace(symmetric=False)),
}


@pytest.mark.parametrize("l2", [1e6, 1e10, 1e40])
@pytest.mark.parametrize("how", FITS)
def test_strong_penalties_leave_the_first_gradient(how, l2):
    """l2 J and l2 h are the gradient at no couplings and no field."""
    data, rows = data_of(missing=0.1)
    data = data.of_mean_weight_one()
    found = FITS[how](data, Options(l2, l2))
    assert found.stopped and len(found.history) <= 6
    zero = np.zeros((data.n_states, data.n_states))
    by_couplings, by_field = gradient_per_row(zero, zero[0], rows)
    close = 2e-3 * abs(by_couplings).max()
    np.testing.assert_allclose(found.couplings * l2, by_couplings, atol=close)
    np.testing.assert_allclose(found.field * l2, by_field, atol=close)


@pytest.mark.parametrize("how", [how for how in FITS if how != "asymmetric"])
@pytest.mark.parametrize("l2, l2_field", [(0.1, 1e8), (1e8, 0.1), (1.0, 1.0)])
def test_penalties_of_any_size_take_few_iterations(how, l2, l2_field):
    data, rows = data_of(missing=0.1)
    data = data.of_mean_weight_one()
    found = FITS[how](data, Options(l2, l2_field))
    assert found.stopped and len(found.history) < 80
    J, h = found.couplings, found.field
    by_couplings, by_field = gradient_per_row(J, h, rows, l2, l2_field)
    assert abs(by_couplings).max() < 1e-3 * np.sqrt(1 + l2) * 0.2
    assert abs(by_field).max() < 1e-3 * np.sqrt(1 + l2_field) * 0.1
