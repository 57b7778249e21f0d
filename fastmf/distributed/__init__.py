"""Inference and learning for the rows of Dask arrays, in one process or on a cluster.

Each block of rows is one call of `fastmf.tap`, and results are lazy: nothing is computed before
`compute`. Learning is the loop of `fastmf.learning.training.trainer`, in which the
gradient of a batch is computed in chunks of rows. Tasks run on the cluster of the current
`dask.distributed.Client`, or in this process if there is none.
"""

from fastmf.distributed.inference import score_samples, tap
from fastmf.distributed.training import fit, transform
from fastmf.learning.layered.settings import LayeredSettings

__all__ = [
    "LayeredSettings",
    "fit",
    "score_samples",
    "tap",
    "transform",
]
