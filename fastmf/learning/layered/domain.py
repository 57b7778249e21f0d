"""Which layered machines exist, and which of them mean-field iterations can follow.

Units of bounded values, or of finitely many, are coupled by terms that are at most linear in any
unbounded unit: these matter to whether a machine exists only through their precisions and the
couplings between them. With the precisions p of all unbounded units, and the couplings W between
those, the machine exists if

    diag(p) - [[0, W], [W', 0]]    is positive definite.

The condition is necessary, too, for units that are unbounded on both sides. For units on
half-lines, between which couplings that lower the density are harmless, these are left out.

Mean-field iterations ask for more where an unbounded unit is not Gaussian: a tilt of its precision
by the variances of its neighbours must leave a distribution, whatever these variances are.
"""

from itertools import pairwise

import numpy as np

from fastmf._common.linalg import LinAlgError, cholesky
from fastmf.learning.training.ascent import ModelParameters
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
    """Whether there are unbounded units next to each other: other machines always exist."""
    return any(a.any() and b.any() for a, b in pairwise(map(unbounded, layers)))


def exists(couplings, layers):
    """Whether the distribution of a layered machine has a finite integral, as far as is known."""
    if not has_constraints(layers):
        return True
    free = list(map(unbounded, layers))
    # Even layers are coupled to odd ones only: W of the text above has those as rows.
    sizes = [int(part.sum()) for part in free]
    starts = [sum(sizes[k % 2 : k : 2]) for k in range(len(sizes))]
    matrix = np.zeros((sum(sizes[::2]), sum(sizes[1::2])))
    for k, weights in enumerate(couplings):
        rows, columns = (slice(starts[i], starts[i] + sizes[i]) for i in (k, k + 1))
        block = _scaled_couplings(weights, layers[k : k + 2], free[k : k + 2])
        if k % 2 == 0:
            matrix[rows, columns] = block
        else:
            matrix[columns, rows] = block.T
    gram = matrix.T @ matrix if matrix.shape[0] > matrix.shape[1] else matrix @ matrix.T
    try:
        cholesky(np.eye(len(gram)) - gram)
    except LinAlgError:
        return False
    return True


def _scaled_couplings(weights, layers, unbounded_units):
    """Couplings of the unbounded units of two layers, divided by roots of their precisions."""
    units = list(zip(layers, unbounded_units, strict=True))
    below, above = (np.sqrt(precisions(layer)[free]) for layer, free in units)
    signs = np.outer(*(directions(layer)[free] for layer, free in units))
    w = np.asarray(weights, np.float64)[np.ix_(*unbounded_units)]
    return np.where(signs * w < 0, 0, w) / np.outer(below, above)


def check_exists(model):
    """Raise a ValueError for a machine of Gaussian units that has no distribution."""
    free = [unbounded(layer) & (directions(layer) == 0) for layer in model.layers]
    only_free = all((u == f).all() for u, f in zip(map(unbounded, model.layers), free, strict=True))
    if only_free and not exists(model.couplings, model.layers):
        raise ValueError(
            "the machine that learning begins with has no distribution: with precisions p and q of "
            "the real units of two layers, the largest singular value of W / sqrt(p q) must be "
            "below 1; scale its weights down."
        )


def can_follow(model):
    """Whether mean-field iterations of a machine have moments, whatever the variances are.

    Tramel et al. (2018), Eqs. 67-69. Gaussian units next to bounded ones are integrated out, and
    have moments wherever the machine exists.
    """
    if model.is_integrated:
        return True
    couplings, layers = model.couplings, model.layers
    for k, layer in enumerate(layers):
        free = unbounded(layer)
        if not free.any():
            continue
        reduction = 0
        with np.errstate(invalid="ignore"):  # products of BLAS may set the flag for finite numbers
            if k > 0:
                reduction = reduction + largest_variance(layers[k - 1]) @ couplings[k - 1] ** 2
            if k < len(couplings):
                reduction = reduction + couplings[k] ** 2 @ largest_variance(layers[k + 1])
        if (precisions(layer) < PRECISION_MARGIN * reduction)[free].any():
            return False
    return True


def after_step(model, parameters, step):
    """The machine after a step, which is shortened where no machine would exist."""
    couplings, layers = parameters.couplings, parameters.layers
    new = layers_after(model.layers, layers, step.layers)
    if not exists(couplings, new) and exists(model.couplings, model.layers):
        start = ModelParameters.of(model)
        for _ in range(np.finfo(np.float64).nmant):
            step.combine(lambda x: np.multiply(x, 0.5, out=x))
            moved = start.combine(np.add, step)
            couplings = moved.couplings
            new = layers_after(model.layers, moved.layers, step.layers)
            if exists(couplings, new):
                break
        else:
            return model
    return model.moved(couplings, tuple(as_dtype(layer, model.dtype) for layer in new))


def layers_after(layers, moved, step):
    """The units after a step, precisions of unbounded ones moved in their logarithm."""
    parts = zip(layers, moved, step, strict=True)
    return tuple(project_prior(with_log_steps(*part)) for part in parts)
