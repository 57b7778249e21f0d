import numpy as np
import pytest
from stripes import quick, start, stripes

from fastmf.learning.layered.family import train
from fastmf.learning.training.resumption import (
    epochs_since_best,
    fresh_seed,  # the fixture of all tests replaces it
)


def test_seeds_that_are_not_given_differ():
    assert len({fresh_seed() for _ in range(4)}) == 4


@pytest.mark.parametrize(
    "scores, waited", [([1.0], 0), ([1.0, 1.0], 1), ([1.0, 2.0, 1.5, 1.9], 2), ([2.0, 1.0, 3.0], 0)]
)
def test_epochs_since_the_best_score(scores, waited):
    assert epochs_since_best(scores) == waited


@pytest.mark.parametrize(
    "member, value, message",
    [
        ("position", np.array([9, 0, 0]), "must hold an epoch up to 2 and a batch up to 0, got 9"),
        ("position", np.array([2, 1, 0]), "must hold an epoch up to 2 and a batch up to 0, got 2"),
        ("history/log_likelihood", np.zeros(1), "must have 2 numbers, one for each epoch"),
        ("history/epoch", np.array([1.0, 3.0]), "must hold 1 to 2"),
        ("position", np.array([2, 0, 1]), "must hold 0 epochs without a better score"),
    ],
)
def test_a_state_that_no_run_comes_to_is_refused(tmp_path, member, value, message):
    path = tmp_path / "run.npz"
    train(start(), stripes(), quick(n_epochs=2), seed=0, checkpoint=path)
    with np.load(path) as file:
        members = dict(file)
    assert member in members
    np.savez(path, **members | {member: value})
    with pytest.raises(ValueError, match=message):
        train(start(), stripes(), quick(n_epochs=2), seed=0, checkpoint=path)
