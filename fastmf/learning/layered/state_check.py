"""Checks of what a state from a file keeps between steps, beside its parameters."""

import numpy as np

from fastmf.learning.layered.gradients import MEAN_FIELD
from fastmf.priors._groups import has_groups
from fastmf.priors._protocol import by_parts, n_units, parts_of
from fastmf.priors._queries import two_values, unbounded
from fastmf.priors._values import admissible

# Means may leave the range of two-valued units by rounding.
_MEAN_ROUNDING = 1e-5
# Solutions of largest weight that are starts in the next epoch: they are nearly solved, and cost a
# quarter of what a hundred rows of digits of 784 pixels do.
MAX_SOLUTIONS = 50


def check(state, settings, n_rows):
    """Raise for chains, preconditioners or solutions that no run of these settings has."""
    layers, sizes, begun = state.model.layers, state.model.sizes, state.epoch or state.batch
    if any(array.dtype != state.model.dtype for array in state.chains):
        raise ValueError(f"members chains/... must hold {state.model.dtype}.")
    n_starts = settings.n_starts or min(settings.batch_size, n_rows)
    # Mean-field gradients of unbounded units may go on with chains.
    free = any(unbounded(layer).any() for layer in layers)
    changed = settings.gradient in MEAN_FIELD and free and len(state.chains) == 1
    if settings.gradient == "pcd" or changed:
        _check_shapes("chains", state.chains, [(n_starts, sum(sizes[::2]))] if begun else [])
        for chains in state.chains:
            _check_samples(layers[::2], chains)
    else:
        persistent = settings.gradient in MEAN_FIELD and settings.starts == "persistent"
        _check_moments("chains", layers, state.chains, n_starts if persistent and begun else None)

    conditioned = begun and settings.preconditioning is not None
    squares = [(n, n) for n in sizes] if conditioned else []
    _check_shapes("preconditioners", state.preconditioners, squares)
    for matrix in state.preconditioners:
        if (matrix != matrix.T).any() or not (matrix.diagonal() > 0).all():
            raise ValueError("members preconditioners/... must be symmetric, of positive diagonal.")

    found = len(state.solutions[0]) if state.epoch and state.solutions else None
    _check_moments("solutions", layers, state.solutions, found)
    if found is not None and found > MAX_SOLUTIONS:
        raise ValueError(f"members solutions/... must have at most {MAX_SOLUTIONS} rows.")


def _check_shapes(name, arrays, expected):
    found = [array.shape for array in arrays]
    if found != expected:
        raise ValueError(f"members {name}/... must be of the shapes {expected}, got {found[:9]}.")


def _check_samples(layers, chains):
    """Raise unless samples are values that the units can take."""
    parts = [part for prior in layers for part in parts_of(prior)]
    ends = np.cumsum([n_units(part) for part in parts])[:-1]
    for part, values in zip(parts, np.split(chains, ends, axis=1), strict=True):
        if not np.all(admissible(part, values)):
            raise ValueError(f"member 'chains/0' must hold values of {type(part).__name__} units.")


def _check_moments(name, layers, arrays, n_rows):
    """Raise unless arrays are means and variances of all layers; of no rows there are none."""
    sizes = [n_units(prior) for prior in layers]
    shapes = [] if n_rows is None else [(n_rows, n) for n in (*sizes, *sizes)]
    _check_shapes(name, arrays, shapes)
    if any((var < 0).any() for var in arrays[len(layers) :]):
        raise ValueError(f"members {name}/... must hold variances of at least 0.")
    for prior, mean in zip(layers, arrays[: len(layers)], strict=False):
        for part, x in by_parts(prior, mean):
            low, high = (0, 1) if has_groups(part) else two_values(part) or (-np.inf, np.inf)
            if (x < low - _MEAN_ROUNDING).any() or (x > high + _MEAN_ROUNDING).any():
                raise ValueError(
                    f"members {name}/... must hold means of {type(part).__name__} units, in "
                    f"[{low}, {high}]."
                )
