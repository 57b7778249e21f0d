"""The state of a training run in a file, from which it resumes bit by bit.

The file holds a digest of each member: a file with other members was not written by a run.
"""

import hashlib
import json
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
from scipy.sparse import issparse

from fastmf.learning.training.ascent import State, initial_state
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
    """A callback by which `fit` writes its state after each epoch, and resumes from the file.

    The result has the same bits as without an interruption. A run of more epochs continues a
    shorter one, if the learning rate is a number or a function of the epoch.

    Parameters
    ----------
    path : str or path
        File (.npz). A file of another run is refused.

    Raises
    ------
    FileNotFoundError
        If there is no folder for `path`.

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
        """The path of the checkpoint among some callbacks, or None."""
        return next((one.path for one in callbacks if isinstance(one, cls)), None)


# Members of a state that are tuples of arrays.
TUPLES = "velocity", "chains", "preconditioners", "solutions", "completed"


def start_of(path, model, X, settings, seed, *data):
    """The state with which a run begins, and a function that writes a checkpoint.

    Other data than `X` that the result depends on may be None.
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
    """Data as a tuple of arrays."""
    return data if isinstance(data, tuple) else (data,)


def fresh_seed():
    """A seed that the operating system's entropy gives."""
    return int(np.random.SeedSequence().generate_state(1)[0])


def identity(settings, model, seed, *data):
    """Properties of a run and its checkpoint, as text: if they differ, so would a resumed run."""
    options = asdict(settings)
    if callable(settings.learning_rate):
        options["learning_rate"] = getattr(settings.learning_rate, "__qualname__", "callable")
    # The size of each parameter to three digits, which are the same on another machine.
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
    parts = {name: dict(enumerate(arrays)) for name, arrays in _tuples(state).items()}
    parts |= {"model": model_to_arrays(state.model), "history": state.history}
    if state.best is not None:
        parts["best"] = model_to_arrays(state.best)
    arrays = {f"{part}/{name}": np.asarray(x) for part in parts for name, x in parts[part].items()}
    arrays["run"] = np.array([json.dumps(run, default=plain)])
    arrays["position"] = np.array([state.epoch, state.waited])
    digests = {name: _digest(array) for name, array in arrays.items()}
    write_arrays(path, arrays | {"digests": np.array([json.dumps(digests)])})


def _tuples(state):
    return {name: getattr(state, name) for name in TUPLES} | {"velocity": state.velocity.arrays()}


def read(path, run, start):
    """The state in a checkpoint of a run.

    A run of more epochs continues a shorter run, if the learning rate is a number or a function of
    the epoch.
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
    """The `identity` of the run of a checkpoint, whose members are compared with their digests."""
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
