"""Codings, centralities, predictability and bootstraps of binary networks."""

import numpy as np
import pytest

import fastmf as mf
from fastmf.inference.sampling.spins import all_states


def table(n=400, d=5, seed=0):
    """Rows of a chain, in {0, 1}."""
    rng = np.random.default_rng(seed)
    steps = np.where(rng.random((n, d)) < np.linspace(0.7, 0.8, d), 1, -1)
    return (1 + np.cumprod(steps, axis=1)) // 2


@pytest.fixture(scope="module")
def machine():
    return mf.FullyVisibleBoltzmannMachine().fit(table())


@pytest.fixture(scope="module")
def samples(machine):
    return machine.bootstrap(400, 1)


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


def test_predictability_is_that_of_the_conditionals(machine):
    X = table()
    p, found = machine.conditional_proba(X), machine.predictability()
    r2 = 1 - ((X - p) ** 2).mean(0) / X.var(0)
    np.testing.assert_allclose(found.r2, r2, atol=1e-10)
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


@pytest.mark.parametrize("options", [{}, {"l2": 0.05}, {"l1": 0.02}])
def test_samples_are_fits_of_weighted_rows(options):
    X = table(d=3)
    machine = mf.FullyVisibleBoltzmannMachine(tol=1e-8, **options).fit(X)
    found = machine.bootstrap(3, 5)
    rows = machine._objective.rows
    rng = np.random.default_rng()
    rng = mf.estimators._networks.generator_of(5)
    for k in range(3):
        weights = rng.multinomial(len(X), rows.weights / len(X))
        again = mf.FullyVisibleBoltzmannMachine(tol=1e-8, **options)
        again.fit(rows.states, sample_weight=weights)
        assert found.converged[k]
        np.testing.assert_allclose(found.couplings[k], again.couplings_, atol=1e-5)
        np.testing.assert_allclose(found.field[k], again.field_, atol=1e-5)


def test_spread_of_samples_is_the_standard_error(machine, samples):
    errors, _ = machine.standard_errors()
    pairs = np.triu_indices(5, 1)
    np.testing.assert_allclose(samples.couplings.std(0)[pairs], errors[pairs], rtol=0.2)


def test_what_has_no_errors_is_refused():
    X = table(d=3)
    sparse = mf.FullyVisibleBoltzmannMachine(l1=0.01).fit(X)
    for method in ("strength", "expected_influence", "predictability", "edge_inclusion"):
        with pytest.raises(ValueError, match="without l1"):
            getattr(sparse, method)()
    with pytest.raises(ValueError, match="Firth"):
        mf.FullyVisibleBoltzmannMachine(penalty="firth").fit(X).bootstrap(2)
    with pytest.raises(ValueError, match="weights"):
        few = np.full(len(X), 1e-4)
        mf.FullyVisibleBoltzmannMachine().fit(X, sample_weight=few).bootstrap(2)


def test_frames_have_names(machine):
    pd = pytest.importorskip("pandas")
    named = mf.FullyVisibleBoltzmannMachine().fit(pd.DataFrame(table(), columns=list("abcde")))
    for frame in (named.strength(as_frame=True), named.predictability(as_frame=True)):
        assert list(frame.index) == list("abcde")
    frame = named.edge_inclusion().as_frame()
    assert list(frame["first"][:4]) == ["a"] * 4 and list(frame["second"][:4]) == list("bcde")
