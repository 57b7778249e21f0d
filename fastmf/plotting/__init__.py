"""Figures of learning, images, landscapes, sequences, couplings, coefficients and solvers.

matplotlib is imported when a figure is drawn, and pyplot never: no display is needed. Without `ax`
a function returns a new `matplotlib.figure.Figure`, to be saved by `figure.savefig(path)`; with
`ax`, the figure of these axes. Functions for landscapes return the axes, whose attribute `figure`
is the figure.
"""

from fastmf.plotting.coefficients import coefficient_forest
from fastmf.plotting.couplings import coupling_network, edge_forest
from fastmf.plotting.curves import learning_curve, log_partitions
from fastmf.plotting.images import image_rows, mosaic, receptive_fields
from fastmf.plotting.landscape import (
    curves_by_epoch,
    free_energy_by_epoch,
    solution_map,
    solutions_and_data,
)
from fastmf.plotting.sequences import (
    contact_map,
    mutation_matrix,
    precision_curve,
)

__all__ = [
    "coefficient_forest",
    "contact_map",
    "coupling_network",
    "curves_by_epoch",
    "edge_forest",
    "free_energy_by_epoch",
    "image_rows",
    "learning_curve",
    "log_partitions",
    "mosaic",
    "mutation_matrix",
    "precision_curve",
    "receptive_fields",
    "solution_map",
    "solutions_and_data",
]
