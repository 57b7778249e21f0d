"""Data sets, sequence alignments and sequence weights, and files of arrays and models."""

from fastmf.datasets.alignments import Alignment, load_alignment, sequence_weights, write_fasta
from fastmf.datasets.files import read_array
from fastmf.datasets.images import Images, load_digits
from fastmf.datasets.plmc import read_plmc, write_plmc
from fastmf.datasets.uai import UAIModel, load_uai, save_uai

__all__ = [
    "Alignment",
    "Images",
    "UAIModel",
    "load_alignment",
    "load_digits",
    "load_uai",
    "read_array",
    "read_plmc",
    "save_uai",
    "sequence_weights",
    "write_fasta",
    "write_plmc",
]
