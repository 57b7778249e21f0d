"""The training loop: epochs of shuffled batches, metrics, checkpoints and early stopping.

The random numbers of a batch are a function of (seed, epoch, batch) alone. So a run that was
interrupted needs nothing but its state to go on as if nothing had happened.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from fastmf.learning.training.progress import progress, units_of
from fastmf.learning.training.resumption import (
    epochs_since_best,
    n_rows_of,
    score_of,
    start_of,
)
from fastmf.learning.training.settings import RunOptions, learning_rate, learning_rates

# Rows from which steps are prepared: see `Family.preparation`.
PREPARED_ROWS = 1000


def stream(seed, epoch, batch=None):
    """The random generator of a batch, or of the order of an epoch."""
    return np.random.default_rng([seed, epoch + 1, 0 if batch is None else batch + 1])


def stream_of_missing(seed, epoch):
    """The random generator of values that are drawn for missing ones before an epoch."""
    return np.random.default_rng([seed, epoch + 1, 0, 1])


def _keeps_nothing(state, settings, n_rows):
    """Raise for a state that keeps anything between steps beside its parameters."""
    for name in ("chains", "preconditioners", "solutions"):
        if getattr(state, name):
            raise ValueError(f"it holds members {name}/..., which no such run has.")


class Family(NamedTuple):
    """Functions of a family of models that the loop calls.

    Parameters
    ----------
    plan : callable
        `plan(model, settings, n_threads)`, called once a run, gives a function
        `step(state, batch, rate, rng)` that moves the state one step.
    metrics : callable
        `metrics(state, monitored, validation, settings, n_threads, weights)` gives the metrics of
        an epoch, by name, and may keep in the state what those of the next one need. Averages over
        the monitored rows have these weights, unless they are None.
    score : str
        Which of them early stopping maximises, with `validation_` before it if there are such data.
    label : str
        Its name in the progress bar.
    preparation : callable, optional
        `preparation(settings)` gives a number of batches and a function, or None. The function is
        called before the first of as many batches, and again before the next ones, as
        `prepare(state, X, settings, n_threads)` with the rows that follow in the epoch.
    check : callable
        `check(state, settings, n_rows)` raises a ValueError for a state from a file that holds
        chains, preconditioners or solutions that no run on as many rows has; default: for any.
    others : tuple of str
        Names of metrics beside the score.
    settle : callable, optional
        `settle(state)`, called after the steps of an epoch, gives the state a model that later
        steps do not change.
    completion : callable, optional
        `completion(X, model)` gives a `fastmf.learning.training.completion.Completion`, which draws
        values for what is missing in data before each epoch, or None if nothing is.
    """

    plan: Callable
    metrics: Callable
    score: str
    label: str
    preparation: Callable | None = None
    check: Callable = _keeps_nothing
    others: tuple = ()
    settle: Callable = lambda state: None
    completion: Callable | None = None


def _rows(data, rows):
    return tuple(part[rows] for part in data) if isinstance(data, tuple) else data[rows]


def monitor_rows(X, settings, seed, weights=None):
    """The rows of data on which metrics are computed, always the same ones, and their weights."""
    n_rows, n, rng = n_rows_of(X), settings.monitor_rows, np.random.default_rng([seed, 0, 1])
    if n_rows <= n:
        return X, weights
    if weights is None:
        return _rows(X, np.sort(rng.permutation(n_rows)[:n])), None
    rows = np.unique(resampled_rows(weights, n, rng.random()))
    # Inverse probabilities of the draw, min(1, n weight / sum), times the weights.
    return _rows(X, rows), np.maximum(weights, weights.sum() / n)[rows]


def weighted_rows(weights, rng):
    """As many rows as there are, each as often as its weight says on average, in random order."""
    return rng.permutation(resampled_rows(weights, len(weights), rng.random()))


def resampled_rows(weights, n_drawn, offset):
    """Some rows in ascending order, each as often as its weight says, rounded down or up."""
    cumulated = np.cumsum(weights, dtype=np.float64)
    places = (np.arange(n_drawn) + offset) / n_drawn * cumulated[-1]
    last = np.flatnonzero(weights)[-1]
    return np.minimum(np.searchsorted(cumulated, places, "right"), last)


def train(model, X, settings, family, **options):
    """Maximise the log-likelihood of data, or another objective, by stochastic gradient ascent."""
    options = RunOptions(**options)
    complete = family.completion and family.completion(X, model)
    state, seed, write_checkpoint = start_of(model, X, settings, family, options, complete)
    monitored, weights = monitor_rows(X, settings, seed, options.weights)
    X = complete.data if complete else X
    n_batches = -(-n_rows_of(X) // settings.batch_size)
    step = family.plan(state.model, settings, options.n_threads)
    total, done = settings.n_epochs * n_batches, state.epoch * n_batches + state.batch
    with progress(total, done, options.verbose, units_of(model)) as bar:
        while state.epoch < settings.n_epochs and not _finished(state, settings):
            if complete:
                rng = None if state.batch else stream_of_missing(seed, state.epoch)
                complete(state, rng, options.n_threads)
            for _ in _epoch(state, family, X, settings, options, seed, step):
                bar.update()
            family.settle(state)
            state.epoch, state.batch = state.epoch + 1, 0
            _record_metrics(state, family, monitored, weights, settings, options)
            write_checkpoint(state)
            bar.set_postfix_str(_line(state.history, family))
            # All are called, whatever the first returns.
            if any([callback(state) is True for callback in options.callbacks]):
                break
    if settings.early_stopping and state.best is not None:
        state.model = state.best
    return state


def _epoch(state, family, X, settings, options, seed, step):
    """Take the steps that are left of an epoch; yields after each."""
    rng, size = stream(seed, state.epoch), settings.batch_size
    weighted = options.weights is not None
    order = weighted_rows(options.weights, rng) if weighted else rng.permutation(n_rows_of(X))
    rates = learning_rates(settings, state.epoch, -(-len(order) // size))
    between, prepare = (family.preparation and family.preparation(settings)) or (len(order), None)
    while state.batch * size < len(order):
        batch = state.batch
        if prepare and batch % between == 0:
            following = np.roll(order, -batch * size)
            prepare(state, _rows(X, following[:PREPARED_ROWS]), settings, options.n_threads)
        rows = _rows(X, order[batch * size : (batch + 1) * size])
        step(state, rows, rates[batch], stream(seed, state.epoch, batch))
        state.batch += 1
        yield


def _record_metrics(state, family, monitored, weights, settings, options):
    """Append the metrics of the epoch that has just ended to the history."""
    entry = {"epoch": state.epoch, "learning_rate": learning_rate(settings, state.epoch - 1)}
    data = monitored, options.validation
    entry |= family.metrics(state, *data, settings, options.n_threads, weights)
    for name, value in entry.items():
        state.history.setdefault(name, []).append(value)
    if settings.early_stopping:
        state.waited = epochs_since_best(state.history[score_of(family, options)])
        state.best = state.best if state.waited else state.model


def _finished(state, settings):
    return settings.early_stopping and state.waited >= settings.patience


def _line(history, family):
    text = f"epoch {history['epoch'][-1]}, {family.label} {history[family.score][-1]:.4f}"
    if f"validation_{family.score}" in history:
        text += f", validation {history[f'validation_{family.score}'][-1]:.4f}"
    return text
