"""The state of a training run in a file, from which it resumes bit by bit."""

import hashlib
import json
from dataclasses import asdict
from pathlib import Path

import numpy as np
from scipy.sparse import issparse

from fastmf.learning.training.ascent import State
from fastmf.learning.training.parameters import ModelParameters
from fastmf.models._io import (
    check_folder,
    field_to_arrays,
    model_from_arrays,
    model_to_arrays,
    plain,
    read_arrays,
    write_arrays,
)
from fastmf.priors._protocol import from_named_arrays


def identity(settings, model, seed, *data):
    """What a run must share with its checkpoint, as text: a resumed run would differ otherwise."""
    options = asdict(settings)
    if callable(settings.learning_rate):
        options["learning_rate"] = getattr(settings.learning_rate, "__qualname__", "callable")
    digests = [_digest(X) for X in data]
    return options | {
        "seed": int(seed),
        "model": repr(model),
        "start": _sizes(model),
        "data": [f"{X.shape} {X.dtype} {d}" for X, d in zip(data, digests, strict=True)],
    }


def _sizes(model):
    """The size of each parameter, to three digits: they are the same on another machine."""
    arrays = model_to_arrays(model)
    return {k: f"{abs(v).sum():.3g}" for k, v in arrays.items() if v.dtype.kind == "f"}


def _digest(X):
    digest = hashlib.blake2b(digest_size=16)
    for part in (X.data, X.indices, X.indptr) if issparse(X) else (X,):
        digest.update(np.ascontiguousarray(part))
    return digest.hexdigest()


def _with_prefix(prefix, arrays):
    return {f"{prefix}/{name}": value for name, value in arrays.items()}


def _without_prefix(prefix, arrays):
    start = f"{prefix}/"
    return {k.removeprefix(start): v for k, v in arrays.items() if k.startswith(start)}


def _numbered(prefix, arrays):
    parts = _without_prefix(prefix, arrays)
    return tuple(parts[str(i)] for i in range(len(parts)))


def _velocity_from_arrays(arrays, model):
    # A velocity has the form of a prior, but not its domain: a precision may well decrease.
    like = vars(ModelParameters.of(model))
    return ModelParameters(**{name: _field(name, value, arrays) for name, value in like.items()})


def _field(name, like, arrays):
    if isinstance(like, np.ndarray):
        return arrays[name]
    if type(like) is tuple:
        return tuple(_field(f"{name}.{i}", part, arrays) for i, part in enumerate(like))
    return from_named_arrays(like, name, arrays)


def write(path, state, run):
    """Write the state of a run to `path`, atomically.

    Parameters
    ----------
    path : str or path
    state : State
    run : dict
        The `identity` of the run.
    """
    velocity = {}
    for name, value in vars(state.velocity).items():
        velocity |= field_to_arrays(name, value)
    arrays = {
        "run": np.array([json.dumps(run, default=plain)]),
        "position": np.array([state.epoch, state.batch, state.waited]),
        **_with_prefix("model", model_to_arrays(state.model)),
        **_with_prefix("velocity", velocity),
        **_with_prefix("chains", {str(i): c for i, c in enumerate(state.chains)}),
        **_with_prefix("preconditioners", {str(i): p for i, p in enumerate(state.preconditioners)}),
        **_with_prefix("solutions", {str(i): s for i, s in enumerate(state.solutions)}),
        **_with_prefix("history", {k: np.array(v) for k, v in state.history.items()}),
    }
    if state.best is not None:
        arrays |= _with_prefix("best", model_to_arrays(state.best))
    write_arrays(path, arrays)


def _goes_on(mine, theirs):
    """Whether a run is a longer one that has begun alike: no rate depends on its last epoch."""
    return mine["n_epochs"] > theirs["n_epochs"] and not isinstance(mine["learning_rate"], list)


def read(path, run, *, any_seed=False):
    """The state in a checkpoint, and its seed; nothing if there is no file.

    A run of more epochs goes on from the last one of a shorter run, if the learning rate is a
    number or a function of the epoch.

    Parameters
    ----------
    path : str or path
    run : dict
        The `identity` of the run that would resume.
    any_seed : bool
        Whether the run takes the seed of the checkpoint.

    Returns
    -------
    tuple of State and int, or None

    Raises
    ------
    ValueError
        If the file is damaged, or belongs to a run with other settings or data.
    FileNotFoundError
        If there is no folder for it, where it could not be written later.
    """
    if not Path(path).exists():
        check_folder(path)
        return None
    arrays = read_arrays(path)
    if "run" not in arrays:
        raise ValueError(f"{path} is not a checkpoint of fastmf.")
    theirs = json.loads(str(arrays["run"][0]))
    mine = json.loads(json.dumps(run, default=plain))
    if any_seed:
        mine["seed"] = theirs["seed"]
    different = [name for name in mine if mine[name] != theirs.get(name)]
    if different == ["n_epochs"] and _goes_on(mine, theirs):
        different = []
    if different:
        raise ValueError(
            f"the checkpoint {path} belongs to a run that differs in {', '.join(different)}; "
            "remove it, or choose another path."
        )
    model = model_from_arrays(_without_prefix("model", arrays))
    epoch, batch, waited = (int(n) for n in arrays["position"])
    best = _without_prefix("best", arrays)
    state = State(
        model=model,
        velocity=_velocity_from_arrays(_without_prefix("velocity", arrays), model),
        epoch=epoch,
        batch=batch,
        chains=_numbered("chains", arrays),
        preconditioners=_numbered("preconditioners", arrays),
        solutions=_numbered("solutions", arrays),
        history={k: v.tolist() for k, v in _without_prefix("history", arrays).items()},
        best=model_from_arrays(best) if best else None,
        waited=waited,
    )
    return state, theirs["seed"]
