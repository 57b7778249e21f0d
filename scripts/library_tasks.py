"""The calls whose kernels `build_library.py` builds ahead: both types, all priors and options."""

from itertools import pairwise

import numpy as np
from scipy.sparse import csr_array

import fastmf as mf
from fastmf.cli._warmup_tasks import (
    BITS,
    STANDARD,
    classification,
    conditional,
    linear_model,
    machine,
    pixels,
    regression,
    spins,
    tap,
)
from fastmf.learning.pseudo_likelihood.potts.fitting import Options, fit
from fastmf.learning.pseudo_likelihood.potts.objective import PottsData

DTYPES = ("float64", "float32")
# Units of each layer.
SIZES = 4, 3, 2


def prior(name, n, dtype="float64"):
    """Units of the name of a prior, with parameters that suit everything."""
    zeros, ones = np.zeros(n, dtype), np.ones(n, dtype)
    fields = {
        "Bernoulli": (zeros,),
        "Ising": (zeros,),
        "Binomial": (zeros, 2 * ones),
        "Gaussian": (zeros, ones),
        "TruncatedGaussian": (zeros, ones, zeros, ones),
        "GaussBernoulli": (zeros, ones, zeros),
        "TruncatedGaussBernoulli": (zeros, ones, zeros, zeros, ones),
    }
    return getattr(mf, name)(*fields[name])


def layered(dtype="float64", visible="Bernoulli", hidden="Bernoulli", deep=False):
    """A machine of two layers, or of three."""
    names = (visible, hidden, hidden) if deep else (visible, hidden)
    priors = tuple(prior(name, n, dtype) for name, n in zip(names, SIZES, strict=False))
    weights = [np.full(shape, 0.1, dtype) for shape in pairwise(SIZES)]
    return mf.DBM(tuple(weights), priors) if deep else mf.RBM(weights[0], *priors)


def fully_visible(dtype="float64", name="Ising"):
    """A machine without hidden units."""
    couplings = np.full((4, 4), 0.1, dtype)
    np.fill_diagonal(couplings, 0)
    return mf.BoltzmannMachine(couplings, prior(name, 4, dtype))


def belief_propagation(dtype="float64", **options):
    """Solve for two rows of fields."""
    mf.belief_propagation(layered(dtype), field=np.zeros((2, SIZES[0]), dtype), **options)


def potts(dtype="float64"):
    """Fit a Potts machine, in either precision."""
    labels = np.random.default_rng(0).integers(0, 3, (9, 4))
    data = PottsData(labels, np.ones(9), np.full(4, 3))
    fit(data, Options(0.1, 0.1, single=dtype == "float32"))
    mf.datasets.sequence_weights(labels)


def _evaluation(dtype):
    model = layered(dtype)
    mf.evaluation.annealed_importance_sampling(model, n_chains=2, n_steps=3, rng=0)
    mf.evaluation.log_partition_report(model, rng=0, n_chains=2, n_steps=3)
    mf.evaluation.pseudo_log_likelihood(model, np.zeros((2, SIZES[0]), dtype))


def _categorical(dtype):
    groups = mf.Categorical(np.zeros((2, 3), dtype))
    model = mf.RBM(np.full((6, SIZES[1]), 0.1, dtype), groups, prior("Bernoulli", SIZES[1], dtype))
    for order in (1, 2):
        mf.tap(model, order=order)
    mf.belief_propagation(model, max_iter=2)
    labels = np.random.default_rng(0).integers(0, 3, (20, 2)).astype(dtype)
    mf.GeneralizedRBM(3, visible="categorical", n_epochs=1, random_state=0).fit(labels)
    mf.evaluation.effective_couplings(model, [[0, 1]])


def _graphs(dtype):
    """Sparse graphs of units of two values and of more, and their bounds: a path and a cycle."""
    path = np.diag(np.full(5, 0.1, dtype), 1)
    cycle = path.copy()
    cycle[0, 5] = 0.1
    cycle = csr_array(cycle + cycle.T)
    mf.belief_propagation(mf.BoltzmannMachine(cycle, prior("Ising", 6, dtype)))
    couplings = csr_array(path + path.T)
    groups = mf.Categorical(np.zeros((2, 3), dtype))
    for units in (prior("Ising", 6, dtype), prior("Bernoulli", 6, dtype), groups):
        matrix = couplings
        if units is groups:  # none within a group
            matrix = csr_array(np.kron([[0, 1], [1, 0]], np.full((3, 3), 0.1)).astype(dtype))
        model = mf.BoltzmannMachine(matrix, units)
        for options in {}, {"pairwise": True}:
            mf.belief_propagation(model, max_iter=2, **options)
        mf.most_probable(model, max_iter=2)
        mf.belief_propagation(model, field=np.zeros((2, 6), dtype), max_iter=2)
        mf.log_partition_bounds(model)
        mf.tap(model, max_iter=2)


def _ordinal(dtype):
    answers = np.random.default_rng(0).integers(0, 3, (30, 4))
    mf.OrdinalMachine(l2=0.1).fit(answers)
    mf.GeneralizedRBM(3, visible="ordinal", n_epochs=1).fit(answers.astype(dtype))


def _one_large_row(dtype):
    model = mf.RBM(
        np.zeros((900, 300), dtype), prior("Bernoulli", 900, dtype), prior("Bernoulli", 300, dtype)
    )
    mf.belief_propagation(model, max_iter=2, n_threads=2)


def _large_moments(name, dtype):
    n = 1 << 15
    units, b = prior(name, n, dtype), np.zeros(n, dtype)
    units.moments(b, b)
    units.log_partition(b, b)


def _of_type(dtype):
    """Tasks for every type of floating-point numbers."""
    for name in ("Bernoulli", "Ising", "Binomial", "Gaussian", "TruncatedGaussian",
                 "GaussBernoulli", "TruncatedGaussBernoulli"):  # fmt: skip
        yield f"tap, {name}", lambda name=name: tap(layered(dtype, name))
        yield f"relaxed_bp, {name}", lambda name=name: mf.relaxed_bp(layered(dtype, name))
        yield f"adaptive_tap, {name}", lambda name=name: mf.adaptive_tap(layered(dtype, name))
        yield f"moments, {name}", lambda name=name: _large_moments(name, dtype)
    for order in (1, 3):
        yield f"tap, order {order}", lambda order=order: tap(layered(dtype), order=order)
    for schedule in ("blocked", "sequential"):
        for shape in ("fully visible", "layers", "deep"):
            model = fully_visible(dtype) if shape == "fully visible" else layered(
                dtype, deep=shape == "deep"
            )  # fmt: skip
            yield f"tap, {shape}, {schedule}", lambda m=model, s=schedule: tap(m, schedule=s)
    yield "belief_propagation", lambda: belief_propagation(dtype)
    yield "belief_propagation, pairs", lambda: belief_propagation(dtype, pairwise=True)
    yield "belief_propagation, one large row", lambda: _one_large_row(dtype)
    for mixed in (False, True):
        yield (
            f"most_probable, sum_hidden={mixed}",
            lambda mixed=mixed: mf.most_probable(layered(dtype), sum_hidden=mixed),
        )
    for schedule in ("parallel", "sequential", "convergent"):
        yield (
            f"expectation_propagation, {schedule}",
            lambda s=schedule: [
                mf.expectation_propagation(linear_model(dtype, n), schedule=s) for n in (3, 9)
            ],
        )
    for schedule in ("auto", "convergent"):
        yield (
            f"adaptive_tap, fully visible, {schedule}",
            lambda s=schedule: mf.adaptive_tap(fully_visible(dtype), schedule=s),
        )
    yield "evaluation", lambda: _evaluation(dtype)
    yield "categorical units", lambda: _categorical(dtype)
    yield "graphs", lambda: _graphs(dtype)
    yield "ordinal units", lambda: _ordinal(dtype)
    yield from _estimators(dtype)


def _estimators(dtype):
    X = BITS.astype(dtype)

    def rbm(**options):
        machine(mf.GeneralizedRBM(3, **options), X)

    for gradient in ("tap", "mean_field", "adaptive_tap", "cd", "pcd"):
        yield f"GeneralizedRBM, {gradient}", lambda g=gradient: rbm(gradient=g)
    for hidden in ("ising", "gaussian", "gauss_bernoulli"):
        yield f"GeneralizedRBM, {hidden} units", lambda h=hidden: rbm(hidden=h)
    yield "GeneralizedRBM, spike-and-slab pixels", lambda: pixels(dtype)
    deep = mf.DeepBoltzmannMachine((3, 2), pretraining_epochs=1)
    yield "DeepBoltzmannMachine", lambda: machine(deep, X)
    for objective in ("likelihood", "logistic", "cd", "perceptron", "latent_svm", "marginal_svm"):
        yield (
            f"ConditionalRBM, {objective}",
            lambda o=objective: conditional(dtype, objective=o),
        )
    yield "ConditionalRBM, mean field", lambda: conditional(dtype, inference="mean_field")
    yield "PottsMachine", lambda: potts(dtype)
    yield "SpikeSlabRegressor", lambda: regression(dtype)
    yield "SpikeSlabClassifier", lambda: classification(dtype)


def everything():
    """All tasks, by name."""
    tasks = dict(STANDARD)
    for of_types in zip(*map(_of_type, DTYPES), strict=True):
        for (name, task), dtype in zip(of_types, DTYPES, strict=True):
            tasks[f"{name}, {dtype}"] = task
    for solver in ("newton", "lbfgs", "bslm"):
        name = f"FullyVisibleBoltzmannMachine, {solver}"
        tasks.setdefault(name, lambda solver=solver: spins(solver))
    return tasks
