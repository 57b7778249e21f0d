"""The training loop: epochs of shuffled batches, metrics, checkpoints and early stopping.

The random numbers of an epoch are a function of (seed, epoch), so that an interrupted run can
resume from its state. Missing values are drawn before each epoch by Gibbs sampling of the model
given the observed values, starting from the values of the previous epoch (stochastic EM, Celeux &
Diebolt 1985); the epoch then uses the gradient of the likelihood of the completed rows.

A checkpoint is a file with the state of a run, from which the run resumes with identical results.
It contains a digest of each member, by which modified files are detected.
"""

import hashlib
import json
from collections.abc import Collection
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
from scipy.sparse import issparse

from fastmf._common.arguments import count
from fastmf._common.rows import is_incomplete
from fastmf._jit.messages import to_stderr
from fastmf.inference.bp._options import WeightTooLarge
from fastmf.learning.training.ascent import (
    ModelParameters,
    State,
    diverged,
    initial_state,
    learning_rate,
    learning_rates,
)
from fastmf.models._io import (
    check_folder,
    model_from_arrays,
    model_to_arrays,
    plain,
    reading,
    shown,
    write_arrays,
)


class Checkpoint:
    """Callback with which `fit` writes its state after each epoch, and resumes from the file.

    The result is bitwise the same as without an interruption. A run can be continued with a larger
    number of epochs, if the learning rate is a number or a function of the epoch.

    Parameters
    ----------
    path : str or path
        File (.npz). A file of a different run raises an error in `fit`.

    Raises
    ------
    FileNotFoundError
        If the folder of `path` does not exist.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> import numpy as np, fastmf as mf
    >>> X = (np.random.default_rng(0).random((200, 16)) < 0.3).astype(float)
    >>> checkpoint = mf.evaluation.Checkpoint(pathlib.Path(tempfile.mkdtemp()) / "run.npz")
    >>> options = {"gradient": "pcd", "callbacks": [checkpoint], "random_state": 0}
    >>> rbm = mf.GeneralizedRBM(8, n_epochs=2, **options).fit(X)
    >>> mf.GeneralizedRBM(8, n_epochs=3, **options).fit(X).n_iter_  # one epoch more
    3
    """

    def __init__(self, path):
        check_folder(path)
        self.path = path

    def __call__(self, state):
        """Do nothing: `train` writes the state before it calls any callback."""

    @classmethod
    def path_in(cls, callbacks):
        """Return the path of the checkpoint among callbacks, or None."""
        return next((one.path for one in callbacks if isinstance(one, cls)), None)


# Attributes of a state that are tuples of arrays.
TUPLES = "velocity", "chains", "preconditioners", "completed"


def start_of(path, model, X, settings, seed, *data):
    """Return the initial state of a run, and a function that writes a checkpoint.

    Further `data` on which the result depends may be None.
    """
    state = initial_state(model)
    state.seed = fresh_seed() if seed is None else int(seed)
    if path is None:
        return state, lambda state: None
    arrays = [part for x in (X, *data) if x is not None for part in arrays_of(x)]
    run = identity(settings, model, seed, *arrays)
    if Path(path).exists():
        state = read(path, run, state)
    run["seed"] = state.seed
    return state, lambda state: write(path, state, run)


def arrays_of(data):
    """Return data as a tuple of arrays."""
    return data if isinstance(data, tuple) else (data,)


def fresh_seed():
    """Draw a seed from the entropy of the operating system."""
    return int(np.random.SeedSequence().generate_state(1)[0])


def identity(settings, model, seed, *data):
    """Return the properties of a run that must agree with a checkpoint for it to resume."""
    options = asdict(settings)
    if callable(settings.learning_rate):
        options["learning_rate"] = getattr(settings.learning_rate, "__qualname__", "callable")
    # The size of each parameter to three digits, which do not depend on the computer.
    parameters = {k: v for k, v in model_to_arrays(model).items() if v.dtype.kind == "f"}
    return options | {
        "seed": seed if seed is None else int(seed),
        "model": repr(model),
        "start": {k: f"{abs(v).sum():.3g}" for k, v in parameters.items()},
        "data": [_digest(X) for X in data],
    }


def _digest(X):
    digest = hashlib.blake2b(digest_size=16)
    for part in (X.data, X.indices, X.indptr) if issparse(X) else (X,):
        digest.update(np.ascontiguousarray(part))
    return f"{X.shape} {X.dtype} {digest.hexdigest()}"


def write(path, state, run):
    """Write the state of a run to `path`, atomically."""
    tuples = {name: getattr(state, name) for name in TUPLES} | {"velocity": state.velocity.arrays()}
    parts = {name: dict(enumerate(arrays)) for name, arrays in tuples.items()}
    parts |= {"model": model_to_arrays(state.model), "history": state.history}
    if state.best is not None:
        parts["best"] = model_to_arrays(state.best)
    arrays = {f"{part}/{name}": np.asarray(x) for part in parts for name, x in parts[part].items()}
    arrays["run"] = np.array([json.dumps(run, default=plain)])
    arrays["position"] = np.array([state.epoch, state.waited])
    digests = {name: _digest(array) for name, array in arrays.items()}
    write_arrays(path, arrays | {"digests": np.array([json.dumps(digests)])})


def read(path, run, start):
    """Read the state in a checkpoint of a run.

    A run with more epochs can continue a shorter run, if the learning rate is a number or a
    function of the epoch.
    """
    with reading(path, "a checkpoint") as arrays:
        written, expected = run_in(arrays), json.loads(json.dumps(run, default=plain))
        if expected["seed"] is None:
            expected["seed"] = written["seed"]
        different = [name for name in expected if expected[name] != written.get(name)]
        longer = expected["n_epochs"] > written["n_epochs"]
        if different == ["n_epochs"] and longer and not isinstance(written["learning_rate"], list):
            different = []
        if not different:
            return replace(_state(arrays, start), seed=written["seed"])
    raise ValueError(
        f"the checkpoint {path} belongs to a run that differs in {', '.join(different)}; "
        "remove it, or choose another path."
    )


def run_in(arrays):
    """Return the `identity` of the run in a checkpoint; raise if members do not match digests."""
    (text,) = arrays.texts("digests", 1)
    digests = json.loads(text)
    for name in sorted({*digests, *arrays} - {"digests"}):
        if name not in digests or _digest(arrays[name]) != digests[name]:
            raise ValueError(f"member {shown(name)} is not the one that a run has written.")
    return json.loads(arrays.texts("run", 1)[0])


def _state(arrays, start):
    tuples = {}
    for part in TUPLES:
        members = arrays.under(part)
        tuples[part] = tuple(members[str(k)] for k in range(len(list(members))))
    velocity, history, best = tuples.pop("velocity"), arrays.under("history"), None
    if any(name.startswith("best/") for name in arrays):
        best = model_from_arrays(arrays.under("best"))
    epoch, *_, waited = arrays["position"].tolist()
    return State(
        model_from_arrays(arrays.under("model")),
        start.velocity.replaced(velocity),
        epoch,
        history={name: history[name].tolist() for name in history},
        best=best,
        waited=waited,
        **tuples,
    )


class IterateAverage:
    """Training callback that averages the parameters after each of the last epochs.

    With stochastic gradients, parameters fluctuate about the maximum with an amplitude that grows
    with the learning rate; the mean of many iterates is closer to the maximum.

    Parameters
    ----------
    first_epoch : int, default 1
        The first epoch, counted from 1, whose model is averaged; for example, two thirds of the
        number of epochs with a constant learning rate.

    Attributes
    ----------
    model : model or None
        Model with the averaged parameters, in the dtype of training; None before `first_epoch`.
    n_averaged : int
        Number of models averaged.

    Raises
    ------
    ValueError
        If the shapes of the parameters differ from the models averaged so far.

    Notes
    -----
    Polyak & Juditsky (1992), once an epoch. Epochs have equal weights, and sums are in float64. To
    use the average in a trained machine, replace its `model_`. A new training run discards the
    average of the previous run.

    Examples
    --------
    >>> import numpy as np, fastmf as mf
    >>> X = (np.random.default_rng(0).random((200, 16)) < 0.3).astype(float)
    >>> average = mf.evaluation.IterateAverage(first_epoch=5)
    >>> rbm = mf.GeneralizedRBM(
    ...     8, gradient="pcd", n_epochs=6, callbacks=[average], random_state=0
    ... ).fit(X)
    >>> average.n_averaged
    2
    >>> rbm.model_ = average.model
    >>> rbm.transform(X).shape
    (200, 8)
    """

    def __init__(self, first_epoch=1):
        self.first_epoch = count("first_epoch", first_epoch)
        self._forget()

    def _forget(self):
        self.n_averaged = self._epoch = 0
        # The averaged parameters in float64, and the last model.
        self._mean = self._last = None

    @property
    def model(self):
        """Model with the averaged parameters."""
        if self._last is None:
            return None
        parameters = self._mean.combine(lambda x: x.astype(self._last.dtype))
        return self._last.rebuilt(**vars(parameters))

    def __call__(self, state):
        """Add the model after an epoch of training."""
        if state.epoch <= self._epoch:
            self._forget()
        self._epoch = state.epoch
        if state.epoch >= self.first_epoch:
            self.add(state.model)

    def add(self, model):
        """Add a model to the average."""
        mean, parameters = self._mean, ModelParameters.of(model)
        new = parameters.combine(lambda x: x.astype(np.float64))
        if mean is not None:
            averaged, given = ([x.shape for x in part.arrays()] for part in (mean, new))
            if averaged != given:
                raise ValueError(
                    f"the model must have parameters of shapes {averaged}, as those averaged, got "
                    f"{given}; use a new IterateAverage."
                )
            weight = 1 / (self.n_averaged + 1)
            new = mean.combine(lambda x, y: x + weight * (y - x), new)
        self._mean, self._last, self.n_averaged = new, model, self.n_averaged + 1


# Gibbs sweeps of missing values before an epoch, and before the first epoch.
SWEEPS, FIRST_SWEEPS = 5, 20


def stream(seed, epoch, *numbers):
    """Return the random generator of an epoch, or with `numbers` an independent one."""
    return np.random.default_rng([seed, epoch + 1, *(n + 1 for n in numbers or (-1,))])


class Steps:
    """Base class of the training steps of a kind of model, called by the training loop."""

    # The metric that early stopping maximises (with the prefix "validation_" if there are
    # validation data), and its name in the output of `verbose`.
    score, label = "log_likelihood", "log-likelihood per unit"
    # Number of batches between calls of `prepare`; None: never.
    n_between = None
    # draw(model, data, missing, n_sweeps, rng) returns rows of data with missing values drawn by
    # Gibbs sweeps, starting from values in the data, if any; None if values must not be missing.
    draw = None

    def __init__(self, settings, n_threads=None):
        self.settings, self.n_threads = settings, n_threads

    def __call__(self, state, batch, rate, rng):
        """Take a step, which changes the state."""
        raise NotImplementedError

    def metrics(self, state, monitored, validation, weights=None):
        """Return the metrics of an epoch by name."""
        raise NotImplementedError

    def prepare(self, state, X):
        """Prepare the next `n_between` steps, given the next rows of the epoch."""

    def detach(self, state):
        """Replace the model of a state, after an epoch, by one that later steps do not change."""


class Completion:
    """Data with missing values in the first array, which are drawn before each epoch."""

    def __init__(self, data, model, draw):
        values, *features = arrays_of(data)
        self._draw, self._is_tuple = draw, isinstance(data, tuple)
        self._arrays = np.array(values, model.dtype, order="C"), *features
        self._missing = np.isnan(values)
        self._rows = np.flatnonzero(self._missing.any(1))

    @property
    def data(self):
        """The data with the missing values that were drawn last."""
        return self._arrays if self._is_tuple else self._arrays[0]

    def __call__(self, state, rng):
        """Draw the missing values, starting from the values in the state, if any."""
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
    """Return the rows of data for the metrics, the same for each epoch, and their weights."""
    n_rows, n = arrays_of(X)[0].shape[0], settings.monitor_rows
    rng = np.random.default_rng([seed, 0, 1])
    if n_rows <= n:
        return X, weights
    if weights is None:
        return _rows(X, np.sort(rng.permutation(n_rows)[:n])), None
    rows = np.unique(resampled_rows(weights, n, rng.random()))
    # Weights divided by the probabilities of the draw, min(1, n weight / sum).
    return _rows(X, rows), np.maximum(weights, weights.sum() / n)[rows]


def weighted_rows(weights, rng):
    """Resample the rows in proportion to their weights, in random order."""
    return rng.permutation(resampled_rows(weights, len(weights), rng.random()))


def resampled_rows(weights, n_drawn, offset):
    """Resample rows systematically in proportion to their weights; return sorted indices."""
    cumulated = np.cumsum(weights, dtype=np.float64)
    places = (np.arange(n_drawn) + offset) / n_drawn * cumulated[-1]
    return np.minimum(np.searchsorted(cumulated, places, "right"), np.flatnonzero(weights)[-1])


def train(model, X, steps, *, seed=None, validation=None, weights=None, callbacks=(), verbose=0):
    """Maximise the log-likelihood of data, or another objective, by stochastic gradient ascent.

    The result is determined by the seed; None draws one. Rows of an epoch are resampled in
    proportion to their weights. Training stops when a callback returns True after an epoch.
    """
    if not (isinstance(callbacks, Collection) and all(map(callable, callbacks))):
        raise TypeError(f"callbacks must be a sequence of functions, got {callbacks!r:.60}.")
    settings, checkpoint = steps.settings, Checkpoint.path_in(callbacks)
    state, write_checkpoint = start_of(checkpoint, model, X, settings, seed, validation, weights)
    monitored, monitored_weights = monitor_rows(X, settings, state.seed, weights)
    complete = None
    if steps.draw and is_incomplete(arrays_of(X)[0]):
        complete = Completion(X, model, steps.draw)
        X = complete.data
    score = steps.score if validation is None else f"validation_{steps.score}"
    while state.epoch < settings.n_epochs and state.waited < settings.patience:
        if complete:
            complete(state, stream(state.seed, state.epoch, -1, 0))
        entry = {"epoch": state.epoch + 1, "learning_rate": learning_rate(settings, state.epoch)}
        with within_range(state):
            _take_epoch(state, steps, X, weights)
            steps.detach(state)
            state.epoch += 1
            entry |= steps.metrics(state, monitored, validation, monitored_weights)
        for name, value in entry.items():
            state.history.setdefault(name, []).append(value)
        if settings.early_stopping:
            values = np.nan_to_num(state.history[score], nan=-np.inf)
            state.waited = len(values) - 1 - int(np.argmax(values))
            state.best = state.best if state.waited else state.model
        write_checkpoint(state)
        if verbose:
            to_stderr(_line(state.history, steps))
        stops = [callback(state) for callback in callbacks]
        if any(isinstance(stop, bool | np.bool_) and stop for stop in stops):
            break
    if settings.early_stopping and state.best is not None:
        state.model = state.best
    return state


@contextmanager
def within_range(state):
    """Raise the error for diverged parameters if belief propagation refuses the weights."""
    try:
        yield
    except WeightTooLarge as error:
        raise diverged(state.epoch) from error


def _take_epoch(state, steps, X, weights):
    """Take the steps of an epoch."""
    rng, size = stream(state.seed, state.epoch), steps.settings.batch_size
    n_rows = arrays_of(X)[0].shape[0]
    order = rng.permutation(n_rows) if weights is None else weighted_rows(weights, rng)
    rates = learning_rates(steps.settings, state.epoch, -(-n_rows // size))
    for batch, rate in enumerate(rates):
        first = batch * size
        if steps.n_between and batch % steps.n_between == 0:
            steps.prepare(state, _rows(X, np.roll(order, -first)[: steps.n_between * size]))
        steps(state, _rows(X, order[first : first + size]), rate, rng)


def _line(history, steps):
    text = f"epoch {history['epoch'][-1]}, {steps.label} {history[steps.score][-1]:.4f}"
    if f"validation_{steps.score}" in history:
        text += f", validation {history[f'validation_{steps.score}'][-1]:.4f}"
    return text
