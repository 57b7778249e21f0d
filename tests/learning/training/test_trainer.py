import numpy as np
import pytest
from stripes import quick, start, stripes
from training_runs import assert_same

from fastmf.learning.layered.step import train
from fastmf.learning.training.trainer import (
    fresh_seed,  # the fixture of all tests replaces it
    resampled_rows,
    weighted_rows,
)


def test_the_result_is_a_function_of_the_seed():
    first, again, other = (train(start(), stripes(), quick(), seed=s) for s in (3, 3, 4))
    assert_same(first, again)
    assert (first.model.weights != other.model.weights).any()


def test_seeds_that_are_not_given_differ():
    assert len({fresh_seed() for _ in range(4)}) == 4


def test_early_stopping_keeps_the_best_model():
    X = stripes()
    # Validation data of the opposite kind: learning can only make it worse.
    validation = np.ones_like(X)
    settings = quick(early_stopping=2, n_epochs=50)
    state = train(start(), X, settings, seed=0, validation=validation)
    scores = state.history["validation_log_likelihood"]
    assert len(scores) < 50
    assert len(scores) == int(np.argmax(scores)) + 1 + 2
    shorter = train(start(), X, quick(n_epochs=int(np.argmax(scores)) + 1), seed=0)
    np.testing.assert_array_equal(state.model.weights, shorter.model.weights)


def test_callbacks_see_each_epoch_and_may_stop():
    seen = []

    def callback(state):
        seen.append((state.epoch, len(state.history["log_likelihood"])))
        return np.equal(state.epoch, 2)

    train(start(), stripes(), quick(), seed=0, callbacks=[callback])
    assert seen == [(1, 1), (2, 2)]


def test_a_line_an_epoch(capsys):
    train(start(), stripes(), quick(n_epochs=2), seed=0, verbose=1, validation=stripes())
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 2
    assert lines[1].startswith("epoch 2, log-likelihood per unit -0.") and "validation" in lines[1]
    train(start(), stripes(), quick(n_epochs=1), seed=0)
    assert capsys.readouterr().err == ""


def test_lines_go_nowhere_without_stderr(capsys, monkeypatch):
    monkeypatch.setattr("sys.stderr", None)
    train(start(), stripes(), quick(n_epochs=1), seed=0, verbose=1)
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("n_rows", [1, 7, 300])
@pytest.mark.parametrize("n_drawn", [1, 50, 10_000])
@pytest.mark.parametrize("offset", [0.0, 0.5, 1.0])
def test_rows_are_drawn_as_often_as_their_weights_say(n_rows, n_drawn, offset):
    rng = np.random.default_rng(0)
    weights = rng.choice([0, 1e-9, 0.3, 1, 40], n_rows) * 1e-20
    weights[rng.integers(n_rows)] = 1e-20
    rows = resampled_rows(weights, n_drawn, offset)
    counts = np.bincount(rows, minlength=n_rows)
    assert len(rows) == n_drawn and (np.diff(rows) >= 0).all()
    assert abs(counts - n_drawn * weights / weights.sum()).max() <= 1
    assert not counts[weights == 0].any()


def test_batches_draw_rows_by_their_weights_on_average():
    weights, rng = np.array([0, 1.0, 0.25, 2.75]), np.random.default_rng(0)
    drawn = np.stack([weighted_rows(weights, rng) for _ in range(2000)])
    np.testing.assert_allclose([(drawn == k).sum(1).mean() for k in range(4)], weights, atol=0.05)
    # In random order: each place has the same rows.
    np.testing.assert_allclose((drawn == 3).mean(0), 2.75 / 4, atol=0.06)
