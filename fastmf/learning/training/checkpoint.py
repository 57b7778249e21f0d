"""The state of a training run in a file, from which it resumes bit by bit."""

import hashlib
import json
from dataclasses import asdict
from pathlib import Path

import numpy as np
from scipy.sparse import issparse

from fastmf.learning.training.ascent import MAX_MODULUS, State
from fastmf.learning.training.parameters import ModelParameters
from fastmf.models._archive import reading, reason, shown
from fastmf.models._io import (
    check_folder,
    field_to_arrays,
    model_from_arrays,
    model_to_arrays,
    plain,
    write_arrays,
)
from fastmf.priors._protocol import from_named_arrays


def identity(settings, model, seed, *data):
    """Properties of a run and its checkpoint, as text: if they differ, so would a resumed run."""
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


def _velocity_to_arrays(velocity):
    arrays = {}
    for name, value in vars(velocity).items():
        arrays |= field_to_arrays(name, value)
    return arrays


def write(path, state, run):
    """Write the state of a run to `path`, atomically."""
    arrays = {
        "run": np.array([json.dumps(run, default=plain)]),
        "position": np.array([state.epoch, state.batch, state.waited]),
        **_with_prefix("model", model_to_arrays(state.model)),
        **_with_prefix("velocity", _velocity_to_arrays(state.velocity)),
        **_with_prefix("chains", {str(i): c for i, c in enumerate(state.chains)}),
        **_with_prefix("preconditioners", {str(i): p for i, p in enumerate(state.preconditioners)}),
        **_with_prefix("solutions", {str(i): s for i, s in enumerate(state.solutions)}),
        **_with_prefix("completed", {str(i): c for i, c in enumerate(state.completed)}),
        **_with_prefix("history", {k: np.array(v) for k, v in state.history.items()}),
    }
    if state.best is not None:
        arrays |= _with_prefix("best", model_to_arrays(state.best))
    write_arrays(path, arrays)


def _goes_on(mine, theirs):
    """Whether a run is a longer one that has begun alike: no rate depends on its last epoch."""
    return mine["n_epochs"] > theirs["n_epochs"] and not isinstance(mine["learning_rate"], list)


def read(path, run, start, check, *, any_seed=False):
    """The state in a checkpoint, and its seed; nothing if there is no file.

    A run of more epochs goes on from the last one of a shorter run, if the learning rate is a
    number or a function of the epoch. Each member is checked before it is used: its presence, type
    and shape, and its values as far as they are known.
    """
    if not Path(path).exists():
        check_folder(path)
        return None
    with reading(path, "a checkpoint") as arrays:
        mine, theirs = json.loads(json.dumps(run, default=plain)), identity_in(arrays)
        if any_seed:
            mine["seed"] = theirs["seed"]
        different = [name for name in mine if mine[name] != theirs.get(name)]
        if different == ["n_epochs"] and _goes_on(mine, theirs):
            different = []
        state = None
        if not different:
            state = _state(arrays, start)
            check(state)
    if different:
        raise ValueError(
            f"the checkpoint {path} belongs to a run that differs in {', '.join(different)}; "
            "remove it, or choose another path."
        )
    return state, theirs["seed"]


def identity_in(arrays):
    """The `identity` of the run of a checkpoint, in an `Archive`."""
    (text,) = arrays.texts("run", 1)
    run = json.loads(text)
    if not isinstance(run, dict):
        raise ValueError(f"member 'run' must hold the options of a run, got {shown(text)}.")
    for name in ("seed", "n_epochs"):
        if type(run.get(name)) is not int or run[name] < 0:
            raise ValueError(
                f"member 'run' must hold an integer of at least 0 as {name}, got "
                f"{shown(run.get(name))}."
            )
    return run


# Members, and what stands before the slash in the names of others.
_PARTS = {
    "run", "position", "model", "velocity", "best", "chains", "preconditioners", "solutions",
    "completed", "history",
}  # fmt: skip


def _state(arrays, start):
    """The state in the members, each of the type and shape of that of the start."""
    parts = {name.partition("/")[0] for name in arrays}
    if unknown := parts - _PARTS:
        raise ValueError(f"it holds the member {shown(min(unknown))}, which no checkpoint has.")
    epoch, batch, waited = arrays.member("position", "iu", (3,), low=0).tolist()
    dtype = start.model.dtype
    return State(
        model=_model(arrays.under("model"), start.model),
        velocity=_velocity(arrays.under("velocity"), start),
        epoch=epoch,
        batch=batch,
        # Those of quasi-Newton steps are of double precision.
        chains=_numbered(arrays.under("chains"), None),
        preconditioners=_numbered(arrays.under("preconditioners"), dtype),
        solutions=_numbered(arrays.under("solutions"), dtype),
        completed=_numbered(arrays.under("completed"), dtype),
        history=_history(arrays.under("history")),
        best=_model(arrays.under("best"), start.model) if "best" in parts else None,
        waited=waited,
    )


def _model(arrays, start):
    """A model with parameters like those of the start, which training has changed."""
    arrays.check_alike(model_to_arrays(start))
    try:
        model = model_from_arrays(arrays)
    except (TypeError, ValueError) as error:
        raise ValueError(f"members {arrays.prefix}... make no model: {reason(error)}") from error
    for matrix in ModelParameters.of(model).matrices():
        if abs(matrix).max(initial=0) > MAX_MODULUS:
            raise ValueError(f"members {arrays.prefix}... have weights beyond {MAX_MODULUS:g}.")
    return model


def _velocity(arrays, start):
    # Steps of real units are in double precision for some priors.
    arrays.check_alike(_velocity_to_arrays(start.velocity), same_type=False)
    values = {name: arrays[name] for name in arrays}
    if any(array.dtype.kind == "f" and np.isnan(array).any() for array in values.values()):
        raise ValueError(f"members {arrays.prefix}... must hold numbers, got NaN.")
    # A velocity has the form of a prior, but not its domain: a precision may well decrease.
    like = vars(start.velocity)
    velocity = ModelParameters(**{k: _field(k, value, values) for k, value in like.items()})
    found = []
    # Parameters that are not learned are in it, too, and may be infinite.
    velocity.combine(lambda array: found.append(np.isfinite(array).all()) or array)
    if not all(found):
        raise ValueError(f"members {arrays.prefix}... must hold finite numbers, got infinity.")
    return velocity


def _field(name, like, arrays):
    if isinstance(like, np.ndarray):
        return arrays[name]
    if type(like) is tuple:
        return tuple(_field(f"{name}.{i}", part, arrays) for i, part in enumerate(like))
    return from_named_arrays(like, name, arrays)


def _numbered(arrays, dtype):
    names = map(str, range(len(list(arrays))))
    return tuple(arrays.member(name, "f", (None, None), dtype, -np.inf) for name in names)


def _history(arrays):
    return {name: arrays[name].tolist() for name in arrays}
