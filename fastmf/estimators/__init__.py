"""scikit-learn estimators."""

from fastmf.estimators.conditional_rbm import ConditionalRBM
from fastmf.estimators.deep_boltzmann_machine import DeepBoltzmannMachine
from fastmf.estimators.fully_visible import FullyVisibleBoltzmannMachine
from fastmf.estimators.generalized_rbm import GeneralizedRBM
from fastmf.estimators.spike_slab import SpikeSlabRegressor
from fastmf.estimators.spike_slab_classifier import SpikeSlabClassifier

__all__ = [
    "ConditionalRBM",
    "DeepBoltzmannMachine",
    "FullyVisibleBoltzmannMachine",
    "GeneralizedRBM",
    "SpikeSlabClassifier",
    "SpikeSlabRegressor",
]
