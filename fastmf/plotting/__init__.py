"""Figures of machines and of what they do; each function draws one, and returns it.

matplotlib is imported when a figure is drawn, and never its pyplot: figures belong to the caller
and need no display. Without `ax` they are new `matplotlib.figure.Figure` objects, to be saved by
`figure.savefig(path)`; with `ax`, an axes of the caller's own, they are the figure of that. Figures
of landscapes are returned as their axes instead, to be drawn on; `ax.figure` is the figure.
"""

from fastmf.plotting.curves import denoising_accuracy, learning_curve
from fastmf.plotting.images import image_rows, mosaic, receptive_fields
from fastmf.plotting.landscape import (
    curves_by_epoch,
    free_energy_by_epoch,
    solution_map,
    solutions_and_data,
)

__all__ = [
    "curves_by_epoch",
    "denoising_accuracy",
    "free_energy_by_epoch",
    "image_rows",
    "learning_curve",
    "mosaic",
    "receptive_fields",
    "solution_map",
    "solutions_and_data",
]
