"""Models: frozen dataclasses of parameters, with an energy."""

from fastmf.models._io import MODELS, load
from fastmf.models.boltzmann import BoltzmannMachine
from fastmf.models.crbm import CRBM
from fastmf.models.exact import Exact, exact
from fastmf.models.layered import DBM, RBM
from fastmf.models.sparse_linear import SparseLinearModel

MODELS |= {
    class_.__name__: class_ for class_ in (RBM, DBM, CRBM, BoltzmannMachine, SparseLinearModel)
}

__all__ = ["CRBM", "DBM", "RBM", "BoltzmannMachine", "Exact", "SparseLinearModel", "exact", "load"]
