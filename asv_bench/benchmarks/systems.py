"""The other systems: solves to convergence, training epochs."""

import numpy as np
from scipy.sparse import csr_array

import fastmf as mf

from . import THREADS


def _beliefs():
    rng = np.random.default_rng(0)
    weights = (0.2 * rng.normal(size=(1000, 500))).astype(np.float32)
    fields = (mf.Bernoulli(rng.normal(size=n).astype(np.float32)) for n in weights.shape)
    model = mf.RBM(weights, *fields)
    return lambda: mf.belief_propagation(model, tol=1e-5, n_threads=THREADS)


def _grid(n=1000):
    """Spins of a grid, ten sweeps beyond the first two: 4 n^2 messages each."""
    numbers = np.arange(n * n).reshape(n, n)
    ends = [(numbers[:, :-1], numbers[:, 1:]), (numbers[:-1], numbers[1:])]
    first, second = (np.concatenate([pair[k].ravel() for pair in ends]) for k in (0, 1))
    upper = csr_array((np.full(len(first), 0.3), (first, second)), shape=(n * n, n * n))
    model = mf.BoltzmannMachine(upper + upper.T, mf.Ising(np.full(n * n, 0.1)))
    return lambda: mf.belief_propagation(model, n_threads=THREADS, tol=0, max_iter=12)


def _tree(n=1_000_000):
    """Spins of a random tree, in random order."""
    rng = np.random.default_rng(0)
    order = rng.permutation(n)
    later = np.arange(1, n)
    ends = order[(rng.random(n - 1) * later).astype(int)], order[later]
    upper = csr_array((rng.normal(size=n - 1), ends), shape=(n, n))
    model = mf.BoltzmannMachine(upper + upper.T, mf.Ising(rng.normal(size=n)))
    return lambda: mf.belief_propagation(model, n_threads=THREADS)


def _regression(n, d):
    rng = np.random.default_rng(0)
    X, w, n_relevant = rng.normal(size=(n, d)), np.zeros(d), min(n, d) // 10
    w[:n_relevant] = rng.normal(size=n_relevant)
    return X, X @ w + 0.1 * rng.normal(size=n)


def _propagation(schedule, n=100, d=1000, **limits):
    X, y = _regression(n, d)
    prior = mf.GaussBernoulli(np.zeros(d), np.ones(d), np.full(d, -4.0))
    model = mf.SparseLinearModel(X, y, 0.01, prior)
    options = dict(schedule=schedule, n_threads=THREADS, **limits)
    return lambda: mf.expectation_propagation(model, **options)


def _spike_slab_fit(n, d):
    X, y = _regression(n, d)
    return lambda: mf.SpikeSlabRegressor(n_threads=THREADS).fit(X, y)


def _spike_slab_classes(n, d):
    X, y = _regression(n, d)
    return lambda: mf.SpikeSlabClassifier(n_threads=THREADS).fit(X, y > 0)


def _pseudo_likelihood(solver):
    # A Markov chain along the units: the maximum exists.
    rng = np.random.default_rng(0)
    same = rng.random((16_000, 15)) < 0.75
    X = np.cumprod(np.where(same, 1.0, -1.0), axis=1)
    learner = mf.FullyVisibleBoltzmannMachine(solver=solver)
    return lambda: learner.fit(X)


TASKS = {
    "belief_propagation-1000x500": _beliefs,
    "belief_propagation-grid-1000x1000": _grid,
    "belief_propagation-tree-1000000": _tree,
    "expectation_propagation-100x1000-parallel": lambda: _propagation("parallel"),
    "expectation_propagation-100x1000-convergent": lambda: _propagation("convergent"),
    "expectation_propagation-200x5000-ten_iterations": lambda: _propagation(
        "parallel", 200, 5000, max_iter=10, tol=0
    ),
    "expectation_propagation-100x10000-five_sweeps": lambda: _propagation(
        "sequential", 100, 10_000, max_iter=5, tol=0
    ),
    "spike_slab_regressor-200x5000": lambda: _spike_slab_fit(200, 5000),
    "spike_slab_classifier-200x300": lambda: _spike_slab_classes(200, 300),
    "spike_slab_classifier-3000x100": lambda: _spike_slab_classes(3000, 100),
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
