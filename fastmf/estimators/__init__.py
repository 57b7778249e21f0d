"""scikit-learn estimators."""

from fastmf.estimators.deep_boltzmann_machine import DeepBoltzmannMachine
from fastmf.estimators.fully_visible import FullyVisibleBoltzmannMachine
from fastmf.estimators.generalized_rbm import GeneralizedRBM

__all__ = ["DeepBoltzmannMachine", "FullyVisibleBoltzmannMachine", "GeneralizedRBM"]
