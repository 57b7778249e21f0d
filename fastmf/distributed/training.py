"""Learning from the rows of Dask arrays: the gradient of a batch is a sum over chunks of rows.

Chunks have a fixed number of rows, and their gradients are added in order. So the result does not
depend on the blocks of the array, on the workers, or on tasks that run twice as a worker was lost.
"""

from dataclasses import replace

import numpy as np

from fastmf._common import arguments as check
from fastmf._common.rows import is_dask, present_rows, row_blocks
from fastmf.distributed.inference import blocks, checked_dask, of_rows
from fastmf.learning.layered.gradients import summed
from fastmf.learning.layered.scaling import scaling_of
from fastmf.learning.layered.step import Plan
from fastmf.learning.training import trainer
from fastmf.learning.training.ascent import initial_state
from fastmf.learning.training.checkpoint import Checkpoint
from fastmf.learning.training.parameters import ModelParameters
from fastmf.models._checks import states_of


def train(model, X, settings, *, chunk_rows, n_threads, validation=None, **options):
    """Maximise the log-likelihood of the rows of a Dask array, each chunk of rows as one task."""
    check.count("chunk_rows", chunk_rows)
    if settings.n_starts is not None:
        raise ValueError(f"n_starts must be None in chunks, got {settings.n_starts}.")
    if settings.gradient == "pcd" or settings.starts == "persistent":
        raise ValueError(
            "persistent chains and solutions are not possible in chunks: use gradient='cd', or "
            "starts at data or noise."
        )
    if Checkpoint.path_in(options.get("callbacks", ())) is not None:
        raise ValueError("checkpoints are not offered for Dask arrays: save from a callback.")
    validation = validation.compute() if is_dask(validation) else validation
    validation = check.rows("validation_data", validation, model.sizes[0], model.dtype)
    plan = _ChunkedPlan(model, settings, n_threads, chunk_rows)
    return trainer.train(model, X.rechunk({1: -1}), plan, validation=validation, **options)


class _ChunkedPlan(Plan):
    """Steps along gradients that are computed in chunks of rows."""

    draw = None  # type: ignore[assignment]  # missing values are refused

    def __init__(self, model, settings, n_threads, chunk_rows):
        super().__init__(model, settings, n_threads)
        self._chunk_rows = chunk_rows

    def gradient(self, state, X, rng):
        """Gradient and moments of a batch: sums over its chunks, in their order."""
        import dask

        chunks = X.rechunk({0: self._chunk_rows})
        model = dask.delayed(state.model, traverse=False)
        task = dask.delayed(_chunk_gradient, pure=False)
        generators = rng.spawn(chunks.numblocks[0])
        parts = [
            task(model, chunk, self.settings, generator, self.n_threads)
            for chunk, generator in zip(blocks(chunks), generators, strict=True)
        ]
        fractions = np.array(chunks.chunks[0]) / len(X)
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

    def metrics(self, state, monitored, validation, weights=None):
        """Log-likelihoods per unit."""
        return super().metrics(state, monitored.compute(), validation, weights)

    def prepare(self, state, X):
        """Estimate the preconditioners of a state anew."""
        super().prepare(state, X.compute())


def _chunk_gradient(model, chunk, settings, rng, n_threads):
    """Gradient and moments of one chunk, whose rows are checked when they are first read."""
    if not np.isfinite(chunk).all():
        raise ValueError(
            "X must be finite, got NaN or infinity: missing values need an array in memory, as "
            "X.compute() is."
        )
    state = initial_state(model)
    terms, *moments = Plan(model, settings, n_threads).gradient(state, chunk, rng)
    return summed(terms, state.model), *moments


def fit(
    estimator, X, *, validation_data=None, sample_weight=None, chunk_rows=256, n_threads=1
):  # fmt: skip
    """Fit a machine with hidden units to the rows of a Dask array, a chunk of rows as one task.

    The estimators' method `fit` does the same when it is given a Dask array.

    Parameters
    ----------
    estimator : GeneralizedRBM or DeepBoltzmannMachine
        Persistent chains ("pcd"), `n_starts`, checkpoints and `early_stopping` are not possible;
        a deep machine has no pre-training.
    X : Dask array of shape (n_rows, n_features)
        Complete rows; to be persisted, or every batch is read again.
    validation_data : array or Dask array, optional
        Data whose log-likelihood is computed after each epoch, in this process.
    sample_weight : array or Dask array of shape (n_rows,), optional
        As in the estimator's method; it is loaded.
    chunk_rows : int, default 256
        Rows of one task; choose a `batch_size` of several chunks.
    n_threads : int, default 1
        Threads of each task.

    Returns
    -------
    estimator
        Fitted.

    Raises
    ------
    TypeError, ValueError
        If `X` is no Dask array, for options that are not possible in chunks, and for rows that are
        not finite.

    Notes
    -----
    Visible units are first fitted to the first rows, of four million values together, from which
    `starts_` and the default step size are taken, too: rows should be in random order.
    Defaults and scores agree with rows in memory, except that gradient "auto" is "cd" in the place
    of "pcd". Where it is "exact", all rows are loaded, at most 2^28 / n_components values.

    Examples
    --------
    >>> import dask.array as da, numpy as np, fastmf as mf
    >>> X = (np.random.default_rng(0).random((400, 6)) < 0.3).astype(float)
    >>> rbm = mf.GeneralizedRBM(3, n_epochs=2, batch_size=200, random_state=0)
    >>> rbm = mf.distributed.fit(rbm, da.from_array(X, chunks=(100, 6)))
    >>> rbm.transform(X).shape, rbm.n_iter_
    ((400, 3), 2)
    """
    X = checked_dask("X", X, known_sizes=True)
    if estimator.early_stopping:
        raise ValueError("early_stopping is not possible with a Dask array: leave it out.")
    weights = None if sample_weight is None else np.asarray(sample_weight)
    X, weights = present_rows(X, check.row_weights(weights, len(X)))
    settings = estimator._settings()
    begin = {"n_epochs": 0, "verbose": 0, "callbacks": None}
    if hasattr(estimator, "pretraining_epochs"):
        begin["pretraining_epochs"] = 0
    options = {name: getattr(estimator, name) for name in begin}
    first = X[row_blocks(X)[0]].compute()
    try:
        of_first = None if weights is None else weights[: len(first)]
        estimator.set_params(**begin).fit(first, sample_weight=of_first)
    finally:
        estimator.set_params(**options)
    model = estimator.model_
    scaling = scaling_of(estimator.pointwise_, model, False, estimator.centred)
    scaled, rows = scaling.model(model), _states(X, model)
    first = scaling.data(first, model.dtype)
    settings = estimator._with_steps(settings, scaled, first, of_first, len(X))
    if estimator.gradient == "auto" and settings.gradient == "exact":
        X, options = X.compute(), {"sample_weight": weights}
        return estimator.fit(X, validation_data=validation_data, **options)
    if estimator.gradient == "auto" and settings.gradient == "pcd":
        settings = replace(settings, gradient="cd")
    rows = rows.map_blocks(scaling.data, model.dtype, dtype=model.dtype)
    if validation_data is not None:
        if scaled.sizes[0] != X.shape[1]:
            validation_data = states_of("validation_data", model.layers[0], validation_data)
        validation_data = scaling.data(np.asarray(validation_data, model.dtype), model.dtype)
    state = train(
        scaled, rows, settings, chunk_rows=chunk_rows, n_threads=n_threads, weights=weights,
        validation=validation_data, seed=_seed(estimator), verbose=int(estimator.verbose),
        callbacks=tuple(estimator.callbacks or ()),
    )  # fmt: skip
    estimator.model_ = scaling.undone(state.model)
    estimator.history_, estimator.n_iter_ = state.history, state.epoch
    estimator.gradient_ = settings.gradient
    return estimator


def transform(estimator, X):
    """Compute means of the hidden units given the rows of a Dask array, lazily.

    Parameters
    ----------
    estimator : GeneralizedRBM or DeepBoltzmannMachine
        Fitted.
    X : Dask array of shape (n_rows, n_features)

    Returns
    -------
    Dask array of shape (n_rows, n_components)
        With the blocks of rows of `X`.

    Examples
    --------
    >>> import dask.array as da, numpy as np, fastmf as mf
    >>> X = (np.random.default_rng(0).random((100, 6)) < 0.3).astype(float)
    >>> rbm = mf.GeneralizedRBM(3, n_epochs=2, random_state=0).fit(X)
    >>> features = mf.distributed.transform(rbm, da.from_array(X, chunks=(50, 6)))
    >>> np.allclose(features.compute(), rbm.transform(X))
    True
    """
    n_features = len(estimator.get_feature_names_out())
    return of_rows(checked_dask("X", X), estimator.transform, n_features, estimator.model_.dtype)


def _states(X, model):
    """Lazy rows as values of all units; labels of categorical ones become states."""
    width, rows = model.sizes[0], X.astype(model.dtype)
    if X.shape[1] == width:
        return rows
    return of_rows(rows, lambda block: states_of("X", model.layers[0], block), width, model.dtype)


def _seed(estimator):
    """The seed that the estimator's method `fit` draws."""
    state = estimator.random_state
    if state is None:
        return None
    state = state if hasattr(state, "randint") else np.random.RandomState(state)
    return int(state.randint(2**31 - 1))
