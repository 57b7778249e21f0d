"""Gaussian units integrated out: compared with enumeration and with closed forms."""

from itertools import product

import numpy as np
import pytest
from kernel_cases.machines import solved_gaussian

import fastmf as mf
from fastmf.inference.mean_field.gaussian_layers import averages, collapsed_tap
from fastmf.inference.mean_field.solutions import _log_partition_at

RNG = np.random.default_rng(0)
WEIGHTS = RNG.normal(size=(5, 3))
FIELD, PRECISION = RNG.normal(size=5), RNG.uniform(1, 2, 5)
GAUSSIAN = mf.Gaussian(FIELD, PRECISION)
BINARY = mf.Bernoulli(RNG.normal(size=3))
TOP = mf.Gaussian(RNG.normal(size=3), RNG.uniform(2, 3, 3))


def test_which_machines_are_integrated():
    assert mf.RBM(WEIGHTS, GAUSSIAN, BINARY).is_integrated
    assert mf.RBM(WEIGHTS.T, BINARY, GAUSSIAN).is_integrated
    assert mf.RBM(WEIGHTS, GAUSSIAN, TOP).is_integrated
    line = mf.TruncatedGaussian(FIELD, PRECISION, -np.inf, np.inf)
    assert mf.RBM(WEIGHTS, line, mf.TruncatedGaussian(np.zeros(3), -1.0, 0.0, 1.0)).is_integrated
    part = mf.Concatenated(mf.Bernoulli(FIELD[:2]), mf.Gaussian(FIELD[2:], 1.0))
    assert mf.RBM(WEIGHTS, part, BINARY).is_integrated
    for other in (
        BINARY,
        mf.GaussBernoulli(np.zeros(3), 1.0, 0.0),
        mf.TruncatedGaussian(np.zeros(3), 1.0, 0.0, np.inf),
        mf.Categorical([np.zeros(3)]),
    ):
        visible = mf.Ising(FIELD) if other is BINARY else GAUSSIAN
        assert not mf.RBM(WEIGHTS, visible, other).is_integrated


def test_one_hidden_unit_is_exact_however_strong_its_couplings():
    """Two clusters 20 standard deviations apart: the units that are left are a single one."""
    model = mf.RBM(20 * np.ones((4, 1)), mf.Gaussian(np.full(4, -10.0), 1.0), mf.Bernoulli([0.3]))
    found, right = collapsed_tap(model), mf.exact(model)
    assert found.converged
    np.testing.assert_allclose(found.log_partition, right.log_partition, rtol=1e-12)
    for name in ("mean", "var"):
        for one, other in zip(getattr(found, name), getattr(right, name), strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-9)


@pytest.mark.parametrize("order", [1, 2, 3])
def test_errors_are_of_the_order_of_the_expansion(order):
    """Scaled down by 2, couplings J of hidden units fall by 4."""
    errors = []
    for scale in (0.5, 0.25, 0.125):
        model = mf.RBM(scale * WEIGHTS, GAUSSIAN, BINARY)
        errors.append(
            abs(collapsed_tap(model, order=order, tol=1e-13).log_partition - mf.exact(model)[0])
        )
    slopes = np.log2(np.array(errors[:-1]) / errors[1:]) / 2
    # Third order in couplings of hidden units; triangles are left out of it.
    assert (slopes > min(order, 2) + 0.6).all()


MIXED = mf.Concatenated(mf.Ising(FIELD[:2]), mf.Gaussian(FIELD[2:], PRECISION[2:]))
SEVERAL = {
    "binary": mf.RBM(0.2 * WEIGHTS, GAUSSIAN, BINARY),
    "below": mf.RBM(0.2 * WEIGHTS.T, BINARY, GAUSSIAN),
    "mixed": mf.RBM(0.2 * WEIGHTS, MIXED, BINARY),
    "deep": mf.DBM((0.2 * WEIGHTS, 0.3 * WEIGHTS[:3, :2]), (GAUSSIAN, BINARY, mf.Ising(FIELD[:2]))),
    "middle": mf.DBM(
        (0.2 * WEIGHTS, 0.3 * WEIGHTS[:3, :2]), (mf.Ising(FIELD), TOP, mf.Ising(FIELD[:2]))
    ),
    "next": mf.DBM((0.2 * WEIGHTS, 0.3 * WEIGHTS[:3, :2]), (GAUSSIAN, TOP, mf.Ising(FIELD[:2]))),
}


def enumerated(model):
    """log Z by enumeration of all units but the Gaussian ones, whose integral is closed."""
    integrated = model.integrate_gaussians()
    machine, precision = integrated.machine, integrated.precision
    values = [
        (0.0, 1.0) if isinstance(part, mf.Bernoulli) else (-1.0, 1.0)
        for part in getattr(machine.prior, "parts", (machine.prior,))
        for _ in part.field
    ]
    states = np.array(list(product(*values)))
    logs = -machine.energy(states) + states @ integrated.field - states**2 @ precision / 2
    return np.logaddexp.reduce(logs) + integrated.log_partition


@pytest.mark.parametrize("name", SEVERAL)
def test_gaussian_units_anywhere(name):
    model = SEVERAL[name]
    found = collapsed_tap(model, tol=1e-12)
    assert found.converged
    assert found.log_partition == pytest.approx(enumerated(model), abs=3e-3)
    if name in ("binary", "below"):
        assert enumerated(model) == pytest.approx(mf.exact(model).log_partition, abs=1e-9)
    # Moments are those of the tilts, as of any fixed point.
    for prior, b, a, mean, var in zip(
        model.layers, found.b, found.a, found.mean, found.var, strict=True
    ):
        for one, other in zip(prior.moments(b, a), (mean, var), strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-8, atol=1e-10)
    tilts = [[part[None] for part in parts] for parts in (found.b, found.a)]
    assert _log_partition_at(model, *tilts, 2)[0] == pytest.approx(found.log_partition, abs=1e-9)


@pytest.mark.parametrize("n_layers", [2, 3])
def test_gaussian_units_alone_are_exact(n_layers):
    weights = (0.3 * WEIGHTS, 0.3 * WEIGHTS[:3])[: n_layers - 1]
    layers = (GAUSSIAN, TOP, mf.Gaussian(FIELD[:3], 2.0))[:n_layers]
    model = mf.RBM(*weights, *layers) if n_layers == 2 else mf.DBM(weights, layers)
    mean, covariance, log_z = solved_gaussian(model)
    found = collapsed_tap(model)
    assert found.converged and found.log_partition == pytest.approx(log_z, abs=1e-12)
    even = [k for k in range(n_layers) if k % 2 == 0]
    order = even + [k for k in range(n_layers) if k % 2]
    np.testing.assert_allclose(np.concatenate([found.mean[k] for k in order]), mean, rtol=1e-10)
    found_var = np.concatenate([found.var[k] for k in order])
    np.testing.assert_allclose(found_var, covariance.diagonal(), rtol=1e-10)


def test_a_machine_of_gaussian_units_that_does_not_exist_is_said_to_diverge():
    found = collapsed_tap(mf.RBM(9 * WEIGHTS, GAUSSIAN, TOP))
    assert not found.converged and found.log_partition == -np.inf
    assert found.message.startswith("diverged")
    assert all(np.isfinite(part).all() for part in (*found.mean, *found.var))


@pytest.mark.parametrize("name", ["binary", "mixed", "deep"])
def test_fields_precisions_and_clamps_are_those_of_another_machine(name):
    """Against the machine whose units have them, or whose clamped units are fields."""
    model, rng = SEVERAL[name], np.random.default_rng(3)
    first = model.layers[0]
    field, precision = rng.normal(size=(4, 5)), rng.uniform(0, 1, (4, 5))
    found = collapsed_tap(model, field=field, precision=precision, tol=1e-12)
    for row in range(4):
        parts, start = [], 0
        for part in getattr(first, "parts", (first,)):
            here = slice(start, start + len(part.field))
            start = here.stop
            new = part._replace(field=part.field + field[row, here])
            if hasattr(part, "precision"):
                new = new._replace(precision=part.precision + precision[row, here])
            parts.append(new)
        prior = parts[0] if len(parts) == 1 else mf.Concatenated(*parts)
        other = collapsed_tap(model.rebuilt(model.couplings, (prior, *model.layers[1:])), tol=1e-12)
        constant = precision[row, :2].sum() / 2 if name == "mixed" else 0  # spins: x^2 = 1
        assert found.log_partition[row] == pytest.approx(other.log_partition - constant, abs=1e-9)
        np.testing.assert_allclose(found.mean[0][row], other.mean[0], rtol=1e-8)
    X = np.full((3, 5), np.nan)
    X[0, 2], X[1, 3:], X[2] = 0.7, [0.2, -0.4], first.sample(np.zeros(5), 0.0, rng)
    found = collapsed_tap(model, clamp=X, tol=1e-12)
    np.testing.assert_array_equal(found.mean[0][~np.isnan(X)], X[~np.isnan(X)])
    # All clamped: the sum over the hidden units, which of an RBM is exact.
    if name != "deep":
        b = X[2] @ model.weights
        right = first.log_prob(X[2]).sum() + model.hidden.log_partition(b, 0.0).sum()
        assert found.log_partition[2] == pytest.approx(right, abs=1e-12)
    # One clamped Gaussian unit: log Z is that of the machine without it, in its field.
    energy = PRECISION[2] * 0.49 / 2 - FIELD[2] * 0.7
    rest = model.rebuilt(
        (np.delete(model.couplings[0], 2, 0), *model.couplings[1:]),
        (_without(first, 2), *model.layers[1:]),
    )
    other = collapsed_tap(
        rest, field=(None, 0.7 * model.couplings[0][2], *[None] * (len(model.sizes) - 2))
    )
    assert found.log_partition[0] == pytest.approx(other.log_partition - energy, abs=1e-6)


def test_clamped_gaussian_units_have_their_energy():
    model, X = mf.RBM(WEIGHTS / 4, GAUSSIAN, TOP), RNG.normal(size=(2, 5))
    found = collapsed_tap(model, clamp=(X, X[:, :3]))
    np.testing.assert_allclose(found.log_partition, -model.energy(X, X[:, :3]), rtol=1e-12)


def _without(prior, unit):
    if hasattr(prior, "parts"):
        n = len(prior.parts[0].field)
        return mf.Concatenated(prior.parts[0], _without(prior.parts[1], unit - n))
    return prior._make(np.delete(field, unit) for field in prior)


def test_averages_are_derivatives_of_the_log_partition():
    model = SEVERAL["binary"]
    found = collapsed_tap(model, np.zeros((1, 5)), tol=1e-13)
    covariances, squares = averages(model, found, 2)
    pairs = np.outer(found.mean[0][0], found.mean[1][0]) + covariances[0]

    def log_z(weights, precision):
        changed = mf.RBM(weights, mf.Gaussian(FIELD, precision), BINARY)
        return collapsed_tap(changed, tol=1e-13).log_partition

    for place in ((0, 0), (3, 2)):
        step = np.zeros((5, 3))
        step[place] = 1e-5
        change = log_z(model.weights + step, PRECISION) - log_z(model.weights - step, PRECISION)
        assert pairs[place] == pytest.approx(change / 2e-5, rel=1e-6)
    step = 1e-5 * np.eye(5)[1]
    change = log_z(model.weights, PRECISION + step) - log_z(model.weights, PRECISION - step)
    assert -squares[0][1] / 2 == pytest.approx(change / 2e-5, rel=1e-6)
    # Of exact averages a part in a thousand is missing.
    np.testing.assert_allclose(pairs, mf.exact(model).pairwise, rtol=5e-3, atol=1e-3)


def test_starts_lead_to_their_clusters():
    # With one unit left there is one solution; two units tell the clusters apart.
    twins = mf.RBM(
        np.full((3, 2), 6.0), mf.Gaussian(np.full(3, -6.0), 1.0), mf.Bernoulli([0.0, 0.0])
    )
    found = collapsed_tap(twins, np.array([[6.0] * 3, [-6.0] * 3]))
    assert (found.mean[0][0] > 5).all() and (found.mean[0][1] < -5).all()


def test_means_alone_and_float32_and_history():
    model = SEVERAL["binary"]
    whole, means = (collapsed_tap(model, np.zeros((2, 5)), variances=v) for v in (True, False))
    np.testing.assert_array_equal(means.mean[0], whole.mean[0])
    np.testing.assert_array_equal(means.log_partition, whole.log_partition)
    assert not means.var[0].any() and whole.var[0].all()
    single = mf.RBM(model.weights.astype(np.float32), *model.layers)
    found = collapsed_tap(single, np.zeros((2, 5), np.float32), history=True)
    assert found.mean[0].dtype == np.float32 and found.history.shape[0] == 2
    np.testing.assert_allclose(found.mean[0], whole.mean[0], rtol=1e-4)
    assert model.integrate_gaussians() is model.integrate_gaussians()


@pytest.mark.parametrize(("dtype", "weight"), [(np.float64, 1e200), (np.float32, 1e25)])
def test_weights_whose_products_are_no_numbers_are_refused(dtype, weight):
    weights = np.full((3, 2), weight, dtype)
    layers = mf.Gaussian(np.zeros(3), np.ones(3)), mf.Bernoulli(np.zeros(2))
    with pytest.raises(FloatingPointError, match="smaller size"):
        _ = mf.RBM(weights, *layers).integrate_gaussians().machine


@pytest.mark.parametrize("name", ["binary", "below", "mixed", "deep"])
def test_the_public_method_gives_the_moments_of_all_units(name):
    model = SEVERAL[name]
    rest, right = model.integrate_gaussians(), collapsed_tap(model, tol=1e-12)
    options = {"tol": 1e-12, "schedule": "sequential"}
    result = mf.tap(rest.machine, field=rest.field, precision=rest.precision, **options)
    log_partition = result.log_partition + rest.log_partition
    assert log_partition == pytest.approx(right.log_partition, abs=1e-10)
    for parts, expected in zip(
        rest.moments(result.mean, result.var), (right.mean, right.var), strict=True
    ):
        for part, other in zip(parts, expected, strict=True):
            np.testing.assert_allclose(part, other, rtol=1e-7, atol=1e-9)
    assert mf.tap(model).log_partition == pytest.approx(enumerated(model), abs=0.01)
    rows = rest.moments(np.tile(result.mean, (3, 1)), np.tile(result.var, (3, 1)))
    np.testing.assert_allclose(rows[1][0], np.tile(right.var[0], (3, 1)), rtol=1e-7)


def test_no_other_units_and_categorical_ones():
    model = mf.RBM(0.3 * WEIGHTS, GAUSSIAN, TOP)
    rest = model.integrate_gaussians()
    assert rest.machine is None
    assert rest.log_partition == pytest.approx(solved_gaussian(model)[2], abs=1e-12)
    with pytest.raises(TypeError, match="categorical units"):
        mf.RBM(WEIGHTS, GAUSSIAN, mf.Categorical([np.zeros(3)])).integrate_gaussians()
