"""scikit-learn estimators."""

from fastmf.estimators.conditional_rbm import ConditionalRBM
from fastmf.estimators.generalized_rbm import GeneralizedRBM

__all__ = ["ConditionalRBM", "GeneralizedRBM"]
