"""Cases of steps of learning."""

import numpy as np
from scipy.sparse import csr_array

from fastmf.learning.layered.settings import LayeredSettings
from fastmf.learning.layered.steps import Steps
from fastmf.learning.training.ascent import initial_state
from fastmf.models import RBM
from fastmf.priors import Bernoulli, Ising
from kernel_cases.case import Case, with_options

# No test or benchmark has more workers.
N_WORKERS = 16


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
    settings = LayeredSettings(batch_size=size.n_rows, n_starts=n_starts, **options)
    rows = np.stack([rng.permutation(X.shape[0])[: size.n_rows] for _ in range(3)])
    n_starts = n_starts or size.n_rows
    steps = Steps(model, X, settings, size.n_rows, n_starts, n_workers=N_WORKERS)
    steps.load(initial_state(model), rows[0])
    return steps.arguments(rows, np.arange(3), 0.05)


def _found(arguments):
    _, parameters, _, _, statistics, *_ = arguments
    velocity, fields = parameters.velocity, parameters.fields[:2]
    found = {"weights": parameters.weights, "velocity": velocity, "fields": fields}
    return found | {"means": statistics.model.state[0]}


def _case(name, **options):
    build = with_options(training_arguments, **options)
    large = name in ("tap", "pcd", "sparse_pcd")
    return Case("training.train", name, build, _found, {"float64": 1e-12, "float32": 1e-5},
                large=large)  # fmt: skip


CASES = [
    _case("tap"),
    _case("third_order", gradient="tap3", momentum=0.9),
    _case("mean_field_of_spins", gradient="mean_field", units=Ising, centred=False),
    _case("fewer_starts", n_starts=5),
    _case("persistent", starts="persistent", n_starts=7),
    _case("cd", gradient="cd"),
    _case("pcd", gradient="pcd", n_starts=11),
    _case("sparse", sparse=True),
    _case("sparse_third_order", sparse=True, gradient="tap3", n_starts=5),
    _case("sparse_persistent", sparse=True, starts="persistent", n_starts=7),
    _case("sparse_cd", sparse=True, gradient="cd", n_starts=12, centred=False),
    _case("sparse_pcd", sparse=True, gradient="pcd", n_starts=11),
]
