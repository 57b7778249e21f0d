"""Which machines exist: compared with eigenvalues, and with integrals that are finite or not."""

from itertools import pairwise

import numpy as np
import pytest

import fastmf as mf
from fastmf.learning.layered.domain import after_step, can_follow, check_exists, exists
from fastmf.learning.training.ascent import ModelParameters

RECTIFIED = mf.TruncatedGaussian([0.0, 0.0], [1.0, 1.0], 0.0, np.inf)


def smallest_eigenvalue(weights, p, q):
    blocks = [[np.diag(p), -weights], [-weights.T, np.diag(q)]]
    return np.linalg.eigvalsh(np.block(blocks)).min()


@pytest.mark.parametrize("seed", range(10))
def test_gaussian_layers_exist_where_their_precision_is_positive_definite(seed):
    rng = np.random.default_rng(seed)
    p, q = rng.uniform(0.1, 10, 5), rng.uniform(0.1, 10, 3)
    weights = rng.normal(size=(5, 3))
    scaled = weights / np.sqrt(np.outer(p, q))
    weights = weights / np.linalg.norm(scaled, 2)
    for scale in (0.99, 1.01):
        model = mf.RBM(scale * weights, mf.Gaussian(np.zeros(5), p), mf.Gaussian(np.ones(3), q))
        right = smallest_eigenvalue(scale * weights, p, q) > 0
        assert right == (scale < 1)
        assert exists(model.couplings, model.layers) == right


def test_bounded_units_let_every_machine_exist():
    gaussian, strong = mf.Gaussian(np.zeros(2), 1e-9), np.full((2, 2), 1e6)
    for other in (mf.Bernoulli(np.zeros(2)), mf.TruncatedGaussian([0.0, 0.0], -3.0, 0.0, 1.0)):
        assert exists((strong,), (gaussian, other)) and exists((strong,), (other, gaussian))
    assert exists((strong,), (mf.GaussBernoulli(np.zeros(2), 1e-9, 0.0), mf.Ising(np.zeros(2))))


@pytest.mark.parametrize("layers", [1, 2, 3])
def test_deep_machines_of_gaussian_layers(layers):
    rng = np.random.default_rng(layers)
    sizes = [4, 3, 3, 2][: layers + 1]
    weights = [rng.normal(size=pair) for pair in pairwise(sizes)]
    ends = np.cumsum([0, *sizes])
    matrix = np.zeros((ends[-1], ends[-1]))
    for k, w in enumerate(weights):
        matrix[ends[k] : ends[k + 1], ends[k + 1] : ends[k + 2]] = w
    largest = np.linalg.eigvalsh(matrix + matrix.T).max()
    priors = [mf.Gaussian(np.zeros(n), 1.0) for n in sizes]
    for scale in (0.99, 1.01):
        assert exists([scale / largest * w for w in weights], priors) == (scale < 1)


def test_couplings_that_lower_the_density_on_half_lines_are_harmless():
    """x y <= 0 in the exponent for x, y >= 0; between a half-line and a whole line signs matter."""
    strong = np.full((2, 2), -50.0)
    assert exists((strong,), (RECTIFIED, RECTIFIED))
    assert not exists((-strong,), (RECTIFIED, RECTIFIED))
    below = mf.TruncatedGaussian([0.0, 0.0], 1.0, -np.inf, 0.0)
    assert exists((-strong,), (RECTIFIED, below)) and not exists((strong,), (RECTIFIED, below))
    whole = mf.Gaussian(np.zeros(2), 1.0)
    assert not exists((strong,), (RECTIFIED, whole)) and not exists((-strong,), (RECTIFIED, whole))


def test_learning_does_not_begin_with_a_machine_that_does_not_exist():
    gaussian = mf.Gaussian(np.zeros(2), 1.0)
    check_exists(mf.RBM(np.eye(2) * 0.9, gaussian, gaussian))
    with pytest.raises(ValueError, match=r"largest singular value .* below 1; scale its weights"):
        check_exists(mf.RBM(np.eye(2) * 1.1, gaussian, gaussian))
    # Of half-lines that is not known.
    check_exists(mf.RBM(np.ones((2, 2)), RECTIFIED, RECTIFIED))


def moved(model, step):
    parameters = ModelParameters.of(model)
    return after_step(model, parameters.combine(np.add, step), step)


@pytest.mark.parametrize("kind", ["far", "none", "inside"])
def test_a_step_is_halved_until_the_machine_exists(kind):
    start = 0.5 if kind != "none" else 0.0
    gaussian = mf.Gaussian(np.zeros(2), 1.0)
    model = mf.RBM(start * np.eye(2), gaussian, gaussian)
    step = ModelParameters.of(model).combine(np.zeros_like)
    size = {"far": 7.0, "none": 0.0, "inside": 0.25}[kind]
    step.couplings[0][:] = size * np.eye(2)
    new = moved(model, step)
    taken = (new.weights - model.weights)[0, 0]
    # The largest half, quarter, ... that leaves a singular value below 1.
    expected = {"far": 7 / 16, "none": 0.0, "inside": 0.25}[kind]
    assert taken == pytest.approx(expected)
    assert step.couplings[0][0, 0] == pytest.approx(expected)
    assert smallest_eigenvalue(new.weights, new.visible.precision, new.hidden.precision) > 0


def test_precisions_move_by_factors_and_models_that_are_right_stay():
    p = np.array([1e-8, 3.0, 1e8])
    model = mf.RBM(np.full((3, 1), 5.0), mf.Gaussian(np.zeros(3), p), mf.Bernoulli([0.0]))
    step = ModelParameters.of(model).combine(np.zeros_like)
    still = moved(model, step)
    np.testing.assert_array_equal(still.visible.precision, p)
    step.layers[0].precision[:] = [-0.1, 0.2, -0.3]
    found = moved(model, step).visible.precision
    np.testing.assert_allclose(found, p * np.exp([-0.1, 0.2, -0.3]), rtol=1e-12)
    # Bounded units may have precisions of either sign: those are added to.
    bounded = mf.TruncatedGaussian(np.zeros(3), [0.05, 1.0, -1.0], 0.0, 1.0)
    model = mf.RBM(np.ones((3, 1)), bounded, mf.Bernoulli([0.0]))
    step = ModelParameters.of(model).combine(np.zeros_like)
    step.layers[0].precision[:] = -0.1
    np.testing.assert_allclose(moved(model, step).visible.precision, [-0.05, 0.9, -1.1])


def test_mean_fields_follow_gaussian_units_anywhere_and_others_as_far_as_moments_exist():
    strong = np.full((2, 2), 9.0)
    assert can_follow(mf.RBM(strong, mf.Gaussian(np.zeros(2), 1.0), mf.Bernoulli(np.zeros(2))))
    # Units of a half-line with variances 1/4 beside: a reduction of 81 / 2.
    assert not can_follow(mf.RBM(strong, mf.Bernoulli(np.zeros(2)), RECTIFIED))
    assert can_follow(mf.RBM(strong / 20, mf.Bernoulli(np.zeros(2)), RECTIFIED))
    mixed = mf.Concatenated(mf.Gaussian([0.0], [1.0]), mf.GaussBernoulli([0.0], [1.0], [0.0]))
    assert not can_follow(mf.RBM(strong, mixed, mf.Bernoulli(np.zeros(2))))
    deep = mf.DBM(
        (strong, strong), (mf.Bernoulli(np.zeros(2)), RECTIFIED, mf.Bernoulli(np.zeros(2)))
    )
    assert not can_follow(deep)
