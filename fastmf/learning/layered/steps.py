"""Many steps of learning a layered machine at once, where that is possible."""

import numpy as np

from fastmf._common.rows import blocks, is_sparse
from fastmf._threads.workers import workers_for
from fastmf.inference.mean_field.gaussian_layers import is_integrated
from fastmf.inference.sampling.gibbs import even_layers
from fastmf.learning.layered.gradients import MEAN_FIELD
from fastmf.learning.layered.starts import starts
from fastmf.learning.layered.step import is_solved, step
from fastmf.learning.layered.steps_of_deep import StepsOfDeep
from fastmf.learning.layered.steps_of_fields import StepsOfFields, is_persistent
from fastmf.learning.layered.steps_of_groups import StepsOfGroups
from fastmf.learning.layered.steps_of_parameters import StepsOfParameters
from fastmf.models.dbm import machine_of
from fastmf.priors import Bernoulli, Ising
from fastmf.priors._domain import has_average_gradient, unbounded
from fastmf.priors._groups import has_groups
from fastmf.priors._protocol import can_draw, has_third_cumulant
from fastmf.priors._rows import few_stored, states


def steps(model, X, settings, n_threads=None):
    """A function that takes many steps in one call, or None: see `Family.steps`."""
    sparse = few_stored(X) and not has_groups(model.layers[0])
    kind = _kind_of_steps(model, X, settings, sparse)
    if kind is None:
        return None
    by_size = {}
    as_given = is_sparse(X) or X.dtype.kind != "f" or has_groups(model.layers[0])
    if sparse:
        X = X.astype(model.dtype, copy=False)
    elif not as_given:
        X = np.ascontiguousarray(X, model.dtype)
    # Those of a row of a batch that are copied: none of an array that is used as it is.
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
        persistent = state.chains and is_persistent(settings)
        n_starts = len(state.chains[0]) if persistent else settings.n_starts or rows.shape[1]
        key = rows.shape[1], n_starts
        if key not in by_size:
            n_rows, work = max(key), 10 * max(key) * sum(w.size for w in state.model.couplings)
            n_workers = workers_for(-(-n_rows // 4), work, n_threads)
            by_size[key] = kind(state.model, X, settings, *key, n_workers)
        samples = settings.gradient not in MEAN_FIELD
        seeds = [rng.integers(2**64, dtype=np.uint64) if samples else 0 for rng in rngs]
        by_size[key].X = X
        by_size[key].take(state, rows, seeds, rates)

    if settings.gradient in MEAN_FIELD and any(unbounded(p).any() for p in model.layers):
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


def _kind_of_steps(model, X, settings, sparse):
    """The class of steps that suits, or None."""
    mean_field = settings.gradient in MEAN_FIELD
    if (
        not (isinstance(X, np.ndarray) or is_sparse(X))
        or settings.gradient in ("adaptive_tap", "exact")
        or (mean_field and is_integrated(model))
        or (model.deep and is_integrated(machine_of(model.couplings[1:], model.layers[1:])))
        or (mean_field and settings.starts not in ("data", "persistent"))
    ):
        return None
    binary = all(type(prior) in (Bernoulli, Ising) for prior in model.layers)
    if binary and not model.deep:
        return StepsOfFields
    # Contrastive divergence of deep machines draws the starts of deeper layers.
    if sparse or (model.deep and settings.gradient == "cd"):
        return None
    # Without a third order solvers raise.
    third = settings.gradient != "tap3" or all(map(has_third_cumulant, model.layers))
    suits = third if mean_field else all(map(can_draw, model.layers))
    if not suits or not all(map(has_average_gradient, model.layers)):
        return None
    if mean_field and any(map(has_groups, model.layers)):
        return None if model.deep or settings.gradient == "tap3" else StepsOfGroups
    return StepsOfDeep if model.deep else StepsOfParameters
