"""Unit priors: the one-dimensional distributions of the units of every model."""

from fastmf.priors._registry import register
from fastmf.priors.binary import Bernoulli, Ising
from fastmf.priors.binomial import Binomial
from fastmf.priors.categorical import Categorical
from fastmf.priors.concatenated import Concatenated
from fastmf.priors.gaussian import Gaussian
from fastmf.priors.ordinal import Ordinal
from fastmf.priors.spike_and_slab import GaussBernoulli, TruncatedGaussBernoulli
from fastmf.priors.truncated_gaussian import TruncatedGaussian

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
