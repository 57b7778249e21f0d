"""The command `warmup`: calls with a few units and rows, which compile kernels."""

import os
import time
import warnings
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from itertools import pairwise, product
from multiprocessing import get_context

import numpy as np

import fastmf as mf
from fastmf._jit import cache
from fastmf._threads.workers import n_cores
from fastmf.cli import _options

_RNG = np.random.default_rng(0)
BITS = (_RNG.random((20, 5)) < 0.5).astype("float32")
NORMALS, LABELS = _RNG.normal(size=(60, 80)), _RNG.integers(0, 3, (9, 4))


def layered(n_layers=2, dtype="float64"):
    """Return a machine with layers of Bernoulli units."""
    sizes = (4, 3, 2)[:n_layers]
    layers = tuple(mf.Bernoulli(np.zeros(n, dtype)) for n in sizes)
    weights = tuple(np.full(shape, 0.1, dtype) for shape in pairwise(sizes))
    return mf.RBM(*weights, *layers) if n_layers == 2 else mf.DBM(weights, layers)


def fully_visible():
    """Return a machine without hidden units."""
    return mf.BoltzmannMachine(0.1 - 0.1 * np.eye(4), mf.Ising(np.zeros(4)))


def tap(model, **options):
    """Solve from two rows of data."""
    mf.tap(model, np.zeros((2, 4), model.dtype), max_iter=2, **options)


def machine(estimator, X=BITS, noise="flip_probability"):
    """Fit a machine of layers, and use it."""
    fitted = estimator.set_params(n_epochs=1, random_state=0).fit(X, validation_data=X)
    fitted.transform(X)
    fitted.score_samples(X, "log_sum_exp")
    fitted.denoise(X, **{noise: 0.1}, n_starts=2)
    fitted.sample(2, n_sweeps=1, random_state=0)


def pixels(dtype="float32"):
    """Fit a machine of spike-and-slab pixels, as in `fastmf demo`."""
    X = (BITS * np.linspace(0.2, 1, 20)[:, None]).astype(dtype)
    machine(mf.GeneralizedRBM(3, visible="truncated_gauss_bernoulli"), X, "noise_variance")


def conditional(dtype="float32", **options):
    """Fit a `ConditionalRBM`, and predict."""
    X = BITS.astype(dtype)
    fitted = mf.ConditionalRBM(3, n_epochs=1, random_state=0, **options).fit(X, X)
    fitted.predict(X)
    if options.get("objective") != "logistic":  # which has no hidden units
        mf.belief_propagation(fitted.model_.given(X[0]))


def linear(estimator, dtype, **options):
    """Fit a linear estimator with fewer features than samples and with more, and predict."""
    for n_features, order in product((2, 80), "CF"):  # frames are often in Fortran order
        X = NORMALS[:, :n_features].astype(dtype, order)
        estimator.fit(X, X[:, :4].sum(1) > 0).predict(X, **options)


def spins(solver="bslm"):
    """Fit a `FullyVisibleBoltzmannMachine`, and use it."""
    fitted = mf.FullyVisibleBoltzmannMachine(l2=0.1, solver=solver).fit(2 * BITS[:, :3] - 1)
    fitted.score_samples(2 * BITS[:, :3] - 1)
    fitted.covariance()
    fitted.sample(2, n_sweeps=1, random_state=0)
    fitted.impute(np.full((1, 3), np.nan), method="annealing")


def spins_with_errors():
    """Fit a `FullyVisibleBoltzmannMachine` whose estimates have standard errors."""
    X = np.array(np.meshgrid([-1, 1], [-1, 1], [-1, 1])).reshape(3, -1).T
    fitted = mf.FullyVisibleBoltzmannMachine().fit(np.concatenate([X, X[:5]]))
    fitted.standard_errors()
    fitted.test_couplings()


def potts():
    """Fit a `PottsMachine` by both objectives, draw from it, and weigh sequences."""
    mf.PottsMachine(l2=0.1).fit(LABELS).sample(2, n_sweeps=1, random_state=0)
    mf.PottsMachine(l2=0.1, solver="likelihood", max_iter=2).fit(LABELS)
    mf.datasets.sequence_weights(LABELS)


def linear_model(dtype="float64", n_features=5):
    """Return a sparse linear model."""
    units = mf.GaussBernoulli(*np.array([[0.0], [1], [0]], dtype).repeat(n_features, axis=1))
    X = NORMALS[:, :n_features].astype(dtype)
    return mf.SparseLinearModel(X, X[:, 0], 0.1, units)


# The slowest first, and such that neighbours share little code. Wheels include both dtypes.
STANDARD: dict[str, Callable] = {
    "tap": lambda dtype="float64": tap(layered(dtype=dtype)),
    "belief_propagation": lambda: mf.belief_propagation(layered(), field=np.zeros((2, 4))),
    "FullyVisibleBoltzmannMachine, bslm": spins,
    "GeneralizedRBM": lambda dtype="float32": machine(mf.GeneralizedRBM(3), BITS.astype(dtype)),
    "PottsMachine": potts,
    "SpikeSlabClassifier": lambda dtype="float64": linear(mf.SpikeSlabClassifier(), dtype),
    "ConditionalRBM": conditional,
    "GeneralizedRBM, spike-and-slab pixels": pixels,
    "SpikeSlabClassifier, logit": lambda dtype="float64": linear(
        mf.SpikeSlabClassifier(likelihood="logit"), dtype
    ),
    "FullyVisibleBoltzmannMachine": spins_with_errors,
    "DeepBoltzmannMachine": lambda dtype="float32": machine(
        mf.DeepBoltzmannMachine((3, 2), pretraining_epochs=1), BITS.astype(dtype)
    ),
    "relaxed_bp": lambda dtype="float64": mf.relaxed_bp(layered(dtype=dtype), max_iter=2),
    "SpikeSlabRegressor": lambda dtype="float64": linear(
        mf.SpikeSlabRegressor(), dtype, return_std=True
    ),
    "adaptive_tap": lambda: mf.adaptive_tap(fully_visible(), max_iter=2),
    "tap, float32": lambda: tap(layered(dtype="float32")),
    "expectation_propagation": lambda: mf.expectation_propagation(linear_model(), max_iter=3),
    "tap, fully visible": lambda: tap(fully_visible()),
    "tap, deep": lambda: tap(layered(3)),
    "tap, fully visible, sequential": lambda: tap(fully_visible(), schedule="sequential"),
    "tap, clamped": lambda: tap(layered(), clamp=np.array([0, np.nan, 1, np.nan])),
}


def run(task):
    """Run a task, or the standard task of a name; return an error in one line, or ""."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")  # two sweeps do not converge
        try:
            (STANDARD[task] if isinstance(task, str) else task)()
        except Exception as error:  # other tasks may succeed
            return f"{type(error).__name__}: {' '.join(str(error).split())}"
    return ""


def warmup(arguments):
    """Compile kernels and store them in the cache, so that first calls need not compile.

    These are the kernels used by README.md, `fastmf demo` and the estimators. Kernels that are
    already in the cache are not compiled again.

    examples:
      fastmf warmup
          after an installation, or in the build of a container
      NUMBA_CACHE_DIR=/srv/cache fastmf warmup
          fill a folder that is shared by several users or similar machines

    The estimators need scikit-learn: pip install scikit-learn

    Options
    -------
    -q, --quiet
        do not show progress
    """
    mf.GeneralizedRBM  # noqa: B018  raises an error with advice if scikit-learn is missing
    if cache.folder() is None:
        raise OSError(
            "there is no folder for a cache that can be written: set NUMBA_CACHE_DIR to one."
        )
    # Compilation uses one thread; further BLAS threads would only spin.
    os.environ.update(FASTMF_QUIET="1", OPENBLAS_NUM_THREADS="1")
    names, failures, start = list(STANDARD), [], time.perf_counter()
    with ProcessPoolExecutor(min(n_cores(), len(names)), get_context("spawn")) as processes:
        for name, error in zip(names, processes.map(run, names), strict=True):
            failures += [f"{name}: {error}"] if error else []
            _options.say(f"compiled {name}", arguments.quiet)
    if failures:
        raise OSError(f"of {len(names)} tasks some failed: {'; '.join(failures)}")
    print(f"kernels are in {cache.folder()}, {time.perf_counter() - start:.1f} s")
