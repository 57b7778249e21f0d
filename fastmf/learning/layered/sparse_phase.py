"""The phase of compiled steps that reads sparse rows of data."""

import numpy as np

from fastmf.inference.mean_field._rows import record_from
from fastmf.inference.mean_field.data import sparse_rows
from fastmf.kernels.linear.sparse_rows import CompressedRows, add_rows_address
from fastmf.kernels.training import arguments as types
from fastmf.kernels.training import sparse
from fastmf.learning.layered.phases import Phase
from fastmf.priors._compiled import AddressTable


class SparseRows(Phase):
    """Moments of the hidden units of a binary RBM given sparse rows."""

    kernels = (sparse.read_sparse_rows,)

    @staticmethod
    def requires(problem):
        """Averages are those of means alone."""
        return {"binary units of an RBM": problem.fields_only}

    def __init__(self, run, arguments):
        super().__init__(run, arguments)
        n_visible = run.sizes[0]
        state = np.zeros((4, run.n_starts, run.n_units), run.dtype)
        data = np.zeros((4, run.n_batch, run.n_units - n_visible), run.dtype)
        arguments |= {
            "data": types.Moments(*data),
            "model": record_from(state, run.options.n_sweeps, False),
            "transposed_batch": self._transposed(0),
            "active": np.zeros((run.n_workers, n_visible), np.int32),
            "n_active": np.zeros((run.n_workers, 2), np.int64),
            "add_rows": add_rows_address(run.dtype),
            # All couplings are read once for each task.
            "task_rows": -(-run.n_batch // run.n_workers),
        }

    def _transposed(self, n_stored):
        """Memory for the transpose of a batch with so many stored entries."""
        values, bounds = np.empty(n_stored, self.run.dtype), np.empty((2, self.run.sizes[0]), int)
        return CompressedRows(values, np.empty(n_stored, np.int32), *bounds)

    def batches(self, rows, seeds, rates):
        """The `Batches` of some rows of the data, with memory for the transpose of the largest."""
        run = self.run
        given = sparse_rows(run.X[rows.ravel()], run.dtype)
        n_stored = np.diff(given.ends[run.n_batch - 1 :: run.n_batch], prepend=0).max(initial=0)
        if n_stored > len(run.statistics.transposed_batch.values):
            transposed = self._transposed(n_stored)
            run.statistics = run.statistics._replace(transposed_batch=transposed)
        return types.Batches(AddressTable([0], given), rows, seeds, rates, given)
