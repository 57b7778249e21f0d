"""The solver BSLM of maximum pseudo-likelihood, by a bound on its curvature."""

import numpy as np

from fastmf._threads.workers import in_parallel, workers_for
from fastmf.kernels.pseudo_likelihood import binary as pl_kernels
from fastmf.kernels.pseudo_likelihood.binary import BSLMData, BSLMSettings, bslm_workspaces
from fastmf.learning.pseudo_likelihood.fit import MAX_ITER, TOLERANCE_ROWS, Fit


def bslm(objective, starts, *, l1=0.0, tol=1e-5, max_iter=10 * MAX_ITER):
    """Maximum by Nguyen & Wood's coordinate updates, from each of several starts."""
    pairs = [objective.unpacked(start) for start in starts]
    couplings, field = (np.stack(arrays) for arrays in zip(*pairs, strict=True))
    history = np.empty((len(starts), max_iter + 1))
    n_iter = np.zeros(len(starts), np.int64)
    data = BSLMData(
        np.ascontiguousarray(objective.states.T),
        np.ascontiguousarray(objective.states.T.astype(np.int8)), objective.weights,
        objective.mean, objective.second, float(objective.total),
    )  # fmt: skip
    settings = BSLMSettings(
        float(l1), float(objective.l2), float(tol) * float(objective.total) / TOLERANCE_ROWS,
        int(max_iter),
        *pl_kernels.bslm_addresses(),
    )  # fmt: skip
    work = len(starts) * 100 * objective.states.size * objective.n_units
    n_workers = workers_for(len(starts), work, objective.n_threads, max_iter)
    workspaces = bslm_workspaces(n_workers, *data.states.shape)
    queue = np.zeros(2, np.int64)
    arguments = data, settings, workspaces, queue, couplings, field, history, n_iter
    in_parallel(pl_kernels.bslm, arguments, n_workers)
    return [
        Fit(objective.packed(J, h), list(values[1 : abs(n) + 1]), bool(n > 0))
        for J, h, values, n in zip(couplings, field, history, n_iter, strict=True)
    ]
