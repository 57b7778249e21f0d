"""Learning from rows that are spread over machines: one gradient, made of chunks of rows.

The unit of work is a chunk of a fixed number of rows, and chunks are added in their order. So the
result is a function of the data, however the rows are split and whoever computed what, or computed
it twice because a worker was lost.
"""

import numpy as np

from fastmf._common import arguments as check
from fastmf.distributed._rows import blocks, is_dask
from fastmf.learning.layered.family import LAYERED_FAMILY
from fastmf.learning.layered.step import apply, batch_gradient
from fastmf.learning.training import trainer
from fastmf.learning.training.ascent import State
from fastmf.learning.training.parameters import ModelParameters
from fastmf.models._layered import check_layered


def train(model, X, settings, *, chunk_rows=256, n_threads=1, validation=None, **options):
    """Climb the log-likelihood of the rows of a Dask array, each chunk where there is room.

    Parameters
    ----------
    model : RBM or DBM
        Where to start.
    X : Dask array of shape (n_rows, n_visible)
        Persist it, or every batch is read anew.
    settings : fastmf.learning.layered.settings.LayeredSettings
        With a `batch_size` of several chunks, or there is nothing to share. Solutions and chains
        start anew at each chunk: `n_starts` must be None and nothing can be persistent.
    chunk_rows : int, default 256
        Rows whose gradient is one task. The result depends on it, but not on the blocks of `X`,
        nor on the number of workers, of their threads, or of those that were lost.
    n_threads : int, default 1
        Of each task.
    validation : array or Dask array, optional
        Metrics are computed on it in this process, as on the monitored rows of `X`.
    **options
        `seed`, `callbacks` and `verbose` of `fastmf.learning.training.trainer.RunOptions`.

    Returns
    -------
    State
        `state.model` is the trained model.

    Raises
    ------
    TypeError
        For a model that is no RBM or DBM, data that are no Dask array, or of another type.
    ValueError
        For settings that chunks cannot have, and rows that are not finite, when they are met.
    FloatingPointError
        If learning diverges.

    Notes
    -----
    The average over a batch is that over its chunks weighted by their rows: with starts at the
    data it is that of `fastmf.learning.training.trainer.train` up to rounding; with noise the draws
    differ.
    """
    check_layered(model)
    if not is_dask(X):
        raise TypeError(f"X must be a Dask array, got {type(X).__name__}.")
    if X.dtype != model.dtype:
        raise TypeError(f"X must be of the model's type {model.dtype}, got {X.dtype}.")
    n_visible = model.sizes[0]
    if X.ndim != 2 or X.shape[1] != n_visible or not X.shape[0]:
        raise ValueError(f"X must have shape (n_rows, {n_visible}), got {X.shape}.")
    if np.isnan(X.shape[0]):
        raise ValueError("X must have rows of a known number: X.compute_chunk_sizes() counts them.")
    check.count("chunk_rows", chunk_rows)
    if settings.n_starts is not None:
        raise ValueError(f"n_starts must be None in chunks, got {settings.n_starts}.")
    if settings.gradient == "pcd" or settings.starts == "persistent":
        raise ValueError(
            "persistent chains and solutions belong to one process: use gradient='cd', or starts "
            "at data or noise."
        )
    if options.get("checkpoint") is not None:
        raise ValueError("checkpoint is not offered for Dask arrays: save from a callback.")

    def step(state, batch, settings, rate, rng, n_threads):
        gradient, means = _gradient(state, batch, settings, rng, chunk_rows, n_threads)
        apply(state, gradient, means, settings, rate, n_threads)

    def metrics(state, monitored, *others):
        return LAYERED_FAMILY.metrics(state, monitored.compute(), *others)

    family = LAYERED_FAMILY._replace(step=step, metrics=metrics)
    validation = validation.compute() if is_dask(validation) else validation
    validation = check.rows("validation", validation, n_visible, model.dtype)
    return trainer.train(
        model, X.rechunk({1: -1}), settings, family, validation=validation, n_threads=n_threads,
        **options,
    )  # fmt: skip


def _gradient(state, batch, settings, rng, chunk_rows, n_threads):
    """Gradient and means of a batch: those of its chunks, added in their order."""
    import dask

    chunks = batch.rechunk({0: chunk_rows})
    here = dask.delayed(State(state.model, ModelParameters()), traverse=False)
    one = dask.delayed(_gradient_of_chunk, pure=False)
    parts = [
        one(here, chunk, settings, own, n_threads)
        for chunk, own in zip(blocks(chunks), rng.spawn(chunks.numblocks[0]), strict=True)
    ]
    fractions = np.array(chunks.chunks[0]) / len(batch)
    total = ModelParameters.of(state.model).combine(lambda w: np.zeros(w.shape))
    gradients, means = zip(*dask.compute(*parts), strict=True)
    for fraction, part in zip(fractions, gradients, strict=True):
        total = total.combine(lambda t, g, fraction=fraction: t + fraction * g, part)
    return total, [fractions @ np.stack(of_layer) for of_layer in zip(*means, strict=True)]


def _gradient_of_chunk(state, chunk, *arguments):
    """The same of one chunk, where its rows are seen for the first time."""
    if not np.isfinite(chunk).all():
        raise ValueError("X must be finite, got NaN or infinity.")
    return batch_gradient(state, chunk, *arguments)
