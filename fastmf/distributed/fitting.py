"""Estimators for the rows of Dask arrays: learning, and means of hidden units."""

import numpy as np

from fastmf._common.arguments import count
from fastmf.distributed._rows import checked_dask
from fastmf.distributed.training import train
from fastmf.learning.layered.scaling import scaling_of
from fastmf.learning.layered.settings import MANY_ROWS, LayeredSettings, gradient_for
from fastmf.learning.training.settings import options_of
from fastmf.models._checks import states_of

# Rows to which the units are fitted before learning begins, and which are kept as starts.
MAX_FIRST_ROWS = 10_000


def fit(estimator, X, *, validation_data=None, chunk_rows=256, n_threads=1):
    """Fit a machine with hidden units to the rows of a Dask array, a chunk of rows as one task.

    The method `fit` of these estimators does the same when it is given a Dask array.

    Parameters
    ----------
    estimator : GeneralizedRBM or DeepBoltzmannMachine
        Its options are used. Persistent chains ("pcd"), `n_starts`, `checkpoint` and
        `early_stopping` are not possible; a deep machine has no pre-training.
    X : Dask array of shape (n_rows, n_features)
        Complete rows; to be persisted, or every batch is read again.
    validation_data : array or Dask array, optional
        Data whose log-likelihood is followed, in this process.
    chunk_rows : int, default 256
        Rows of one task; choose a `batch_size` of several chunks.
    n_threads : int, default 1
        Threads of each task.

    Returns
    -------
    estimator
        The same, fitted.

    Raises
    ------
    TypeError
        If `X` is no Dask array.
    ValueError
        For options that are not possible in chunks, and rows that are not finite.

    Notes
    -----
    The first 10,000 rows are loaded: visible units are fitted to them before learning begins, as
    `fit` fits them to all rows, and starts and independent units are theirs. So rows should come in
    no order. `batch_size` and `l2` are 100 and 0.001 where they are None, since a step of few rows
    costs more to hand out than to take.

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
    for name, without in (("early_stopping", False), ("checkpoint", None)):
        if getattr(estimator, name) not in (without, 0):
            raise ValueError(f"{name} is not possible with a Dask array: leave it out.")
    n_epochs = count("n_epochs", estimator.n_epochs, 0)
    begin = {"n_epochs": 0, "verbose": 0}
    if hasattr(estimator, "pretraining_epochs"):
        begin["pretraining_epochs"] = 0
    options = {name: getattr(estimator, name) for name in begin}
    first = X[:MAX_FIRST_ROWS].compute()
    try:
        estimator.set_params(**begin).fit(first)
    finally:
        estimator.set_params(**options)
    model = estimator.model_
    scaling = scaling_of(estimator.pointwise_, model, False)
    scaled, rows = model, _states(X, model)
    if validation_data is not None and scaled.sizes[0] != X.shape[1]:
        validation_data = states_of("validation_data", model.layers[0], validation_data)
    if scaling is not None:
        scaled = scaling.model(model)
        rows = rows.map_blocks(scaling.data, model.dtype, dtype=model.dtype)
        if validation_data is not None:
            validation_data = np.asarray(validation_data, model.dtype)
            validation_data = scaling.data(validation_data, model.dtype)
    settings = _settings(estimator, scaled, n_epochs, len(first))
    state = train(
        scaled, rows, settings, chunk_rows=chunk_rows, n_threads=n_threads,
        validation=validation_data, seed=_seed(estimator), verbose=int(estimator.verbose),
        callbacks=tuple(estimator.callbacks or ()),
    )  # fmt: skip
    estimator.model_ = state.model if scaling is None else scaling.undone(state.model)
    estimator.history_, estimator.n_iter_ = state.history, state.epoch
    estimator.gradient_ = settings.gradient
    return estimator


def transform(estimator, X):
    """Means of the hidden units given the rows of a Dask array, lazily.

    Parameters
    ----------
    estimator : GeneralizedRBM or DeepBoltzmannMachine
        Fitted.
    X : Dask array of shape (n_rows, n_features)

    Returns
    -------
    Dask array of shape (n_rows, n_components)
        With the blocks of rows of `X`.

    Raises
    ------
    TypeError, ValueError
        If X is no Dask array with two axes, and as the estimator's method does.

    Examples
    --------
    >>> import dask.array as da, numpy as np, fastmf as mf
    >>> X = (np.random.default_rng(0).random((100, 6)) < 0.3).astype(float)
    >>> rbm = mf.GeneralizedRBM(3, n_epochs=2, random_state=0).fit(X)
    >>> features = mf.distributed.transform(rbm, da.from_array(X, chunks=(50, 6)))
    >>> np.allclose(features.compute(), rbm.transform(X))
    True
    """
    rows = checked_dask("X", X).rechunk({1: -1})
    n_features, dtype = len(estimator.get_feature_names_out()), estimator.model_.dtype

    def features(block):
        # A selection of rows can leave blocks without rows.
        if not len(block):
            return np.empty((0, n_features), dtype)
        return np.asarray(estimator.transform(block), dtype)

    chunks = rows.chunks[0], (n_features,)
    return rows.map_blocks(features, dtype=dtype, chunks=chunks, meta=np.empty((0, 0), dtype))


def _states(X, model):
    """Lazy rows as values of all units; labels of categorical ones become states."""
    width, rows = model.sizes[0], X.astype(model.dtype)
    if X.shape[1] == width:
        return rows

    def states(block):
        # A selection of rows can leave blocks without rows.
        flat = states_of("X", model.layers[0], block) if len(block) else np.empty((0, width))
        return flat.astype(model.dtype)

    rows = rows.rechunk({1: -1})
    return rows.map_blocks(
        states, dtype=model.dtype, chunks=(rows.chunks[0], (width,)),
        meta=np.empty((0, 0), model.dtype),
    )  # fmt: skip


def _settings(estimator, model, n_epochs, n_rows):
    """Options of an estimator as settings of learning in chunks."""
    options = options_of(estimator, LayeredSettings)
    options |= {name: value for name, value in MANY_ROWS.items() if options[name] is None}
    if estimator.gradient == "auto":
        options["gradient"] = gradient_for(model, n_rows, l2=0.0)  # in chunks there are only steps
        if options["gradient"] == "pcd":
            options["gradient"] = "cd"
    return LayeredSettings(**options | {"n_epochs": n_epochs})


def _seed(estimator):
    """The seed that the estimator's own `fit` draws."""
    state = estimator.random_state
    if state is None:
        return None
    state = state if hasattr(state, "randint") else np.random.RandomState(state)
    return int(state.randint(2**31 - 1))
