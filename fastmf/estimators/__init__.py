"""scikit-learn estimators, each imported when it is first used."""

from contextlib import suppress
from importlib import import_module

from fastmf._common.deferred import deferred

# scikit-learn imports it for one function that is not used here: three quarters of the time that
# its import takes, and half of an estimator's first call with compiled code.
with suppress(ModuleNotFoundError), deferred("scipy.stats"):  # estimators say what is missing
    import sklearn.base  # noqa: F401

# Estimator -> the module that defines it.
_HOME = {
    "ConditionalRBM": "conditional_rbm",
    "DeepBoltzmannMachine": "deep_boltzmann_machine",
    "FullyVisibleBoltzmannMachine": "fully_visible",
    "GeneralizedRBM": "generalized_rbm",
    "OrdinalMachine": "ordinal_machine",
    "PottsMachine": "potts_machine",
    "SpikeSlabClassifier": "spike_slab_classifier",
    "SpikeSlabRegressor": "spike_slab",
}

__all__ = [*_HOME]


def __getattr__(name):
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
    globals()[name] = value
    return value
