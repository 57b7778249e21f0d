"""The training loop: epochs of shuffled batches, metrics, checkpoints and early stopping.

The random numbers of an epoch are a function of (seed, epoch) alone. So a run that was interrupted
resumes from its state. Missing values are drawn before each epoch by Gibbs sampling of
the model given the observed ones, from the values of the epoch before (stochastic EM, Celeux &
Diebolt 1985); the epoch then follows the gradient of the likelihood of complete rows.
"""

from collections.abc import Iterable

import numpy as np

from fastmf._common.rows import is_incomplete
from fastmf._jit.messages import to_stderr
from fastmf.learning.training.checkpoint import Checkpoint, arrays_of, start_of
from fastmf.learning.training.settings import learning_rate, learning_rates

# Rows from which steps are prepared: see `Steps.prepare`.
PREPARED_ROWS = 1000
# Sweeps of Gibbs sampling before an epoch, and where there were no values before.
SWEEPS, FIRST_SWEEPS = 5, 20


def stream(seed, epoch, *numbers):
    """The random generator of an epoch, for its order and its steps; or one of these numbers."""
    return np.random.default_rng([seed, epoch + 1, *(n + 1 for n in numbers or (-1,))])


class Steps:
    """Steps of learning a kind of model in one run, and its functions that the loop calls."""

    # The metric that early stopping maximises (with "validation_" before it if there are such
    # data), and its name in the lines of `verbose`.
    score, label = "log_likelihood", "log-likelihood per unit"
    # Batches from one preparation of the steps to the next.
    n_between = None
    # draw(model, data, missing, n_sweeps, rng): rows of data with values in the place of missing
    # ones, drawn in Gibbs sweeps from those in the data, if any; None where none may be missing.
    draw = None

    def __init__(self, settings, n_threads=None):
        self.settings, self.n_threads = settings, n_threads

    def __call__(self, state, batch, rate, rng):
        """Move a state one step up."""
        raise NotImplementedError

    def metrics(self, state, monitored, validation, weights=None):
        """Metrics of an epoch by name; the state may keep what the next epoch needs."""
        raise NotImplementedError

    def prepare(self, state, X):
        """Prepare the next `n_between` steps, given the rows that follow in the epoch."""

    def settle(self, state):
        """Give a state, after the steps of an epoch, a model that later steps do not change."""


class Completion:
    """Data whose first array has missing values, which are drawn before each epoch."""

    def __init__(self, data, model, draw):
        values, *features = arrays_of(data)
        self._draw, self._is_tuple = draw, isinstance(data, tuple)
        self._arrays = np.array(values, model.dtype, order="C"), *features
        self._missing = np.isnan(values)
        self._rows = np.flatnonzero(self._missing.any(1))

    @property
    def data(self):
        """The data as they were completed last."""
        return self._arrays if self._is_tuple else self._arrays[0]

    def __call__(self, state, rng):
        """Complete the rows, from the values in the state if there are some."""
        values, missing = self._arrays[0], self._missing[self._rows]
        if state.completed:
            values[self._missing] = state.completed[0][0]
        n_sweeps, rows = SWEEPS if state.completed else FIRST_SWEEPS, _rows(self.data, self._rows)
        drawn = self._draw(state.model, rows, missing, n_sweeps, rng)
        state.completed = (drawn[missing][None],)
        values[self._missing] = state.completed[0][0]


def _rows(data, rows):
    return tuple(part[rows] for part in data) if isinstance(data, tuple) else data[rows]


def monitor_rows(X, settings, seed, weights=None):
    """The rows of data on which metrics are computed, always the same ones, and their weights."""
    n_rows, n = arrays_of(X)[0].shape[0], settings.monitor_rows
    rng = np.random.default_rng([seed, 0, 1])
    if n_rows <= n:
        return X, weights
    if weights is None:
        return _rows(X, np.sort(rng.permutation(n_rows)[:n])), None
    rows = np.unique(resampled_rows(weights, n, rng.random()))
    # Inverse probabilities of the draw, min(1, n weight / sum), times the weights.
    return _rows(X, rows), np.maximum(weights, weights.sum() / n)[rows]


def weighted_rows(weights, rng):
    """The same number of rows, each as often as its weight says on average, in random order."""
    return rng.permutation(resampled_rows(weights, len(weights), rng.random()))


def resampled_rows(weights, n_drawn, offset):
    """Rows in ascending order, each as often as its weight says, rounded down or up."""
    cumulated = np.cumsum(weights, dtype=np.float64)
    places = (np.arange(n_drawn) + offset) / n_drawn * cumulated[-1]
    last = np.flatnonzero(weights)[-1]
    return np.minimum(np.searchsorted(cumulated, places, "right"), last)


def train(
    model,
    X,
    steps,
    *,
    seed=None,
    validation=None,
    weights=None,
    callbacks=(),
    verbose=0,
):
    """Maximise the log-likelihood of data, or another objective, by stochastic gradient ascent.

    The result is a function of the seed; None draws one. An epoch has each row as often as its
    weight says, on average. Training stops when a callback returns True after an epoch.
    """
    if not (isinstance(callbacks, Iterable) and all(map(callable, callbacks))):
        raise TypeError(f"callbacks must be a sequence of functions, got {callbacks!r:.60}.")
    settings, checkpoint = steps.settings, Checkpoint.path_in(callbacks)
    state, write_checkpoint = start_of(checkpoint, model, X, settings, seed, validation, weights)
    monitored, of_monitored = monitor_rows(X, settings, state.seed, weights)
    complete = None
    if steps.draw and is_incomplete(arrays_of(X)[0]):
        complete = Completion(X, model, steps.draw)
        X = complete.data
    score = steps.score if validation is None else f"validation_{steps.score}"
    while state.epoch < settings.n_epochs and state.waited < settings.patience:
        if complete:
            complete(state, stream(state.seed, state.epoch, -1, 0))
        _take_epoch(state, steps, X, weights)
        steps.settle(state)
        state.epoch += 1
        entry = {
            "epoch": state.epoch,
            "learning_rate": learning_rate(settings, state.epoch - 1),
        }
        entry |= steps.metrics(state, monitored, validation, of_monitored)
        for name, value in entry.items():
            state.history.setdefault(name, []).append(value)
        if settings.early_stopping:
            values = np.nan_to_num(state.history[score], nan=-np.inf)
            state.waited = len(values) - 1 - int(np.argmax(values))
            state.best = state.best if state.waited else state.model
        write_checkpoint(state)
        if verbose:
            to_stderr(_line(state.history, steps))
        # All are called, whatever the first returns.
        if any([callback(state) is True for callback in callbacks]):
            break
    if settings.early_stopping and state.best is not None:
        state.model = state.best
    return state


def _take_epoch(state, steps, X, weights):
    """Take the steps of an epoch."""
    rng, size = stream(state.seed, state.epoch), steps.settings.batch_size
    n_rows = arrays_of(X)[0].shape[0]
    order = rng.permutation(n_rows) if weights is None else weighted_rows(weights, rng)
    rates = learning_rates(steps.settings, state.epoch, -(-n_rows // size))
    for batch, rate in enumerate(rates):
        first = batch * size
        if steps.n_between and batch % steps.n_between == 0:
            steps.prepare(state, _rows(X, np.roll(order, -first)[:PREPARED_ROWS]))
        steps(state, _rows(X, order[first : first + size]), rate, rng)


def _line(history, steps):
    text = f"epoch {history['epoch'][-1]}, {steps.label} {history[steps.score][-1]:.4f}"
    if f"validation_{steps.score}" in history:
        text += f", validation {history[f'validation_{steps.score}'][-1]:.4f}"
    return text
