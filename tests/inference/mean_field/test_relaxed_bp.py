"""Relaxed belief propagation, against enumeration, trees, published numbers and TAP."""

import itertools

import numpy as np
import pytest
from kernel_cases.machines import fully_visible, solved_gaussian

import fastmf as mf

W2 = np.array([[0.9, -0.7], [0.4, 0.8]])
FIELDS2 = np.array([0.1, -0.2]), np.array([0.3, -0.4])


@pytest.mark.parametrize("kind", ["rbm", "fully visible"])
def test_published_numbers(kind):
    model = mf.RBM(W2, *map(mf.Bernoulli, FIELDS2))
    model = model if kind == "rbm" else fully_visible(model)
    found = mf.relaxed_bp(model, tol=1e-14)
    assert found.converged
    normaliser = np.log1p(np.exp(np.concatenate(FIELDS2))).sum()
    assert found.log_partition - normaliser == pytest.approx(0.543165884950961, abs=1e-13)
    mean = np.concatenate(found.mean) if kind == "rbm" else found.mean
    np.testing.assert_allclose(mean, [0.61184587, 0.59993093, 0.73789775, 0.41934436], atol=5e-9)


def gaussian_machine(couplings):
    rng = np.random.default_rng(0)
    n = len(couplings)
    return mf.BoltzmannMachine(couplings, mf.Gaussian(rng.normal(size=n), np.full(n, 4.0)))


def test_exact_on_a_gaussian_star():
    model = mf.RBM([[0.9], [-1.1], [0.6]], mf.Gaussian([0.2, 1, -1], 3.0), mf.Gaussian([0.5], 4.0))
    found = mf.relaxed_bp(model, tol=1e-14)
    mean, covariance, log_partition = solved_gaussian(model)
    np.testing.assert_allclose(np.concatenate(found.mean), mean, rtol=1e-12)
    np.testing.assert_allclose(np.concatenate(found.var), covariance.diagonal(), rtol=1e-12)
    assert found.log_partition == pytest.approx(log_partition, rel=1e-12)


def test_exact_on_a_gaussian_tree_and_in_the_means_of_a_loop():
    tree = np.zeros((6, 6))
    for child, parent in enumerate([0, 0, 1, 1, 2], 1):
        tree[child, parent] = tree[parent, child] = 0.4 + 0.2 * child
    machine = gaussian_machine(tree)
    found = mf.relaxed_bp(machine, tol=1e-14)
    mean, covariance, log_partition = solved_gaussian(machine)
    np.testing.assert_allclose(found.mean, mean, rtol=1e-12)
    np.testing.assert_allclose(found.var, covariance.diagonal(), rtol=1e-12)
    assert found.log_partition == pytest.approx(log_partition, rel=1e-12)

    machine = gaussian_machine(0.5 * (1 - np.eye(5)))
    found = mf.relaxed_bp(machine, tol=1e-14)
    mean, covariance, _ = solved_gaussian(machine)
    np.testing.assert_allclose(found.mean, mean, rtol=1e-10)
    assert (abs(found.var / covariance.diagonal() - 1) > 1e-3).all()


@pytest.mark.parametrize("hidden", [mf.Bernoulli, mf.Gaussian])
def test_errors_are_of_third_order_in_the_couplings(hidden):
    rng = np.random.default_rng(1)
    weights, fields = rng.normal(size=(5, 4)), (rng.normal(size=5), rng.normal(size=4))
    errors = []
    for scale in (0.04, 0.02, 0.01):
        second = hidden(fields[1]) if hidden is mf.Bernoulli else hidden(fields[1], 3.0)
        model = mf.RBM(scale * weights, mf.Bernoulli(fields[0]), second)
        found, truth = mf.relaxed_bp(model, tol=1e-14), mf.exact(model)
        errors.append(
            [
                abs(found.log_partition - truth.log_partition),
                abs(np.concatenate(found.mean) - np.concatenate(truth.mean)).max(),
            ]
        )
    np.testing.assert_allclose(np.diff(np.log2(errors), axis=0), -3, atol=0.35)


@pytest.mark.parametrize(
    "visible",
    [
        mf.TruncatedGaussian(np.linspace(-1, 1, 40), -2.0, 0.0, 1.0),
        pytest.param(mf.GaussBernoulli(np.linspace(-1, 1, 40), 5.0, 0.2), marks=pytest.mark.slow),
    ],
)
def test_any_prior_close_to_tap_where_couplings_are_many_and_small(visible):
    rng = np.random.default_rng(0)
    model = mf.RBM(
        0.2 * rng.normal(size=(40, 30)) / np.sqrt(40), visible, mf.Bernoulli(np.zeros(30))
    )
    bp, tap = mf.relaxed_bp(model), mf.tap(model)
    assert bp.converged
    assert bp.log_partition == pytest.approx(tap.log_partition, abs=2e-3)
    for one, other in zip(bp.mean, tap.mean, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-3)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_rows_threads_and_types(dtype):
    rng = np.random.default_rng(0)
    weights = rng.normal(size=(30, 20)).astype(dtype) / 5
    model = mf.RBM(weights, mf.Bernoulli(np.zeros(30, dtype)), mf.Bernoulli(np.zeros(20, dtype)))
    starts = (rng.random((6, 30)) < 0.5).astype(dtype)
    one, many = (mf.relaxed_bp(model, starts, n_threads=n, history=True) for n in (1, 3))
    alone = mf.relaxed_bp(model, starts[2])
    assert one.converged.all()
    for name in ("mean", "var", "b", "a"):
        for a, b, c in zip(*(getattr(r, name) for r in (one, many, alone)), strict=True):
            np.testing.assert_array_equal(a, b)
            np.testing.assert_array_equal(a[2], c)
            assert a.dtype == dtype
    np.testing.assert_array_equal(one.log_partition, many.log_partition)
    assert one.history.shape == (6, one.n_iter.max())
    assert np.shape(alone.log_partition) == ()


def test_tilts_shift_the_priors():
    rng = np.random.default_rng(0)
    weights, tilt = rng.normal(size=(4, 3)) / 2, rng.normal(size=(5, 4))
    model = mf.RBM(weights, mf.Bernoulli(np.zeros(4)), mf.Bernoulli(np.zeros(3)))
    found = mf.relaxed_bp(model, field=tilt, precision=np.ones(4))
    for k in range(5):
        shifted = mf.RBM(weights, mf.Bernoulli(tilt[k] - 0.5), mf.Bernoulli(np.zeros(3)))
        same = mf.relaxed_bp(shifted)
        np.testing.assert_allclose(found.mean[0][k], same.mean[0], atol=1e-7)
        assert found.log_partition[k] == pytest.approx(same.log_partition, abs=1e-9)


def test_strong_couplings_are_damped_or_said_not_to_converge():
    rng = np.random.default_rng(0)
    weights = 8 * rng.normal(size=(20, 20)) / np.sqrt(20)
    field = -weights.sum(1) / 2, -weights.sum(0) / 2
    model = mf.RBM(weights, mf.Bernoulli(field[0]), mf.Bernoulli(field[1]))
    starts = rng.integers(0, 2, (10, 20)).astype(float)
    found = mf.relaxed_bp(model, starts, max_iter=500)
    assert np.isfinite(found.log_partition).all()
    assert all(np.isfinite(m).all() for m in found.mean)
    undamped = mf.relaxed_bp(model, starts, max_iter=500, damping=0.0)
    assert found.converged.sum() >= undamped.converged.sum()
    short = mf.relaxed_bp(model, max_iter=2)
    assert not short.converged
    assert "max_iter" in short.message


def test_divergence_is_said():
    one, two = mf.Gaussian([1.0], 1.0), mf.Gaussian([1.0, 1.0], [1.0, 9.0])
    for model in (mf.RBM([[3.0]], one, one), mf.RBM([[3.0, 0.5], [0.5, 3.0]], two, two)):
        found = mf.relaxed_bp(model)
        assert not found.converged
        assert "diverged" in found.message
        assert found.log_partition == -np.inf
        for part in (found.mean, found.var, found.b, found.a):
            assert np.isfinite(np.concatenate(part)).all()


def test_bad_arguments():
    model = mf.RBM(W2, *map(mf.Bernoulli, FIELDS2))
    with pytest.raises(ValueError, match="damping"):
        mf.relaxed_bp(model, damping=1.0)
    with pytest.raises(ValueError, match="init"):
        mf.relaxed_bp(model, np.zeros(3))
    with pytest.raises(TypeError, match="DBM or a BoltzmannMachine"):
        mf.relaxed_bp("model")


def test_a_deep_machine_is_that_rbm_with_its_layers_in_two_sides():
    rng = np.random.default_rng(0)
    sizes = (5, 4, 3, 2)
    weights = tuple(rng.normal(size=shape) / 3 for shape in itertools.pairwise(sizes))
    dbm = mf.DBM(weights, tuple(mf.Bernoulli(rng.normal(size=n)) for n in sizes))
    fields = tuple(rng.normal(size=(3, n)) for n in sizes)
    sides = tuple(np.hstack(fields[side::2]) for side in (0, 1))
    deep = mf.relaxed_bp(dbm, field=fields, tol=1e-12)
    wide = mf.relaxed_bp(dbm.bipartite(), field=sides, tol=1e-12)
    assert deep.converged.all()
    np.testing.assert_allclose(deep.log_partition, wide.log_partition, atol=1e-10)
    for side in (0, 1):
        np.testing.assert_allclose(np.hstack(deep.mean[side::2]), wide.mean[side], atol=1e-9)
