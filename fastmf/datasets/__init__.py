"""Data sets on which Boltzmann machines are compared, and a reader of other files."""

from fastmf.datasets.files import read_array
from fastmf.datasets.images import (
    Images,
    load_caltech_silhouettes,
    load_cbcl_faces,
    load_digits,
    load_mnist,
)

__all__ = [
    "Images",
    "load_caltech_silhouettes",
    "load_cbcl_faces",
    "load_digits",
    "load_mnist",
    "read_array",
]
