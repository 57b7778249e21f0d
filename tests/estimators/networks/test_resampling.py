"""Predictability, bootstraps and stability of networks."""

import numpy as np
import pytest
from network_data import table
from sklearn.exceptions import ConvergenceWarning

import fastmf as mf
from fastmf.estimators.common.runs import generator_of

MACHINES = [mf.FullyVisibleBoltzmannMachine, mf.OrdinalMachine]


def ratings(n=400, d=4, seed=0):
    """Items of two, three and four categories with a common cause."""
    rng = np.random.default_rng(seed)
    scores = rng.normal(size=(n, 1)) + rng.normal(size=(n, d))
    cuts = [[0.3], [-0.5, 0.5], [-1, 0.2, 1], [-0.7, 0.7]]
    return np.stack([np.digitize(scores[:, j], cuts[j % 4]) for j in range(d)], axis=1)


def test_predictability_is_that_of_the_conditionals(machine):
    X = table()
    p, found = machine.conditional_proba(X), machine.predictability()
    np.testing.assert_allclose(found.r2, 1 - ((X - p) ** 2).mean(0) / X.var(0), atol=1e-10)
    np.testing.assert_allclose(found.accuracy, ((p > 0.5) == X).mean(0))
    share = X.mean(0)
    np.testing.assert_allclose(found.marginal_accuracy, np.maximum(share, 1 - share))


def test_error_of_predictability_is_that_of_refits():
    """Against the jackknife, which fits all parameters again without each row."""
    X = table(n=150, d=3, seed=3)
    rows, weights = np.unique(X, axis=0, return_counts=True)
    whole = mf.FullyVisibleBoltzmannMachine(tol=1e-9).fit(rows, sample_weight=weights)
    left_out = []
    for k in range(len(rows)):
        fewer = weights - (np.arange(len(rows)) == k)
        without = mf.FullyVisibleBoltzmannMachine(tol=1e-9).fit(rows, sample_weight=fewer)
        left_out.append(without.predictability().r2)
    left_out = np.array(left_out)
    mean = weights @ left_out / len(X)
    variance = (len(X) - 1) / len(X) * (weights @ (left_out - mean) ** 2)
    np.testing.assert_allclose(whole.predictability().standard_error, variance**0.5, rtol=0.1)


@pytest.mark.parametrize(
    "options", [{}, {"l2": 0.05}, {"l1": 0.02}, {"n_categories": [2, 3, 4, 3]}]
)
def test_samples_are_fits_of_weighted_rows(options):
    ordinal = "n_categories" in options
    kind, X = (mf.OrdinalMachine, ratings(300)) if ordinal else (MACHINES[0], table(d=3))
    machine = kind(tol=1e-8, **options).fit(X)
    found, rng, objective = machine.bootstrap(3, 5), generator_of(5), machine._objective
    for k in range(3):
        weights = rng.multinomial(len(X), objective.weights)
        again = kind(tol=1e-8, **options).fit(objective.states, sample_weight=weights)
        field = np.concatenate(again.thresholds_) if ordinal else again.field_
        close = 1e-6 if ordinal else 1e-5
        assert found.converged[k]
        np.testing.assert_allclose(found.couplings[k], again.couplings_, atol=close)
        np.testing.assert_allclose(found.field[k], field, atol=close)


def test_spread_of_samples_is_the_standard_error(machine, samples):
    errors, _ = machine.standard_errors()
    pairs = np.triu_indices(5, 1)
    np.testing.assert_allclose(samples.couplings.std(0)[pairs], errors[pairs], rtol=0.2)


def test_predictability_of_ordinal_items():
    X = ratings()
    machine = mf.OrdinalMachine().fit(X)
    found, p = machine.predictability(), machine.conditional_proba(X)
    starts = np.cumsum([0, 2, 3, 4])
    for j in range(4):
        own = p[:, starts[j] : starts[j] + machine.n_categories_[j]]
        mean = own @ np.arange(own.shape[1])
        assert found.r2[j] == pytest.approx(1 - ((X[:, j] - mean) ** 2).mean() / X[:, j].var())
        assert found.accuracy[j] == pytest.approx((own.argmax(1) == X[:, j]).mean())
        share = np.bincount(X[:, j]).max() / len(X)
        assert found.marginal_accuracy[j] == pytest.approx(share)


@pytest.mark.parametrize("kind", ["free", pytest.param("blume_capel", marks=pytest.mark.slow)])
def test_error_of_ordinal_predictability_is_that_of_the_bootstrap(kind):
    X = ratings(300)
    machine = mf.OrdinalMachine(thresholds=kind).fit(X)
    rng, found = np.random.default_rng(3), []
    for _ in range(60):
        drawn = X[rng.integers(0, len(X), len(X))]
        again = mf.OrdinalMachine(thresholds=kind, n_categories=[2, 3, 4, 3]).fit(drawn)
        found.append(again.predictability().r2)
    ratio = np.std(found, axis=0) / machine.predictability().standard_error
    assert ((ratio > 0.7) & (ratio < 1.4)).all()


@pytest.mark.parametrize("kind", [MACHINES[0], pytest.param(MACHINES[1], marks=pytest.mark.slow)])
def test_whole_clusters_are_drawn(kind):
    """Each row four times: errors are those of the rows that were drawn once."""
    X = table(150, 3)
    clusters = np.repeat(np.arange(150), 4)
    machine = kind().fit(np.repeat(X, 4, axis=0), clusters=clusters)
    errors = kind().fit(X).standard_errors()[0]
    np.testing.assert_allclose(machine.standard_errors()[0], errors, rtol=1e-4)
    spread = machine.bootstrap(150).couplings.std(0)
    pairs = np.triu_indices(3, 1)
    np.testing.assert_allclose(spread[pairs], errors[pairs], rtol=0.2)


def test_stability_of_fewer_rows(machine):
    with pytest.warns(ConvergenceWarning, match="have no maximum"):  # of 5% of the rows
        found = machine.stability(20, [0.05, 0.5, 0.95], rng=1)
    assert found.strength.shape == found.expected_influence.shape == (3, 20)
    assert repr(found).endswith("of shape (3, 20), converged of shape (3, 20))")
    assert found.converged[:2].all() and not found.converged[2].all()
    means = np.nanmean(found.strength, axis=1)
    assert means[0] > 0.98 and means[0] > means[1] > means[2]
    assert found.coefficient("strength", 0.5) == 0.5
    assert found.coefficient(correlation=1.1) == 0.0
    # The same by hand: rows without some of them, fitted anew.
    X, rng = table(), np.random.default_rng(0)
    by_hand = []
    for _ in range(20):
        kept = rng.choice(len(X), len(X) // 2, replace=False)
        again = mf.FullyVisibleBoltzmannMachine().fit(X[kept])
        strengths = abs(again.couplings_).sum(0), abs(machine.couplings_).sum(0)
        by_hand.append(np.corrcoef(*strengths)[0, 1])
    assert means[1] == pytest.approx(np.mean(by_hand), abs=0.05)
    for shares in ([0.0], [1.0], [np.nan]):
        with pytest.raises(ValueError, match="dropped"):
            machine.stability(2, shares)


def test_what_cannot_be_resampled_is_refused():
    X = table(d=3)
    with pytest.raises(ValueError, match="Firth"):
        mf.FullyVisibleBoltzmannMachine(solver="firth").fit(X).bootstrap(2)
    few = mf.FullyVisibleBoltzmannMachine().fit(X, sample_weight=np.full(len(X), 1e-4))
    for method in ("bootstrap", "stability"):
        with pytest.raises(ValueError, match="weights"):
            getattr(few, method)(2)
    surveyed = mf.FullyVisibleBoltzmannMachine()
    surveyed.fit(X, sample_weight=np.full(len(X), 1e-4), clusters=range(len(X)))
    spread = surveyed.bootstrap(200).couplings.std(0)[0, 1]
    error = mf.FullyVisibleBoltzmannMachine().fit(X).standard_errors()[0][0, 1]
    assert spread == pytest.approx(error, rel=0.2)


def test_stability_as_a_frame(machine):
    pytest.importorskip("pandas")
    result = machine.stability(3, (0.2, 0.4), rng=0)
    frame = result.as_frame()
    assert frame["dropped"].tolist() == [0.2] * 3 + [0.4] * 3
    for name in ("strength", "expected_influence", "converged"):
        np.testing.assert_array_equal(frame[name], getattr(result, name).ravel())


def test_progress_is_shown_on_demand(machine, monkeypatch, capsys):
    monkeypatch.setattr("fastmf._common.progress.SECONDS", 0.0)
    np.testing.assert_array_equal(machine.bootstrap(2, 0)[0], machine.bootstrap(2, 0, True)[0])
    machine.stability(2, (0.1,), verbose=True)
    mf.compare_groups(machine, machine, n_permutations=1, verbose=True)
    assert capsys.readouterr().err.splitlines() == [
        "0/2 bootstrap samples", "1/2 bootstrap samples", "0/2 samples without 10%",
        "1/2 samples without 10%", "0/1 permutations",
    ]  # fmt: skip
