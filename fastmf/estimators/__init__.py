"""scikit-learn estimators, each imported when it is first used.

Subpackages; each imports only subpackages above it:

    common               data, names, weights and files, shared by all estimators
    networks             errors, tests, edges and centralities of a fitted network
    pseudo_likelihood    fully visible machines: binary, ordinal and Potts
    layered              RBMs, DBMs and conditional RBMs
    sparse_regression    spike-and-slab regression and classification

In subpackages with public classes, modules without public classes begin with an underscore.
"""

from contextlib import suppress
from importlib import import_module

from fastmf._common.deferred import deferred

# scikit-learn imports scipy.stats for one function that is not used here. This takes three quarters
# of its import time, and half of the first call of an estimator with compiled kernels.
with suppress(ModuleNotFoundError), deferred("scipy.stats"):  # estimators say what is missing
    import sklearn.base  # noqa: F401

# Estimator -> the module that defines it.
_HOME = {
    "ConditionalRBM": "layered.conditional_rbm",
    "DeepBoltzmannMachine": "layered.boltzmann_machines",
    "FullyVisibleBoltzmannMachine": "pseudo_likelihood.pairwise_machines",
    "GeneralizedRBM": "layered.boltzmann_machines",
    "OrdinalMachine": "pseudo_likelihood.pairwise_machines",
    "PottsMachine": "pseudo_likelihood.potts_machine",
    "SpikeSlabClassifier": "sparse_regression.spike_slab",
    "SpikeSlabRegressor": "sparse_regression.spike_slab",
}

__all__ = [*_HOME]


def __getattr__(name):
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
    globals()[name] = value
    return value
