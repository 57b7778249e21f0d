"""Means of missing visible units of layered machines."""

import itertools
import sys
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

import fastmf as mf
from fastmf.inference.missing import layered
from fastmf.inference.missing.layered import average_of_phases, exact_given
from fastmf.models.exact import states_of
from fastmf.priors._groups import column_sizes

RNG = np.random.default_rng(0)
VISIBLE = {
    "bernoulli": mf.Bernoulli(RNG.normal(size=6)),
    "ising": mf.Ising(RNG.normal(size=6)),
    "categorical": mf.Categorical(RNG.normal(size=(2, 3))),
    "mixed": mf.Concatenated(mf.Ising(np.array([0.3])), mf.Categorical(RNG.normal(size=(1, 5)))),
}
HIDDEN = {
    "bernoulli": mf.Bernoulli(RNG.normal(size=4)),
    "gaussian": mf.Gaussian(RNG.normal(size=4), np.full(4, 9.0)),
}


def states(model):
    """All states of the visible units, and log p(v) without the log-partition."""
    pair = model.bipartite()
    v = np.vstack(list(states_of(pair.visible, 1)))
    logs = pair.visible.log_prob(v).sum(1)
    return v, logs + pair.hidden.log_partition(v @ pair.weights, 0.0).sum(1)


def rows_of(model, n=30):
    """Rows of data without some units: whole groups."""
    v, _ = states(model)
    n_visible = model.sizes[0]
    X = v[RNG.integers(len(v), size=n), :n_visible].copy()
    sizes = column_sizes(model.layers[0])
    X[np.repeat(RNG.random((n, len(sizes))) < 0.5, sizes, axis=1)] = np.nan
    X[0] = np.nan
    return X


def assert_exact(model, X):
    v, logs = states(model)
    found = exact_given(model, X)
    assert found.exact.all()
    for x, mean, log_partition in zip(X, found.mean, found.log_partition, strict=True):
        kept = ((v[:, : len(x)] == x) | np.isnan(x)).all(1)
        total = np.logaddexp.reduce(logs[kept])
        np.testing.assert_allclose(mean, np.exp(logs[kept] - total) @ v[kept, : len(x)], atol=1e-12)
        # Less what was seen has of its own.
        own = np.where(np.isnan(x), 0, model.layers[0].field * x).sum() if has_field(model) else 0
        if has_field(model):
            assert log_partition == pytest.approx(total - own, abs=1e-10)


def has_field(model):
    return hasattr(model.layers[0], "field")


@pytest.mark.parametrize("hidden", HIDDEN)
@pytest.mark.parametrize("visible", VISIBLE)
def test_exact_means_of_rbms(visible, hidden):
    weights = RNG.normal(size=(6, 4))
    model = mf.RBM(weights, VISIBLE[visible], HIDDEN[hidden])
    assert_exact(model, rows_of(model))


def test_either_side_is_summed(monkeypatch):
    model = mf.RBM(RNG.normal(size=(6, 4)), VISIBLE["ising"], HIDDEN["bernoulli"])
    X = rows_of(model)
    several = [exact_given(model, X)]
    for block_size, chunk_size in ((1 << 21, 1 << 20), (20, 30)):
        monkeypatch.setattr("fastmf._common.rows.BLOCK_ENTRIES", block_size)
        monkeypatch.setattr(sys.modules["fastmf.models.exact"], "BLOCK_ENTRIES", 4 * chunk_size)
        for cost in (1e4, 1e-9):  # of hidden units' log-partitions: sums over hidden, missing units
            monkeypatch.setattr(layered, "LOG_PARTITION_COST", cost)
            several.append(exact_given(model, X))
    for found in several[1:]:
        np.testing.assert_allclose(found.mean, several[0].mean, atol=1e-12)
        np.testing.assert_allclose(found.log_partition, several[0].log_partition, rtol=1e-12)
    monkeypatch.undo()
    monkeypatch.setattr(layered, "MAX_WORK_OF_ROW", 2)
    found = exact_given(model, X)
    assert not found.exact.any() and np.isnan(found.mean[np.isnan(X)]).all()


def test_machines_in_single_precision_are_summed_in_double():
    rng = np.random.default_rng(0)
    for n_hidden in (4, 12):  # states of either side are summed
        arrays = [rng.normal(size=size).astype(np.float32) for size in ((8, n_hidden), 8, n_hidden)]
        X = np.where(rng.random((30, 8)) < 0.8, np.nan, rng.integers(0, 2, (30, 8)))
        one, other = (
            exact_given(mf.RBM(weights, mf.Bernoulli(visible), mf.Ising(hidden)), X)
            for weights, visible, hidden in (arrays, [array.astype(float) for array in arrays])
        )
        assert one.exact.all()
        np.testing.assert_array_equal(one.mean, other.mean)
        np.testing.assert_array_equal(one.log_partition, other.log_partition)


def test_missing_real_units_are_integrated():
    visible = mf.Gaussian(RNG.normal(size=5), np.full(5, 4.0))
    model = mf.RBM(RNG.normal(size=(5, 3)), visible, HIDDEN["bernoulli"]._replace(field=np.ones(3)))
    x = np.array([0.5, np.nan, -1.0, np.nan, np.nan])
    found = exact_given(model, x[None])
    h = np.array(list(itertools.product([0.0, 1.0], repeat=3)))
    b, free = h @ model.weights.T, np.isnan(x)
    logs = h.sum(1) + b[:, ~free] @ x[~free] + visible.log_partition(b, 0.0)[:, free].sum(1)
    p = np.exp(logs - np.logaddexp.reduce(logs))
    np.testing.assert_allclose(found.mean[0, free], (p @ visible.moments(b, 0.0)[0])[free])
    np.testing.assert_array_equal(found.mean[0, ~free], x[~free])


def test_deep_machines():
    layers = mf.Bernoulli(RNG.normal(size=5)), *(mf.Ising(RNG.normal(size=n)) for n in (3, 2, 2))
    weights = [RNG.normal(size=(a, b)) for a, b in ((5, 3), (3, 2), (2, 2))]
    model = mf.DBM(tuple(weights), layers)
    X = rows_of(model)
    assert_exact(model, X)
    seen = np.nan_to_num(X)
    log_z = mf.exact(model).log_partition
    found = layered.log_likelihood(model, seen, log_z)
    v, logs = states(model)
    expected = [np.logaddexp.reduce(logs[(v[:, :5] == x).all(1)]) - log_z for x in seen]
    np.testing.assert_allclose(found, expected, rtol=1e-10)


def test_solutions_are_averaged_as_phases():
    means = np.array(
        [[[1.0, 1], [0, 0], [1, 1]], [[1, 0], [0, 1], [1, 1]], [[1, 1], [0, 0], [1, 1]]]
    )
    logs = np.log([[3.0, 1, 3], [2, 2, 4], [1, 1, np.inf]])
    converged = np.array([[True, True, True], [True, True, False], [False, False, False]])
    logs[2, 2] = np.inf
    mean, any_converged = average_of_phases(means, means, logs, converged)
    np.testing.assert_allclose(mean, [[0.75, 0.75], [0.5, 0.5], [0.5, 0.5]])
    np.testing.assert_array_equal(any_converged, [True, True, False])


@pytest.mark.parametrize("visible", ["bernoulli", "categorical", "mixed"])
def test_starts_are_solutions_by_their_weight_given_what_was_seen(visible):
    model = mf.RBM(np.zeros((6, 2)), VISIBLE[visible], mf.Bernoulli(np.zeros(2)))
    v, _ = states(model)
    phases = mf.tap(model, v[:3], field=4 * v[:3])  # of independent units, in these fields
    phases = replace(phases, log_partition=np.array([0.0, 1.0, -40.0]))
    X = np.vstack([np.full(6, np.nan), v[2]])
    starts = layered.promising_starts(model.visible, X, phases, v[:5], 4)
    assert starts.shape == (2, 4, 6)
    np.testing.assert_array_equal(starts[0], [*phases.mean[0][[1, 0]], *v[:2]])
    prior = model.visible
    logs = [prior.log_prob(v[2]) @ np.ones(6) + 4 * v[2] @ x - z for x, z in
            zip(v[:3], prior.log_partition(4 * v[:3], 0.0).sum(1), strict=True)]  # fmt: skip
    order = np.argsort(-(np.array(logs) + [0, 1, -40]))
    np.testing.assert_array_equal(starts[1, :2], phases.mean[0][order[:2]])
    np.testing.assert_array_equal(starts[1, 2], v[2])


def test_real_units_are_compared_by_their_tilts():
    prior = mf.Gaussian(np.zeros(2), np.ones(2))
    b, a = np.array([[3.0, 0], [0, 0]]), np.array([[0.5, 0], [0, 3]])
    mean, var = prior.moments(b, a)
    solutions = SimpleNamespace(mean=(mean,), b=(b,), a=(a,), log_partition=np.zeros(2))
    x = np.array([[1.5, np.nan], [np.nan, 0.1]])
    found = layered._log_likelihoods(prior, x, solutions)
    expected = -((x[0, 0] - mean[:, 0]) ** 2) / (2 * var[:, 0]) - np.log(var[:, 0]) / 2
    assert found[0, 0] - found[0, 1] == pytest.approx(expected[0] - expected[1])
    expected = -((x[1, 1] - mean[:, 1]) ** 2) / (2 * var[:, 1]) - np.log(var[:, 1]) / 2
    assert found[1, 0] - found[1, 1] == pytest.approx(expected[0] - expected[1])
