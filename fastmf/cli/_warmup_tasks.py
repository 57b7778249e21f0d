"""The calls of `fastmf warmup`: a few units and rows each, which compile kernels.

`main` runs the tasks of some names, and prints a line for each that fails.
"""

import warnings
from itertools import pairwise

import numpy as np

import fastmf as mf
from fastmf._jit.messages import to_stderr
from fastmf.learning.pseudo_likelihood.potts.fitting import Options, fit
from fastmf.learning.pseudo_likelihood.potts.objective import PottsData

# Units of each layer, and rows.
SIZES, N_ROWS = (4, 3, 2), 6


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


def binary_rows(dtype="float32", n=5):
    """Rows of zeros and ones, in which every column has both."""
    return (np.random.default_rng(0).random((20, n)) < 0.5).astype(dtype)


def linear_model(dtype="float64", n_features=5):
    """A sparse linear model with more features than samples, or fewer."""
    X = np.random.default_rng(0).normal(size=(N_ROWS, n_features)).astype(dtype)
    return mf.SparseLinearModel(X, X[:, 0], 0.1, prior("GaussBernoulli", n_features, dtype))


def tap(model, **options):
    """Solve from a few rows of data, some of them clamped."""
    rows = np.zeros((2, SIZES[0]), model.dtype)
    mf.tap(model, rows, max_iter=2, **options)


def belief_propagation(dtype="float64", **options):
    """Solve for two rows of fields."""
    mf.belief_propagation(layered(dtype), field=np.zeros((2, SIZES[0]), dtype), **options)


def machine(estimator=None, X=None, noise=None, **options):
    """Fit a machine of layers, and use it."""
    X = binary_rows() if X is None else X
    options = {"n_epochs": 1, "random_state": 0, **options}
    fitted = (estimator or mf.GeneralizedRBM)(**options).fit(X, validation_data=X)
    fitted.transform(X)
    fitted.score_samples(X, "log_sum_exp")
    fitted.denoise(X, **(noise or {"flip_probability": 0.1}), n_starts=2)
    fitted.sample(2, n_sweeps=1, random_state=0)


def rbm(**options):
    """Fit a `GeneralizedRBM`, and use it."""
    machine(n_components=3, **options)


def pixels(dtype="float32"):
    """The same with spike-and-slab pixels, as in `fastmf demo`."""
    X = binary_rows(dtype) * np.linspace(0.2, 1, 20, dtype=dtype)[:, None]
    rbm(X=X, visible="truncated_gauss_bernoulli", noise={"noise_variance": 0.1})


def deep(**options):
    """Fit a `DeepBoltzmannMachine`, pre-training included."""
    machine(mf.DeepBoltzmannMachine, n_components=(3, 2), pretraining_epochs=1, **options)


def conditional(dtype="float32", **options):
    """Fit a `ConditionalRBM`, and predict."""
    X = binary_rows(dtype)
    fitted = mf.ConditionalRBM(3, n_epochs=1, random_state=0, **options).fit(X, X)
    fitted.predict(X)
    if options.get("objective") != "logistic":  # which has no hidden units
        mf.belief_propagation(fitted.model_.given(X[0]))


def regression(dtype="float64", **options):
    """Fit a `SpikeSlabRegressor`, with more features than samples and with fewer."""
    for n_features in (2, 9):
        X = np.random.default_rng(0).normal(size=(6, n_features)).astype(dtype)
        mf.SpikeSlabRegressor(**options).fit(X, X[:, 0]).predict(X, return_std=True)


def classification(dtype="float64", **options):
    """Fit a `SpikeSlabClassifier`."""
    for n_features in (2, 9):
        X = np.random.default_rng(0).normal(size=(6, n_features)).astype(dtype)
        mf.SpikeSlabClassifier(**options).fit(X, np.arange(6) % 2).predict_proba(X)


def spins(**options):
    """Fit a `FullyVisibleBoltzmannMachine`, and test couplings."""
    X = 2 * binary_rows(n=3) - 1
    fitted = mf.FullyVisibleBoltzmannMachine(l2=0.1, **options).fit(X)
    fitted.score_samples(X)
    fitted.covariance()
    fitted.sample(2, n_sweeps=1, random_state=0)
    fitted.impute(np.full((1, 3), np.nan), method="annealing")


def spins_with_errors():
    """The same, for whose estimates there are standard errors."""
    X = np.array(np.meshgrid([-1, 1], [-1, 1], [-1, 1])).reshape(3, -1).T
    X = np.concatenate([X, X[:5]])
    fitted = mf.FullyVisibleBoltzmannMachine().fit(X)
    fitted.standard_errors()
    fitted.test_couplings()


def potts(dtype="float64"):
    """Fit a Potts machine, in either precision."""
    labels = np.random.default_rng(0).integers(0, 3, (9, 4))
    data = PottsData(labels, np.ones(9), np.full(4, 3))
    fit(data, Options(0.1, 0.1, single=dtype == "float32"))
    mf.datasets.sequence_weights(labels)


# The longest first; neighbours have little code in common.
STANDARD = {
    "tap": lambda: tap(layered()),
    "belief_propagation": belief_propagation,
    "FullyVisibleBoltzmannMachine, bslm": lambda: spins(solver="bslm"),
    "GeneralizedRBM": rbm,
    "PottsMachine": potts,
    "SpikeSlabClassifier": classification,
    "ConditionalRBM": conditional,
    "GeneralizedRBM, spike-and-slab pixels": pixels,
    "FullyVisibleBoltzmannMachine": spins_with_errors,
    "DeepBoltzmannMachine": deep,
    "relaxed_bp": lambda: mf.relaxed_bp(layered(), max_iter=2),
    "SpikeSlabRegressor": regression,
    "adaptive_tap": lambda: mf.adaptive_tap(fully_visible(), max_iter=2),
    "tap, float32": lambda: tap(layered("float32")),
    "expectation_propagation": lambda: mf.expectation_propagation(linear_model(), max_iter=3),
    "tap, fully visible": lambda: tap(fully_visible()),
    "tap, deep": lambda: tap(layered(deep=True)),
    "tap, fully visible, sequential": lambda: tap(fully_visible(), schedule="sequential"),
    "tap, clamped": lambda: tap(layered(), clamp=np.array([0, np.nan, 1, np.nan])),
}


def run(task):
    """Run a task, and return an error in one line, or an empty text."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")  # two sweeps do not converge
        try:
            task()
        except Exception as error:  # other tasks may succeed
            return f"{type(error).__name__}: {' '.join(str(error).split())}"
    return ""


def main(names, verbose=False):
    """Run the tasks of some names, and print a line for each that fails."""
    for name in names:
        if error := run(STANDARD[name]):
            print(f"{name}: {error}", flush=True)
        if verbose:
            to_stderr(f"fastmf: compiled {name}")
