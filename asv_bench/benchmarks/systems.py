"""The other systems: solves to convergence, training epochs, compilation."""

import os
import subprocess
import sys
import tempfile
import time

import numpy as np

import fastmf as mf

from . import THREADS
from .tasks import Start as _Start  # asv would take a public name for a benchmark


def _beliefs():
    rng = np.random.default_rng(0)
    weights = (0.2 * rng.normal(size=(1000, 500))).astype(np.float32)
    fields = (mf.Bernoulli(rng.normal(size=n).astype(np.float32)) for n in weights.shape)
    model = mf.RBM(weights, *fields)
    return lambda: mf.belief_propagation(model, tol=1e-5, n_threads=THREADS)


def _propagation(schedule):
    rng = np.random.default_rng(0)
    X, w = rng.normal(size=(100, 1000)), np.zeros(1000)
    w[:10] = rng.normal(size=10)
    prior = mf.GaussBernoulli(np.zeros(1000), np.ones(1000), np.full(1000, -4.0))
    model = mf.SparseLinearModel(X, X @ w + 0.1 * rng.normal(size=100), 0.01, prior)
    return lambda: mf.expectation_propagation(model, schedule=schedule, n_threads=THREADS)


def _pseudo_likelihood(solver):
    # A Markov chain along the units: the maximum exists.
    rng = np.random.default_rng(0)
    same = rng.random((16_000, 15)) < 0.75
    X = np.cumprod(np.where(same, 1.0, -1.0), axis=1)
    learner = mf.FullyVisibleBoltzmannMachine(solver=solver)
    return lambda: learner.fit(X)


TASKS = {
    "belief_propagation-1000x500": _beliefs,
    "expectation_propagation-100x1000-parallel": lambda: _propagation("parallel"),
    "expectation_propagation-100x1000-convergent": lambda: _propagation("convergent"),
    "pseudo_likelihood-16000x15-bslm": lambda: _pseudo_likelihood("bslm"),
    "pseudo_likelihood-16000x15-newton": lambda: _pseudo_likelihood("newton"),
}


class Systems:
    """One solve, to convergence."""

    params = tuple(TASKS)
    param_names = ("task",)
    repeat, number, rounds = (3, 10, 20.0), 1, 1
    timeout = 300

    def setup(self, task):
        self.solve = TASKS[task]()
        self.solve()  # compiles

    def time_solve(self, task):
        self.solve()

    def peakmem_solve(self, task):
        self.solve()


class Epochs:
    """One epoch of an estimator on 1,000 rows of 784 units, its monitoring included."""

    params = ("conditional_rbm-784x256", "deep-784x100x50")
    param_names = ("machine",)
    repeat, number, rounds = (3, 5, 30.0), 1, 1
    timeout = 600

    def setup(self, machine):
        rng = np.random.default_rng(0)
        Y = (rng.random((1000, 784)) < 0.2).astype(np.float32)
        X = np.where(rng.random(Y.shape) < 0.1, 1 - Y, Y)
        if machine.startswith("conditional"):
            learner = mf.ConditionalRBM(256, n_epochs=1, random_state=0)
            self.fit = lambda: learner.fit(X, Y)
        else:
            learner = mf.DeepBoltzmannMachine(
                (100, 50), n_epochs=1, pretraining_epochs=0, n_sweeps=3, random_state=0
            )
            self.fit = lambda: learner.fit(Y)
        self.fit()  # compiles

    def time_epoch(self, machine):
        self.fit()


class Compilation:
    """Seconds until a first solve with nothing compiled before."""

    unit = "s"
    timeout = 600

    def track_first_solve(self):
        code = f"import numpy as np, fastmf as mf; {_Start.SOLVE}"
        with tempfile.TemporaryDirectory() as folder:
            environment = {**os.environ, "NUMBA_CACHE_DIR": folder}
            start = time.perf_counter()
            subprocess.run([sys.executable, "-c", code], check=True, env=environment)
            return time.perf_counter() - start
