"""The training loop: epochs of shuffled batches, metrics, checkpoints and early stopping.

The random numbers of a batch are a function of (seed, epoch, batch) alone. So a run that was
interrupted needs nothing but its state to go on as if nothing had happened.
"""

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from fastmf._common.arguments import count
from fastmf.learning.training import checkpoint
from fastmf.learning.training.ascent import initial_state
from fastmf.learning.training.progress import progress, units_of
from fastmf.learning.training.settings import learning_rate, learning_rates

# Longest time between checks for KeyboardInterrupt, and updates of the progress bar, where several
# steps are one call of a kernel.
PIECE_SECONDS = 0.2
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
    step : callable
        `step(state, batch, settings, rate, rng, n_threads)` moves the state one step.
    metrics : callable
        `metrics(state, monitored, validation, settings, n_threads)` gives the metrics of an epoch,
        by name, and may keep in the state what those of the next one need.
    score : str
        Which of them early stopping maximises, with `validation_` before it if there are such data.
    label : str
        Its name in the progress bar.
    steps : callable, optional
        `steps(model, X, settings, n_threads)` gives a function that takes the steps of several
        batches of equal size, or None if there is none for this model and these settings. It is
        called as `take(state, rows, rngs, rates)`, with the rows of each batch, (n_steps, n_batch),
        their random generators and rates; the result is that of as many calls of `step`.
    preparation : callable, optional
        `preparation(settings)` gives a number of batches and a function, or None. The function is
        called before the first of as many batches, and again before the next ones, as
        `prepare(state, X, settings, n_threads)` with the rows that follow in the epoch.
    check : callable
        `check(state, settings, n_rows)` raises a ValueError for a state from a file that holds
        chains, preconditioners or solutions that no run on as many rows has; default: for any.
    others : tuple of str
        Names of metrics beside the score.
    completion : callable, optional
        `completion(X, model)` gives a `fastmf.learning.training.completion.Completion`, which draws
        values for what is missing in data before each epoch, or None if nothing is.
    """

    step: Callable
    metrics: Callable
    score: str
    label: str
    steps: Callable | None = None
    preparation: Callable | None = None
    check: Callable = _keeps_nothing
    others: tuple = ()
    completion: Callable | None = None


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """Options of a run of the training loop, whatever is trained.

    Parameters
    ----------
    seed : int or None
        The result is a function of it; None draws one.
    validation : like the data, or None
        Metrics are computed on them too, and early stopping uses those.
    callbacks : sequence of callable
        Called as `callback(state)` after each epoch; training stops when one returns True.
    checkpoint : str, path or None
        File that is written after each epoch; a run that finds it there goes on from it.
    checkpoint_every : int or None
        Also write it every so many batches.
    n_threads : int or None
    verbose : int
        1 for a progress bar.
    weights : array of shape (n_rows,) or None
        An epoch has each row as often as its weight says, on average; None for once each.
    """

    seed: int | None = None
    validation: object = None
    callbacks: Iterable = ()
    checkpoint: object = None
    checkpoint_every: int | None = None
    n_threads: int | None = None
    verbose: int = 0
    weights: np.ndarray | None = None

    def __post_init__(self):
        callbacks = self.callbacks
        if not (isinstance(callbacks, Iterable) and all(map(callable, callbacks))):
            raise TypeError(f"callbacks must be a sequence of functions, got {callbacks!r:.60}.")
        if self.checkpoint_every is not None:
            count("checkpoint_every", self.checkpoint_every)


def _rows(data, rows):
    return tuple(part[rows] for part in data) if isinstance(data, tuple) else data[rows]


def _length(data):
    return (data[0] if isinstance(data, tuple) else data).shape[0]


def _parts(data):
    return data if isinstance(data, tuple) else (data,)


def monitor_rows(X, settings, seed, weights=None):
    """The rows of data on which metrics are computed: always the same ones."""
    n_rows, rng = _length(X), np.random.default_rng([seed, 0, 1])
    order = rng.permutation(n_rows) if weights is None else weighted_rows(weights, rng)
    return _rows(X, np.sort(order[: min(settings.monitor_rows, n_rows)]))


def weighted_rows(weights, rng):
    """As many rows as there are, each as often as its weight says on average, in random order."""
    return rng.permutation(resampled_rows(weights, len(weights), rng.random()))


def resampled_rows(weights, n_drawn, offset):
    """Some rows in ascending order, each as often as its weight says, rounded down or up.

    Parameters
    ----------
    weights : array of shape (n_rows,)
    n_drawn : int
        Number of rows that are returned.
    offset : float
        Offset of systematic resampling, from 0 to 1; uniform for draws without bias.

    Returns
    -------
    array of shape (n_drawn,)
    """
    cumulated = np.cumsum(weights, dtype=np.float64)
    places = (np.arange(n_drawn) + offset) / n_drawn * cumulated[-1]
    last = np.flatnonzero(weights)[-1]
    return np.minimum(np.searchsorted(cumulated, places, "right"), last)


def train(model, X, settings, family, **options):
    """Maximise the log-likelihood of data, or another objective, by stochastic gradient ascent.

    Parameters
    ----------
    model : RBM, DBM or CRBM
        Where to start.
    X : array of shape (n_rows, n_visible), or tuple of arrays that lead with the rows
        Data, in the type of the model; of layered machines also integers, or a csr_array.
    settings : AscentSettings
        Settings of the family.
    family : Family
    **options
        See `RunOptions`.

    Returns
    -------
    State
        `state.model` is the trained model.

    Raises
    ------
    ValueError
        If the checkpoint is damaged or of another run.
    FloatingPointError
        If learning diverges.
    """
    options = RunOptions(**options)
    complete = family.completion and family.completion(X, model)
    state, seed, write_checkpoint = _start(model, X, settings, family, options, complete)
    monitored = monitor_rows(X, settings, seed, options.weights)
    X = complete.data if complete else X
    n_batches = -(-_length(X) // settings.batch_size)
    take = family.steps and family.steps(state.model, X, settings, options.n_threads)
    total, done = settings.n_epochs * n_batches, state.epoch * n_batches + state.batch
    with progress(total, done, options.verbose, units_of(model)) as bar:
        while state.epoch < settings.n_epochs and not _finished(state, settings):
            if complete:
                rng = None if state.batch else stream_of_missing(seed, state.epoch)
                complete(state, rng, options.n_threads)
            for n_steps in _epoch(state, family, X, settings, options, seed, take):
                bar.update(n_steps)
                _write_if_due(state, options, write_checkpoint)
            state.epoch, state.batch = state.epoch + 1, 0
            _record_metrics(state, family, monitored, settings, options)
            write_checkpoint(state)
            bar.set_postfix_str(_line(state.history, family))
            # All are called, whatever the first returns.
            if any([callback(state) is True for callback in options.callbacks]):
                break
    if settings.early_stopping and state.best is not None:
        state.model = state.best
    return state


def fresh_seed():
    """A seed that the operating system's entropy gives."""
    return int(np.random.SeedSequence().generate_state(1)[0])


def _start(model, X, settings, family, options, complete):
    """The state to start from, the seed, and a function that writes a checkpoint of a state."""
    seed = fresh_seed() if options.seed is None else int(options.seed)
    state = initial_state(model)
    if options.checkpoint is None:
        return state, seed, lambda state: None
    validation = () if options.validation is None else _parts(options.validation)
    size = settings.batch_size
    weights = () if options.weights is None else (options.weights,)
    run = checkpoint.identity(settings, model, seed, *_parts(X), *validation, *weights)

    def check(state):
        names = {family.score, *family.others, score := _score(family, options)}
        _check_progress(state, settings, score, names, -(-_length(X) // size))
        family.check(state, settings, _length(X))
        if complete:
            complete.check(state)
        elif state.completed:
            raise ValueError("it holds members completed/..., but no values of X are missing.")

    found = checkpoint.read(options.checkpoint, run, state, check, any_seed=options.seed is None)
    if found:
        state, seed = found
        run["seed"] = seed
    return state, seed, lambda state: checkpoint.write(options.checkpoint, state, run)


def _check_progress(state, settings, score, names, n_batches):
    """Raise for a state from a file that a run does not come to.

    Parameters
    ----------
    state : State
    settings : AscentSettings
    score : str
        The metric that early stopping maximises.
    names : set of str
        All metrics.
    n_batches : int
        Batches of an epoch.
    """
    left = state.epoch < settings.n_epochs
    if state.epoch > settings.n_epochs or state.batch > left * n_batches:
        raise ValueError(
            f"member 'position' must hold an epoch up to {settings.n_epochs} and a batch up to "
            f"{left * n_batches}, got {state.epoch} and {state.batch}."
        )
    for name in sorted({"epoch", "learning_rate", *names} if state.epoch else state.history):
        found = state.history.get(name, [])
        numbers = isinstance(found, list) and all(type(x) in (int, float) for x in found)
        if not numbers or len(found) != state.epoch:
            raise ValueError(
                f"member 'history/{name}' must have {state.epoch} numbers, one for each epoch of "
                f"'position', got {found!r:.60}."
            )
    if state.history.get("epoch", []) != list(range(1, state.epoch + 1)):
        raise ValueError(f"member 'history/epoch' must hold 1 to {state.epoch}.")
    stopping = settings.early_stopping and state.epoch
    waited = _epochs_since_best(state.history[score]) if stopping else 0
    if state.waited != waited:
        raise ValueError(
            f"member 'position' must hold {waited} epochs without a better score, as the history "
            f"does, got {state.waited}."
        )
    if (state.best is None) == bool(stopping):
        raise ValueError(
            f"it must {'' if stopping else 'not '}hold members best/..., the best model so far."
        )


def _score(family, options):
    """The metric that early stopping maximises."""
    return family.score if options.validation is None else f"validation_{family.score}"


def _epochs_since_best(scores):
    """Epochs since the last score that was better than all before."""
    best, waited = scores[0], 0
    for score in scores[1:]:
        best, waited = (score, 0) if score > best else (best, waited + 1)
    return waited


def _epoch(state, family, X, settings, options, seed, take):
    """Take the steps that are left of an epoch; yields after some, how many they were."""
    rng, size = stream(seed, state.epoch), settings.batch_size
    weighted = options.weights is not None
    order = weighted_rows(options.weights, rng) if weighted else rng.permutation(_length(X))
    saved = options.checkpoint_every or len(order)
    rates, seconds = learning_rates(settings, state.epoch, -(-len(order) // size)), np.inf
    between, prepare = (family.preparation and family.preparation(settings)) or (len(order), None)
    while state.batch * size < len(order):
        first, n_steps = state.batch, 1
        if prepare and first % between == 0:
            following = np.roll(order, -first * size)
            prepare(state, _rows(X, following[:PREPARED_ROWS]), settings, options.n_threads)
        if take:
            n_left = (every - first % every for every in (saved, between))
            n_whole = len(order) // size - first
            n_steps = int(max(1, min(n_whole, *n_left, PIECE_SECONDS / seconds)))
        start, rows = time.perf_counter(), order[first * size : (first + n_steps) * size]
        rngs = [stream(seed, state.epoch, batch) for batch in range(first, first + n_steps)]
        if take:
            take(state, rows.reshape(n_steps, -1), rngs, rates[first : first + n_steps])
        else:
            family.step(state, _rows(X, rows), settings, rates[first], rngs[0], options.n_threads)
        seconds = (time.perf_counter() - start) / n_steps
        state.batch += n_steps
        yield n_steps


def _write_if_due(state, options, write_checkpoint):
    """Write a checkpoint after every so many batches."""
    if options.checkpoint_every and state.batch % options.checkpoint_every == 0:
        write_checkpoint(state)


def _record_metrics(state, family, monitored, settings, options):
    """Append the metrics of the epoch that has just ended to the history."""
    entry = {"epoch": state.epoch, "learning_rate": learning_rate(settings, state.epoch - 1)}
    entry |= family.metrics(state, monitored, options.validation, settings, options.n_threads)
    for name, value in entry.items():
        state.history.setdefault(name, []).append(value)
    if settings.early_stopping:
        state.waited = _epochs_since_best(state.history[_score(family, options)])
        state.best = state.best if state.waited else state.model


def _finished(state, settings):
    return settings.early_stopping and state.waited >= settings.patience


def _line(history, family):
    text = f"epoch {history['epoch'][-1]}, {family.label} {history[family.score][-1]:.4f}"
    if f"validation_{family.score}" in history:
        text += f", validation {history[f'validation_{family.score}'][-1]:.4f}"
    return text
