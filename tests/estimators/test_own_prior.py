"""A user's own prior, from learning to files."""

from typing import NamedTuple

import numpy as np
import pytest

import fastmf as mf
from fastmf.priors import _protocol
from fastmf.special import exp, log


class ThreeLevels(NamedTuple):
    """Units with values -1, 0 and 1 and weight exp(field x)."""

    field: np.ndarray

    def log_partition(self, b, a):
        t = self.field + b
        return log(1 + exp(-a / 2) * (exp(t) + exp(-t)))

    def moments(self, b, a):
        t = self.field + b
        up, down = exp(t - a / 2), exp(-t - a / 2)
        z = 1 + up + down
        mean = (up - down) / z
        return mean, (up + down) / z - mean * mean

    def log_prob(self, x):
        return np.where(np.isin(x, (-1, 0, 1)), self.field * x, -np.inf)


def test_it_is_learned_resumed_and_saved(tmp_path, monkeypatch):
    monkeypatch.setitem(_protocol.OWN, "ThreeLevels", ThreeLevels)
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
        machine(20, checkpoint=tmp_path / "checkpoint", callbacks=[stop]).fit(X)
    resumed = machine(20, checkpoint=tmp_path / "checkpoint").fit(X)
    np.testing.assert_array_equal(resumed.components_, whole.components_)

    # Uncoupled units, known in closed form, are worse than what was learned of the two alike.
    frequencies = [(X == x).mean(0) for x in (-1, 0, 1)]
    independent = sum((f * np.log(f)).sum() for f in frequencies)
    assert whole.score(X) > independent + 0.1

    for sampling in (lambda: whole.sample(2), lambda: machine(1, gradient="cd").fit(X)):
        with pytest.raises(TypeError, match="ThreeLevels cannot be sampled"):
            sampling()

    whole.save(tmp_path / "machine")
    again = mf.GeneralizedRBM.load(tmp_path / "machine")
    assert type(again.model_.visible) is ThreeLevels
    np.testing.assert_array_equal(again.score_samples(X), whole.score_samples(X))
