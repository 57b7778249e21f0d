"""Cases of Hamming distances: rows of labels, many of them alike."""

import numpy as np

from fastmf.kernels.pseudo_likelihood.hamming import padded
from kernel_cases.case import Case, chosen


def labels_of(size, rows=None):
    """Rows that descend from a few ancestors; more columns than are compared at a time."""
    rng = np.random.default_rng(6)
    ancestors = rng.integers(1, 5, size=(4, 5 * size.n_visible))
    labels = ancestors[rng.integers(4, size=size.n_rows)]
    changed = rng.random(labels.shape) < 0.2 * rng.random((size.n_rows, 1))
    labels[changed] = rng.integers(0, 5, size=changed.sum())
    return padded(labels[chosen(rows, size.n_rows)])


def count_arguments(size, dtype, rows=None):
    """Arguments of `count_similar`."""
    labels = labels_of(size, rows)
    repeats, counts = 1 + np.arange(len(labels)) % 3, np.zeros((8, len(labels)), np.int64)
    return labels, repeats, size.n_visible, np.zeros(2, np.int64), counts


def tree_arguments(size, dtype, rows=None):
    """Arguments of `spanning_trees`: two forests, whose trees have several roots."""
    labels = labels_of(size, rows)
    n = len(labels)
    sizes = np.full(n, 2 * size.n_visible)
    order, parents = np.zeros(n, np.int64), np.zeros(n, np.int64)
    return labels, sizes, 5, np.zeros(1, np.int64), order, parents, np.zeros((2, n), np.int64)


def _trees(arguments):
    labels, sizes, forest_rows, _, order, parents, _ = arguments
    steps = [
        sizes[i] if p < 0 else 2 * (labels[i] != labels[p]).sum() for i, p in enumerate(parents)
    ]
    # Ties may be broken in any way: the total cost of each tree is what is least.
    totals = np.add.reduceat(steps, range(0, len(labels), forest_rows))
    return {"cost": totals, "reached": np.sort(order)}


CASES = [
    Case("pseudo_likelihood.hamming.count_similar", "rows", count_arguments,
         lambda arguments: {"counts": arguments[-1].sum(0)}, {"float64": 0}, large=True),
    Case("pseudo_likelihood.hamming.spanning_trees", "forests", tree_arguments, _trees,
         {"float64": 0}, large=True),
]  # fmt: skip
