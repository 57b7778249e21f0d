import os
from pathlib import Path

import numpy as np
import pytest

import fastmf as mf
from fastmf.evaluation import contact_precision, ranked_pairs


def problem(n=12, seed=0):
    rng = np.random.default_rng(seed)
    scores, distances = rng.integers(0, 9, (2, n, n)).astype(float)
    scores, distances = scores + scores.T, distances + distances.T
    distances[2, 9] = distances[9, 2] = np.nan
    return scores, distances


@pytest.mark.parametrize("separation", [1, 3, 5])
def test_precision_is_counted_pair_by_pair(separation):
    scores, distances = problem()
    pairs = [
        (-scores[i, j], i, j)
        for i in range(12)
        for j in range(i + separation, 12)
        if not np.isnan(distances[i, j])
    ]
    hits = [distances[i, j] < 8 for _, i, j in sorted(pairs)]
    expected = [sum(hits[:k]) / k for k in range(1, len(hits) + 1)]
    found = contact_precision(scores, distances, np.arange(1, len(hits) + 1), separation)
    np.testing.assert_allclose(found, expected)
    assert contact_precision(scores, distances, 7, separation) == pytest.approx(expected[6])
    assert isinstance(contact_precision(scores, distances, 7, separation), float)
    assert 0 < expected[6] < 1


def test_shapes_of_n_top_and_the_cutoff():
    scores, distances = problem()
    assert contact_precision(scores, distances, [[1, 2], [3, 4]]).shape == (2, 2)
    assert contact_precision(scores, distances, 5, cutoff=np.inf) == 1
    assert contact_precision(scores, distances, 5, cutoff=0.0) == 0
    known = distances[~np.isnan(distances)].max()
    assert contact_precision(-distances, distances, 5, cutoff=known) == 1


def test_pairs_fall_in_score():
    scores, _ = problem()
    first, second = ranked_pairs(scores, 4)
    assert (second - first >= 4).all() and len(first) == 8 * 9 // 2
    assert (np.diff(scores[first, second]) <= 0).all()


@pytest.mark.parametrize(
    "change, error, says",
    [
        (lambda s, d: (s[:5], d, 1), ValueError, r"scores must have shape \(n_columns"),
        (lambda s, d: (s[:5, :5], d, 1), ValueError, "one shape"),
        (lambda s, d: (np.triu(s), d, 1), ValueError, "scores must be symmetric"),
        (lambda s, d: (s, np.triu(d), 1), ValueError, "distances must be symmetric"),
        (lambda s, d: (s * np.nan, d, 1), ValueError, "scores must not be NaN"),
        (lambda s, d: (s.astype(str), d, 1), TypeError, "real numbers"),
        (lambda s, d: (s, d, 0), ValueError, "n_top must be between 1 and the 27 pairs"),
        (lambda s, d: (s, d, [1, 28]), ValueError, "got 1 to 28"),
        (lambda s, d: (s, d, 1.5), TypeError, "n_top must be an int"),
        (lambda s, d: (s, d, []), TypeError, "n_top must be an int"),
        (lambda s, d: (s, d, 1, 12), ValueError, "the 0 pairs"),
        (lambda s, d: (s, d, 1, 0), ValueError, "separation must be at least 1"),
        (lambda s, d: (s, d, 1, 5, np.nan), ValueError, "cutoff must be a number"),
    ],
)
def test_bad_input(change, error, says):
    with pytest.raises(error, match=says):
        contact_precision(*change(*problem()))


@pytest.mark.skipif("FASTMF_DATA" not in os.environ, reason="needs FASTMF_DATA")
def test_plmc_on_dhfr():
    """Of the 159 best pairs of the scores that plmc published 149 are contacts."""
    folder = Path(os.environ["FASTMF_DATA"]) / "sequences"
    if not folder.exists():
        pytest.skip("FASTMF_DATA has no sequences")
    distances = np.loadtxt(folder / "DHFR_distances.txt")
    scores = np.zeros_like(distances)
    scores[np.triu_indices(159, 1)] = np.loadtxt(folder / "DHFR.couplings", usecols=5)
    assert contact_precision(scores + scores.T, distances, 159) == pytest.approx(149 / 159)


def test_scores_are_those_of_a_potts_machine():
    rng = np.random.default_rng(0)
    X = rng.integers(0, 3, (200, 4))
    X[:, 3] = np.where(rng.random(200) < 0.7, X[:, 0], X[:, 3])
    machine = mf.PottsMachine(l2=0.1, l2_field=0.1).fit(X)
    for options in ({}, {"ignore": 0}, {"gauge": None, "apc": False}):
        found = mf.evaluation.contact_scores(machine.couplings_, **options)
        np.testing.assert_allclose(found, machine.contact_scores(**options), atol=1e-12)
    flat = machine.couplings_.reshape(12, 12)
    again = mf.evaluation.contact_scores(flat, sizes=[3, 3, 3, 3])
    np.testing.assert_allclose(again, machine.contact_scores(), atol=1e-12)
    with pytest.raises(ValueError, match="couplings must be finite"):
        mf.evaluation.contact_scores(flat)
    with pytest.raises(ValueError, match="ignore must be a state"):
        mf.evaluation.contact_scores(flat, sizes=[3, 3, 3, 3], ignore=3)
