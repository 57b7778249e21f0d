"""Unit priors: the one-dimensional distributions of the units of every model."""

from fastmf.priors._registry import register
from fastmf.priors.binary import Bernoulli, Ising
from fastmf.priors.categorical import Categorical
from fastmf.priors.concatenated import Concatenated
from fastmf.priors.gaussian import Gaussian, TruncatedGaussian
from fastmf.priors.ordinal import Binomial, Ordinal
from fastmf.priors.spike_and_slab import GaussBernoulli, TruncatedGaussBernoulli

__all__ = [
    "Bernoulli",
    "Binomial",
    "Categorical",
    "Concatenated",
    "GaussBernoulli",
    "Gaussian",
    "Ising",
    "Ordinal",
    "TruncatedGaussBernoulli",
    "TruncatedGaussian",
    "register",
]
