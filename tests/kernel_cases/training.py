"""Cases of steps of learning."""

from itertools import pairwise

import numpy as np
from scipy.sparse import csr_array

from fastmf.inference.sampling.gibbs import even_layers
from fastmf.kernels.training.arguments import FIRST
from fastmf.learning.layered.compiled_steps import CompiledSteps
from fastmf.learning.layered.preconditioning import prepare
from fastmf.learning.layered.settings import LayeredSettings
from fastmf.learning.layered.starts import starts
from fastmf.learning.training.ascent import initial_state
from fastmf.models import DBM, RBM
from fastmf.priors import Bernoulli, Categorical, Concatenated, Gaussian, Ising
from kernel_cases.case import Case, with_options
from kernel_cases.machines import spiked

# No test or benchmark has more workers.
N_WORKERS = 16
# Cases that are timed.
LARGE = {
    "tap", "pcd", "preconditioned_pcd", "sparse_pcd", "mixed_units", "mixed_units_pcd", "deep",
    "groups",
}  # fmt: skip


def training_arguments(size, dtype, *, units=Bernoulli, n_starts=None, sparse=False, **options):
    """Arguments of `train`: three steps from random weights and rows of 0 and 1.

    Sparse rows hold means, too; one of them is empty.
    """
    rng, shape = np.random.default_rng(0), (size.n_visible, size.n_hidden)
    weights = (rng.normal(size=shape) / np.sqrt(sum(shape))).astype(dtype)
    model = RBM(weights, *(units(rng.normal(size=n).astype(dtype)) for n in shape))
    X = rng.choice(np.array(units.support, dtype), (2 * size.n_rows, size.n_visible))
    if sparse:
        X *= rng.random(X.shape) * (rng.random(X.shape) < 0.2)
        X[1] = 0
        X = csr_array(X)
    options = {"l2": 0.01, "l1": 0.001, "n_sweeps": 2, **options}
    return _arguments(model, X, size, rng, n_starts, options)


def _arguments(model, X, size, rng, n_starts, options):
    settings = LayeredSettings(batch_size=size.n_rows, n_starts=n_starts, **options)
    rows = np.stack([rng.permutation(X.shape[0])[: size.n_rows] for _ in range(3)])
    n_starts = n_starts or size.n_rows
    steps = CompiledSteps(model, X, settings, size.n_rows, n_starts, n_workers=N_WORKERS)
    state = initial_state(model)
    if options.get("gradient") == "pcd":
        visible = starts("data", model, X[rows[0]], n_starts, 0.0, None)
        state.chains = (even_layers(model, visible, rng),)
    if settings.preconditioning is not None:
        prepare(state, X, settings)
    steps.load(state, rows[0])
    return steps.arguments(rows, np.arange(3), [0.05, 0.04, 0.03], steps.parts[0][0])


def mixed_arguments(size, dtype, *, n_starts=None, **options):
    """The same for spike-and-slab and Gaussian units: these stay as they are in all three."""
    rng, (n, n_hidden) = np.random.default_rng(0), (size.n_visible, size.n_hidden)
    weights = (0.3 * rng.normal(size=(n, n_hidden)) / np.sqrt(n + n_hidden)).astype(dtype)
    half = n_hidden // 2
    rest = np.ones(n_hidden - half, dtype)
    hidden = Concatenated(spiked(half, rng, dtype), Gaussian(0 * rest, rest))
    model = RBM(weights, spiked(n, rng, dtype), hidden)
    X = rng.normal(size=(2 * size.n_rows, n)) * (rng.random((2 * size.n_rows, n)) < 0.5)
    options = {"n_sweeps": 2, **options}
    return _arguments(model, X.astype(dtype), size, rng, n_starts, options)


def grouped_arguments(size, dtype, *, n_starts=None, **options):
    """The same for groups of states, hidden ones beside Gaussian units."""
    rng, (n, n_hidden) = np.random.default_rng(0), (size.n_visible, size.n_hidden)
    weights = (rng.normal(size=(n, n_hidden)) / np.sqrt(n + n_hidden)).astype(dtype)
    visible, few = groups_of(n, rng, dtype), n_hidden // 3
    rest = np.ones(few, dtype)
    hidden = Concatenated(groups_of(n_hidden - few, rng, dtype), Gaussian(0 * rest, 3 * rest))
    X = visible.sample(np.zeros((2 * size.n_rows, n)), 0.0, rng).astype(dtype)
    options = {"n_sweeps": 2, **options}
    return _arguments(RBM(weights, visible, hidden), X, size, rng, n_starts, options)


def groups_of(n, rng, dtype):
    """Categorical units with two groups of states."""
    return Categorical([rng.normal(size=m).astype(dtype) for m in (n // 3, n - n // 3)])


def deep_arguments(size, dtype, *, binary=False, n_starts=None, **options):
    """The same for a machine of three hidden layers, one of them of units with a spike."""
    rng, sizes = np.random.default_rng(0), (size.n_visible, size.n_hidden, 7, 4)
    weights = tuple(
        (0.3 * rng.normal(size=pair) / np.sqrt(sum(pair))).astype(dtype) for pair in pairwise(sizes)
    )
    kinds = Bernoulli, Ising, Bernoulli if binary else spiked, Ising
    layers = [
        kind(n, rng, dtype) if kind is spiked else kind(rng.normal(size=n).astype(dtype))
        for kind, n in zip(kinds, sizes, strict=True)
    ]
    X = rng.choice(np.array([0, 1], dtype), (2 * size.n_rows, size.n_visible))
    options = {"n_sweeps": 2, **options}
    return _arguments(DBM(weights, tuple(layers)), X, size, rng, n_starts, options)


def _found(arguments):
    _, parameters, _, _, statistics, *_ = arguments
    found = {"fields": parameters.fields[:2], "means": statistics.model.state[0]}
    found |= {"averages": statistics.units[FIRST:]}
    for k, (weights, velocity, *_) in enumerate(parameters.couplings.owners):
        found |= {f"weights {k}": weights, f"velocity {k}": velocity}
    return found


def _case(name, build=training_arguments, **options):
    build = with_options(build, **options)
    large = name in LARGE
    return Case("training.train.train", name, build, _found, {}, large=large, has_twin=False)


CASES = [
    _case("tap"),
    _case("third_order", gradient="tap3", momentum=0.9),
    _case("mean_field_of_spins", gradient="mean_field", units=Ising, centred=False),
    _case("fewer_starts", n_starts=5),
    _case("persistent", starts="persistent", n_starts=7),
    _case("cd", gradient="cd"),
    _case("pcd", gradient="pcd", n_starts=11),
    _case("preconditioned", preconditioning=0.5, momentum=0.9),
    _case("preconditioned_pcd", preconditioning=0.1, gradient="pcd", n_starts=11),
    _case("preconditioned_deep", deep_arguments, binary=True, gradient="pcd", preconditioning=0.2),
    _case("mixed_units", mixed_arguments),
    _case("mixed_units_persistent", mixed_arguments, n_starts=5, starts="persistent"),
    _case("mixed_units_cd", mixed_arguments, gradient="cd"),
    _case("mixed_units_pcd", mixed_arguments, gradient="pcd", n_starts=11, centred=False),
    _case("groups", grouped_arguments),
    _case("groups_mean_field", grouped_arguments, gradient="mean_field", n_starts=5),
    _case("groups_persistent", grouped_arguments, n_starts=7, starts="persistent"),
    _case("deep", deep_arguments),
    _case("deep_fewer_starts", deep_arguments, n_starts=5, centred=False, l2=0.01),
    _case("deep_third_order", deep_arguments, binary=True, gradient="tap3"),
    _case("deep_persistent", deep_arguments, n_starts=5, starts="persistent"),
    _case("deep_pcd", deep_arguments, binary=True, gradient="pcd", n_starts=11),
    _case("deep_mixed_pcd", deep_arguments, gradient="pcd"),
    _case("sparse", sparse=True),
    _case("sparse_third_order", sparse=True, gradient="tap3", n_starts=5),
    _case("sparse_persistent", sparse=True, starts="persistent", n_starts=7),
    _case("sparse_cd", sparse=True, gradient="cd", n_starts=12, centred=False),
    _case("sparse_pcd", sparse=True, gradient="pcd", n_starts=11),
]
