"""The state with which a run of the training loop begins: new, or that of a checkpoint.

A state from a file is checked: one to which no such run comes is refused.
"""

import numpy as np

from fastmf.learning.training import checkpoint
from fastmf.learning.training.ascent import initial_state


def start_of(model, X, settings, family, options, complete):
    """The state to start from, the seed, and a function that writes a checkpoint of a state."""
    seed = fresh_seed() if options.seed is None else int(options.seed)
    state = initial_state(model)
    if options.checkpoint is None:
        return state, seed, lambda state: None
    validation = () if options.validation is None else arrays_of(options.validation)
    size = settings.batch_size
    weights = () if options.weights is None else (options.weights,)
    run = checkpoint.identity(settings, model, seed, *arrays_of(X), *validation, *weights)

    def check(state):
        names = {family.score, *family.others, score := score_of(family, options)}
        _check_progress(state, settings, score, names, -(-n_rows_of(X) // size))
        family.check(state, settings, n_rows_of(X))
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
    """Raise for a state from a file that a run does not come to."""
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
    waited = epochs_since_best(state.history[score]) if stopping else 0
    if state.waited != waited:
        raise ValueError(
            f"member 'position' must hold {waited} epochs without a better score, as the history "
            f"does, got {state.waited}."
        )
    if (state.best is None) == bool(stopping):
        raise ValueError(
            f"it must {'' if stopping else 'not '}hold members best/..., the best model so far."
        )


def score_of(family, options):
    """The metric that early stopping maximises."""
    return family.score if options.validation is None else f"validation_{family.score}"


def epochs_since_best(scores):
    """Epochs since the last score that was better than all before."""
    best, waited = scores[0], 0
    for score in scores[1:]:
        best, waited = (score, 0) if score > best else (best, waited + 1)
    return waited


def n_rows_of(data):
    """Number of rows of data, which may be several arrays."""
    return arrays_of(data)[0].shape[0]


def arrays_of(data):
    """Data as a tuple of arrays."""
    return data if isinstance(data, tuple) else (data,)


def fresh_seed():
    """A seed that the operating system's entropy gives."""
    return int(np.random.SeedSequence().generate_state(1)[0])
