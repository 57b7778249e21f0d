"""Learning from the rows of Dask arrays: the gradient of a batch is a sum over chunks of rows.

Chunks have a fixed number of rows, and their gradients are added in order. So the result does not
depend on the blocks of the array, on the workers, or on tasks that run twice as a worker was lost.
"""

import numpy as np

from fastmf._common import arguments as check
from fastmf._common.rows import is_dask
from fastmf.distributed._rows import blocks
from fastmf.learning.layered.step import Plan
from fastmf.learning.training import trainer
from fastmf.learning.training.ascent import State
from fastmf.learning.training.parameters import ModelParameters
from fastmf.models._layered import check_layered


def train(model, X, settings, *, chunk_rows=256, n_threads=1, validation=None, **options):
    """Maximise the log-likelihood of the rows of a Dask array, each chunk of rows as one task.

    Parameters
    ----------
    model : RBM or DBM
        The initial parameters.
    X : Dask array of shape (n_rows, n_visible)
        To be persisted, or every batch is read again.
    settings : LayeredSettings
        With a `batch_size` of several chunks, or only one task runs at a time. Solutions and Gibbs
        chains start anew in each chunk: `n_starts` must be None, and persistent chains or solutions
        are not possible.
    chunk_rows : int, default 256
        Rows whose gradient is one task. The result depends on it, but not on the blocks of `X`, on
        the number of workers and threads, or on workers that were lost.
    n_threads : int, default 1
        Threads of each task.
    validation : array or Dask array, optional
        Metrics are computed on it in this process, as on the monitored rows of `X`.
    **options
        `seed`, `callbacks` and `verbose` of `fastmf.learning.training.settings.RunOptions`.

    Returns
    -------
    State
        `state.model` is the trained model. To have an estimator, call `fastmf.distributed.fit`.

    Raises
    ------
    TypeError
        If the model is not an RBM or DBM, or X not a Dask array of its type.
    ValueError
        For settings that are not possible in chunks, and for rows that are not finite, when they
        are read.
    FloatingPointError
        If learning diverges.

    Notes
    -----
    The gradient of a batch is the average over its chunks, weighted by their numbers of rows. With
    starts at the data it is that of `fastmf.learning.training.trainer.train` up to rounding; with
    starts at noise the random draws differ.

    Examples
    --------
    >>> import dask.array as da, numpy as np, fastmf as mf
    >>> X = (np.random.default_rng(0).random((100, 6)) < 0.3).astype(float)
    >>> X = da.from_array(X, chunks=(50, 6))
    >>> model = mf.RBM(np.zeros((6, 3)), mf.Bernoulli(np.zeros(6)), mf.Bernoulli(np.zeros(3)))
    >>> settings = mf.distributed.LayeredSettings(n_epochs=2, batch_size=100)
    >>> state = mf.distributed.train(model, X, settings)
    >>> state.epoch
    2
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
            "persistent chains and solutions are not possible in chunks: use gradient='cd', or "
            "starts at data or noise."
        )
    if options.get("checkpoint") is not None:
        raise ValueError("checkpoint is not offered for Dask arrays: save from a callback.")

    validation = validation.compute() if is_dask(validation) else validation
    validation = check.rows("validation", validation, n_visible, model.dtype)
    plan = _ChunkedPlan(model, settings, n_threads, chunk_rows)
    return trainer.train(model, X.rechunk({1: -1}), plan, validation=validation, **options)


class _ChunkedPlan(Plan):
    """Steps along gradients that are computed in chunks of rows."""

    draw = None  # missing values are refused

    def __init__(self, model, settings, n_threads, chunk_rows):
        super().__init__(model, settings, n_threads)
        self._chunk_rows = chunk_rows

    def gradient(self, state, X, rng):
        """Gradient and moments of a batch: sums over its chunks, in their order."""
        return _gradient(state, X, self.settings, rng, self._chunk_rows, self.n_threads)

    def metrics(self, state, monitored, validation, weights=None):
        """Log-likelihoods per unit."""
        return super().metrics(state, monitored.compute(), validation, weights)

    def prepare(self, state, X):
        """Estimate the preconditioners of a state anew."""
        super().prepare(state, X.compute())


def _gradient(state, batch, settings, rng, chunk_rows, n_threads):
    """Gradient and moments of a batch: sums over its chunks, in their order."""
    import dask

    chunks = batch.rechunk({0: chunk_rows})
    start = dask.delayed(State(state.model, ModelParameters()), traverse=False)
    task = dask.delayed(_chunk_gradient, pure=False)
    parts = [
        task(start, chunk, settings, chunk_rng, n_threads)
        for chunk, chunk_rng in zip(blocks(chunks), rng.spawn(chunks.numblocks[0]), strict=True)
    ]
    fractions = np.array(chunks.chunks[0]) / len(batch)
    total = ModelParameters.of(state.model).combine(lambda w: np.zeros(w.shape))
    gradients, *moments = zip(*dask.compute(*parts), strict=True)
    for fraction, part in zip(fractions, gradients, strict=True):
        total = total.combine(lambda t, g, fraction=fraction: t + fraction * g, part)

    def average(*of_chunks):
        if of_chunks[0] is None:
            return None
        flat = np.stack([part.ravel() for part in of_chunks])
        return (fractions @ flat).reshape(of_chunks[0].shape)

    return total, *(list(map(average, *kind)) for kind in moments)


def _chunk_gradient(state, chunk, settings, rng, n_threads):
    """Gradient and moments of one chunk, whose rows are checked here, where they are first read."""
    if not np.isfinite(chunk).all():
        raise ValueError(
            "X must be finite, got NaN or infinity: missing values need an array in memory, as "
            "X.compute() is."
        )
    return Plan(state.model, settings, n_threads).gradient(state, chunk, rng)
