import numpy as np
import pytest

import fastmf as mf


def machine(n=8, strength=0.4, prior=mf.Ising, seed=0):
    rng = np.random.default_rng(seed)
    upper = np.triu(rng.normal(size=(n, n)) * strength / np.sqrt(n), 1)
    return mf.BoltzmannMachine(upper + upper.T, prior(rng.normal(size=n) / 2))


def rbm(shape=(7, 4), strength=1.0):
    rng = np.random.default_rng(1)
    weights = rng.normal(size=shape) * strength / np.sqrt(sum(shape))
    return mf.RBM(weights, *(mf.Bernoulli(rng.normal(size=n) / 2) for n in shape))


@pytest.mark.parametrize("schedule", ["parallel", "sequential", "convergent", "auto"])
@pytest.mark.parametrize("prior", [mf.Ising, mf.Bernoulli])
def test_weak_couplings_against_enumeration(schedule, prior):
    model = machine(prior=prior)
    result = mf.adaptive_tap(model, schedule=schedule)
    exact = mf.exact(model)
    assert result.converged
    np.testing.assert_allclose(result.mean, exact.mean, atol=5e-3)
    np.testing.assert_allclose(result.log_partition, exact.log_partition, atol=3e-3)


def test_published_example():
    """Computed independently, for normalised priors; the exact log Z is known for both kinds."""
    model = mf.RBM([[0.9, -0.7], [0.4, 0.8]], mf.Bernoulli([0.1, -0.2]), mf.Bernoulli([0.3, -0.4]))
    result = mf.adaptive_tap(model)
    means = [0.608709, 0.601803, 0.738136, 0.419712]
    np.testing.assert_allclose(np.concatenate(result.mean), means, atol=1e-6)
    normaliser = 3.250924240281101 - 0.5410182139574589
    np.testing.assert_allclose(result.log_partition, 0.540125655050459 + normaliser, atol=1e-9)


def test_an_rbm_is_a_boltzmann_machine():
    model = rbm()
    n = model.n_visible
    couplings = np.zeros((11, 11))
    couplings[:n, n:] = model.weights
    field = np.concatenate([model.visible.field, model.hidden.field])
    other = mf.adaptive_tap(mf.BoltzmannMachine(couplings + couplings.T, mf.Bernoulli(field)))
    for schedule in ("parallel", "convergent"):
        result = mf.adaptive_tap(model, schedule=schedule)
        np.testing.assert_allclose(np.concatenate(result.mean), other.mean, atol=1e-7)
        np.testing.assert_allclose(result.log_partition, other.log_partition, atol=1e-7)


def test_gaussian_units_are_exact():
    rng = np.random.default_rng(0)
    weights, fields = rng.normal(size=(5, 3)) / 3, [rng.normal(size=n) for n in (5, 3)]
    model = mf.RBM(weights, *(mf.Gaussian(field, 2.0) for field in fields))
    precision = 2 * np.eye(8)
    precision[:5, 5:], precision[5:, :5] = -weights, -weights.T
    field = np.concatenate(fields)
    mean = np.linalg.solve(precision, field)
    result = mf.adaptive_tap(model)
    assert result.converged
    np.testing.assert_allclose(np.concatenate(result.mean), mean, atol=1e-9)
    np.testing.assert_allclose(
        np.concatenate(result.var), np.linalg.inv(precision).diagonal(), atol=1e-9
    )
    expected = field @ mean / 2 - np.linalg.slogdet(precision / (2 * np.pi))[1] / 2
    np.testing.assert_allclose(result.log_partition, expected, rtol=1e-10)


def test_bad_arguments():
    with pytest.raises(TypeError, match="model must be a BoltzmannMachine or RBM"):
        mf.adaptive_tap(np.ones((2, 2)))
    with pytest.raises(ValueError, match="not available for layered models"):
        mf.adaptive_tap(rbm(), schedule="sequential")
