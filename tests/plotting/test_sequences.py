from types import SimpleNamespace

import numpy as np
import pytest

import fastmf as mf
from fastmf.plotting import contact_map, mutation_matrix

PROTEIN = "-ACDEFGHIKLMNPQRSTVWY"


def problem(n=20):
    rng = np.random.default_rng(0)
    scores = rng.normal(size=(n, n))
    positions = rng.normal(size=(n, 3)) * 6
    distances = np.linalg.norm(positions[:, None] - positions, axis=2)
    return scores + scores.T, distances


def points(line):
    return {tuple(map(int, p)) for p in line.get_xydata()}


def test_contact_map_shows_contacts_and_both_kinds_of_predictions(tmp_path):
    scores, distances = problem()
    figure = contact_map(scores, distances, n_top=30)
    (ax,) = figure.axes
    contacts, hits, misses = map(points, ax.lines)
    far = [(i, j) for i in range(20) for j in range(20) if abs(i - j) >= 5]
    assert contacts == {(i + 1, j + 1) for i, j in far if distances[i, j] < 8}
    best = sorted((p for p in far if p[0] < p[1]), key=lambda p: -scores[p])[:30]
    both = {(i + 1, j + 1) for p in best for i, j in (p, p[::-1])}
    assert hits == both & contacts and misses == both - contacts and hits and misses
    labels = [text.get_text() for text in ax.get_legend().get_texts()]
    assert labels == ["distance < 8", "predicted", "predicted, no contact"]
    assert ax.get_ylim() == (20.5, 0.5)
    figure.savefig(tmp_path / "map.png")


def test_contact_map_without_a_structure_or_with_gaps_in_it():
    scores, distances = problem()
    (predicted,) = contact_map(scores).axes[0].lines
    assert len(predicted.get_xydata()) == 2 * 20  # as many pairs as columns, on both sides
    best = np.unravel_index(np.triu(scores, 5).argmax(), scores.shape)
    distances[best] = distances[best[::-1]] = np.nan
    drawn = set().union(*map(points, contact_map(scores, distances).axes[0].lines[1:]))
    pair = best[0] + 1, best[1] + 1
    assert pair in points(predicted) and pair not in drawn
    with pytest.raises(ValueError, match="distances must have the shape of scores"):
        contact_map(scores, distances[:5, :5])
    with pytest.raises(ValueError, match="scores must be symmetric"):
        contact_map(np.triu(scores))


def test_mutation_matrix(tmp_path):
    effects = np.random.default_rng(0).normal(size=(30, 21))
    effects[3, 4] = np.nan
    sequence = np.arange(30) % 21
    sequence[7] = -1
    figure = mutation_matrix(effects, PROTEIN, sequence=sequence)
    ax, bar = figure.axes
    (image,) = ax.images
    np.testing.assert_array_equal(image.get_array().filled(np.nan), effects.T)
    low, high = image.get_clim()
    assert low == -high < 0
    left, right, bottom, top = image.get_extent()
    assert (left, right, bottom, top) == (0.5, 30.5, 20.5, -0.5)
    there = np.delete(np.arange(30), 7)
    np.testing.assert_array_equal(
        ax.lines[0].get_xydata(), np.stack([there + 1, sequence[there]]).T
    )
    assert [tick.get_text() for tick in ax.get_yticklabels()] == list(PROTEIN)
    assert bar.get_ylabel() == "change of log-probability (nats)"
    figure.savefig(tmp_path / "mutations.png")


def test_effects_of_a_machine_are_those_of_its_mutants():
    X = np.random.default_rng(0).integers(0, 4, (100, 5))
    machine = mf.PottsMachine(l2=0.1).fit(X)
    (image,) = mutation_matrix(machine, "ACGU", sequence=X[0]).axes[0].images
    np.testing.assert_array_equal(image.get_array(), machine.mutants(X[0]).T)
    machine.alphabet_ = "WXYZ"  # as of `fastmf dca`
    axes = mutation_matrix(machine, sequence=X[0]).axes[0]
    assert [tick.get_text() for tick in axes.get_yticklabels()] == list("WXYZ")
    with pytest.raises(ValueError, match="sequence is needed"):
        mutation_matrix(machine, "ACGU")
    with pytest.raises(ValueError, match="alphabet is needed"):
        mutation_matrix(machine.mutants(X[0]))


def test_a_mutation_matrix_of_zeros_or_unknown_effects():
    for effects in (np.zeros((3, 4)), np.full((3, 4), np.nan)):
        low, high = mutation_matrix(effects, "ACGU").axes[0].images[0].get_clim()
        assert (low, high) == (-1, 1)


@pytest.mark.parametrize(
    "effects, options, says",
    [
        (np.zeros(3), {}, "effects must have shape"),
        (np.full((3, 4), np.inf), {}, "and be finite"),
        (np.zeros((3, 5)), {}, "5 states, but the alphabet ACGU 4"),
        (np.zeros((3, 4)), {"sequence": [0, 1]}, "sequence must be 3 integer states"),
        (np.zeros((3, 4)), {"sequence": [0, 1, 4]}, "sequence has the state 4"),
    ],
)
def test_bad_effects(effects, options, says):
    with pytest.raises(ValueError, match=says):
        mutation_matrix(effects, "ACGU", **options)


def test_contact_map_of_a_machine():
    scores = np.exp(-0.1 * abs(np.arange(12)[:, None] - np.arange(12)))
    machine = SimpleNamespace(contact_scores=lambda: scores)
    found, expected = (contact_map(x, n_top=3).axes[0].lines[0] for x in (machine, scores))
    np.testing.assert_array_equal(found.get_xydata(), expected.get_xydata())
