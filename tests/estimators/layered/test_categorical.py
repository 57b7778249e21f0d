"""Machines of categorical units learned from labels."""

import numpy as np
import pytest

import fastmf as mf


def chain_data(n_rows, seed=0):
    """Five positions of three states; each is likely to repeat the one before."""
    rng = np.random.default_rng(seed)
    X = rng.integers(0, 3, (n_rows, 5))
    for position in range(1, 5):
        repeat = rng.random(n_rows) < 0.8
        X[repeat, position] = X[repeat, position - 1]
    return X


X = chain_data(400)
OPTIONS = {
    "visible": "categorical",
    "learning_rate": 0.15,
    "batch_size": 20,
    "n_epochs": 12,
    "random_state": 0,
}


def log_likelihood(estimator, X):
    """Exact, by summing over the hidden states."""
    model = estimator.model_
    flat = model.visible.one_hot(X)
    hidden = model.hidden.log_partition(flat @ model.weights, 0.0).sum(1)
    unnormalised = model.visible.log_prob(flat).sum(1) + hidden
    return float(unnormalised.mean() - mf.exact(model, averages=False).log_partition)


@pytest.mark.parametrize(
    "gradient",
    ["pcd", *(pytest.param(g, marks=pytest.mark.slow) for g in ("tap", "mean_field", "cd"))],
)
def test_learning_finds_the_chain(gradient):
    rbm = mf.GeneralizedRBM(6, gradient=gradient, **OPTIONS).fit(X)
    test = chain_data(400, seed=1)
    independent = np.log(np.bincount(X.ravel()) / X.size)[test].sum(1).mean()
    assert log_likelihood(rbm, test) > independent + 0.5
    assert rbm.score(test) == pytest.approx(log_likelihood(rbm, test), abs=1.0)
    assert rbm.n_features_in_ == 5 and rbm.weights_.shape == (15, 6)
    samples = rbm.sample(300, n_sweeps=20, random_state=0)
    assert samples.shape == (300, 5) and samples.dtype == np.int64
    assert (samples[:, 1:] == samples[:, :-1]).mean() > 0.6


@pytest.mark.parametrize("bad", [0.5, 100_000])
def test_bad_labels_are_named(bad):
    wrong = X.astype(float)
    wrong[3, 2] = bad
    with pytest.raises(ValueError, match="one label for each categorical unit"):
        mf.GeneralizedRBM(4, **OPTIONS).fit(wrong)


def test_evaluation_takes_labels():
    model = mf.GeneralizedRBM(4, **OPTIONS | {"n_epochs": 5}).fit(X).model_
    annealed = mf.evaluation.annealed_importance_sampling(
        model, n_chains=50, n_steps=100, data=X[:50], rng=0
    )
    exact = mf.exact(model, averages=False).log_partition
    assert abs(annealed.log_partition - exact) < max(5 * annealed.error, 0.05)
    names = [entry.name for entry in mf.evaluation.log_partition_report(model, X[:20], rng=0)]
    assert "NMF, mean" in names
    found = mf.evaluation.pseudo_log_likelihood(model, X[:3])
    flat, expected = model.visible.one_hot(X[:3]), np.zeros(3)
    for position in range(5):
        others = np.repeat(X[:3, None], 3, axis=1)
        others[:, :, position] = np.arange(3)
        others = model.visible.one_hot(others)
        logs = model.visible.log_prob(others).sum(-1) + model.hidden.log_partition(
            others @ model.weights, 0.0
        ).sum(-1)
        own = model.visible.log_prob(flat).sum(-1) + model.hidden.log_partition(
            flat @ model.weights, 0.0
        ).sum(-1)
        expected += own - np.logaddexp.reduce(logs, axis=1)
    np.testing.assert_allclose(found, expected, atol=1e-12)
