"""Mean field and scores of rows of Dask arrays, one task for each block of rows."""

import dataclasses
from functools import partial
from itertools import repeat
from numbers import Integral

import numpy as np

from fastmf._common.rows import is_dask
from fastmf._outcomes import MESSAGES
from fastmf.inference.fixed_point import FixedPoint
from fastmf.inference.mean_field.tap import tap as solve_tap

# One type for all blocks: as wide as the longest message.
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
        Its fields are Dask arrays, blocked as the rows are.

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
    # A solve of one row tells the fields and their types, and raises for invalid options at once.
    options = options | {"n_threads": n_threads}
    start = {name: _map(partial(_one_row, name == "clamp"), x) for name, x in arguments.items()}
    like = _solve((model, options | {"max_iter": 1}), start)
    shared = dask.delayed((model, options), traverse=False)
    task = dask.delayed(_solve, pure=False)
    of_blocks = {
        name: _map(lambda x: iter(blocks(x)) if is_dask(x) else repeat(x), value)
        for name, value in arguments.items()
    }
    results = [
        task(shared, {name: _map(next, value) for name, value in of_blocks.items()})
        for _ in rows.chunks[0]
    ]
    # Histories are as long as the longest row of each block.
    like = dataclasses.replace(like, history=None)
    names = [field.name for field in dataclasses.fields(like) if field.name != "method"]
    lazy = {name: _lazy(getattr(like, name), results, rows.chunks[0], name) for name in names}
    return dataclasses.replace(like, **lazy)


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
        Nats.

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
    if isinstance(log_partition, str):
        log_partition = estimator.log_partition(log_partition)
    scores = of_rows(X, lambda block: estimator.score_samples(block, log_partition)[:, None], 1)
    return scores[:, 0]


def of_rows(X, function, n_columns, dtype=np.float64):
    """Lazy results of a function of the rows of a Dask array, of shape (n_rows, n_columns)."""

    def of_block(block):
        # A selection of rows can leave blocks without rows.
        return np.asarray(function(block) if len(block) else np.empty((0, n_columns)), dtype)

    rows = X.rechunk({1: -1})
    chunks = rows.chunks[0], (n_columns,)
    return rows.map_blocks(of_block, dtype=dtype, chunks=chunks, meta=np.empty((0, 0), dtype))


def checked_dask(name, X, known_sizes=False):
    """Return `X` if it is a Dask array with two axes, and with chunks of known sizes if asked."""
    if not is_dask(X):
        remedy = ": take its to_dask_array(lengths=True)" * hasattr(X, "to_dask_array")
        raise TypeError(f"{name} must be a Dask array, got {type(X).__name__}{remedy}.")
    if X.ndim != 2:
        raise ValueError(f"{name} must have shape (n_rows, n_features), got {X.shape}.")
    if known_sizes and not all(size == size for sizes in X.chunks for size in sizes):
        raise ValueError(
            f"{name} must have chunks of known sizes, got shape {X.shape}: call its method "
            "compute_chunk_sizes, or of a Dask data frame to_dask_array(lengths=True)."
        )
    return X


def blocks(rows):
    """The blocks of an array that is divided along its rows only, each as one task."""
    return rows.to_delayed().ravel()


def _map(function, value):
    """Apply a function to an argument, or to the arguments of all layers."""
    if isinstance(value, tuple | list):
        return tuple(_map(function, part) for part in value)
    return function(value)


def _cut(name, rows, value):
    """Return an array of rows as a Dask array in the blocks of `rows`, and all else as it is."""
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
    """Return a row of zeros, or of NaN if `missing`, for a Dask array."""
    if not is_dask(value):
        return value
    fill = np.nan if missing and value.dtype.kind == "f" else 0
    return np.full((1, value.shape[1]), fill, value.dtype)


def _solve(model_and_options, arguments):
    model, options = model_and_options
    return solve_tap(model, **arguments, **options)


def _lazy(like, results, sizes, name, *layer):
    """One field of the results of all blocks, as a Dask array or a tuple of them."""
    import dask
    import dask.array as da

    if like is None:
        return None
    if isinstance(like, tuple):
        return tuple(_lazy(part, results, sizes, name, k) for k, part in enumerate(like))
    dtype = _MESSAGE if name == "message" else like.dtype
    pick = dask.delayed(_part, pure=False)
    blocks = [
        da.from_delayed(pick(block, dtype, name, *layer), (size, *like.shape[1:]), dtype)
        for size, block in zip(sizes, results, strict=True)
    ]
    return da.concatenate(blocks)


def _part(block, dtype, name, *layer):
    value = getattr(block, name)
    return np.asarray(value[layer[0]] if layer else value, dtype)
