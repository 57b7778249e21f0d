"""Products of the matrices of a batch, on several threads."""

import numpy as np

from fastmf._threads.workers import for_each, workers_for

# Columns of one task: the product of a batch with so many takes longer than to call it.
TASK_COLUMNS = 128


def products_over_rows(factors, n_threads=None):
    """Products a' b of several pairs of matrices, sums over their rows.

    BLAS should be limited to one thread meanwhile (see `one_blas_thread`). Tasks do not depend on
    the number of threads, nor does the result.
    """
    found, tasks, work = [], [], 0
    for a, b in factors:
        if hasattr(b, "toarray"):
            found.append(np.asarray((b.T @ a).T, a.dtype))
            continue
        out = np.empty((a.shape[1], b.shape[1]), a.dtype)
        found.append(out)
        work += out.size * len(a)
        for first in range(0, len(out), TASK_COLUMNS):
            columns = slice(first, first + TASK_COLUMNS)
            tasks.append((a[:, columns].T, b, out[columns]))

    def multiply(task):
        left, right, out = task
        np.matmul(left, right, out=out, casting="same_kind")

    for_each(multiply, tasks, workers_for(len(tasks), work, n_threads))
    return found
