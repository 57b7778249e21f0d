"""Pairwise models from and to graphs of networkx, networks of pgmpy and models of dimod.

None of these packages is needed to convert their objects to models: those are read by their
attributes. To make an object of one, it must be installed.
"""

from fastmf.convert._converted import Converted
from fastmf.convert._dimod import from_dimod, to_dimod
from fastmf.convert._networkx import from_networkx, to_networkx
from fastmf.convert._pgmpy import from_pgmpy, to_pgmpy

__all__ = [
    "Converted",
    "from_dimod",
    "from_networkx",
    "from_pgmpy",
    "to_dimod",
    "to_networkx",
    "to_pgmpy",
]
