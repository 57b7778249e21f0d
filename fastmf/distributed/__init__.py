"""Inference and learning for the rows of Dask arrays, in one process or on a cluster.

Inference calls `fastmf.tap` for each block of rows, and returns lazy arrays, which are evaluated by
`compute`. Learning uses the loop of `fastmf.learning.training.trainer`, with the gradient of a
batch computed in chunks of rows. Tasks run on the cluster of the current `dask.distributed.Client`,
or in this process without a client.

Chunks have a fixed number of rows, and their gradients are added in order, so that the result does
not depend on the blocks of the array, on the workers, or on the repetition of lost tasks.
"""

import dataclasses
from copy import copy
from functools import partial
from itertools import repeat
from numbers import Integral

import numpy as np

from fastmf._common import arguments as check
from fastmf._common.rows import is_dask, is_sparse, present_rows, row_blocks
from fastmf._outcomes import MESSAGES
from fastmf.inference.fixed_point import FixedPoint
from fastmf.inference.mean_field.tap import tap as solve_tap
from fastmf.learning.layered.data import scaling_of
from fastmf.learning.layered.gradients import summed
from fastmf.learning.layered.settings import LayeredSettings
from fastmf.learning.layered.step import Plan
from fastmf.learning.training import trainer
from fastmf.learning.training.ascent import initial_state
from fastmf.learning.training.trainer import Checkpoint
from fastmf.priors._groups import as_states

__all__ = ["LayeredSettings", "fit", "score_samples", "tap", "transform"]

# All blocks have one dtype for messages, with the width of the longest message.
_MESSAGE = np.dtype(f"U{max(map(len, MESSAGES.values()))}")


def tap(model, init=None, *, field=None, precision=None, clamp=None, n_threads=1, **options):
    """Compute mean-field fixed points of the rows of Dask arrays: `fastmf.tap` by blocks.

    Parameters
    ----------
    model : RBM, DBM or BoltzmannMachine
    init : Dask array of shape (n_rows, n_units), or another `init` of `fastmf.tap`
    field, precision, clamp : Dask array of shape (n_rows, n_units), or tuple, one per layer
        As in `fastmf.tap`. At least one array must be a Dask array; NumPy arrays with the same
        number of rows are divided into the same blocks.
    n_threads : int, default 1
        Threads of each task: Dask runs several at once.
    **options
        Options of `fastmf.tap`, without `history`, whose length differs between blocks.

    Returns
    -------
    FixedPoint
        Its fields are Dask arrays with the blocks of the rows.

    Examples
    --------
    >>> import dask.array as da, numpy as np, fastmf as mf
    >>> model = mf.RBM(np.ones((3, 2)) / 5, mf.Bernoulli(np.zeros(3)), mf.Bernoulli(np.zeros(2)))
    >>> rows = da.from_array(np.eye(3), chunks=(2, 3))
    >>> mf.distributed.tap(model, rows).mean[0].compute().shape
    (3, 3)
    """
    if isinstance(init, Integral):
        raise ValueError(f"init must be an array of starts in blocks of rows, got {init}.")
    if isinstance(init, FixedPoint):
        init = init.mean, init.var
    if options.get("history"):
        raise ValueError("history=True is not possible: it has no blocks of rows.")
    import dask

    arguments = {"init": init, "field": field, "precision": precision, "clamp": clamp}
    leaves: list = []
    _map(leaves.append, tuple(arguments.values()))
    rows = next(filter(is_dask, leaves), None)
    if rows is None:
        names = " or ".join(arguments)
        raise TypeError(f"{names} must be a Dask array of rows; fastmf.tap is for NumPy arrays.")
    if np.isnan(rows.shape[0]):
        raise ValueError("rows must be of a known number: x.compute_chunk_sizes() counts them.")
    arguments = {name: _map(partial(_cut, name, rows), x) for name, x in arguments.items()}
    # Solving one row determines the fields and their dtypes, and raises for invalid options early.
    options = options | {"n_threads": n_threads}
    start = {name: _map(partial(_one_row, name == "clamp"), x) for name, x in arguments.items()}
    template = _solve((model, options | {"max_iter": 1}), start)
    shared = dask.delayed((model, options), traverse=False)
    task = dask.delayed(_solve, pure=False)
    by_block = {
        name: _map(lambda x: iter(blocks(x)) if is_dask(x) else repeat(x), value)
        for name, value in arguments.items()
    }
    results = [
        task(shared, {name: _map(next, value) for name, value in by_block.items()})
        for _ in rows.chunks[0]
    ]
    # Histories are omitted, as their lengths differ between blocks.
    template = dataclasses.replace(template, history=None)
    names = [field.name for field in dataclasses.fields(template) if field.name != "method"]
    lazy = {name: _lazy(getattr(template, name), results, rows.chunks[0], name) for name in names}
    return dataclasses.replace(template, **lazy)


def score_samples(estimator, X, log_partition="auto"):
    """Compute the log-likelihood of each row of a Dask array, lazily.

    Parameters
    ----------
    estimator : GeneralizedRBM or DeepBoltzmannMachine
    X : Dask array of shape (n_rows, n_features)
    log_partition : {"auto", "exact", "log_sum_exp", "mean"} or float
        As in the estimator's method; it is estimated once, immediately, in this process.

    Returns
    -------
    Dask array of shape (n_rows,)
        In nats.

    Examples
    --------
    >>> import dask.array as da, numpy as np, fastmf as mf
    >>> X = (np.random.default_rng(0).random((100, 6)) < 0.3).astype(float)
    >>> rbm = mf.GeneralizedRBM(3, n_epochs=2, random_state=0).fit(X)
    >>> scores = mf.distributed.score_samples(rbm, da.from_array(X, chunks=(50, 6)))
    >>> np.allclose(scores.compute(), rbm.score_samples(X))
    True
    """
    X = checked_dask("X", X)
    value = estimator._log_partition_of_centred(log_partition)
    return of_rows(X, lambda block: estimator._scores(block, value)[:, None], 1)[:, 0]


def of_rows(X, function, n_columns, dtype=np.float64):
    """Apply a function to blocks of rows of a Dask array lazily; shape (n_rows, n_columns)."""

    def apply(block):
        # Blocks may be empty after a selection of rows.
        return np.asarray(function(block) if len(block) else np.empty((0, n_columns)), dtype)

    rows = X.rechunk({1: -1})
    chunks = rows.chunks[0], (n_columns,)
    return rows.map_blocks(apply, dtype=dtype, chunks=chunks, meta=np.empty((0, 0), dtype))


def checked_dask(name, X, known_sizes=False):
    """Return `X` in dense blocks; raise unless it is a Dask array (with sizes, if asked)."""
    if not is_dask(X):
        remedy = ": take its to_dask_array(lengths=True)" if hasattr(X, "to_dask_array") else ""
        raise TypeError(f"{name} must be a Dask array, got {type(X).__name__}{remedy}.")
    if X.ndim != 2 or 0 in X.shape:
        raise ValueError(f"{name} must have shape (n_rows, n_features), got {X.shape}.")
    if known_sizes and not all(size == size for sizes in X.chunks for size in sizes):
        raise ValueError(
            f"{name} must have chunks of known sizes, got shape {X.shape}: call its method "
            "compute_chunk_sizes, or of a Dask data frame to_dask_array(lengths=True)."
        )
    if is_sparse(X._meta):
        return X.map_blocks(lambda block: block.toarray(), meta=np.empty((0, 0), X.dtype))
    return X


def blocks(rows):
    """Return the blocks of an array with chunks along its rows, as delayed tasks."""
    return rows.to_delayed().ravel()


def _map(function, value):
    """Apply a function to an argument, or to the arguments of all layers."""
    if isinstance(value, tuple | list):
        return tuple(_map(function, part) for part in value)
    return function(value)


def _cut(name, rows, value):
    """Return an array of rows as a Dask array with the blocks of `rows`; other values unchanged."""
    import dask.array as da

    if isinstance(value, np.ndarray) and value.ndim == 2 and len(value) > 1:
        value = da.from_array(value)
    if not is_dask(value):
        return value
    if value.ndim != 2 or len(value) != len(rows):
        raise ValueError(
            f"arrays must have two axes and equally many rows, got {name} of shape "
            f"{value.shape} beside {len(rows)} rows."
        )
    return value.rechunk((rows.chunks[0], -1))


def _one_row(missing, value):
    """Return a row of zeros, or of NaN if `missing`, in place of a Dask array."""
    if not is_dask(value):
        return value
    fill = np.nan if missing and value.dtype.kind == "f" else 0
    return np.full((1, value.shape[1]), fill, value.dtype)


def _solve(model_and_options, arguments):
    model, options = model_and_options
    return solve_tap(model, **arguments, **options)


def _lazy(template, results, sizes, name, *layer):
    """Return one field of the results of all blocks, as a Dask array or a tuple of arrays."""
    import dask
    import dask.array as da

    if template is None:
        return None
    if isinstance(template, tuple):
        return tuple(_lazy(part, results, sizes, name, k) for k, part in enumerate(template))
    dtype = _MESSAGE if name == "message" else template.dtype
    pick = dask.delayed(_part, pure=False)
    blocks = [
        da.from_delayed(pick(block, dtype, name, *layer), (size, *template.shape[1:]), dtype)
        for size, block in zip(sizes, results, strict=True)
    ]
    return da.concatenate(blocks)


def _part(block, dtype, name, *layer):
    value = getattr(block, name)
    return np.asarray(value[layer[0]] if layer else value, dtype)


def train(model, X, settings, *, chunk_rows, n_threads, validation=None, **options):
    """Maximise the log-likelihood of the rows of a Dask array, with one task for each chunk."""
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
    """Steps of training with gradients computed in chunks of rows."""

    draw = None  # type: ignore[assignment]  # missing values are not supported

    def __init__(self, model, settings, n_threads, chunk_rows):
        super().__init__(model, settings, n_threads)
        # The kernel that moves fields needs all rows of a batch in memory.
        self._chunk_rows, self.moves_fields = chunk_rows, False

    def gradient(self, state, X, rng):
        """Compute gradient and moments of a batch as averages over its chunks, in order."""
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
        (first, *others), *moments = zip(*dask.compute(*parts), strict=True)

        def average(*of_chunks):
            if of_chunks[0] is None:
                return None
            return sum(share * part for share, part in zip(fractions, of_chunks, strict=True))

        return first.combine(average, *others), *(list(map(average, *kind)) for kind in moments)

    def metrics(self, state, monitored, validation, weights=None):
        """Compute log-likelihoods per unit."""
        return super().metrics(state, monitored.compute(), validation, weights)

    def prepare(self, state, X):
        """Update the preconditioners of a state."""
        super().prepare(state, X.compute())


def _chunk_gradient(model, chunk, settings, rng, n_threads):
    """Compute gradient and moments of a chunk; raise unless its rows are finite."""
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
    """Fit a machine with hidden units to the rows of a Dask array, with one task for each chunk.

    The method `fit` of the estimators calls this function for Dask arrays.

    Parameters
    ----------
    estimator : GeneralizedRBM or DeepBoltzmannMachine
        Persistent chains ("pcd"), `n_starts`, checkpoints and `early_stopping` are not supported;
        deep machines are not pre-trained.
    X : Dask array of shape (n_rows, n_features)
        Rows without missing values. Persist the array, as otherwise each batch is read repeatedly.
    validation_data : array or Dask array, optional
        Data whose log-likelihood is computed after each epoch, in this process.
    sample_weight : array or Dask array of shape (n_rows,), optional
        As in the estimator's method; it is loaded into memory.
    chunk_rows : int, default 256
        Number of rows of a task; `batch_size` should be several times larger.
    n_threads : int, default 1
        Threads of each task.

    Returns
    -------
    estimator
        The fitted estimator.

    Raises
    ------
    TypeError, ValueError
        If `X` is not a Dask array, an option is not supported, or rows are not finite.

    Notes
    -----
    Visible units are initialised from the first rows (four million values), which also determine
    `starts_` and the default step size: rows should be in random order. Defaults and scores are
    those for rows in memory, but gradient "auto" uses "cd" instead of "pcd". If it selects "exact",
    all rows are loaded, at most 2^28 / n_components values; "exact" itself has steps on batches.

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
    first = X[row_blocks(X)[0]].compute()
    first_weights = None if weights is None else weights[: len(first)]
    untrained = copy(estimator).set_params(**begin).fit(first, sample_weight=first_weights)
    estimator.__dict__ = vars(untrained) | {name: getattr(estimator, name) for name in begin}
    model = estimator.model_
    scaling = scaling_of(estimator.pointwise_, model, False, estimator.centred)
    scaled, visible = scaling.model(model), model.layers[0]
    first = scaling.data(first, model.dtype)
    settings = estimator._with_steps(settings, scaled, first, first_weights, len(X))
    if estimator.gradient == "auto" and settings.gradient == "exact":
        return estimator.fit(X.compute(), validation_data=validation_data, sample_weight=weights)
    if estimator.gradient == "auto" and settings.gradient == "pcd":
        settings = dataclasses.replace(settings, gradient="cd")

    def scaled_rows(block, name="X"):
        return scaling.data(as_states(name, visible, block), model.dtype)

    rows = of_rows(X, scaled_rows, model.sizes[0], model.dtype)
    if validation_data is not None:
        validation_data = scaled_rows(np.asarray(validation_data), "validation_data")
    state = train(
        scaled, rows, settings, chunk_rows=chunk_rows, n_threads=n_threads, weights=weights,
        validation=validation_data, seed=estimator._seed(), verbose=int(estimator.verbose),
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
        A fitted estimator.
    X : Dask array of shape (n_rows, n_features)

    Returns
    -------
    Dask array of shape (n_rows, n_components)
        Means, with the blocks of rows of `X`.

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
