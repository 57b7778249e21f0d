"""The training loop: epochs of shuffled batches, and what is kept of them.

The random numbers of a batch are a function of (seed, epoch, batch) alone. So a run that was
interrupted needs nothing but its parameters to go on as if nothing had happened.
"""

import warnings
from collections.abc import Callable, Iterable
from typing import NamedTuple

import numpy as np

from fastmf._common.arguments import count
from fastmf.inference.fixed_point import stacked
from fastmf.inference.mean_field.likelihood import log_likelihood
from fastmf.inference.mean_field.solutions import merge, phases
from fastmf.inference.mean_field.tap import tap
from fastmf.learning.layered.gradients import MEAN_FIELD, ORDERS
from fastmf.learning.layered.settings import rate
from fastmf.learning.layered.step import initial_state, step
from fastmf.learning.training import checkpoint as files
from fastmf.learning.training.compilation import units_of
from fastmf.learning.training.progress import progress
from fastmf.priors._protocol import n_units

# The log-likelihood after each epoch need not be known better than this.
MONITOR = {"tol": 1e-4, "max_iter": 200}
# Solutions, the heaviest ones, that an epoch hands on to the next: starts that are nearly solved
# cost a quarter of what a hundred rows of digits of 784 pixels do.
MAX_SOLUTIONS = 50


def stream(seed, epoch, batch=None):
    """The random generator of a batch, or of the order of an epoch."""
    return np.random.default_rng([seed, epoch + 1, 0 if batch is None else batch + 1])


class Family(NamedTuple):
    """What the loop must know of a family of models: where moments come from, and what is followed.

    Parameters
    ----------
    step : callable
        `step(state, batch, settings, rate, rng, n_threads)` moves the state one step.
    figures : callable
        `figures(state, watched, validation, settings, n_threads)` gives the figures of an epoch, by
        name, and may keep in the state what those of the next one need.
    score : str
        Which of them early stopping raises, if `validation_` before it is not there.
    label : str
        What it is called on the line of progress.
    """

    step: Callable
    figures: Callable
    score: str
    label: str


def _rows(data, rows):
    return tuple(part[rows] for part in data) if isinstance(data, tuple) else data[rows]


def _length(data):
    return (data[0] if isinstance(data, tuple) else data).shape[0]


def _parts(data):
    return data if isinstance(data, tuple) else (data,)


def monitor_rows(X, settings, seed):
    """The rows of data that are followed: always the same ones."""
    n_rows = _length(X)
    n = min(settings.monitor_rows, n_rows)
    return _rows(X, np.sort(np.random.default_rng([seed, 0, 1]).permutation(n_rows)[:n]))


def train(
    model,
    X,
    settings,
    *,
    seed=None,
    validation=None,
    callbacks=(),
    checkpoint=None,
    checkpoint_every=None,
    n_threads=None,
    verbose=0,
    family=None,
):
    """Climb the log-likelihood of data, or another objective.

    Parameters
    ----------
    model : RBM, DBM or CRBM
        Where to start.
    X : array of shape (n_rows, n_visible), or tuple of arrays that lead with the rows
        Data, in the type of the model.
    settings : Settings or ConditionalSettings
    seed : int or None
        The result is a function of it; None draws one.
    validation : like X, or None
        It is followed too, and decides on early stopping if given.
    callbacks : sequence of callable
        Called as `callback(state)` after each epoch; training stops when one returns True.
    checkpoint : str, path or None
        File that is written after each epoch; a run that finds it there goes on from it.
    checkpoint_every : int or None
        Also write it every so many batches.
    n_threads : int or None
    verbose : int
        1 for a progress bar.
    family : Family or None
        None for that of the RBM.

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
    if not (isinstance(callbacks, Iterable) and all(map(callable, callbacks))):
        raise TypeError(f"callbacks must be a sequence of functions, got {callbacks!r:.60}.")
    if checkpoint_every is not None:
        checkpoint_every = count("checkpoint_every", checkpoint_every)
    family = family or RBM_FAMILY
    any_seed = seed is None
    seed = int(np.random.SeedSequence().generate_state(1)[0]) if any_seed else int(seed)
    state = initial_state(model)
    if checkpoint is not None:
        data = [*_parts(X), *(() if validation is None else _parts(validation))]
        run = files.identity(settings, model, seed, *data)
        found = files.read(checkpoint, run, any_seed=any_seed)
        if found:
            state, seed = found
            run["seed"] = seed

    def keep():
        if checkpoint is not None:
            files.write(checkpoint, state, run)

    watched = monitor_rows(X, settings, seed)
    n_batches = -(-_length(X) // settings.batch_size)
    total, done = settings.n_epochs * n_batches, state.epoch * n_batches + state.batch
    with progress(total, done, verbose, units_of(model)) as bar:
        while state.epoch < settings.n_epochs and not _finished(state, settings):
            epoch = state.epoch
            order = stream(seed, epoch).permutation(_length(X))
            while state.batch < n_batches:
                rows = order[state.batch * settings.batch_size :][: settings.batch_size]
                rng = stream(seed, epoch, state.batch)
                batch = _rows(X, rows)
                family.step(state, batch, settings, rate(settings, epoch), rng, n_threads)
                state.batch += 1
                bar.update()
                if checkpoint_every and state.batch % checkpoint_every == 0:
                    keep()
            state.epoch, state.batch = epoch + 1, 0
            _record(state, family, watched, validation, settings, n_threads)
            keep()
            bar.set_postfix_str(_line(state.history, family))
            # All are called, whatever the first says.
            if any([callback(state) is True for callback in callbacks]):
                break
    if settings.early_stopping and state.best is not None:
        state.model = state.best
    return state


def _record(state, family, watched, validation, settings, n_threads):
    """Append the figures of the epoch that has just ended to the history."""
    entry = {"epoch": state.epoch, "learning_rate": rate(settings, state.epoch - 1)}
    entry |= family.figures(state, watched, validation, settings, n_threads)
    for name, value in entry.items():
        state.history.setdefault(name, []).append(value)
    if settings.early_stopping:
        scores = state.history.get(f"validation_{family.score}", state.history[family.score])
        if len(scores) == 1 or scores[-1] > max(scores[:-1]):
            state.best, state.waited = state.model, 0
        else:
            state.waited += 1


def _finished(state, settings):
    return settings.early_stopping and state.waited >= settings.patience


def _line(history, family):
    text = f"epoch {history['epoch'][-1]}, {family.label} {history[family.score][-1]:.4f}"
    if f"validation_{family.score}" in history:
        text += f", validation {history[f'validation_{family.score}'][-1]:.4f}"
    return text


def _rbm_figures(state, watched, validation, settings, n_threads):
    """Log-likelihoods per unit."""
    model = state.model
    size = sum(n_units(prior) for prior in model.layers)
    order = ORDERS.get(settings.gradient, 2)
    solutions = tap(model, watched, order=order, n_threads=n_threads, **MONITOR)
    log_partition = _log_partition(state, solutions, order, n_threads)
    if settings.gradient in MEAN_FIELD and settings.starts == "persistent":
        _warn_of_collapse(state, solutions)

    options = MONITOR | {"order": order, "n_threads": n_threads} if model.deep else {}

    def per_unit(X):
        return float(log_likelihood(model, X, log_partition, **options).mean()) / size

    figures = {"log_likelihood": per_unit(watched)}
    if validation is not None:
        figures["validation_log_likelihood"] = per_unit(validation)
    return figures


def _log_partition(state, reached, order, n_threads):
    """Estimate from the solutions reached from data and from those of the epoch before.

    A solution of great weight is not lost because no row of data leads to it any more.
    """
    model, n_layers = state.model, len(state.model.layers)
    if state.solutions:
        init = state.solutions[:n_layers], state.solutions[n_layers:]
        again = tap(model, init, order=order, n_threads=n_threads, **MONITOR)
        reached = stacked(reached, again)
    rows, log_weights = phases(model, reached, order)
    if not len(rows):
        state.solutions = ()
        return np.inf
    heaviest = np.argsort(-log_weights, kind="stable")[:MAX_SOLUTIONS]
    kept = rows[heaviest[np.isfinite(log_weights[heaviest])]]
    state.solutions = tuple(part[kept] for part in (*reached.mean, *reached.var))
    return float(np.logaddexp.reduce(log_weights))


def _warn_of_collapse(state, solutions):
    """Say so when the persistent solutions have merged although the data still lead to many."""
    alive = len(merge(state.chains[0], merge_tol=0.05)[0])
    reached = len(merge(solutions.mean[0], merge_tol=0.05)[0])
    if alive <= len(state.chains[0]) / 10 and alive <= reached / 10:
        warnings.warn(
            f"after epoch {state.epoch} the {len(state.chains[0])} persistent solutions have "
            f"collapsed to {alive}, where data lead to {reached}: they no longer represent the "
            "model. Unlike samples they are not driven apart by noise; use starts='noise'.",
            stacklevel=5,
        )


RBM_FAMILY = Family(step, _rbm_figures, "log_likelihood", "log-likelihood per unit")
