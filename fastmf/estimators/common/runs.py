"""Runs of learning: seeds, settings, and warnings of what has not converged."""

from collections.abc import Iterable
from dataclasses import replace

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state

from fastmf._common.arguments import count, number
from fastmf._common.warning import warn_user
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


# --- warnings -------------------------------------------------------------------------------------


# Largest error of log-likelihoods without a warning, in nats.
MAX_ERROR = 0.1
# Learning counts as diverged at this many nats a unit below independent units, and of labels below
# values drawn uniformly at random.
BELOW_INDEPENDENT = 0.02
# Share of what the best epoch gained over independent units that the last one may have lost.
LOST_GAIN = 0.5


def warn_of_convergence(message):
    """Warn with scikit-learn's category for iterations that have not converged."""
    warn_user(message, ConvergenceWarning)


def warn_unless_converged(converged):
    """Warn of rows whose means are no solution."""
    n = np.count_nonzero(~converged)
    if n:
        warn_of_convergence(
            f"The mean-field solutions of {n} of {len(converged)} rows did not converge: their "
            "means are those of the last iteration."
        )


def warn_of_approximation(what, approximate, sums):
    """Warn if approximate log-likelihoods of some rows differ from annealed ones with errors."""
    values, errors = sums
    off = np.mean(approximate - values)
    if not abs(off) <= MAX_ERROR + errors.mean():
        warn_of_convergence(
            f"log-likelihoods {what} are about {abs(off):.3g} nats too "
            f"{'high' if off > 0 else 'low'}, by annealing of {len(values)} rows. Penalties (l2) "
            "and fewer epochs keep couplings weak; few units are summed exactly."
        )


def warn_if_below_uniform(value, n_labels):
    """Warn if the log-likelihood of a row of labels is below the value for random labels."""
    uniform = -n_labels * np.log(2)
    if not value >= uniform - BELOW_INDEPENDENT * n_labels:
        warn_of_convergence(
            f"learning has diverged: the log-likelihood of the labels, {value:.3g} nats a row, is "
            f"below that of values drawn uniformly at random, {uniform:.3g}. Use a smaller "
            "learning_rate, or standardize=True."
        )


def warn_of_likelihood(model, history, independent, epoch, score):
    """Warn if learning ended below independent units, or far below its best epoch."""
    if not epoch:
        return
    values = np.array(history["log_likelihood"][:epoch]) * sum(model.sizes)
    value, largest = values[-1], values[np.isfinite(values)].max(initial=-np.inf)
    small = BELOW_INDEPENDENT * model.sizes[0]
    least = max(independent - small, largest - max(LOST_GAIN * (largest - independent), small))
    if np.isfinite(value) and value < least:
        value = max(value, score())
    advice = (
        "Use a smaller learning_rate, larger batches (batch_size), with chains more of them "
        "(n_starts), or for few units gradient='exact'."
    )
    if not np.isfinite(value):
        warn_of_convergence(
            f"the log-likelihood of epoch {epoch} is unknown, because chains diverge, or units "
            "have no moments: compare `score` with that of independent units. Bounded units, such "
            "as 'truncated_gaussian', have moments always."
        )
    elif value < independent - small:
        warn_of_convergence(
            f"learning has diverged: the log-likelihood of epoch {epoch}, {value:.4g} nats a row, "
            "is below that of the independent units that learning began with, "
            f"{independent:.4g}. {advice}"
        )
    elif value < least:
        warn_of_convergence(
            f"learning has not converged: the log-likelihood fell from {largest:.4g} nats a row, "
            f"in epoch {int(np.nanargmax(values)) + 1}, to {value:.4g} in epoch {epoch} "
            f"(independent units: {independent:.4g}). {advice}"
        )


def warn_of_little_gain(gain, better, n_visible, possible):
    """Warn if learning has gained little over independent units and one hidden unit gains more."""
    if not abs(gain) < BELOW_INDEPENDENT * n_visible:  # far below, it has diverged
        return
    gain, attained = better(), possible()
    if gain < LOST_GAIN * attained:
        warn_of_convergence(
            f"learning has hardly begun: the machine has gained {gain:.3g} nats a row over "
            f"independent units, where one binary hidden unit alone gains {attained:.3g}. Use more "
            "epochs (n_epochs), a smaller l2, or few hidden units with gradient='exact'."
        )
