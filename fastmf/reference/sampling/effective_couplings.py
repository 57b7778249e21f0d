"""NumPy twin of `fastmf.kernels.sampling.effective_couplings`."""

from fastmf.reference.units import log_partition


def effective_couplings(units, weights, starts, fields, states, work, out):
    """Compute sums of log-partitions of hidden units for each pair of states of two groups."""
    n_groups = states.shape[1]
    for i in range(n_groups):
        for j in range(i + 1, n_groups):
            first, second = (slice(starts[k], starts[k + 1]) for k in (i, j))
            base = fields - weights[states[:, i]] - weights[states[:, j]]
            tilts = base[:, None, None] + weights[first][:, None] + weights[second]
            values = log_partition(units.prior, tilts, tilts.dtype.type(0))
            out[first, second] = values.sum(-1, dtype=float).sum(0)
