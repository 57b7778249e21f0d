"""scikit-learn estimators."""

from fastmf.estimators.generalized_rbm import GeneralizedRBM

__all__ = ["GeneralizedRBM"]
