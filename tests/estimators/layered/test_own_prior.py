"""A user's own prior, from learning to files."""

from typing import NamedTuple

import numpy as np
import pytest
from own_priors import ThreeLevels

import fastmf as mf
from fastmf.priors import _registry
from fastmf.special import exp, log


def test_it_is_learned_resumed_and_saved(tmp_path, monkeypatch):
    monkeypatch.setitem(_registry.USER_REGISTRY, "ThreeLevels", ThreeLevels)
    rng = np.random.default_rng(0)
    X = rng.choice([-1.0, 0.0, 1.0], size=(200, 4), p=[0.1, 0.3, 0.6])
    X[:, 1] = X[:, 0]

    def machine(n_epochs, **options):
        return mf.GeneralizedRBM(
            2, visible=ThreeLevels(np.zeros(4)), n_epochs=n_epochs, learning_rate=0.2, l2=0,
            batch_size=50, random_state=0, **options
        )  # fmt: skip

    with pytest.raises(ValueError, match=r"ThreeLevels units can take.*got 0\.5 in row 0"):
        machine(1).fit(X / 2)

    class Stopped(Exception):
        pass

    def stop(state):
        if state.epoch == 5:
            raise Stopped

    whole = machine(20).fit(X)
    with pytest.raises(Stopped):
        machine(20, callbacks=[mf.evaluation.Checkpoint(tmp_path / "checkpoint"), stop]).fit(X)
    resumed = machine(20, callbacks=[mf.evaluation.Checkpoint(tmp_path / "checkpoint")]).fit(X)
    np.testing.assert_array_equal(resumed.components_, whole.components_)

    # Uncoupled units, known in closed form, are worse than what was learned of the two alike.
    frequencies = [(X == x).mean(0) for x in (-1, 0, 1)]
    independent = sum((f * np.log(f)).sum() for f in frequencies)
    assert whole.score(X) > independent + 0.1

    for sampling in (lambda: whole.sample(2), lambda: machine(1, gradient="cd").fit(X)):
        with pytest.raises(TypeError, match="ThreeLevels cannot be sampled"):
            sampling()

    # Beyond the states that are summed, too, where a bound says whether solutions miss the most.
    assert whole.log_partition("log_sum_exp") == pytest.approx(whole.log_partition(), abs=0.1)

    whole.save(tmp_path / "machine")
    again = mf.GeneralizedRBM.load(tmp_path / "machine")
    assert type(again.model_.visible) is ThreeLevels
    np.testing.assert_array_equal(again.score_samples(X), whole.score_samples(X))


class Levels(NamedTuple):
    """Units with values -width, 0 and width and weight exp(field x); the width is not learned."""

    field: np.ndarray
    width: np.ndarray

    parameters = ("field",)

    def log_partition(self, b, a):
        w = self.width
        t = (self.field + b) * w
        return log(1 + exp(-a * w * w / 2) * (exp(t) + exp(-t)))

    def moments(self, b, a):
        w = self.width
        t, shift = (self.field + b) * w, a * w * w / 2
        up, down = exp(t - shift), exp(-t - shift)
        z = 1 + up + down
        mean = w * (up - down) / z
        return mean, w * w * (up + down) / z - mean * mean

    def log_prob(self, x):
        return np.where((abs(x) == self.width) | (x == 0), self.field * x, -np.inf)


def test_a_number_among_its_fields_is_that_of_all_units_beside_others_too():
    rng = np.random.default_rng(0)
    X = np.hstack([rng.choice([-1.5, 0.0, 1.5], size=(60, 2)), rng.integers(0, 2, (60, 2))])
    X[:, 1] = X[:, 0]

    def learned(width):
        visible = mf.Concatenated(Levels(np.zeros(2), width), mf.Bernoulli(np.zeros(2)))
        options = {"n_epochs": 3, "learning_rate": 0.1, "random_state": 0}
        return mf.GeneralizedRBM(2, visible=visible, **options).fit(X)

    machine = learned(1.5)
    np.testing.assert_array_equal(machine.weights_, learned(np.full(2, 1.5)).weights_)
    levels = machine.visible_.parts[0]
    assert levels.field.any()
    np.testing.assert_array_equal(levels.width, [1.5, 1.5])
