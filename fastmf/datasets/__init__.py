"""Data sets, alignments of sequences and their weights, files of arrays and of Potts models."""

from fastmf.datasets.alignments import Alignment, load_alignment
from fastmf.datasets.files import read_array
from fastmf.datasets.images import (
    Images,
    load_caltech_silhouettes,
    load_cbcl_faces,
    load_digits,
    load_mnist,
)
from fastmf.datasets.potts_files import (
    PlmcParameters,
    PottsParameters,
    read_adabmdca,
    read_plmc,
    write_adabmdca,
    write_plmc,
)
from fastmf.datasets.sequences import sequence_weights

__all__ = [
    "Alignment",
    "Images",
    "PlmcParameters",
    "PottsParameters",
    "load_alignment",
    "load_caltech_silhouettes",
    "load_cbcl_faces",
    "load_digits",
    "load_mnist",
    "read_adabmdca",
    "read_array",
    "read_plmc",
    "sequence_weights",
    "write_adabmdca",
    "write_plmc",
]
