"""Figures of machines and of what they do; each function draws one, and returns it.

matplotlib is imported when a figure is drawn, and never its pyplot: figures belong to the caller
and need no display. Without `ax` they are new `matplotlib.figure.Figure` objects, to be saved by
`figure.savefig(path)`; with `ax`, an axes of the caller's own, they are the figure of that.
"""

from fastmf.plotting.curves import denoising_accuracy, learning_curve
from fastmf.plotting.images import image_rows, mosaic, receptive_fields

__all__ = ["denoising_accuracy", "image_rows", "learning_curve", "mosaic", "receptive_fields"]
