"""Unit priors: the one-dimensional distributions from which every model is made."""

from fastmf.priors.binary import Bernoulli, Ising
from fastmf.priors.gaussian import Gaussian

__all__ = ["Bernoulli", "Gaussian", "Ising"]
