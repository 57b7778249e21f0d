import json
import os
import subprocess
import sys
import time
from dataclasses import replace

import numpy as np
import pytest
from training_runs import assert_same

from fastmf.learning.layered.settings import LayeredSettings
from fastmf.learning.layered.step import train
from fastmf.learning.training import trainer
from fastmf.learning.training.trainer import Checkpoint
from fastmf.models import RBM
from fastmf.priors import Bernoulli, Gaussian


class Interrupted(Exception):
    pass


def data():
    return (np.random.default_rng(0).random((50, 8)) < 0.3).astype(float)


def start(hidden=None):
    weights = 0.1 * np.random.default_rng(1).normal(size=(8, 4))
    return RBM(weights, Bernoulli(np.zeros(8)), hidden or Bernoulli(np.zeros(4)))


OPTIONS = {"n_epochs": 4, "batch_size": 10, "learning_rate": (0.5, 0.05)}


@pytest.mark.parametrize("n_writes", [1, 3])
@pytest.mark.parametrize("options", [
    {"gradient": "tap", "starts": "persistent", "early_stopping": True},
    {"gradient": "pcd", "n_sweeps": 1}, {"gradient": "cd", "preconditioning": 0.1},
], ids=lambda options: options["gradient"])  # fmt: skip
def test_interrupted_run_resumes_to_the_same_bits(tmp_path, monkeypatch, options, n_writes):
    path, write = tmp_path / "run", trainer.write
    settings = LayeredSettings(**OPTIONS, **options)
    left = [n_writes]

    def interrupted_write(*args):
        write(*args)
        left[0] -= 1
        if left[0] == 0:
            raise Interrupted

    def run(**options):
        model = start(Gaussian(np.zeros(4), 3.0) if settings.gradient == "pcd" else None)
        return train(model, data(), settings, seed=5, validation=data()[:9], **options)

    whole = run()
    monkeypatch.setattr(trainer, "write", interrupted_write)
    with pytest.raises(Interrupted):
        run(callbacks=[Checkpoint(path)])
    monkeypatch.setattr(trainer, "write", write)
    assert_same(run(callbacks=[Checkpoint(path)]), whole)
    # A finished run is only read.
    assert_same(run(callbacks=[Checkpoint(path)]), whole)


def test_run_without_a_seed_resumes_with_the_seed_it_drew(tmp_path):
    path, settings = tmp_path / "run", LayeredSettings(**OPTIONS)
    stop_after_two = [lambda state: state.epoch == 2]
    train(start(), data(), settings, callbacks=[Checkpoint(path), *stop_after_two])
    resumed = train(start(), data(), settings, callbacks=[Checkpoint(path)])
    seed = json.loads(str(np.load(path)["run"][0]))["seed"]
    assert_same(resumed, train(start(), data(), settings, seed=seed))


def test_checkpoint_of_another_run_is_refused(tmp_path):
    path, settings = tmp_path / "run", LayeredSettings(**OPTIONS)
    model, of_numpy = start(), replace(settings, n_epochs=np.int64(4), l2=np.float32(0.125))
    train(model, data(), of_numpy, seed=0, callbacks=[Checkpoint(path)])
    settings = replace(settings, l2=0.125)
    train(model, data(), settings, seed=0, callbacks=[Checkpoint(path)])  # the same run
    scaled = RBM(2 * model.weights, model.visible, model.hidden)
    for case, expected in (
        ((scaled, data(), settings, 0), "start"),
        ((RBM(model.weights, Bernoulli(np.ones(8)), model.hidden), data(), settings, 0), "start"),
        ((start(), data(), replace(settings, momentum=0.9), 0), "momentum"),
        ((start(), data(), settings, 1), "seed"),
        ((start(), 1 - data(), settings, 0), "data"),
        ((start(Gaussian(np.zeros(4), 3.0)), data(), settings, 0), "model"),
    ):
        model, X, changed, seed = case
        with pytest.raises(ValueError, match=f"differs in {expected}"):
            train(model, X, changed, seed=seed, callbacks=[Checkpoint(path)])


@pytest.mark.parametrize("rate", [0.3, lambda epoch: 0.3 / (1 + epoch)])
def test_more_epochs_go_on_from_a_shorter_run(tmp_path, rate):
    settings = LayeredSettings(n_epochs=5, batch_size=10, learning_rate=rate, starts="data")
    shorter, path = replace(settings, n_epochs=2), tmp_path / "run"
    train(start(), data(), shorter, seed=0, callbacks=[Checkpoint(path)])
    longer = train(start(), data(), settings, seed=0, callbacks=[Checkpoint(path)])
    assert_same(longer, train(start(), data(), settings, seed=0))
    with pytest.raises(ValueError, match="differs in n_epochs"):
        train(start(), data(), shorter, seed=0, callbacks=[Checkpoint(path)])


def test_a_rate_that_depends_on_the_last_epoch_does_not_go_on(tmp_path):
    settings, path = LayeredSettings(**OPTIONS), tmp_path / "run"
    train(start(), data(), settings, seed=0, callbacks=[Checkpoint(path)])
    with pytest.raises(ValueError, match="differs in n_epochs"):
        train(start(), data(), replace(settings, n_epochs=6), seed=0, callbacks=[Checkpoint(path)])


def test_a_checkpoint_without_a_folder(tmp_path):
    with pytest.raises(FileNotFoundError, match="there is no folder"):
        Checkpoint(tmp_path / "none" / "run")


def test_damaged_and_foreign_checkpoints(tmp_path):
    path, settings = tmp_path / "run", LayeredSettings(**OPTIONS)
    start().save(path)
    with pytest.raises(ValueError, match="not a checkpoint"):
        train(start(), data(), settings, seed=0, callbacks=[Checkpoint(path)])
    path.write_bytes(path.read_bytes()[:300])
    with pytest.raises(ValueError, match="damaged"):
        train(start(), data(), settings, seed=0, callbacks=[Checkpoint(path)])


SCRIPT = """
import sys
import numpy as np
from fastmf.learning.layered.settings import LayeredSettings
from fastmf.learning.layered.step import train
from fastmf.learning.training.trainer import Checkpoint
from fastmf.models import RBM
from fastmf.priors import Bernoulli

X = (np.random.default_rng(0).random((50, 8)) < 0.3).astype(float)
weights = 0.1 * np.random.default_rng(1).normal(size=(8, 4))
model = RBM(weights, Bernoulli(np.zeros(8)), Bernoulli(np.zeros(4)))
settings = LayeredSettings(n_epochs=60, batch_size=10, starts="data")
state = train(model, X, settings, seed=5, callbacks=[Checkpoint(sys.argv[1])])
state.model.save(sys.argv[2])
"""


@pytest.mark.slow
def test_killed_process_resumes_to_the_same_bits(tmp_path, monkeypatch):
    path, result = tmp_path / "run", tmp_path / "result"
    command = [sys.executable, "-c", SCRIPT, str(path)]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    process = subprocess.Popen([*command, str(result)], env=environment)
    while not path.exists() and process.poll() is None:
        time.sleep(0.01)
    time.sleep(0.1)
    process.kill()
    assert process.wait() != 0
    assert not result.exists()
    whole = tmp_path / "whole"
    for arguments in ([str(path), str(result)], [str(tmp_path / "other"), str(whole)]):
        monkeypatch.setattr(sys, "argv", ["-c", *arguments])
        exec(SCRIPT, {})
    assert result.read_bytes() == whole.read_bytes()
