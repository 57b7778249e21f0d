"""Searches without the features that the data speak against."""

import numpy as np
import pytest

import fastmf as mf
from fastmf.inference.ep.block_partition import FoundBlocks
from fastmf.learning.evidence import (
    Classification,
    Hyperparameters,
    Loci,
    Regression,
    fixed_points,
    screening,
    search,
)
from fastmf.learning.evidence.blocks import quiet_parameters, with_blocks
from fastmf.learning.evidence.screening import (
    ActivePart,
    active_at_first,
    active_parts,
    active_task,
    moved,
)
from fastmf.learning.evidence.search import maximise_evidence

HERE = Hyperparameters(0.5, 0.8, np.array([-2.0, -1.0]))
LEARNED = Hyperparameters(False, False, False)


def chain(n, d, seed=0, correlation=0.9):
    """Features of which each correlates with the last."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    for j in range(1, d):
        X[:, j] = correlation * X[:, j - 1] + np.sqrt(1 - correlation**2) * X[:, j]
    return X


def orthogonal(n=12, d=8):
    """Data with columns that are orthogonal, of two groups, of which the fourth has no effect."""
    rng = np.random.default_rng(0)
    X = np.linalg.qr(rng.normal(size=(n, d)))[0] * rng.uniform(2, 4, d)
    y = X[:, :2] @ [1.5, -2.0] + 0.3 * rng.normal(size=n)
    labels = np.array([0, 0, 1, 1, 2, 2, 3, 3])
    return Regression(X, y, np.arange(d) % 2, blocks=FoundBlocks(labels, 0))


def solved(task, here, **options):
    """A fixed point of a task of one part."""
    model = task.model(here)
    return mf.expectation_propagation(model, blocks=task.blocks, tol=1e-10, **options)


def test_with_orthogonal_columns_what_is_left_out_adds_its_exact_part():
    """Log-evidence, derivatives, curvature and sites are then those with all features."""
    task = orthogonal()
    whole = solved(task, HERE)
    part = ActivePart.of(task, whole, HERE)
    assert part.units.tolist() == [0, 1] and part.screened.tolist() == [2, 3, 4, 5, 6, 7]
    rest = solved(part.part, HERE)
    own = part.cavities(HERE, rest)
    np.testing.assert_allclose(own.b, whole.b[part.screened], rtol=1e-8)
    np.testing.assert_allclose(own.a, whole.a[part.screened], rtol=1e-8)
    np.testing.assert_allclose(own.var, whole.var[part.screened], rtol=1e-7)
    (expected,) = [fixed_points(task, HERE, (whole,), looseness=1e-6)]
    (found,) = [fixed_points(part.part, HERE, (rest,), looseness=1e-6)]
    value, gradient = part.evidence(HERE, own, 2)
    assert found.log_evidence + value == pytest.approx(expected.log_evidence, abs=1e-9)
    np.testing.assert_allclose(found.gradient + gradient, expected.gradient, atol=1e-6)
    start = part.extended(HERE, rest)
    np.testing.assert_allclose(start.sites, whole.sites, rtol=1e-5, atol=1e-7)
    again = solved(task, HERE, init=start)
    assert again.n_iter <= 2


def test_derivatives_of_what_is_left_out_are_differences_of_its_value():
    X = chain(400, 30)
    y = 2 * X[:, 2] + 0.08 * X[:, 22] + np.random.default_rng(1).normal(size=400)
    task = Regression(X, y, np.arange(30) // 15, blocks=FoundBlocks(np.arange(30) // 5, 0))
    part = ActivePart.of(task, solved(task, HERE), HERE)
    rest = solved(part.part, HERE)

    def value(x):
        here = Hyperparameters(np.exp(x[0]), np.exp(x[1]), x[2:])
        return part.evidence(here, part.cavities(here, rest), 2)[0]

    x = np.concatenate([np.log(HERE[:2]), HERE.log_odds])
    differences = [(value(x + h) - value(x - h)) / 2e-5 for h in 1e-5 * np.eye(4)]
    _, gradient = part.evidence(HERE, part.cavities(HERE, rest), 2)
    np.testing.assert_allclose(gradient, differences, rtol=1e-6, atol=1e-8)
    assert (abs(gradient) > 1e-4).all()


def test_starts_are_restricted_to_what_is_left_and_extended_again():
    task = orthogonal()
    whole = solved(task, HERE)
    part = ActivePart.of(task, whole, HERE)
    start = part.restricted(whole)
    ((units, T),) = start.block_sites
    assert units.tolist() == [0, 1] and (T == whole.block_sites[0][1]).all()
    np.testing.assert_array_equal(start.sites, whole.sites[:, :2])
    rest = solved(part.part, HERE, init=start)
    assert rest.n_iter <= 2  # what is left out is orthogonal
    back = part.extended(HERE, rest)
    assert [own.tolist() for own, _ in back.block_sites] == [[0, 1]]
    assert part.with_blocks(start).blocks.labels.tolist() == task.blocks.labels.tolist()


def test_a_start_moves_as_others_differ_or_not_at_all():
    task = orthogonal()
    one, other = (solved(task, HERE._replace(noise_variance=s)) for s in (0.5, 0.7))
    there = moved(one, other, one)
    np.testing.assert_allclose(there.sites, other.sites, rtol=1e-12)
    for (_, T), (_, expected) in zip(there.block_sites, other.block_sites, strict=True):
        np.testing.assert_allclose(T, expected, rtol=1e-9, atol=1e-12)
    assert moved(one, solved(task._replace(blocks=None), HERE), one) is None


def test_no_part_is_left_out_where_that_is_of_no_use(monkeypatch):
    task = orthogonal()
    whole = solved(task, HERE)
    assert active_parts(task, [None], HERE) is None
    given = task._replace(blocks=task.blocks.labels)
    assert active_parts(given, [whole], HERE) is None
    assert len(active_parts(task, [whole], HERE)) == 1
    monkeypatch.setattr(screening, "MAX_COPIED", 23)
    assert active_parts(task, [whole], HERE) is None
    monkeypatch.undo()
    monkeypatch.setattr(screening, "MAX_ACTIVE", 0.2)
    assert active_parts(task, [whole], HERE) is None
    monkeypatch.undo()
    monkeypatch.setattr(screening, "MAX_EXPLAINED", 1e-9)
    assert active_parts(task, [whole], HERE) is None


def test_blocks_that_may_share_an_effect_come_in_together():
    X = chain(100, 24)
    y = X[:, [5, 6]].sum(1) / 4 + np.random.default_rng(1).normal(size=100)
    task = Regression(X, y, np.zeros(24, int))
    task = task._replace(blocks=FoundBlocks(np.arange(24) // 3, 0))
    here = Hyperparameters(1.0, 0.3, np.array([-3.0]))
    active_features = np.arange(24) // 3 == 1
    part = ActivePart.with_features(task, active_features, np.full(21, 100.0), 24)
    assert part.screened.tolist() == [0, 1, 2, *range(6, 24)]
    wide = part.with_neighbours(solved(part.part, here))
    # 0.9^6 = 0.53
    correlations = abs(np.corrcoef(X.T)[[3, 4, 5]])
    near = np.unique(np.flatnonzero((correlations > 0.5).any(0)) // 3)
    assert set(wide.screened // 3) == set(range(8)) - set(near) and len(near) > 1
    assert ActivePart.of_all(task).with_neighbours(solved(task, here)).screened.size == 0


def test_loci_without_active_features_keep_all():
    task = orthogonal()
    none = task._replace(blocks=None)
    loci = Loci((task, none), (np.arange(8), np.arange(8, 16)), np.zeros(16, int))
    parts = active_parts(loci, [solved(task, HERE), solved(none, HERE)], HERE)
    assert [len(part.units) for part in parts] == [2, 8]
    assert [part.X.shape[1] for part in active_task(loci, parts).parts] == [2, 8]


def learned(task, monkeypatch, hide=True, **options):
    """Learned hyper-parameters, their evidence, and numbers of features of all fixed points."""
    sizes, solve = [], search.fixed_points

    def recorded(task, *args):
        sizes.append(sum(part.X.shape[1] for part in task.parts))
        return solve(task, *args)

    with monkeypatch.context() as patch:
        patch.setattr(search, "fixed_points", recorded)
        patch.setattr(screening, "MIN_SIZE", 0)
        start = Hyperparameters(1.0, 0.5, np.array([-3.0]))
        if isinstance(task, Regression):
            start = quiet_parameters(task, start._replace(noise_variance=0.1), LEARNED)
        fixed = LEARNED._replace(noise_variance=isinstance(task, Classification))
        task = with_blocks(task, "auto", start)
        parts = active_at_first(task, start, fixed) if hide else None
        best, _, _ = maximise_evidence(task, start, fixed, max_iter=60, parts=parts, **options)
    end = fixed_points(task, best, looseness=1e-2)
    return best, end.log_evidence, sizes


@pytest.mark.parametrize("unit", [1.0, 1e3])
def test_the_search_without_screened_features_ends_where_that_with_all_does(unit, monkeypatch):
    X = chain(120, 200)
    y = X[:, [20, 100, 170]] @ [1.0, -0.7, 0.15] + 0.3 * np.random.default_rng(1).normal(size=120)
    task = Regression(X * unit, y, np.zeros(200, int))
    best, evidence, sizes = learned(task, monkeypatch)
    expected, most, all_sizes = learned(task, monkeypatch, hide=False)
    assert evidence > most - 2e-3
    np.testing.assert_allclose(np.log(best[:2]), np.log(expected[:2]), atol=0.1)
    assert set(all_sizes) == {200}
    assert sizes.count(200) <= len(all_sizes) / 2 and min(sizes) < 60


def test_features_that_become_active_are_taken_in_at_once(monkeypatch):
    """With much noise, from which the search starts, a small effect is not active."""
    X = chain(150, 200, seed=3)
    y = X[:, [20, 150]] @ [1.0, 0.05] + 0.02 * np.random.default_rng(1).normal(size=150)
    best, _, sizes = learned(Regression(X, y, np.zeros(200, int)), monkeypatch)
    few = [size for size in sizes if size < 200]
    assert few[-1] > few[0]
    assert best.noise_variance < 2 * 0.02**2


def test_classes_are_learned_without_screened_features(monkeypatch):
    X = chain(250, 150, seed=2)
    signs = np.sign(3 * X[:, [30, 110]] @ [1, -1] + np.random.default_rng(1).normal(size=250))
    task = Classification.of(X, signs, np.zeros(150, int))
    _, evidence, sizes = learned(task, monkeypatch)
    _, most, all_sizes = learned(task, monkeypatch, hide=False)
    assert evidence > most - 2e-3
    assert sizes.count(150) <= len(all_sizes) / 2 and min(sizes) < 100


def test_where_many_features_matter_all_are_kept(monkeypatch):
    rng = np.random.default_rng(0)
    X = chain(200, 60, seed=1, correlation=0.6)
    y = X @ rng.normal(size=60) + 0.5 * rng.normal(size=200)
    best, evidence, sizes = learned(Regression(X, y, np.zeros(60, int)), monkeypatch)
    expected, most, _ = learned(Regression(X, y, np.zeros(60, int)), monkeypatch, hide=False)
    assert sizes[-1] == 60
    assert evidence > most - 2e-3
    np.testing.assert_allclose(np.hstack(best), np.hstack(expected), rtol=0.1, atol=0.1)
