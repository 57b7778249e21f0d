"""Figures of learning, images, sequences, couplings, coefficients and solvers.

matplotlib is imported when a figure is drawn, and pyplot never: no display is needed. Without `ax`
a function returns a new `matplotlib.figure.Figure`, to be saved by `figure.savefig(path)`; with
`ax`, the figure of these axes. `curves_by_epoch` and `free_energy_by_epoch` return the axes, whose
attribute `figure` is the figure.
"""

from fastmf.plotting.couplings import coefficient_forest, coupling_network, edge_forest
from fastmf.plotting.curves import (
    curves_by_epoch,
    free_energy_by_epoch,
    learning_curve,
    log_partitions,
)
from fastmf.plotting.images import image_rows, receptive_fields
from fastmf.plotting.sequences import (
    contact_map,
    mutation_matrix,
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
    "mutation_matrix",
    "receptive_fields",
]
