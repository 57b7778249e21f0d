"""Deterministic mean-field inference and learning in pairwise models.

Every system here is the same picture: units with one-dimensional distributions, couplings between
them, and a deterministic approximation that turns both into marginals and a free energy. To read
the code, follow the picture:

1. `fastmf.priors`: what a unit is, its log-partition and its moments; start with `binary.py`.
2. `fastmf.special`: the functions of which these are made, for NumPy and for compiled code.
3. `fastmf.evaluation`: scores, and the simple estimators against which to compare.
4. `fastmf.datasets`: the data of the examples.
5. `fastmf._numba`: how it all compiles, and how compiled code is cached.
"""

from importlib import import_module

__version__ = "0.1.0"

# Public name -> the subpackage that defines it. Names are imported when first used, so that
# `import fastmf` is instant and needs no optional dependency.
_HOME = {
    "Bernoulli": "priors",
    "Gaussian": "priors",
    "Ising": "priors",
}
_SUBPACKAGES = ("datasets", "evaluation", "priors")

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


def __dir__():
    return sorted({*globals(), *__all__})
