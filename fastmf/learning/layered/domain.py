"""Conditions for layered machines to be normalisable, and for mean-field iterations to be defined.

Couplings to units with bounded values, or finitely many, are at most linear in any unbounded unit.
Therefore only the precisions p of the unbounded units, and the couplings W between them, determine
whether a machine is normalisable, that is, exists. It exists if

    diag(p) - [[0, W], [W', 0]]    is positive definite.

The condition is also necessary for units that are unbounded on both sides. For units on half-lines,
couplings that lower the density are harmless, and are omitted from W.

Mean-field iterations need a stronger condition if an unbounded unit is not Gaussian: the tilt of
its precision by the variances of its neighbours must leave a proper distribution for any values of
these variances.
"""

from itertools import pairwise

import numpy as np

from fastmf._common.linalg import LinAlgError, cholesky
from fastmf.learning.training.ascent import ModelParameters
from fastmf.models.layered import between_sides
from fastmf.priors._protocol import as_dtype
from fastmf.priors._protocol import project as project_prior
from fastmf.priors._queries import (
    PRECISION_MARGIN,
    directions,
    largest_variance,
    precisions,
    unbounded,
)
from fastmf.priors._scaling import with_log_steps


def has_constraints(layers):
    """Whether unbounded units are coupled; machines without such couplings always exist."""
    return any(a.any() and b.any() for a, b in pairwise(map(unbounded, layers)))


def exists(couplings, layers):
    """Whether the sufficient condition for a layered machine to be normalisable holds."""
    if not has_constraints(layers):
        return True
    free = list(map(unbounded, layers))
    # Even layers are coupled to odd layers only: they are the rows of W.
    pairs = zip(couplings, pairwise(layers), pairwise(free), strict=True)
    blocks = [_scaled_couplings(*pair) for pair in pairs]
    matrix = between_sides(blocks, [int(part.sum()) for part in free], np.float64)
    gram = matrix.T @ matrix if matrix.shape[0] > matrix.shape[1] else matrix @ matrix.T
    try:
        cholesky(np.eye(len(gram)) - gram)
    except LinAlgError:
        return False
    return True


def _scaled_couplings(weights, layers, unbounded_units):
    """Return the couplings of unbounded units of two layers, over the roots of precisions."""
    units = list(zip(layers, unbounded_units, strict=True))
    below, above = (np.sqrt(precisions(layer)[free]) for layer, free in units)
    signs = np.outer(*(directions(layer)[free] for layer, free in units))
    w = np.asarray(weights, np.float64)[np.ix_(*unbounded_units)]
    return np.where(signs * w < 0, 0, w) / np.outer(below, above)


def check_exists(model):
    """Raise a ValueError for a machine with Gaussian units that cannot be normalised."""
    free = [unbounded(layer) & (directions(layer) == 0) for layer in model.layers]
    only_free = all((u == f).all() for u, f in zip(map(unbounded, model.layers), free, strict=True))
    if only_free and not exists(model.couplings, model.layers):
        raise ValueError(
            "the machine that learning begins with has no distribution: with precisions p and q of "
            "the real units of two layers, the largest singular value of W / sqrt(p q) must be "
            "below 1; scale its weights down."
        )


def can_follow(model):
    """Whether moments exist in mean-field iterations for any variances of the units.

    Tramel et al. (2018), Eqs. 67-69. Gaussian units next to bounded ones are integrated out, and
    have moments whenever the machine exists.
    """
    if model.is_integrated:
        return True
    couplings, layers = model.couplings, model.layers
    for k, layer in enumerate(layers):
        is_unbounded = unbounded(layer)
        if not is_unbounded.any():
            continue
        reduction = 0
        with np.errstate(invalid="ignore"):  # BLAS may set the flag for finite products
            if k > 0:
                reduction = reduction + largest_variance(layers[k - 1]) @ couplings[k - 1] ** 2
            if k < len(couplings):
                reduction = reduction + couplings[k] ** 2 @ largest_variance(layers[k + 1])
        if (precisions(layer) < PRECISION_MARGIN * reduction)[is_unbounded].any():
            return False
    return True


def after_step(model, parameters, step):
    """Return the machine after a step, which is halved until the machine exists."""
    couplings, layers = parameters.couplings, parameters.layers
    new = layers_after(model.layers, layers, step.layers)
    if not exists(couplings, new) and exists(model.couplings, model.layers):
        start = ModelParameters.of(model)
        for _ in range(np.finfo(np.float64).nmant):
            step.combine(lambda x: np.multiply(x, 0.5, out=x))
            trial = start.combine(np.add, step)
            couplings = trial.couplings
            new = layers_after(model.layers, trial.layers, step.layers)
            if exists(couplings, new):
                break
        else:
            return model
    return model.moved(couplings, tuple(as_dtype(layer, model.dtype) for layer in new))


def layers_after(layers, moved, step):
    """Return the units after a step; precisions of unbounded units move in their logarithm."""
    parts = zip(layers, moved, step, strict=True)
    return tuple(project_prior(with_log_steps(*part)) for part in parts)
