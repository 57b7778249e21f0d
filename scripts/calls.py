"""Small models and fits, which are timed by `first_call.py` and compiled by `build_library.py`."""

import csv
from functools import partial
from inspect import signature
from itertools import pairwise
from pathlib import Path

import numpy as np

import fastmf as mf


def units(name, n, dtype="float64"):
    """Return units with the named prior, with parameters that are valid in all models."""
    zeros, ones = np.zeros(n, dtype), np.ones(n, dtype)
    fields = {
        "Binomial": (zeros, 2 * ones),
        "Gaussian": (zeros, ones),
        "TruncatedGaussian": (zeros, ones, zeros, ones),
        "GaussBernoulli": (zeros, ones, zeros),
        "TruncatedGaussBernoulli": (zeros, ones, zeros, zeros, ones),
    }
    return getattr(mf, name)(*fields.get(name, (zeros,)))


def machine(names, dtype="float64", sizes=(4, 4, 4)):
    """Return a machine with two or more layers."""
    weights = tuple(np.full(shape, 0.1, dtype) for shape in pairwise(sizes[: len(names)]))
    layers = tuple(units(name, n, dtype) for name, n in zip(names, sizes, strict=False))
    return mf.RBM(weights[0], *layers) if len(names) == 2 else mf.DBM(weights, layers)


def binary(dtype="float64", n_layers=2):
    """Return a machine with Bernoulli units."""
    return machine(("Bernoulli",) * n_layers, dtype)


def pixels(dtype="float64"):
    """Return a machine with spike-and-slab visible units."""
    return machine(("TruncatedGaussBernoulli", "Bernoulli"), dtype)


def potts(dtype="float64", q=3):
    """Return a machine with categorical visible units."""
    groups = mf.Categorical(np.zeros((2, q), dtype))
    return mf.RBM(np.full((2 * q, 4), 0.1, dtype), groups, units("Bernoulli", 4, dtype))


def own():
    """Return a machine with a user-defined prior, which imports Numba."""
    from own_priors import Levels  # in the folder of tests

    return mf.RBM(np.ones((4, 4)), Levels(np.zeros(4)), units("Bernoulli", 4))


def spins(dtype="float64", name="Ising"):
    """Return a machine without hidden units."""
    couplings = np.full((4, 4), 0.1, dtype)
    np.fill_diagonal(couplings, 0)
    return mf.BoltzmannMachine(couplings, units(name, 4, dtype))


def ring(dtype="float64", name="Ising", closed=True):
    """Return a sparse graph: a ring, or a chain if it is not `closed`."""
    from scipy.sparse import csr_array

    couplings = np.diag(np.full(5, 0.1, dtype), 1)
    couplings[0, 5] = 0.1 * closed
    return mf.BoltzmannMachine(csr_array(couplings + couplings.T), units(name, 6, dtype))


def linear(dtype="float64", name="GaussBernoulli"):
    """Return a linear model with more features than rows."""
    X = np.random.default_rng(0).normal(size=(6, 9)).astype(dtype)
    return mf.SparseLinearModel(X, X[:, 0], 0.1, units(name, 9, dtype))


def rows(dtype="float64", n=5):
    """Return rows of bits."""
    return (np.random.default_rng(0).random((20, n)) < 0.5).astype(dtype)


def grey(dtype="float64"):
    """Return rows of grey levels."""
    return rows(dtype) * np.linspace(0.2, 1, 20, dtype=dtype)[:, None]


def labels(dtype="int64"):
    """Return rows of labels of three categories."""
    return np.random.default_rng(0).integers(0, 3, (20, 4)).astype(dtype)


# Options of layered estimators.
ONCE = {"n_epochs": 1, "random_state": 0}


def fit_linear(kind, dtype="float64", n_features=2):
    """Fit a linear estimator, and predict."""
    X = np.random.default_rng(0).normal(size=(6, n_features)).astype(dtype)
    y = X[:, 0] if kind.endswith("Regressor") else np.arange(6) % 2
    getattr(mf, kind)().fit(X, y).predict(X)


def fit_potts(dtype="float64"):
    """Fit a Potts machine, in either precision."""
    from fastmf.learning.pseudo_likelihood.potts.fitting import Options, fit
    from fastmf.learning.pseudo_likelihood.potts.objective import PottsData

    data = PottsData(labels(), np.ones(20), np.full(4, 3))
    fit(data, Options(0.1, 0.1, single=dtype == "float32"))
    mf.datasets.sequence_weights(labels())


def moments(prior):
    """Compute moments and log-partitions of units."""
    zeros = np.zeros(len(prior[0]), prior[0].dtype)
    prior.moments(zeros, zeros)
    prior.log_partition(zeros, zeros)


def evaluate(model):
    """Evaluate a machine by annealing and by pseudo-likelihood."""
    mf.evaluation.annealed_importance_sampling(model, n_chains=2, n_steps=3, rng=0)
    mf.evaluation.log_partition_report(model, rng=0, n_chains=2, n_steps=3)
    mf.evaluation.pseudo_log_likelihood(model, np.zeros((2, 4), model.dtype))


def solve_graph(model):
    """Solve a sparse graph by all methods."""
    for options in {}, {"pairwise": True}:
        mf.belief_propagation(model, max_iter=2, **options)
    mf.most_probable(model, max_iter=2)
    mf.belief_propagation(model, field=np.zeros((2, 6), model.dtype), max_iter=2)
    mf.log_partition_bounds(model)
    mf.tap(model, max_iter=2)


def groups(dtype):
    """Return a sparse graph of two groups of three states."""
    from scipy.sparse import csr_array

    couplings, prior = np.kron([[0, 1], [1, 0]], np.full((3, 3), 0.1)), np.zeros((2, 3), dtype)
    return mf.BoltzmannMachine(csr_array(couplings.astype(dtype)), mf.Categorical(prior))


# Expressions of calls, whose kernels are built ahead. Named rows are timed, as the first and second
# call of a process. A call with a `dtype` is made in both floating-point types.
with Path(__file__).with_suffix(".csv").open(newline="", encoding="utf-8") as _file:
    _LINES = list(csv.DictReader(_file))
TYPES = "float64", "float32"
ROWS = {line["name"]: (line["first"], line["second"]) for line in _LINES if line["name"]}


def tasks_of_library():
    """Return all calls whose kernels are built ahead; user-defined priors are excluded."""
    from fastmf.cli import warmup

    tasks = dict(warmup.STANDARD)
    for name, task in warmup.STANDARD.items():
        if "dtype" in signature(task).parameters:
            tasks |= {f"{name}, {dtype}": partial(task, dtype=dtype) for dtype in TYPES}
    calls = {line[place] for line in _LINES for place in ("first", "second")}
    for call in sorted(call for call in calls if call and "own()" not in call):
        for dtype in TYPES[: 1 + ("dtype" in call)]:
            names = globals() | {"warmup": warmup, "dtype": dtype}
            tasks[call.replace("dtype", repr(dtype))] = partial(eval, call, names)
    return tasks
