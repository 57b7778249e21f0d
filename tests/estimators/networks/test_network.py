"""Codings, centralities, predictability and bootstraps of binary networks."""

import numpy as np
import pytest
from network_data import table
from populations import all_states

import fastmf as mf


def test_codings_have_the_same_probabilities(machine):
    couplings, field = machine.in_coding("01")
    states = (all_states(5) + 1) / 2
    logs = (states @ couplings * states).sum(1) / 2 + states @ field
    p = np.exp(logs - np.logaddexp.reduce(logs))
    np.testing.assert_allclose(p, machine.pmf(), atol=1e-12)
    assert np.array_equal(machine.in_coding("-1+1")[0], machine.couplings_)
    with pytest.raises(ValueError, match="coding"):
        machine.in_coding("12")


def test_centralities_are_sums_of_couplings(machine, samples):
    sigma = 4 * machine.couplings_
    found = machine.expected_influence()
    np.testing.assert_allclose(found.value, sigma.sum(0))
    np.testing.assert_allclose(machine.strength().value, abs(sigma).sum(0))
    spread = 4 * samples.couplings.sum(1).std(0)
    np.testing.assert_allclose(found.standard_error, spread, rtol=0.15)
    # With signs that are known the sum of moduli is linear, too.
    signed = 4 * (np.sign(machine.couplings_) * samples.couplings).sum(1).std(0)
    np.testing.assert_allclose(machine.strength().standard_error, signed, rtol=0.15)


@pytest.mark.parametrize("kind", [mf.FullyVisibleBoltzmannMachine, mf.OrdinalMachine])
def test_errors_with_l1_are_those_of_the_fit_without(kind):
    X = table(n=500, d=6)
    sparse = kind(l1=0.05 if kind is mf.OrdinalMachine else 0.1).fit(X)
    edges = np.argwhere(np.triu(sparse.couplings_))
    assert 0 < len(edges) < 15
    with pytest.warns(UserWarning, match=f"without l1 of the {len(edges)} couplings"):
        found = sparse.standard_errors()[0]
    binary = mf.FullyVisibleBoltzmannMachine(graph=edges, tol=1e-8).fit(X)
    factor = 4 if kind is mf.OrdinalMachine else 1
    np.testing.assert_allclose(found, factor * binary.standard_errors()[0], rtol=1e-4)
    with pytest.warns(UserWarning, match="without l1"):
        low, high = np.moveaxis(sparse.confint()[0], -1, 0)
    np.testing.assert_allclose((low + high) / 2, factor * binary.couplings_, atol=1e-5)
    with pytest.warns(UserWarning, match="without l1"):
        assert len(sparse.test_couplings().z) == len(edges)


def test_frames_have_names(machine):
    pd = pytest.importorskip("pandas")
    named = mf.FullyVisibleBoltzmannMachine().fit(pd.DataFrame(table(), columns=list("abcde")))
    for frame in (named.strength(as_frame=True), named.predictability(as_frame=True)):
        assert list(frame.index) == list("abcde")
    frame = named.edge_inclusion().as_frame()
    assert list(frame["first"][:4]) == ["a"] * 4 and list(frame["second"][:4]) == list("bcde")
    assert repr(named.edge_inclusion()).startswith("EdgeInclusion(")
    result = mf.compare_groups(named, named)
    frame, pairs = result.as_frame(), np.triu_indices(5, 1)
    assert list(frame["first"][:4]) == ["a"] * 4 and repr(result) == "GroupComparison(5 features)"
    for name in ("difference", "std", "p_value", "probability", "log_bayes_factor"):
        np.testing.assert_array_equal(frame[name], getattr(result, name)[pairs])


def test_two_categories_are_binary_units(machine):
    ordinal = mf.OrdinalMachine().fit(table())
    for found, expected in (
        (ordinal.edge_inclusion(), machine.edge_inclusion()),
        (ordinal.edge_inclusion(errors="naive"), machine.edge_inclusion(errors="naive")),
    ):
        np.testing.assert_allclose(found.probability, expected.probability, atol=1e-5)
        np.testing.assert_allclose(found.mean, expected.mean, atol=1e-5)
        assert found.log_evidence == pytest.approx(expected.log_evidence, abs=1e-4)
    for name in ("strength", "expected_influence"):
        found, expected = (getattr(m, name)() for m in (ordinal, machine))
        np.testing.assert_allclose(found.value, expected.value, atol=1e-5)
        np.testing.assert_allclose(found.standard_error, expected.standard_error, atol=1e-5)
    for found, expected in zip(ordinal.predictability(), machine.predictability(), strict=True):
        np.testing.assert_allclose(found, expected, atol=1e-5)
    half = mf.OrdinalMachine().fit(table()[:200])
    other = mf.compare_groups(
        machine, mf.FullyVisibleBoltzmannMachine().fit(table()[:200])
    ).omnibus  # fmt: skip
    assert mf.compare_groups(ordinal, half).omnibus.statistic == pytest.approx(
        other.statistic, rel=1e-3
    )


def test_edges_of_ordinal_items():
    rng = np.random.default_rng(0)
    X = rng.integers(0, 4, (600, 4))
    X[:, 1] = np.clip(X[:, 0] + rng.integers(-1, 2, 600), 0, 3)
    found = mf.OrdinalMachine().fit(X).edge_inclusion()
    assert found.probability[0, 1] > 0.99
    rest = found.probability[np.triu_indices(4, 1)][1:]
    assert (rest < 0.5).all()


@pytest.mark.parametrize("kind", [mf.FullyVisibleBoltzmannMachine, mf.OrdinalMachine])
def test_scores_of_surveys_are_multiplied_by_weights(kind):
    X, rng = table(200, 3), np.random.default_rng(1)
    weights, persons = rng.uniform(0.2, 3, 200), rng.integers(0, 60, 200)
    machine = kind(tol=1e-9).fit(X, sample_weight=weights, clusters=range(200))
    objective, theta = machine._objective, machine._parameters
    inverse = np.linalg.inv(objective.hessian(theta))
    # One row at a time, as they came.
    states = X if kind is mf.OrdinalMachine else 2 * X - 1
    rows = objective.states
    which = [int(np.argmax((rows == state).all(1))) for state in states]
    scores = objective.scores(theta, np.array(which), weights / weights.sum())
    expected = inverse @ scores.T @ scores @ inverse
    np.testing.assert_allclose(machine.covariance(), expected, rtol=1e-6, atol=1e-12)
    counted = kind(tol=1e-9).fit(X, sample_weight=weights)
    np.testing.assert_allclose(counted.couplings_, machine.couplings_, atol=1e-8)
    clustered = kind(tol=1e-9).fit(X, sample_weight=weights, clusters=persons)
    sums = np.stack([scores[persons == k].sum(0) for k in np.unique(persons)])
    expected = inverse @ sums.T @ sums @ inverse
    np.testing.assert_allclose(clustered.covariance(), expected, rtol=1e-6, atol=1e-12)
    assert clustered.edge_inclusion().converged


@pytest.mark.parametrize("kind", [mf.FullyVisibleBoltzmannMachine, mf.OrdinalMachine])
def test_few_clusters_warn(kind):
    few = kind().fit(table(), clusters=np.arange(len(table())) % 5)
    for report in (few.standard_errors, few.edge_inclusion):
        with pytest.warns(UserWarning, match="errors of 5 clusters are too small"):
            report()
    kind().fit(table(), clusters=np.arange(len(table())) % 20).standard_errors()


def test_clusters_go_to_files_and_back(tmp_path):
    X = table(200, 3)
    for kind in (mf.FullyVisibleBoltzmannMachine, mf.OrdinalMachine):
        machine = kind(l1="ebic").fit(X, clusters=np.arange(200) // 4)
        machine.save(tmp_path / "machine.npz")
        again = kind.load(tmp_path / "machine.npz")
        np.testing.assert_allclose(again.covariance(), machine.covariance(), rtol=1e-10)


def test_couplings_of_ordinal_items_are_selected():
    rng = np.random.default_rng(0)
    X = rng.integers(0, 3, (250, 4))
    X[:, 1] = np.clip(X[:, 0] + rng.integers(-1, 2, 250), 0, 2)
    X[:, 3] = np.clip(X[:, 2] + rng.integers(-1, 2, 250), 0, 2)
    machine = mf.OrdinalMachine(l1="ebic").fit(X)
    assert np.argwhere(np.triu(machine.couplings_)).tolist() == [[0, 1], [2, 3]]
    assert machine.path_.n_edges[machine.path_.chosen] == 2
    again = mf.OrdinalMachine(l1="cv").fit(X)
    assert {(0, 1), (2, 3)} <= set(map(tuple, np.argwhere(np.triu(again.couplings_)).tolist()))
    assert again.path_.score.argmax() == again.path_.chosen
    # Folds do not depend on the codes of categories.
    recoded = mf.OrdinalMachine(l1="cv").fit(np.hstack([2 - X[:, :1], X[:, 1:]]))
    np.testing.assert_allclose(recoded.path_.score, again.path_.score, rtol=1e-6)


@pytest.mark.parametrize("slab, options", [
    ("gaussian", {}), ("cauchy", {}), ("gaussian", {"inclusion_probability": None, "scale": None}),
    pytest.param("cauchy", {"inclusion_probability": None, "scale": None}, marks=pytest.mark.slow),
])  # fmt: skip
def test_edges_beyond_doubt_are_included(slab, options):
    """A Bayes factor is about exp(z^2 / 2 - log(scale / error))."""
    rng = np.random.default_rng(5)
    states = all_states(5)
    couplings = np.triu(rng.choice([0.0, 0.5, -0.4], (5, 5)), 1)
    p = np.exp((states @ couplings * states).sum(1))
    X = states[rng.choice(len(states), 20_000, p=p / p.sum())]
    machine = mf.FullyVisibleBoltzmannMachine().fit(X)
    pairs = np.triu_indices(5, 1)
    z = machine.couplings_[pairs] / machine.standard_errors()[0][pairs]
    found = machine.edge_inclusion(slab=slab, **options)
    assert found.converged and (abs(z) > 8).sum() > 3
    assert (found.probability[pairs][abs(z) > 8] > 0.999).all()
    assert (found.log_bayes_factor[pairs][abs(z) > 8] > 20).all()
    rest = mf.FullyVisibleBoltzmannMachine().fit(rng.choice([-1, 1], (20_000, 5)))
    both = mf.compare_groups(machine, rest).probability[pairs]
    assert (both[abs(z) > 12] > 0.999).all()
