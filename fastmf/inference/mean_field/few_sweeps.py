"""A few sweeps of a machine coupled to itself, in many rows at once, as learning takes them."""

import numpy as np

from fastmf._threads.workers import in_parallel
from fastmf.kernels.linear.product import empty_panels, fill_panels, panel_width
from fastmf.kernels.mean_field.all_rows import ROWS_PER_TASK, RowsMemory, sweep_all_rows
from fastmf.kernels.mean_field.arguments import Layer, Layers
from fastmf.priors._protocol import is_concatenated, precomputed


class FewSweeps:
    """Memory for sweeps of a machine of so many units.

    They are those of `fastmf.tap` with `schedule="sequential"`, which damps no row in its first
    sweeps; but no row ends before the last one.

    Parameters
    ----------
    n_units : int
    source : int
        Where these units begin in the rows that are swept.
    order : {1, 2}
    dtype : NumPy dtype
    n_workers : int
        Threads; results do not depend on it.
    """

    def __init__(self, n_units, source, order, dtype, n_workers=1):
        self.order, self.source, self.n_workers = order, source, n_workers
        self.couplings, self.squares = (empty_panels(n_units, n_units, dtype) for _ in range(2))
        shapes = (2, ROWS_PER_TASK, panel_width(dtype)), (4, ROWS_PER_TASK)
        self.memory = RowsMemory(*(np.zeros((n_workers, *shape), dtype) for shape in shapes))

    def __call__(self, couplings, prior, tilt, n_sweeps, state):
        """Sweep rows in place: `state` (4, n_rows, n_units) has means, variances, tilts b, a."""
        fill_panels(couplings, self.couplings)
        np.square(self.couplings, out=self.squares)
        copies = repeated(precomputed(prior), ROWS_PER_TASK)
        n_units, none = len(couplings), self.squares[:0]
        powers = self.couplings, self.squares, none
        layers = Layers([Layer(copies, n_units, self.source, self.source, *powers)])
        arguments = layers, self.order, n_sweeps, tilt, self.memory, np.zeros(2, np.int64), state
        in_parallel(sweep_all_rows, arguments, self.n_workers)


def repeated(prior, n):
    """A prior of n copies of each unit, next to each other."""
    if is_concatenated(prior):
        return prior._make((tuple(repeated(part, n) for part in prior.parts),))
    return prior._make(np.repeat(f, n, axis=0) if np.ndim(f) else f for f in prior)
