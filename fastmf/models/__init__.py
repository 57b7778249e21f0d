"""Models: frozen dataclasses of parameters, with an energy."""

from fastmf.models._io import MODELS, load
from fastmf.models.boltzmann import BoltzmannMachine
from fastmf.models.crbm import CRBM
from fastmf.models.exact import Exact, exact
from fastmf.models.rbm import RBM

MODELS |= {class_.__name__: class_ for class_ in (RBM, BoltzmannMachine, CRBM)}

__all__ = ["CRBM", "RBM", "BoltzmannMachine", "Exact", "exact", "load"]
