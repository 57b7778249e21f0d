from itertools import pairwise

import numpy as np
import pytest
from kernel_cases.machines import solved_gaussian

import fastmf as mf
from fastmf.evaluation import gibbs_chains

RNG = np.random.default_rng(0)


def rbm(visible=mf.Bernoulli, hidden=mf.Ising):
    weights = RNG.normal(size=(5, 4)) / 2
    return mf.RBM(weights, visible(RNG.normal(size=5) / 2), hidden(RNG.normal(size=4) / 2))


def dbm():
    sizes = (4, 3, 3, 2)
    weights = tuple(RNG.normal(size=shape) / 2 for shape in pairwise(sizes))
    return mf.DBM(weights, tuple(mf.Ising(RNG.normal(size=n) / 2) for n in sizes))


def machine(prior):
    couplings = np.triu(RNG.normal(size=(6, 6)) / 2, 1)
    return mf.BoltzmannMachine(couplings + couplings.T, prior(RNG.normal(size=6) / 2))


def r_hat(draws):
    """Potential scale reduction of split chains (Gelman et al. 2013, section 11.4)."""
    half = draws.shape[1] // 2
    chains = np.concatenate([draws[:, :half], draws[:, half : 2 * half]])
    within = chains.var(1, ddof=1).mean(0)
    between = half * chains.mean(1).var(0, ddof=1)
    return np.sqrt((half - 1) / half + between / half / within)


def assert_means_are(expected, draws):
    """Chains agree with each other, and their mean with the expected one, to sampling errors."""
    assert r_hat(draws).max() < 1.02
    by_chain = draws.mean(1)
    error = by_chain.std(0, ddof=1) / np.sqrt(len(by_chain))
    assert (abs(by_chain.mean(0) - expected) < 5 * error).all() and error.max() < 0.02


@pytest.mark.parametrize("model", [rbm(), rbm(mf.Ising, mf.Bernoulli), dbm()])
def test_means_of_all_layers_are_exact(model):
    draws = gibbs_chains(model, 40, 500, n_warmup=100, rng=1)
    names = ["visible", "hidden"]
    if isinstance(model, mf.DBM):
        names = ["visible", "hidden_1", "hidden_2", "hidden_3"]
    assert list(draws) == names
    for name, mean in zip(names, mf.exact(model).mean, strict=True):
        assert draws[name].shape == (40, 500, len(mean))
        assert_means_are(mean, draws[name])


def test_layers_are_drawn_together():
    """The average of products is that of the model, not of states of different sweeps."""
    model = rbm()
    draws = gibbs_chains(model, 50, 1000, n_warmup=100, rng=1)
    found = np.einsum("cdi,cdj->ij", draws["visible"], draws["hidden"]) / 50_000
    np.testing.assert_allclose(found, mf.exact(model).pairwise, atol=0.03)


@pytest.mark.parametrize("prior", [mf.Ising, mf.Bernoulli])
def test_means_of_fully_visible_machines_are_exact(prior):
    model = machine(prior)
    draws = gibbs_chains(model, 40, 500, n_warmup=100, rng=1)
    assert_means_are(mf.exact(model).mean, draws["visible"])


def test_labels_of_categorical_units():
    couplings = np.zeros((5, 5))
    couplings[:3, 3:] = RNG.normal(size=(3, 2))
    units = mf.Categorical([RNG.normal(size=3), RNG.normal(size=2)])
    model = mf.BoltzmannMachine(couplings + couplings.T, units)
    draws = gibbs_chains(model, 40, 500, n_warmup=50, rng=1)["visible"]
    assert draws.shape == (40, 500, 2) and draws.dtype.kind == "i"
    assert_means_are(mf.exact(model).mean, units.one_hot(draws))


def test_categorical_visible_units_of_an_rbm_have_labels():
    units = mf.Categorical(RNG.normal(size=(2, 3)))
    model = mf.RBM(RNG.normal(size=(6, 3)), units, mf.Bernoulli(np.zeros(3)))
    draws = gibbs_chains(model, 40, 500, n_warmup=50, rng=1)
    assert draws["visible"].shape == (40, 500, 2) and draws["visible"].dtype.kind == "i"
    assert_means_are(mf.exact(model).mean[0], units.one_hot(draws["visible"]))
    start = np.tile([[2, 0]], (3, 1))
    assert gibbs_chains(model, 3, 2, init=start, rng=0)["visible"].shape == (3, 2, 2)


def test_real_units_have_the_moments_of_a_gaussian():
    """Gaussian units: the inverse of the precision matrix is the covariance."""
    precision = np.array([1.5, 2.0])
    model = mf.RBM([[0.5], [-0.3]], mf.Gaussian([0.3, -0.2], precision), mf.Gaussian([0.1], [1.0]))
    draws = gibbs_chains(model, 40, 1000, n_warmup=50, rng=1)
    mean = solved_gaussian(model)[0]
    assert_means_are(mean, np.concatenate([draws["visible"], draws["hidden"]], axis=2))


def test_chains_start_where_they_are_told():
    """Strong couplings: chains stay in the basin where they begin."""
    couplings = 20 * (1 - np.eye(4))
    model = mf.BoltzmannMachine(couplings, mf.Ising(np.zeros(4)))
    init = np.array([[1.0] * 4, [-1.0] * 4])
    draws = gibbs_chains(model, 2, 5, n_warmup=3, init=init, rng=0)["visible"]
    np.testing.assert_array_equal(draws, np.repeat(init[:, None], 5, axis=1))


def test_thinned_draws_are_some_of_all():
    model = machine(mf.Ising)
    every = gibbs_chains(model, 3, 12, n_warmup=5, rng=4)["visible"]
    some = gibbs_chains(model, 3, 4, n_warmup=5, thin=3, rng=4)["visible"]
    np.testing.assert_array_equal(some, every[:, 2::3])


def test_results_do_not_depend_on_threads_and_keep_the_type():
    weights = RNG.normal(size=(9, 7)).astype("f")
    zeros = np.zeros(9, "f")
    model = mf.RBM(weights, mf.Bernoulli(zeros), mf.Bernoulli(zeros[:7]))
    one, two = (gibbs_chains(model, 30, 5, n_threads=n, rng=3) for n in (1, 2))
    for name, values in one.items():
        assert values.dtype == np.float32
        np.testing.assert_array_equal(values, two[name])


@pytest.mark.parametrize("options, match", [
    (dict(n_chains=0), "n_chains must be at least 1"),
    (dict(n_draws=0), "n_draws must be at least 1"),
    (dict(n_warmup=-1), "n_warmup must be at least 0"), (dict(thin=0), "thin must be at least 1"),
    (dict(n_threads=0), "n_threads must be at least 1"),
    (dict(init=np.zeros((3, 5))), "init must have 4 rows"),
    (dict(init=np.zeros((4, 6))), "init must have shape"),
    (dict(init=np.full((4, 5), 0.5)), "units can take"),
    (dict(init=np.full((4, 5), np.nan)), "must be finite"),
])  # fmt: skip
def test_bad_arguments(options, match):
    with pytest.raises(ValueError, match=match):
        gibbs_chains(rbm(), **options)


def test_models_that_cannot_be_sampled():
    with pytest.raises(TypeError, match="pass model_"):
        gibbs_chains(mf.GeneralizedRBM(2))


def test_real_units_of_a_dense_machine():
    couplings = np.array([[0, 0.5, 0], [0.5, 0, -0.3], [0, -0.3, 0]])
    model = mf.BoltzmannMachine(couplings, mf.Gaussian([0.3, -0.2, 0.1], [1.5, 2.0, 1.0]))
    draws = gibbs_chains(model, 40, 1000, n_warmup=50, rng=1)["visible"]
    assert_means_are(solved_gaussian(model)[0], draws)
