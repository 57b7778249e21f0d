"""scikit-learn estimators."""

from fastmf.estimators.deep_boltzmann_machine import DeepBoltzmannMachine
from fastmf.estimators.fully_visible import FullyVisibleBoltzmannMachine
from fastmf.estimators.generalized_rbm import GeneralizedRBM
from fastmf.estimators.spike_slab import SpikeSlabRegressor

__all__ = [
    "DeepBoltzmannMachine",
    "FullyVisibleBoltzmannMachine",
    "GeneralizedRBM",
    "SpikeSlabRegressor",
]
