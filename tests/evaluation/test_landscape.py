from types import SimpleNamespace

import numpy as np
import pytest

import fastmf as mf
from fastmf.evaluation import Tracker


def test_tracker_records_during_training():
    X = (np.random.default_rng(0).random((60, 12)) < 0.3).astype(float)
    tracker = Tracker(
        epochs=range(2, 6, 2),
        landscape=lambda model: mf.evaluation.solutions(model, X),
        pseudo=lambda model: mf.evaluation.pseudo_log_likelihood(model, X).mean(),
    )
    rbm = mf.GeneralizedRBM(4, n_epochs=5, batch_size=20, callbacks=[tracker], random_state=0)
    rbm.fit(X)
    assert tracker.epoch == [2, 4]
    assert len(tracker.values["landscape"]) == 2
    assert (tracker.values["landscape"][1].members < 60).all()
    assert np.isfinite(tracker.values["pseudo"]).all()


def test_tracker_at_some_epochs_and_before_training():
    tracker = Tracker(epochs=[1, 3], size=lambda model: model)
    tracker.record("untrained", 0)
    for epoch in range(1, 5):
        assert tracker(SimpleNamespace(epoch=epoch, model=f"model {epoch}")) is None
    assert tracker.epoch == [0, 1, 3]
    assert tracker.values == {"size": ["untrained", "model 1", "model 3"]}
    with pytest.raises(TypeError, match="size must be a function"):
        Tracker(size=3)
