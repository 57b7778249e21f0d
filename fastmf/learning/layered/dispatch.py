"""Which path the steps of learning a layered machine take: compiled, many in a call, or general.

The logger "fastmf" says which, at level INFO, and what the compiled path lacks.
"""

import numpy as np

from fastmf._common.rows import blocks, is_sparse
from fastmf._jit.messages import LOGGER
from fastmf._threads.workers import workers_for
from fastmf.inference.sampling.gibbs import even_layers
from fastmf.learning.layered.compiled_steps import CompiledSteps, phases_of
from fastmf.learning.layered.general_step import is_solved, step
from fastmf.learning.layered.gradients import MEAN_FIELD
from fastmf.learning.layered.phases import Problem
from fastmf.learning.layered.starts import starts
from fastmf.models._layered import is_integrated
from fastmf.priors._groups import has_groups
from fastmf.priors._queries import unbounded
from fastmf.priors._rows import few_stored, states


def lacking(model, X, settings):
    """Requirements of compiled steps that are not met, in words: a list."""
    if not (isinstance(X, np.ndarray) or is_sparse(X)):
        return ["rows in memory"]
    problem = Problem(model, settings, _is_sparse(model, X))
    found = [phase.requires(problem) for phase in phases_of(problem)]
    return [text for required in found for text, met in required.items() if not met]


def _is_sparse(model, X):
    return few_stored(X) and not has_groups(model.layers[0])


def steps(model, X, settings, n_threads=None):
    """A function that takes many steps in one call, or None: see `Family.steps`."""
    missing = lacking(model, X, settings)
    if missing:
        LOGGER.info("steps of learning take the general path; compiled ones require %s",
                    ", ".join(missing))  # fmt: skip
        return None
    LOGGER.info("steps of learning are compiled")
    sparse = _is_sparse(model, X)
    by_size = {}
    as_given = is_sparse(X) or X.dtype.kind != "f" or has_groups(model.layers[0])
    if sparse:
        X = X.astype(model.dtype, copy=False)
    elif not as_given:
        X = np.ascontiguousarray(X, model.dtype)
    # Entries of a row that are copied for each batch: none of an array that is used as it is.
    n_entries = X.nnz // X.shape[0] if sparse else as_given * model.sizes[0]

    def take(state, rows, rngs, rates):
        for some in blocks(len(rows), rows.size * n_entries):
            data, here = X, rows[some]
            if as_given and not sparse:
                data = states(model.layers[0], X[here.ravel()], model.dtype)
                here = np.arange(here.size).reshape(here.shape)
            take_rows(state, data, here, rngs[some], rates[some])

    def take_rows(state, X, rows, rngs, rates):
        if settings.gradient == "pcd" and not state.chains:
            n_starts = settings.n_starts or rows.shape[1]
            visible = starts("data", state.model, X[rows[0]], n_starts, 0.0, None)
            state.chains = (even_layers(state.model, visible, rngs[0]),)
        goes_on = state.chains and Problem(model, settings, sparse).persistent
        n_starts = len(state.chains[0]) if goes_on else settings.n_starts or rows.shape[1]
        key = rows.shape[1], n_starts
        if key not in by_size:
            n_rows, work = max(key), 10 * max(key) * sum(w.size for w in state.model.couplings)
            n_workers = workers_for(-(-n_rows // 4), work, n_threads)
            by_size[key] = CompiledSteps(state.model, X, settings, *key, n_workers)
        samples = settings.gradient not in MEAN_FIELD
        seeds = [rng.integers(2**64, dtype=np.uint64) if samples else 0 for rng in rngs]
        by_size[key].X = X
        by_size[key].take(state, rows, seeds, rates)

    may_fail = any(unbounded(p).any() for p in model.layers) and not is_integrated(model)
    if settings.gradient in MEAN_FIELD and may_fail:
        return _while_solved(take, X, settings, n_threads)
    return take


def _while_solved(take, X, settings, n_threads):
    """Steps in the general path, one by one, where mean-field iterations have no moments."""

    def take_each(state, rows, rngs, rates):
        for k in range(len(rows)):
            if is_solved(state, settings):
                take(state, rows[k : k + 1], rngs[k : k + 1], rates[k : k + 1])
            else:
                step(state, X[rows[k]], settings, rates[k], rngs[k], n_threads)

    return take_each
