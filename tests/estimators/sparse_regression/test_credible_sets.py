"""Credible sets: what they hold, and how often."""

import numpy as np
import pytest
from scipy.linalg import block_diag
from scipy.special import logsumexp

import fastmf as mf


def locus(seed, n=150, p=60, effects=1, correlation=0.95):
    """Features of a chain of correlations, and a target of some of them."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, p))
    for j in range(1, p):
        if j % 12:
            X[:, j] = correlation * X[:, j - 1] + np.sqrt(1 - correlation**2) * X[:, j]
    causes = rng.choice(p, effects, replace=False)
    return X, 0.5 * X[:, causes].sum(1) + rng.normal(size=n), causes


@pytest.mark.slow
def test_sets_hold_the_cause_as_often_as_they_say():
    held = sizes = n_sets = n_found = 0
    for seed in range(20):
        X, y, causes = locus([1, seed], effects=2)
        sets = mf.SpikeSlabRegressor(inclusion_probability=2 / X.shape[1]).fit(X, y).credible_sets()
        n_sets += len(sets)
        held += sum(np.isin(causes, found.features).any() for found in sets)
        n_found += sum(any(c in found.features for found in sets) for c in causes)
        sizes += sum(len(found.features) for found in sets)
        for found in sets:
            assert found.probability >= 0.95 - 1e-9 and 0.95 - 1e-9 <= found.coverage <= 1
            R = np.corrcoef(X[:, found.features].T) if len(found.features) > 1 else np.ones((1, 1))
            assert found.purity == pytest.approx(abs(R).min(), abs=1e-9)
            assert len(np.unique(found.features)) == len(found.features)
    assert n_sets > 25 and n_found > 25
    assert held >= n_sets - 3  # of some 35, of which 0.95 are expected
    assert sizes / n_sets < 12


def test_two_effects_in_one_block_have_two_sets():
    rng = np.random.default_rng(0)
    common = rng.normal(size=(300, 1))
    X = 0.8 * common + 0.6 * rng.normal(size=(300, 12))  # all correlate by 0.64
    X[:, 1] = X[:, 0] + 0.02 * rng.normal(size=300)
    y = X[:, 0] - X[:, 6] + 0.7 * rng.normal(size=300)
    sets = mf.SpikeSlabRegressor().fit(X, y).credible_sets()
    assert sorted(tuple(np.sort(found.features)) for found in sets) == [(0, 1), (6,)]


def test_sets_reach_across_blocks():
    """A feature and its copies may be in several blocks."""
    X, y, _ = locus(3, correlation=0.93)
    labels = np.arange(60) // 6
    sets = (
        mf.SpikeSlabRegressor(blocks=labels, inclusion_probability=1 / X.shape[1])
        .fit(X, y)
        .credible_sets()
    )
    whole = mf.SpikeSlabRegressor(inclusion_probability=1 / X.shape[1]).fit(X, y).credible_sets()
    assert len(sets) == len(whole) == 1
    assert len(np.setxor1d(sets[0].features, whole[0].features)) <= 2


def single_effects(X, y, n_effects=4, noise=1.0, variance=0.25):
    """Probabilities of the place of each of some effects: a sum of single effects (SuSiE)."""
    p, squares = X.shape[1], (X * X).sum(0)
    alpha, mean = np.full((n_effects, p), 1 / p), np.zeros((n_effects, p))
    for _ in range(100):
        for k in range(n_effects):
            others = (alpha * mean).sum(0) - alpha[k] * mean[k]
            z = X.T @ (y - X @ others)
            spread = 1 / (squares / noise + 1 / variance)
            mean[k] = spread * z / noise
            log_bf = mean[k] ** 2 / (2 * spread) + np.log(spread / variance) / 2
            alpha[k] = np.exp(log_bf - np.logaddexp.reduce(log_bf))
    return alpha


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    "options",
    [
        {},
        *(
            pytest.param(options, marks=pytest.mark.slow)
            for options in ({"blocks": None}, {"average_parameters": True})
        ),
    ],
)
def test_sets_and_groups_are_as_probable_as_their_features_say(seed, options):
    """At most the sum of inclusion probabilities, and at least the largest."""
    rng = np.random.default_rng(seed)
    steps = rng.normal(size=(300, 40)) * rng.choice([0.05, 0.4], 40)
    X = np.cumsum(steps, axis=1) * rng.choice([-1, 1], 40)
    X = (X - X.mean(0)) / X.std(0)
    y = 0.4 * X[:, [10, 30]].sum(1) + rng.normal(size=300)
    model = mf.SpikeSlabRegressor(**options).fit(X, y)
    included = model.inclusion_probability_
    alpha = single_effects(X, y - y.mean())
    for found in model.credible_sets():
        held = included[found.features]
        assert held.max() - 1e-12 <= found.probability <= held.sum() + 1e-12
        assert found.probability >= 0.95 - 1e-9
        if model.reliable_:
            assert alpha[:, found.features].sum(1).max() > 0.8
    for group in ([3], [30], [9, 10, 11], rng.choice(40, 20, replace=False), range(40)):
        group = np.array(group)
        joint = model.group_inclusion_probability(group)
        assert included[group].max() - 1e-12 <= joint <= min(included[group].sum(), 1) + 1e-12


@pytest.mark.parametrize(
    "n_copies, jitter", [(160, 0.0), pytest.param(400, 0.02, marks=pytest.mark.slow)]
)
def test_sets_of_very_many_copies(n_copies, jitter):
    """Copies are exchangeable: a set of 95 % has 95 % of them."""
    rng = np.random.default_rng(0)
    base = rng.normal(size=(100, 1))
    copies = base + jitter * rng.normal(size=(100, n_copies))
    X = np.hstack([copies, rng.normal(size=(100, 10))])
    model = mf.SpikeSlabRegressor(inclusion_probability=1 / X.shape[1]).fit(
        X, X[:, 5] + rng.normal(size=100)
    )
    (found,) = model.credible_sets()
    assert 0.85 * n_copies < len(found.features) < n_copies
    assert 0.95 <= found.probability <= model.inclusion_probability_[found.features].sum() + 1e-9
    assert model.group_inclusion_probability(np.arange(n_copies)) > 0.98
    half = model.group_inclusion_probability(np.arange(0, n_copies, 2))
    assert half == pytest.approx(0.5, abs=0.15)


def test_noise_has_no_sets_and_known_features_are_in_none():
    rng = np.random.default_rng(1)
    X, y = rng.normal(size=(80, 30)), rng.normal(size=80)
    assert mf.SpikeSlabRegressor().fit(X, y).credible_sets() == []
    inclusion = np.full(30, 0.05)
    inclusion[[0, 1]] = 1, 0
    y = y + 2 * X[:, 5] + 2 * X[:, 9]
    model = mf.SpikeSlabRegressor(inclusion_probability=inclusion, unpenalised=[9]).fit(X, y)
    assert [list(found.features) for found in model.credible_sets()] == [[5]]
    with pytest.raises(ValueError, match="coverage must be between 0 and 1"):
        model.credible_sets(1.0)


def test_sets_of_independent_loci_from_summaries():
    loci = [locus(seed, p=24, n=400) for seed in (0, 1)]
    X = np.concatenate([X for X, _, _ in loci], axis=1)
    y = sum(y for _, y, _ in loci)
    n = len(y)
    Z = (X - X.mean(0)) / X.std(0)
    r = Z.T @ (y - y.mean()) / y.std() / n
    z = r * np.sqrt((n - 2) / (1 - r * r))
    R = block_diag(*[np.corrcoef(X.T) for X, _, _ in loci])
    sets = (
        mf.SpikeSlabRegressor(inclusion_probability=2 / len(z)).fit_summary(z, R, n).credible_sets()
    )
    causes = loci[0][2][0], 24 + loci[1][2][0]
    assert len(sets) == 2
    for cause, found in zip(causes, sets, strict=True):
        assert cause in found.features


def test_blocks_with_more_effects_than_are_summed_over_are_warned_of():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 20)) + rng.normal(size=(200, 1))
    y = X[:, :12].sum(1) + 0.3 * rng.normal(size=200)
    with pytest.warns(UserWarning, match="more effects than are summed over"):
        mf.SpikeSlabRegressor(blocks=np.zeros(20)).fit(X, y)


@pytest.mark.parametrize("seed, distance", [(0, 0), (4, 3)])
def test_colocalisation_is_the_fourth_hypothesis_of_single_effects(seed, distance):
    rng = np.random.default_rng(seed)
    n, p, slab, prior = 3000, 40, 0.02, 1e-3
    H = rng.normal(size=(2, n, p))
    for k in range(1, p):
        H[..., k] = 0.93 * H[..., k - 1] + np.sqrt(1 - 0.93**2) * H[..., k]
    X = (H > 0.5).sum(0)
    cause = int(rng.integers(5, 30))
    Y = 0.2 * X[:, [cause, cause + distance]] + rng.normal(size=(n, 2))
    r = np.corrcoef(X.T, Y.T)[p:, :p]
    z = r * np.sqrt((n - 2) / (1 - r * r))
    given = {"inclusion_probability": prior, "slab_variance": slab, "noise_variance": 1.0}
    R = np.corrcoef(X.T)
    one, two = (mf.SpikeSlabRegressor(**given).fit_summary(scores, R, n) for scores in z)
    pair = one.colocalisation(two)[0]
    # Log Bayes factors of Wakefield (2009), and the hypotheses of Giambartolomei et al. (2014).
    score = r * np.sqrt(n)
    first, second = (score**2 * slab * n / (1 + slab * n) - np.log1p(slab * n)) / 2
    both = logsumexp(first + second)
    different = logsumexp([logsumexp(first) + logsumexp(second), both], b=[1, -1])
    weights = np.array([0, logsumexp(first), logsumexp(second), different, both])
    weights += np.log([1, prior, prior, prior**2, 0.1 * prior])
    expected = np.exp(weights[4] - logsumexp(weights))
    assert pair.probability == pytest.approx(expected, abs=0.02)
    assert distance or (pair.features[0] == cause and pair.probability > 0.5)


def test_colocalisation_refuses_other_features():
    model, other = (mf.SpikeSlabRegressor().fit_summary([9, *[0.3] * k], np.eye(k + 1), 1000)
                    for k in (1, 2))  # fmt: skip
    assert model.colocalisation(model)[0].probability <= 1
    with pytest.raises(ValueError, match="same features"):
        model.colocalisation(other)
