"""Common parts of estimators that learn by the training loop."""

from collections.abc import Iterable
from dataclasses import replace

import numpy as np
from sklearn.utils import check_random_state

from fastmf._common.arguments import count, number
from fastmf._threads.workers import one_blas_thread
from fastmf.learning.training.ascent import options_of
from fastmf.learning.training.trainer import Checkpoint, train


def seed_of(random_state):
    """The seed of a run, or None to draw one."""
    return None if random_state is None else drawn_seed(random_state)


def drawn_seed(random_state):
    """A seed that an int, a RandomState or None gives."""
    try:
        return int(check_random_state(random_state).randint(2**31 - 1))
    except (TypeError, ValueError, OverflowError) as error:
        raise ValueError(
            f"random_state must be None, an int or a numpy.random.RandomState, got "
            f"{random_state!r:.60}: {error!s:.80}."
        ) from error


def generator_of(random_state):
    """The generator of random numbers of `random_state`."""
    return np.random.default_rng(drawn_seed(random_state))


def split(n_rows, seed):
    """Numbers of the rows to learn from, and of a tenth that is set aside for early stopping."""
    n = max(1, round(0.1 * n_rows))
    if n >= n_rows:
        raise ValueError(f"early_stopping needs more than {n_rows} sample to set some aside.")
    order = np.random.default_rng([seed, 0, 2]).permutation(n_rows)
    return order[n:], order[:n]


def settings_of(estimator, class_, **others):
    """The estimator's options as settings of this class, checked; `others` replace some."""
    settings = class_(**options_of(estimator, class_) | others)
    if estimator.weight_scale is not None:
        number("weight_scale", estimator.weight_scale, 0, np.inf, below=True)
    if not isinstance(estimator.verbose, bool | np.bool_):
        count("verbose", estimator.verbose, 0)
    count("n_threads", estimator.n_threads, optional=True)
    return settings


def run(estimator, model, data, steps, seed, validation, raw=None, **options):
    """Train from a model; sets `model_`, `history_` and `n_iter_`, and returns the last state."""
    options |= {
        "seed": seed,
        "validation": validation,
        "callbacks": _with_raw_models(estimator.callbacks, raw),
        "verbose": estimator.verbose,
    }
    with one_blas_thread():  # the products of one batch are small
        state = train(model, data, steps, **options)
    estimator.model_, estimator.history_ = state.model, state.history
    estimator.n_iter_ = state.epoch
    return state


def _with_raw_models(callbacks, raw):
    """Callbacks that see models of data as given; anything but a list of callbacks is returned."""
    if raw is None or not (isinstance(callbacks, Iterable) and all(map(callable, callbacks))):
        return () if callbacks is None else callbacks

    def seeing_raw(callback):
        if isinstance(callback, Checkpoint):
            return callback
        return lambda state: callback(
            replace(state, model=raw(state.model), best=state.best and raw(state.best))
        )

    return [seeing_raw(callback) for callback in callbacks]
