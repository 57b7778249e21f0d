"""scikit-learn estimators."""

from fastmf.estimators.generalized_rbm import GeneralizedRBM
from fastmf.estimators.spike_slab import SpikeSlabRegressor

__all__ = ["GeneralizedRBM", "SpikeSlabRegressor"]
