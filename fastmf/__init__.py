"""Deterministic mean-field inference and learning in pairwise models.

Every system here is the same picture: units with one-dimensional distributions, couplings between
them, and a deterministic approximation that turns both into marginals and a free energy. To read
the code, follow the picture:

1. `fastmf.priors`: what a unit is, its log-partition and its moments; start with `binary.py`.
2. `fastmf.models`: which units are coupled to which.
3. `fastmf.inference`: from a model to its marginals and free energy, over `fastmf.kernels`; each
   kernel is easiest to read beside its plain NumPy twin in `fastmf.reference`.
4. `fastmf.learning`: gradients made of these marginals, and the loop that follows them.
5. `fastmf.estimators`: all of it with the manners of scikit-learn.
6. `fastmf.special` and `fastmf._numba`: what it all compiles to, and how that is cached.

`FROM_EQUATION_TO_CODE.md`, beside this file, leads from each equation of the papers to the code
that computes it and the test that checks it.
"""

from importlib import import_module

__version__ = "0.1.0"

# Public name -> the part of the package that defines it.
_HOME = {
    "Bernoulli": "priors",
    "Binomial": "priors",
    "Concatenated": "priors",
    "GaussBernoulli": "priors",
    "Gaussian": "priors",
    "Ising": "priors",
    "TruncatedGaussBernoulli": "priors",
    "TruncatedGaussian": "priors",
    "BoltzmannMachine": "models",
    "CRBM": "models",
    "DBM": "models",
    "RBM": "models",
    "SparseLinearModel": "models",
    "exact": "models",
    "load": "models",
    "Beliefs": "inference.bp.beliefs",
    "FixedPoint": "inference.fixed_point",
    "adaptive_tap": "inference.ep.adaptive_tap",
    "belief_propagation": "inference.bp.belief_propagation",
    "expectation_propagation": "inference.ep.expectation_propagation",
    "relaxed_bp": "inference.mean_field.relaxed_bp",
    "tap": "inference.mean_field.tap",
    "ConditionalRBM": "estimators",
    "DeepBoltzmannMachine": "estimators",
    "FullyVisibleBoltzmannMachine": "estimators",
    "GeneralizedRBM": "estimators",
    "SpikeSlabClassifier": "estimators",
    "SpikeSlabRegressor": "estimators",
    "annealed_importance_sampling": "evaluation",
    "log_partition_report": "evaluation",
    "pseudo_log_likelihood": "evaluation",
}
_SUBPACKAGES = ("datasets", "distributed", "evaluation", "plotting", "priors")
# What every program needs; the rest is imported when first used.
_AT_ONCE = ("priors", "models")

__all__ = [*_HOME, *_SUBPACKAGES]

# Optional package -> the extra that installs it.
_EXTRAS = {
    "sklearn": ("scikit-learn", "sklearn"),
    "matplotlib": ("matplotlib", "plot"),
    "tqdm": ("tqdm", "progress"),
    "dask": ("Dask", "distributed"),
}


def __getattr__(name):
    if name not in __all__:
        raise AttributeError(f"module 'fastmf' has no attribute {name!r}")
    try:
        if name in _SUBPACKAGES:
            return import_module(f"fastmf.{name}")
        value = getattr(import_module(f"fastmf.{_HOME[name]}"), name)
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in _EXTRAS:
            raise
        title, extra = _EXTRAS[package]
        raise ImportError(
            f"fastmf.{name} needs {title}: pip install 'fastmf[{extra}]'", name=package
        ) from error
    globals()[name] = value
    return value


for _name, _part in _HOME.items():
    if _part in _AT_ONCE:
        __getattr__(_name)


def __dir__():
    return sorted({*globals(), *__all__})
