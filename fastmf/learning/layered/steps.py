"""Many steps of learning an RBM at once, where that is possible."""

import numpy as np

from fastmf._common.rows import blocks, is_sparse
from fastmf._threads import workers_for
from fastmf.learning.layered.gradients import MEAN_FIELD
from fastmf.learning.layered.steps_of_fields import StepsOfFields, is_persistent
from fastmf.learning.layered.steps_of_parameters import StepsOfParameters
from fastmf.models import RBM
from fastmf.priors import Bernoulli, Ising
from fastmf.priors._domain import has_average_gradient
from fastmf.priors._rows import few_stored, states


def steps(model, X, settings, n_threads=None):
    """A function that takes many steps in one call, or None: see `Family.steps`."""
    sparse = few_stored(X)
    kind = _kind_of_steps(model, X, settings, sparse)
    if kind is None:
        return None
    by_size = {}
    as_given = is_sparse(X) or X.dtype.kind != "f"
    if sparse:
        X = X.astype(model.dtype, copy=False)
    elif not as_given:
        X = np.ascontiguousarray(X, model.dtype)
    # Those of a row of a batch that are copied: none of an array that is used as it is.
    n_entries = X.nnz // X.shape[0] if sparse else as_given * X.shape[1]

    def take(state, rows, rngs, rate):
        for some in blocks(len(rows), rows.size * n_entries):
            data, here = X, rows[some]
            if as_given and not sparse:
                data = states(model.layers[0], X[here.ravel()], model.dtype)
                here = np.arange(here.size).reshape(here.shape)
            take_rows(state, data, here, rngs[some], rate)

    def take_rows(state, X, rows, rngs, rate):
        persistent = state.chains and is_persistent(settings)
        n_starts = len(state.chains[0]) if persistent else settings.n_starts or rows.shape[1]
        key = rows.shape[1], n_starts
        if key not in by_size:
            n_rows, work = max(key), 10 * max(key) * state.model.weights.size
            n_workers = workers_for(-(-n_rows // 4), work, n_threads)
            by_size[key] = kind(state.model, X, settings, *key, n_workers)
        samples = settings.gradient not in MEAN_FIELD
        seeds = [rng.integers(2**64, dtype=np.uint64) if samples else 0 for rng in rngs]
        by_size[key].X = X
        by_size[key].take(state, rows, seeds, rate)

    return take


def _kind_of_steps(model, X, settings, sparse):
    """The class of steps that suits, or None."""
    suits = (
        isinstance(model, RBM)
        and (isinstance(X, np.ndarray) or is_sparse(X))
        and settings.gradient != "adaptive_tap"
        and (settings.gradient not in MEAN_FIELD or settings.starts in ("data", "persistent"))
    )
    if suits and all(type(prior) in (Bernoulli, Ising) for prior in model.layers):
        return StepsOfFields
    # The samplers of other units are not compiled into steps, and they have no third order.
    suits = suits and settings.gradient in ("mean_field", "tap") and not sparse
    return StepsOfParameters if suits and all(map(has_average_gradient, model.layers)) else None
