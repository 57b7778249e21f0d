"""Training runs: seeds, settings, and convergence warnings."""

from collections.abc import Collection
from dataclasses import replace

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state

from fastmf._common.arguments import count, number
from fastmf._common.warning import warn_user
from fastmf._threads.workers import one_blas_thread
from fastmf.learning.training.ascent import options_of
from fastmf.learning.training.trainer import Checkpoint, resampled_rows, train


def seed_of(random_state):
    """Return the seed of a run; None if `random_state` is None."""
    return None if random_state is None else drawn_seed(random_state)


def drawn_seed(random_state):
    """Draw a seed from an int, a RandomState or None."""
    try:
        return int(check_random_state(random_state).randint(2**31 - 1))
    except (TypeError, ValueError, OverflowError) as error:
        raise ValueError(
            f"random_state must be None, an int or a numpy.random.RandomState, got "
            f"{random_state!r:.60}: {error!s:.80}."
        ) from error


def generator_of(random_state):
    """Return a random generator for `random_state`."""
    return np.random.default_rng(drawn_seed(random_state))


def split(n_rows, seed, weights=None):
    """Return indices of training rows, and of a tenth of the rows, resampled by their weights."""
    n = max(1, round(0.1 * n_rows))
    if n >= n_rows:
        raise ValueError(f"early_stopping needs more than {n_rows} sample to set some aside.")
    order = np.random.default_rng([seed, 0, 2]).permutation(n_rows)
    held_out = order[:n]
    drawn = slice(None) if weights is None else resampled_rows(weights[held_out], n, 0.5)
    return order[n:], held_out[drawn]


def settings_of(estimator, class_, **overrides):
    """Return the estimator's options as checked settings of a class, with `overrides`."""
    settings = class_(**options_of(estimator, class_) | overrides)
    if estimator.weight_scale is not None:
        number("weight_scale", estimator.weight_scale, 0, np.inf, below=True)
    if not isinstance(estimator.verbose, bool | np.bool_):
        count("verbose", estimator.verbose, 0)
    count("n_threads", estimator.n_threads, optional=True)
    return settings


def run(estimator, model, data, steps, seed, validation, raw=None, **options):
    """Train a model; set `model_`, `history_` and `n_iter_`, and return the last state."""
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
    """Wrap callbacks so that they see models on the data's scale; return invalid values as is."""
    if raw is None or not (isinstance(callbacks, Collection) and all(map(callable, callbacks))):
        return () if callbacks is None else callbacks

    def seeing_raw(callback):
        if isinstance(callback, Checkpoint):
            return callback
        return lambda state: callback(
            replace(state, model=raw(state.model), best=raw(state.best) if state.best else None)
        )

    return [seeing_raw(callback) for callback in callbacks]


# --- warnings -------------------------------------------------------------------------------------

# Largest error of log-likelihoods without a warning, in nats.
MAX_ERROR = 0.1
# Training has diverged if the log-likelihood is lower than for independent units, or for uniformly
# random labels, by this many nats per unit.
BELOW_INDEPENDENT = 0.02
# Share of the gain of the best epoch over independent units that the last epoch may have lost.
LOST_GAIN = 0.5


def warn_of_convergence(message):
    """Issue scikit-learn's `ConvergenceWarning`."""
    warn_user(message, ConvergenceWarning)


def warn_unless_converged(converged):
    """Warn of rows whose mean-field solutions have not converged."""
    n = np.count_nonzero(~converged)
    if n:
        warn_of_convergence(
            f"The mean-field solutions of {n} of {len(converged)} rows did not converge: their "
            "means are those of the last iteration."
        )


def warn_of_approximation(what, approximate, values, errors):
    """Warn if approximate log-likelihoods differ from annealed ones by more than their errors."""
    bias = np.mean(approximate - values)
    if not abs(bias) <= MAX_ERROR + errors.mean():
        warn_of_convergence(
            f"log-likelihoods {what} are about {abs(bias):.3g} nats too "
            f"{'high' if bias > 0 else 'low'}, by annealing of {len(values)} rows. Penalties (l2) "
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
    """Warn if the final likelihood is below independent units, or far below the best epoch."""
    if not epoch:
        return
    values = np.array(history["log_likelihood"][:epoch]) * sum(model.sizes)
    value, best = values[-1], values[np.isfinite(values)].max(initial=-np.inf)
    margin = BELOW_INDEPENDENT * model.sizes[0]
    threshold = max(independent - margin, best - max(LOST_GAIN * (best - independent), margin))
    if np.isfinite(value) and value < threshold:
        value = max(value, score(threshold))
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
    elif value < independent - margin:
        warn_of_convergence(
            f"learning has diverged: the log-likelihood of epoch {epoch}, {value:.4g} nats a row, "
            "is below that of the independent units that learning began with, "
            f"{independent:.4g}. {advice}"
        )
    elif value < threshold:
        warn_of_convergence(
            f"learning has not converged: the log-likelihood fell from {best:.4g} nats a row, "
            f"in epoch {int(np.nanargmax(values)) + 1}, to {value:.4g} in epoch {epoch} "
            f"(independent units: {independent:.4g}). {advice}"
        )


def warn_of_little_gain(gain, exact_gain, n_visible, reachable):
    """Warn if the gain over independent units is smaller than with one binary hidden unit."""
    if not abs(gain) < BELOW_INDEPENDENT * n_visible:  # training has diverged if far below
        return
    gain, best = exact_gain(), reachable()
    if gain < LOST_GAIN * best:
        warn_of_convergence(
            f"learning has hardly begun: the machine has gained {gain:.3g} nats a row over "
            f"independent units, where one binary hidden unit alone gains {best:.3g}. Use more "
            "epochs (n_epochs), a smaller l2, or few hidden units with gradient='exact'."
        )
