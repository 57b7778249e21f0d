"""Data sets, alignments of sequences, and files of arrays."""

from fastmf.datasets.alignments import Alignment, load_alignment
from fastmf.datasets.files import read_array
from fastmf.datasets.images import (
    Images,
    load_caltech_silhouettes,
    load_cbcl_faces,
    load_digits,
    load_mnist,
)

__all__ = [
    "Alignment",
    "Images",
    "load_alignment",
    "load_caltech_silhouettes",
    "load_cbcl_faces",
    "load_digits",
    "load_mnist",
    "read_array",
]
