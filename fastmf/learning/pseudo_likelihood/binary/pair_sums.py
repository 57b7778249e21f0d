"""Sums over rows i of v_i z_ik z_il, z = [1, x], for all pairs of units at once."""

import numpy as np

from fastmf._threads.workers import in_parallel, workers_for
from fastmf.kernels.pseudo_likelihood import binary as pl_kernels

# Units of a tuple: tables of pairs of tuples have 256 entries.
_SIZE = 4
# Numbers in the tables that are computed at a time.
_MAX_TABLE_NUMBERS = 1 << 23


class ProductSums:
    """Sums over rows i of v_i z_ik z_il for all k, l, where z = [1, x].

    Values are first summed over the rows with each joint state of two small tuples of units; the
    products follow from these tables. That takes far fewer operations than a matrix product with
    all products of columns.

    Parameters
    ----------
    states : array of shape (n_rows, n_units)
        Spins, -1 and +1.
    n_threads : int or None
    """

    def __init__(self, states, n_threads=None):
        n_rows, self.n_units = states.shape
        self.n_threads = n_threads
        size = _SIZE
        n_tuples = max(2, -(-self.n_units // size))
        bits = np.zeros((n_rows, n_tuples * size), np.uint8)
        bits[:, : self.n_units] = states > 0
        powers = (1 << np.arange(size)).astype(np.uint8)
        self.codes = np.ascontiguousarray((bits.reshape(n_rows, n_tuples, size) @ powers).T)
        # Tables (0, h) come first: they also give single units and pairs within a tuple.
        self.first, self.second = np.triu_indices(n_tuples, 1)
        ones = np.ones((1, 4**size))
        keys, shifts = np.arange(4**size), np.arange(size)[:, None]
        of_first, of_second = ((2.0 * (k >> shifts & 1) - 1) for k in (keys >> size, keys))
        both = np.vstack([ones, of_first, of_second])
        self._cross_products = (of_first[:, None] * of_second).reshape(size**2, -1)
        self._all_products = (both[:, None] * both).reshape(len(both) ** 2, -1)

    def __call__(self, values):
        """The sums."""
        n_columns, size = values.shape[1], _SIZE
        n_tuples, n_codes = len(self.codes), 2**size
        columns = 1 + np.arange(n_tuples * size).reshape(n_tuples, size)
        out = np.empty((1 + n_tuples * size, 1 + n_tuples * size, n_columns))
        at_once = max(1, _MAX_TABLE_NUMBERS // (n_codes**2 * n_columns))
        for t in range(0, len(self.first), at_once):
            first, second = self.first[t : t + at_once], self.second[t : t + at_once]
            sums = np.empty((len(first), n_codes**2, n_columns))
            n_workers = workers_for(len(first), values.size * len(first), self.n_threads)
            queue = np.zeros(1, np.int64)
            arguments = self.codes, n_codes, first, second, values, queue, sums
            in_parallel(pl_kernels.pair_tables, arguments, n_workers)
            products = (self._cross_products @ sums).reshape(-1, size, size, n_columns)
            g, h = columns[first][:, :, None], columns[second][:, None, :]
            out[g, h] = products
            out[h, g] = products
            with_first = sums[: np.count_nonzero(first == 0)]
            if len(with_first):
                both = np.zeros((len(with_first), 1 + 2 * size), np.int64)
                both[:, 1 : 1 + size] = columns[0]
                both[:, 1 + size :] = columns[second[: len(with_first)]]
                products = (self._all_products @ with_first).reshape(
                    *both.shape, both.shape[1], n_columns
                )
                out[both[:, :, None], both[:, None, :]] = products
        return out[: self.n_units + 1, : self.n_units + 1]
