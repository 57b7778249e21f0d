"""scikit-learn estimators, each imported when it is first used.

Its rooms; each imports only rooms above it:

    common               data, names, weights and files: what several systems share
    networks             errors, tests, edges and centralities of a fitted network
    pseudo_likelihood    fully visible machines: binary, ordinal and Potts
    layered              RBMs, DBMs and conditional RBMs
    sparse_regression    spike-and-slab regression and classification

Names of modules that hold no public class begin with an underscore where the room holds any.
"""

from contextlib import suppress
from importlib import import_module

from fastmf._common.deferred import deferred

# scikit-learn imports it for one function that is not used here: three quarters of the time that
# its import takes, and half of an estimator's first call with compiled code.
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
