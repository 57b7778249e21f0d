"""The calls whose kernels `build_library.py` builds ahead: both types, all priors and options."""

from functools import partial

import calls
import numpy as np
from calls import ROWS, binary, machine, potts, ring, spins, units
from scipy.sparse import csr_array

import fastmf as mf
from fastmf.cli import _warmup_tasks
from fastmf.learning.pseudo_likelihood.potts.fitting import Options, fit
from fastmf.learning.pseudo_likelihood.potts.objective import PottsData

DTYPES = ("float64", "float32")
PRIORS = ("Bernoulli", "Ising", "Binomial", "Gaussian", "TruncatedGaussian", "GaussBernoulli",
          "TruncatedGaussBernoulli")  # fmt: skip


def fit_potts(dtype="float64"):
    """Fit a Potts machine, in either precision."""
    labels = np.random.default_rng(0).integers(0, 3, (9, 4))
    data = PottsData(labels, np.ones(9), np.full(4, 3))
    fit(data, Options(0.1, 0.1, single=dtype == "float32"))
    mf.datasets.sequence_weights(labels)


def _evaluation(dtype):
    model = binary(dtype)
    mf.evaluation.annealed_importance_sampling(model, n_chains=2, n_steps=3, rng=0)
    mf.evaluation.log_partition_report(model, rng=0, n_chains=2, n_steps=3)
    mf.evaluation.pseudo_log_likelihood(model, np.zeros((2, 4), dtype))


def _categorical(dtype):
    model = potts(dtype)
    for order in (1, 2):
        mf.tap(model, order=order)
    mf.belief_propagation(model, max_iter=2)
    labels = np.random.default_rng(0).integers(0, 3, (20, 2)).astype(dtype)
    mf.GeneralizedRBM(3, visible="categorical", n_epochs=1, random_state=0).fit(labels)
    mf.evaluation.effective_couplings(model, [[0, 1]])


def _graphs(dtype):
    """Sparse graphs of units of two values and of more, and their bounds: a path and a cycle."""
    path = np.diag(np.full(5, 0.1, dtype), 1)
    mf.belief_propagation(ring(dtype))
    couplings = csr_array(path + path.T)
    groups = mf.Categorical(np.zeros((2, 3), dtype))
    for prior in (units("Ising", 6, dtype), units("Bernoulli", 6, dtype), groups):
        matrix = couplings
        if prior is groups:  # none within a group
            matrix = csr_array(np.kron([[0, 1], [1, 0]], np.full((3, 3), 0.1)).astype(dtype))
        model = mf.BoltzmannMachine(matrix, prior)
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
        np.zeros((900, 300), dtype), units("Bernoulli", 900, dtype), units("Bernoulli", 300, dtype)
    )
    mf.belief_propagation(model, max_iter=2, n_threads=2)


def _large_moments(name, dtype):
    n = 1 << 15
    prior, b = units(name, n, dtype), np.zeros(n, dtype)
    prior.moments(b, b)
    prior.log_partition(b, b)


def _expectation_propagation(dtype, schedule):
    for n in (3, 9):
        mf.expectation_propagation(_warmup_tasks.linear_model(dtype, n), schedule=schedule)


def _rbm(dtype, **options):
    _warmup_tasks.machine(mf.GeneralizedRBM(3, **options), _warmup_tasks.BITS.astype(dtype))


def _deep(dtype):
    deep = mf.DeepBoltzmannMachine((3, 2), pretraining_epochs=1)
    _warmup_tasks.machine(deep, _warmup_tasks.BITS.astype(dtype))


def _of_type(dtype):
    """Tasks for a type of floating-point numbers, by name."""
    tasks = {}
    for name in PRIORS:
        model = machine((name, "Bernoulli"), dtype)
        tasks[f"tap, {name}"] = partial(_warmup_tasks.tap, model)
        tasks[f"relaxed_bp, {name}"] = partial(mf.relaxed_bp, model)
        tasks[f"adaptive_tap, {name}"] = partial(mf.adaptive_tap, model)
        tasks[f"moments, {name}"] = partial(_large_moments, name, dtype)
    for order in (1, 3):
        tasks[f"tap, order {order}"] = partial(_warmup_tasks.tap, binary(dtype), order=order)
    shapes = {"fully visible": spins(dtype), "layers": binary(dtype), "deep": binary(dtype, 3)}
    for shape, model in shapes.items():
        for schedule in ("blocked", "sequential"):
            tasks[f"tap, {shape}, {schedule}"] = partial(
                _warmup_tasks.tap, model, schedule=schedule
            )
    fields = {"field": np.zeros((2, 4), dtype)}
    for pairwise in (False, True):
        tasks[f"belief_propagation, pairwise={pairwise}"] = partial(
            mf.belief_propagation, binary(dtype), pairwise=pairwise, **fields
        )
    tasks["belief_propagation, one large row"] = partial(_one_large_row, dtype)
    for mixed in (False, True):
        tasks[f"most_probable, sum_hidden={mixed}"] = partial(
            mf.most_probable, binary(dtype), sum_hidden=mixed
        )
    for schedule in ("parallel", "sequential", "convergent"):
        tasks[f"expectation_propagation, {schedule}"] = partial(
            _expectation_propagation, dtype, schedule
        )
    for schedule in ("auto", "convergent"):
        tasks[f"adaptive_tap, fully visible, {schedule}"] = partial(
            mf.adaptive_tap, spins(dtype), schedule=schedule
        )
    for gradient in ("tap", "mean_field", "adaptive_tap", "cd", "pcd"):
        tasks[f"GeneralizedRBM, {gradient}"] = partial(_rbm, dtype, gradient=gradient)
    for hidden in ("ising", "gaussian", "gauss_bernoulli"):
        tasks[f"GeneralizedRBM, {hidden} units"] = partial(_rbm, dtype, hidden=hidden)
    for objective in ("likelihood", "logistic", "cd", "perceptron", "latent_svm", "marginal_svm"):
        tasks[f"ConditionalRBM, {objective}"] = partial(
            _warmup_tasks.conditional, dtype, objective=objective
        )
    tasks["ConditionalRBM, mean field"] = partial(
        _warmup_tasks.conditional, dtype, inference="mean_field"
    )
    functions = {
        "evaluation": _evaluation, "categorical units": _categorical, "graphs": _graphs,
        "ordinal units": _ordinal, "GeneralizedRBM, spike-and-slab pixels": _warmup_tasks.pixels,
        "DeepBoltzmannMachine": _deep, "PottsMachine": fit_potts,
        "SpikeSlabRegressor": _warmup_tasks.regression,
        "SpikeSlabClassifier": _warmup_tasks.classification,
    }  # fmt: skip
    tasks |= {name: partial(function, dtype) for name, function in functions.items()}
    # But for a user's own units.
    names = vars(calls) | {"dtype": dtype}
    expressions = {call for row in ROWS.values() for call in row if "own()" not in call}
    return tasks | {call: partial(eval, call, names) for call in sorted(expressions)}


def everything():
    """All tasks, by name."""
    tasks = dict(_warmup_tasks.STANDARD)
    for dtype in DTYPES:
        tasks |= {f"{name}, {dtype}": task for name, task in _of_type(dtype).items()}
    for solver in ("newton", "lbfgs", "bslm"):
        tasks[f"FullyVisibleBoltzmannMachine, {solver}"] = partial(_warmup_tasks.spins, solver)
    return tasks
