"""Inference and learning for rows that are spread over machines, through Dask.

Rows of a Dask array go block by block to the solvers of `fastmf.inference`, and results are lazy:
nothing is computed before `compute`. Learning is the loop of `fastmf.learning.training.trainer`;
only the gradient of a batch is made elsewhere. Dask decides where: on the cluster of the current
`distributed.Client`, or in this process.
"""

from fastmf.distributed.inference import belief_propagation, score_samples, tap
from fastmf.distributed.training import train

__all__ = ["belief_propagation", "score_samples", "tap", "train"]
