"""Solvers by blocks of rows: the results of NumPy arrays, with Dask arrays in their fields."""

import dataclasses

import numpy as np

from fastmf.distributed._rows import blocks, is_dask
from fastmf.inference.belief_propagation import belief_propagation as solve_beliefs
from fastmf.inference.tap import tap as solve_tap

# Wide enough for how a row ended, whatever block it is in.
_MESSAGE = np.dtype("U160")


def tap(model, init=None, *, field=None, n_threads=1, **options):
    """Mean-field fixed points of the rows of Dask arrays: `fastmf.tap` by blocks.

    Parameters
    ----------
    model : RBM, DBM or BoltzmannMachine
    init : Dask array of shape (n_rows, n_units), or what `fastmf.tap` takes for all rows
    field : Dask array of shape (n_rows, n_units), tuple of these, one per layer, or the same
    n_threads : int, default 1
        Of each task: Dask runs several at once.
    **options
        Of `fastmf.tap`.

    Returns
    -------
    FixedPoint
        Its fields are Dask arrays, blocked as the rows are.

    Raises
    ------
    TypeError
        If neither `init` nor `field` has a Dask array.
    ValueError
        For `history`, whose length differs from block to block, and as `fastmf.tap` does.
    """
    return _by_blocks(solve_tap, model, {"init": init, "field": field}, n_threads, options)


def belief_propagation(model, *, field, n_threads=1, **options):
    """Beliefs under rows of fields of Dask arrays: `fastmf.belief_propagation` by blocks.

    Parameters
    ----------
    model : RBM
    field : Dask array of shape (n_rows, n_visible), or pair of these or None
    n_threads : int, default 1
        Of each task: Dask runs several at once.
    **options
        Of `fastmf.belief_propagation`.

    Returns
    -------
    Beliefs
        Its fields are Dask arrays, blocked as the rows are.

    Raises
    ------
    TypeError
        If `field` has no Dask array.
    ValueError
        For `history`, `certificate` and `pairwise="mean"`, which are not of rows, and as
        `fastmf.belief_propagation` does.
    """
    return _by_blocks(solve_beliefs, model, {"field": field}, n_threads, options)


def score_samples(estimator, X, log_partition="log_sum_exp"):
    """Mean-field log-likelihood of each row of a Dask array, under a fitted estimator.

    Parameters
    ----------
    estimator : GeneralizedRBM or DeepBoltzmannMachine
    X : Dask array of shape (n_rows, n_features)
    log_partition : {"log_sum_exp", "mean"} or float
        As in the estimator's method; it is estimated once, at once, in this process.

    Returns
    -------
    Dask array of shape (n_rows,)
        Nats.
    """
    if isinstance(log_partition, str):
        log_partition = estimator.log_partition(log_partition)
    rows = X.rechunk({1: -1})
    return rows.map_blocks(
        estimator.score_samples,
        log_partition=log_partition,
        drop_axis=1,
        dtype=np.float64,
        meta=np.empty(0),
    )


def _leaves(value):
    return value if isinstance(value, tuple | list) else (value,)


def _by_blocks(solver, model, arguments, n_threads, options):
    """The solver's result with lazy fields, each block of rows one task."""
    import dask

    found = [x for value in arguments.values() for x in _leaves(value) if is_dask(x)]
    if not found:
        names = " or ".join(arguments)
        raise TypeError(f"{names} must be a Dask array of rows; fastmf.{solver.__name__} is for "
                        "NumPy arrays.")  # fmt: skip
    for name in ("history", "certificate"):
        if options.get(name):
            raise ValueError(f"{name} must be False: it has no blocks of rows.")
    if options.get("pairwise") == "mean":
        raise ValueError("pairwise='mean' is an average over rows: ask for pairwise=True.")
    if any(x.ndim != 2 or x.shape[0] != found[0].shape[0] for x in found):
        shapes = ", ".join(str(x.shape) for x in found)
        raise ValueError(f"Dask arrays must have two axes and equally many rows, got {shapes}.")
    sizes = found[0].chunks[0]
    aligned = {id(x): blocks(x.rechunk((sizes, -1))) for x in found}
    # One row tells which fields there are, of what types; it also meets bad options at once.
    options = options | {"n_threads": n_threads}
    start = {name: _one_row(value) for name, value in arguments.items()}
    like = solver(model, **start, **(options | {"max_iter": 1}))
    shared = dask.delayed((model, options), traverse=False)
    task = dask.delayed(_solve, pure=False)

    def of_block(value, k):
        if isinstance(value, tuple | list):
            return tuple(of_block(part, k) for part in value)
        return aligned[id(value)][k] if is_dask(value) else value

    results = [
        task(solver, shared, {name: of_block(value, k) for name, value in arguments.items()})
        for k in range(len(sizes))
    ]
    lazy = {
        field.name: _lazy(field.name, getattr(like, field.name), results, sizes)
        for field in dataclasses.fields(like)
    }
    return dataclasses.replace(like, **lazy)


def _one_row(value):
    """A row of zeros for each Dask array."""
    if isinstance(value, tuple | list):
        return tuple(_one_row(part) for part in value)
    return np.zeros((1, value.shape[1]), value.dtype) if is_dask(value) else value


def _solve(solver, shared, arguments):
    model, options = shared
    return solver(model, **arguments, **options)


def _lazy(name, like, results, sizes):
    """One field of the results of all blocks, as a Dask array or a tuple of them."""
    if like is None:
        return None
    if isinstance(like, tuple):
        return tuple(_joined(part, results, sizes, name, k) for k, part in enumerate(like))
    return _joined(like, results, sizes, name)


def _joined(like, results, sizes, name, layer=None):
    import dask
    import dask.array as da

    dtype = _MESSAGE if name == "message" else like.dtype
    pick = dask.delayed(_part, pure=False)
    blocks = [
        da.from_delayed(pick(block, name, layer, dtype), (size, *like.shape[1:]), dtype)
        for size, block in zip(sizes, results, strict=True)
    ]
    return da.concatenate(blocks)


def _part(block, name, layer, dtype):
    value = getattr(block, name)
    return np.asarray(value if layer is None else value[layer], dtype)
