"""Incomplete rows, against sums over completions and derivatives written here."""

import itertools

import numpy as np
import pytest
from differences import differences
from sklearn.exceptions import ConvergenceWarning

import fastmf as mf
from fastmf.learning.pseudo_likelihood.binary import PseudoLikelihood
from fastmf.learning.pseudo_likelihood.godambe import IncompleteGodambe
from fastmf.learning.pseudo_likelihood.rows import Completions

ROWS = np.array([[0, 2, 1], [1, -1, 0], [-1, -1, 1], [0, 2, 1], [-1, 1, 1]])


def table(n=150, d=4, seed=0, missing=0.15):
    """Rows of a chain in {0, 1}, and the same with values that are missing."""
    rng = np.random.default_rng(seed)
    X = (1 + np.cumprod(np.where(rng.random((n, d)) < 0.72, 1, -1), axis=1)) // 2
    return X, np.where(rng.random((n, d)) < missing, -1, X)


def expected_score(parameters, labels, d):
    """Mean of the scores of all rows, by completions of each, one after the other."""
    states = np.array(list(itertools.product([0, 1], repeat=d)))
    spins = 2.0 * states - 1
    all_states = PseudoLikelihood(spins, np.ones(len(spins)))
    scores = all_states.scores(parameters, np.arange(len(spins)), np.ones(len(spins)))
    couplings, field = all_states.unpacked(parameters)
    p = np.exp(spins @ field + ((spins @ couplings) * spins).sum(1) / 2)
    out = []
    for row in labels:
        weights = p * ((row < 0) | (states == row)).all(1)
        out.append(weights @ scores / weights.sum())
    return np.array(out)


def fitted(labels, weights=None, **options):
    X = np.where(labels < 0, np.nan, labels)
    return mf.FullyVisibleBoltzmannMachine(missing="em", tol=1e-9, **options).fit(X, None, weights)


def test_expected_score_is_zero_at_the_estimate():
    _, labels = table()
    machine = fitted(labels)
    assert machine.converged_ and machine.n_missing_ == (labels < 0).sum()
    np.testing.assert_allclose(expected_score(machine._parameters, labels, 4).mean(0), 0, atol=1e-7)


def test_sandwich_of_expected_scores():
    """Against derivatives by differences of the expected score, which is not symmetric."""
    _, labels = table(seed=1)
    machine = fitted(labels)
    theta = machine._parameters
    derivative = differences(lambda p: expected_score(p, labels, 4).mean(0), theta).T
    scores = expected_score(theta, labels, 4)
    inverse = np.linalg.inv(-derivative)
    expected = inverse @ (scores.T @ scores / len(labels) ** 2) @ inverse.T
    assert isinstance(machine._godambe(), IncompleteGodambe)
    np.testing.assert_allclose(machine.covariance(), expected, rtol=1e-4, atol=1e-7)
    errors, _ = machine.standard_errors()
    assert errors[0, 1] == pytest.approx(np.sqrt(expected[4, 4]), rel=1e-4)


def test_clusters_of_incomplete_rows():
    _, labels = table(60, 3, 2)
    X = np.where(labels < 0, np.nan, labels)
    once = fitted(labels).covariance()
    machine = mf.FullyVisibleBoltzmannMachine(missing="em", tol=1e-9)
    machine.fit(np.repeat(X, 5, axis=0), clusters=np.repeat(np.arange(60), 5))
    np.testing.assert_allclose(machine.covariance(), once, rtol=1e-5)


def test_estimates_are_near_those_of_complete_rows():
    """With values missing at random, given another item, complete rows alone are biased."""
    X, _ = table(20_000, 3, 3)
    labels, rng = X.copy(), np.random.default_rng(0)
    gone = (rng.random(len(X)) < 0.6) & (X[:, 0] == X[:, 1])
    labels[gone, 2] = -1
    whole = mf.FullyVisibleBoltzmannMachine().fit(X)
    machine = fitted(labels)
    errors, _ = machine.standard_errors()
    pairs = np.triu_indices(3, 1)
    assert (abs(machine.couplings_ - whole.couplings_)[pairs] < 3 * errors[pairs]).all()
    few = mf.FullyVisibleBoltzmannMachine(missing="drop")
    few.fit(np.where(labels < 0, np.nan, labels))
    assert few.n_dropped_ == gone.sum()
    assert abs(few.couplings_ - whole.couplings_)[0, 1] > 10 * errors[0, 1]


def test_expected_score_of_ordinal_items_is_zero():
    rng = np.random.default_rng(5)
    X = np.digitize(rng.normal(size=(300, 1)) + rng.normal(size=(300, 3)), [-0.7, 0.7])
    labels = np.where(rng.random(X.shape) < 0.1, -1, X)
    machine = mf.OrdinalMachine(missing="em", tol=1e-9).fit(np.where(labels < 0, np.nan, labels))
    states = np.array(list(itertools.product(range(3), repeat=3)))
    mu = np.array([np.append(0, own) for own in machine.thresholds_])
    own = mu[np.arange(3), states].sum(1)
    p = np.exp(own + ((states @ machine.couplings_) * states).sum(1) / 2)
    total = np.zeros(3)
    for row in labels:
        weights = p * ((row < 0) | (states == row)).all(1)
        weights /= weights.sum()
        fields = states @ machine.couplings_
        logs = mu[None] + fields[:, :, None] * np.arange(3)
        q = np.exp(logs - np.logaddexp.reduce(logs, axis=2)[:, :, None])
        residuals = states - q @ np.arange(3)
        total += weights @ np.stack(
            [states[:, i] * residuals[:, j] + states[:, j] * residuals[:, i]
             for i, j in ((0, 1), (0, 2), (1, 2))], axis=1
        )  # fmt: skip
    np.testing.assert_allclose(total / len(labels), 0, atol=1e-6)


def potts_labels(n=250, seed=8):
    """Rows of three positions with 2, 3 and 3 states, whose labels are missing in places."""
    rng = np.random.default_rng(seed)
    X = np.digitize(rng.normal(size=(n, 1)) + rng.normal(size=(n, 3)), [-0.6, 0.6])
    X[:, 0] = X[:, 0] > 0
    return np.where(rng.random(X.shape) < 0.15, -1, X)


def expected_potts_scores(couplings, field, labels, first):
    """Expected scores of rows in the order fields, couplings u < v, by enumeration."""
    states = np.array(list(itertools.product(range(2), range(3), range(3))))
    x = np.zeros((len(states), 8))
    x[np.arange(len(states))[:, None], states + first] = 1
    eta = x @ couplings + field
    p = np.exp(x @ field + ((x @ couplings) * x).sum(1) / 2)
    q = np.exp(eta)
    for begin, end in ((0, 2), (2, 5), (5, 8)):
        q[:, begin:end] /= q[:, begin:end].sum(1, keepdims=True)
    r = x - q
    position = np.array([0, 0, 1, 1, 1, 2, 2, 2])
    u, v = np.nonzero(np.triu(position[:, None] != position, 1))
    scores = np.hstack([r, x[:, u] * r[:, v] + r[:, u] * x[:, v]])
    weights = p * ((labels[:, None] < 0) | (labels[:, None] == states)).all(2)
    return weights @ scores / weights.sum(1, keepdims=True), (u, v)


def test_potts_machines_of_incomplete_rows(tmp_path):
    """Expected scores are zero at the estimate, and the sandwich is that of their derivatives."""
    labels, first = potts_labels(), np.array([0, 2, 5])
    weights = np.random.default_rng(0).uniform(0.5, 2, len(labels))
    machine = mf.PottsMachine(n_states=[2, 3, 3], missing="em").fit(labels, sample_weight=weights)
    assert machine.converged_ and machine.n_missing_ == (labels < 0).sum()
    kept = (labels >= 0).any(1)
    assert machine.n_dropped_ == (~kept).sum()
    labels, weights = labels[kept], weights[kept] / weights[kept].sum()

    def scores_at(parameters):
        couplings = np.zeros((8, 8))
        couplings[pairs] = parameters[8:]
        return expected_potts_scores(couplings + couplings.T, parameters[:8], labels, first)[0]

    scores, pairs = expected_potts_scores(machine.couplings_, machine.field_, labels, first)
    np.testing.assert_allclose(weights @ scores, 0, atol=1e-7)
    theta = np.append(machine.field_, machine.couplings_[pairs])
    derivative = differences(lambda p: weights @ scores_at(p), theta).T
    inverse = np.linalg.pinv(-derivative, rcond=1e-6)
    expected = inverse @ ((scores.T * weights**2) @ scores) @ inverse.T
    errors, of_field = machine.standard_errors(gauge=None)
    np.testing.assert_allclose(of_field, np.sqrt(expected.diagonal()[:8]), rtol=1e-7)
    np.testing.assert_allclose(errors[pairs], np.sqrt(expected.diagonal()[8:]), rtol=1e-7)
    machine.save(tmp_path / "machine.npz")
    again = mf.PottsMachine.load(tmp_path / "machine.npz")
    np.testing.assert_allclose(again.standard_errors()[0], machine.standard_errors()[0], atol=1e-8)
    assert (again.n_missing_, again.n_dropped_) == (machine.n_missing_, machine.n_dropped_)
    assert machine.edge_inclusion().probability.shape == (3, 3)
    with pytest.raises(ValueError, match="complete rows"):
        machine.likelihood_ratio_test()
    for options in ({"solver": "asymmetric"}, {"solver": "lbfgs"}):
        with pytest.raises(ValueError, match="missing='em' needs solver"):
            mf.PottsMachine(missing="em", **options).fit(labels)


def test_potts_machines_of_incomplete_rows_in_a_graph():
    """Expected scores of the couplings of the graph are zero, and the sandwich is theirs."""
    labels, first = potts_labels(seed=9), np.array([0, 2, 5])
    labels = labels[(labels >= 0).any(1)]
    machine = mf.PottsMachine(n_states=[2, 3, 3], missing="em", graph=[[0, 1], [1, 2]]).fit(labels)
    assert machine.converged_
    scores, (u, v) = expected_potts_scores(machine.couplings_, machine.field_, labels, first)
    position = np.array([0, 0, 1, 1, 1, 2, 2, 2])
    there = np.append(np.ones(8, bool), position[v] - position[u] == 1)
    assert (machine.couplings_[u, v][~there[8:]] == 0).all()
    assert (abs(machine.couplings_[u, v][there[8:]]) > 0).all()
    np.testing.assert_allclose(scores[:, there].mean(0), 0, atol=1e-7)
    probability = machine.edge_inclusion(scale=2.0).probability
    assert probability[0, 2] == 0 and probability[0, 1] > 0.5


def incomplete(X, seed=0):
    """The same as floats with some missing values."""
    return np.where(np.random.default_rng(seed).random(X.shape) < 0.06, np.nan, X)


def scores_of(n=200, d=4):
    rng = np.random.default_rng(3)
    return np.digitize(rng.normal(size=(n, 1)) + rng.normal(size=(n, d)), [-0.7, 0.7])


@pytest.mark.parametrize("l2_field", [0.0, 0.01])
def test_categories_that_nobody_has_are_named(l2_field):
    X = incomplete(scores_of())
    machine = mf.OrdinalMachine(missing="em", n_categories=[3, 3, 4, 3], l2_field=l2_field)
    if l2_field:  # the estimate has them
        machine.fit(X)
        assert machine.converged_ and machine.existence_.exists
        assert np.isfinite(np.concatenate(machine.thresholds_)).all()
    else:
        with pytest.warns(ConvergenceWarning, match="nobody is in category 3 of item x2"):
            machine.fit(X)
        assert not machine.converged_ and machine.existence_.units == (2,)
        smaller = mf.OrdinalMachine(missing="em").fit(X)
        np.testing.assert_allclose(machine.couplings_, smaller.couplings_, atol=1e-5)
    assert machine.n_iter_ < 50
    positions = mf.PottsMachine(missing="em", n_states=[3, 3, 4, 3], l2=l2_field, l2_field=l2_field)
    if l2_field:
        assert positions.fit(X).converged_ and positions.existence_.exists
    else:
        with pytest.warns(ConvergenceWarning, match="states that were never seen"):
            positions.fit(X)
        assert positions.existence_.exists is False and positions.existence_.units == (2,)
    assert positions.n_iter_ < 50


@pytest.mark.parametrize("kind", [mf.FullyVisibleBoltzmannMachine, mf.OrdinalMachine])
def test_separated_items_of_incomplete_rows_are_found(kind):
    X = (scores_of() > 0).astype(int)
    for column in (X[:, 1], 1 - X[:, 1]):
        X[:, 2] = column
        with pytest.warns(ConvergenceWarning, match="separate"):
            machine = kind(missing="em").fit(incomplete(X))
        assert machine.existence_.exists is False and not machine.converged_
        assert set(machine.existence_.units) >= {1, 2} and machine.n_iter_ < 60
    penalised = kind(missing="em", l2=0.01).fit(incomplete(X))
    assert penalised.converged_
    X[:, 2] = 1
    if kind is mf.FullyVisibleBoltzmannMachine:
        with pytest.warns(ConvergenceWarning, match="no maximum exists"):
            constant = kind(missing="em").fit(incomplete(X))
        assert constant.existence_.units == (2,) and constant.n_iter_ < 60


def test_columns_without_values_are_refused():
    X = incomplete(scores_of())
    X[:, 3] = np.nan
    for machine in (
        mf.FullyVisibleBoltzmannMachine(missing="em"),
        mf.OrdinalMachine(missing="em", n_categories=3), mf.PottsMachine(missing="em"),
    ):  # fmt: skip
        with pytest.raises(ValueError, match="column 3"):
            machine.fit(X)


def test_reports_and_files_of_incomplete_rows(tmp_path):
    _, labels = table(200, 4, 6)
    machine = fitted(labels)
    again = mf.FullyVisibleBoltzmannMachine()
    machine.save(tmp_path / "machine.npz")
    again = mf.FullyVisibleBoltzmannMachine.load(tmp_path / "machine.npz")
    np.testing.assert_allclose(again.covariance(), machine.covariance(), rtol=1e-8)
    assert again.n_missing_ == machine.n_missing_
    found = machine.predictability()
    assert (found.standard_error > 0).all() and (found.r2 < 1).all()
    assert machine.edge_inclusion().probability[0, 1] > 0.5
    for method in ("bootstrap", "stability"):
        with pytest.raises(ValueError, match="complete rows"):
            getattr(machine, method)(2)
    with pytest.raises(ValueError, match="complete rows"):
        machine.likelihood_ratio_test()


def test_what_cannot_be_summed_over_is_said():
    _, labels = table(50, 14, 7, 0.0)
    labels[3, 1:] = -1
    with pytest.warns(UserWarning, match="1 rows? .* more than 4,096 completions") as caught:
        machine = fitted(labels, l2=0.1)
    assert len(caught) == 1
    assert machine.n_dropped_ == 1 and machine.n_missing_ == 13
    weights = (np.arange(50) != 3).astype(float)
    ignored = fitted(labels, weights, l2=0.1)  # without a warning
    np.testing.assert_allclose(ignored.couplings_, machine.couplings_, atol=1e-10)
    only_weightless = np.where((weights > 0) & (np.arange(14) == 0)[:, None], -1, labels.T).T
    with pytest.raises(ValueError, match="none in column 0"):
        fitted(only_weightless, weights, l2=0.1)
    with pytest.raises(ValueError, match="X must have values"):
        fitted(np.full((3, 4), -1), l2=0.1)
    with pytest.raises(ValueError, match="NaN"):
        mf.FullyVisibleBoltzmannMachine().fit(np.where(labels < 0, np.nan, labels))
    with pytest.raises(ValueError, match="complete rows"):
        fitted(labels, l1="ebic")
    with pytest.raises(ValueError, match="missing='em' needs solver"):
        fitted(labels, solver="firth")
    with pytest.raises(ValueError, match="up to 4194304"):
        Completions.of(np.full((2000, 12), -1), np.ones(2000), np.full(12, 2))
    with pytest.raises(ValueError, match="clusters"):
        mf.OrdinalMachine(n_categories=[2, 3, 2]).fit(ROWS[[0, 3]], clusters=[1])
