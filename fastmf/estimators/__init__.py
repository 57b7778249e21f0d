"""scikit-learn estimators."""

from fastmf.estimators.fully_visible import FullyVisibleBoltzmannMachine
from fastmf.estimators.generalized_rbm import GeneralizedRBM

__all__ = ["FullyVisibleBoltzmannMachine", "GeneralizedRBM"]
