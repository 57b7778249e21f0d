import itertools

import numpy as np
import pytest
from scipy.special import gammaln

import fastmf as mf
from fastmf.models import RBM, BoltzmannMachine, exact
from fastmf.priors import Bernoulli, Gaussian, Ising


def by_hand(model, states, energy):
    """Averages over all states, one at a time."""
    weights = np.exp(-np.array([energy(s) for s in states]))
    z = weights.sum()
    x = np.array(states)
    return np.log(z), weights @ x / z, x.T @ (weights[:, None] * x) / z


def test_boltzmann_machine():
    rng = np.random.default_rng(0)
    couplings = np.triu(rng.normal(size=(5, 5)), 1)
    machine = BoltzmannMachine(couplings + couplings.T, Ising(rng.normal(size=5)))
    states = list(itertools.product([-1.0, 1.0], repeat=5))
    log_partition, mean, pairwise = by_hand(machine, states, lambda s: machine.energy(np.array(s)))
    result = exact(machine)
    assert result.log_partition == pytest.approx(log_partition, rel=1e-13)
    np.testing.assert_allclose(result.mean, mean, atol=1e-13)
    np.testing.assert_allclose(result.var, 1 - mean**2, atol=1e-13)
    np.testing.assert_allclose(result.pairwise, pairwise, atol=1e-13)


@pytest.mark.parametrize("shape", [(3, 4), (4, 3)])
def test_rbm_of_binary_units(shape):
    rng = np.random.default_rng(1)
    n, m = shape
    rbm = RBM(rng.normal(size=shape), Bernoulli(rng.normal(size=n)), Ising(rng.normal(size=m)))
    states = list(itertools.product(*[[0.0, 1.0]] * n, *[[-1.0, 1.0]] * m))
    log_partition, mean, pairwise = by_hand(
        rbm, states, lambda s: rbm.energy(np.array(s[:n]), np.array(s[n:]))
    )
    result = exact(rbm)
    assert result.log_partition == pytest.approx(log_partition, rel=1e-13)
    np.testing.assert_allclose(np.concatenate(result.mean), mean, atol=1e-13)
    variance = pairwise.diagonal() - mean**2
    np.testing.assert_allclose(np.concatenate(result.var), variance, atol=1e-13)
    np.testing.assert_allclose(result.pairwise, pairwise[:n, n:], atol=1e-13)


@pytest.mark.parametrize("flipped", [False, True])
def test_rbm_with_one_continuous_layer(flipped):
    # Summing Gaussian hidden units gives a Boltzmann machine: a Hopfield model.
    rng = np.random.default_rng(2)
    weights = rng.normal(size=(4, 2))
    spins, memory = Ising(rng.normal(size=4)), Gaussian(np.zeros(2), [2.0, 3.0])
    couplings = weights / memory.precision @ weights.T
    hopfield = BoltzmannMachine(couplings - np.diag(couplings.diagonal()), spins)
    rbm = RBM(weights.T, memory, spins) if flipped else RBM(weights, spins, memory)
    result, reference = exact(rbm), exact(hopfield)
    constant = couplings.trace() / 2 + np.log(2 * np.pi / memory.precision).sum() / 2
    assert result.log_partition == pytest.approx(reference.log_partition + constant, rel=1e-13)
    np.testing.assert_allclose(result.mean[flipped], reference.mean, atol=1e-13)
    pairwise = result.pairwise.T if flipped else result.pairwise
    # <v h> = <v v'> W / precision, as h given v has mean v'W / precision.
    expected = reference.pairwise @ weights / memory.precision
    np.testing.assert_allclose(pairwise, expected, atol=1e-13)


def test_two_by_two_reference():
    rbm = RBM([[0.9, -0.7], [0.4, 0.8]], Bernoulli([0.1, -0.2]), Bernoulli([0.3, -0.4]))
    result = exact(rbm)
    assert result.log_partition == pytest.approx(3.250924240281101, rel=1e-14)
    means = [0.60976985, 0.60142979, 0.73818036, 0.41976462]
    np.testing.assert_allclose(np.concatenate(result.mean), means, atol=5e-9)


def test_enumeration_in_more_than_one_chunk():
    # Independent units: everything is known in closed form.
    field = np.linspace(-1, 1, 15)
    result = exact(BoltzmannMachine(np.zeros((15, 15)), Bernoulli(field)))
    assert result.log_partition == pytest.approx(np.log1p(np.exp(field)).sum(), rel=1e-13)
    np.testing.assert_allclose(result.mean, 1 / (1 + np.exp(-field)), atol=1e-13)


def test_without_averages():
    rbm = RBM([[0.9, -0.7], [0.4, 0.8]], Bernoulli([0.1, -0.2]), Bernoulli([0.3, -0.4]))
    machine = BoltzmannMachine([[0, 0.5], [0.5, 0]], Ising([0.1, 0.2]))
    for model in (rbm, machine):
        result = exact(model, averages=False)
        assert result.log_partition == exact(model).log_partition
        assert result[1:] == (None, None, None, None)


def test_visible_layer_of_real_size():
    # Equal hidden units that push half the visible units up and half down, so that everything is a
    # binomial sum.
    n, w = 12, 0.3
    weights = np.where(np.arange(784)[:, None] % 2, w, -w) * np.ones(n)
    rbm = RBM(weights, Bernoulli(np.zeros(784)), Bernoulli(np.full(n, -2.0)))
    k = np.arange(n + 1)
    terms = gammaln(n + 1) - gammaln(k + 1) - gammaln(n - k + 1) - 2.0 * k
    terms += 392 * (np.logaddexp(0, w * k) + np.logaddexp(0, -w * k))
    result = exact(rbm)
    assert result.log_partition == pytest.approx(np.logaddexp.reduce(terms), rel=1e-13)
    p = np.exp(terms - np.logaddexp.reduce(terms))
    np.testing.assert_allclose(result.mean[1], p @ k / n, rtol=1e-12)


@pytest.mark.parametrize(
    ("model", "error"),
    [
        (RBM(np.zeros((2, 2)), Gaussian([0, 0], 1.0), Gaussian([0, 0], 1.0)), ValueError),
        (BoltzmannMachine(np.ones((40, 40)) - np.eye(40), Ising(np.zeros(40))), ValueError),
        (BoltzmannMachine(np.zeros((2, 2)), Gaussian([0, 0], 1.0)), ValueError),
        (np.zeros((2, 2)), TypeError),
    ],
)
def test_models_that_cannot_be_summed(model, error):
    with pytest.raises(error):
        exact(model)


def test_variances_of_certain_units_are_not_negative():
    rng = np.random.default_rng(0)
    for _ in range(1000):
        fields = 3 * rng.normal(size=3), 3 * rng.normal(size=2)
        rbm = RBM(5 * rng.normal(size=(3, 2)), Ising(fields[0]), Bernoulli(fields[1]))
        assert (np.concatenate(exact(rbm).var) >= 0).all()


def test_the_result_in_consoles():
    found = exact(RBM(np.zeros((3, 2)), Ising(np.zeros(3)), Ising(np.zeros(2))))
    assert repr(found) == "Exact(log-partition 3.46574, averages of 3 + 2 units)"  # 5 ln 2
    pair = exact(BoltzmannMachine(np.zeros((2, 2)), Ising(np.zeros(2))), averages=False)
    assert repr(pair) == "Exact(log-partition 1.38629, without averages)"


@pytest.mark.filterwarnings("ignore:(overflow|invalid)")
def test_sums_that_overflow_are_refused():
    machine = mf.RBM(np.full((1, 1), 1e200), mf.Bernoulli([0.0]), mf.Gaussian([0.0], [1.0]))
    with pytest.raises(FloatingPointError, match="overflow"):
        mf.exact(machine)
