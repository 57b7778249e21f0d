"""Items of Potts machines, and looks at their estimates, for the existence of the maximum."""

import numpy as np
import scipy

from fastmf.learning.pseudo_likelihood.existence import Items, Look, existence
from fastmf.learning.pseudo_likelihood.newton import GRADIENT_ROUNDING
from fastmf.learning.pseudo_likelihood.potts.couplings import one_hot
from fastmf.learning.pseudo_likelihood.potts.fitting import Options, fit
from fastmf.models._gauge import PositionStates

# Rows whose fields are made together.
_ROWS_OF_FIELDS = 1024


def items_of(labels, targets, sizes, coupled, free, symmetric=True):
    """`Items` of rows of labels, in the zero-sum gauge as far as that changes no probability."""
    contrasts = [scipy.linalg.helmert(int(q)).T for q in sizes]
    in_gauge = free[0] & (labels >= 0).all(0)
    scores = [contrasts[i] if in_gauge[i] else np.eye(q) for i, q in enumerate(sizes)]
    return Items(labels.astype(np.int64), targets.astype(np.int64), contrasts, scores, coupled,
                 free, "positions", "or merge rare states", symmetric)  # fmt: skip


def looked_at(rows, sizes, items, couplings, field):
    """`Look` at an estimate: `rows` are labels, targets and weights that add up to one."""
    groups, n, (labels, targets, weights) = PositionStates(sizes), sum(sizes), rows
    first, position = groups.first, groups.position
    of_couplings, of_field, residual, separates = np.zeros((n, n)), np.zeros(n), np.inf, True
    for start in range(0, len(labels), _ROWS_OF_FIELDS):
        block = slice(start, start + _ROWS_OF_FIELDS)
        w, X = weights[block, None], one_hot(labels[block], sizes)
        observed = one_hot(targets[block], sizes).toarray() > 0
        there = (targets[block] >= 0)[:, position]
        eta = couplings.fields(labels[block]) + field
        p = groups.softmax(eta)
        best = np.maximum.reduceat(np.where(observed, -np.inf, eta), first, axis=1)[:, position]
        separates = separates and bool((eta > best)[observed].all())
        residual = min(residual, (w * p)[there & ~observed].min(initial=np.inf))
        r = np.where(there, w * (observed - p), 0)
        of_couplings += X.T @ r
        of_field += r.sum(0)
    free = np.triu(items.coupled[position][:, position])
    gradient = np.append((of_couplings + of_couplings.T)[free], of_field * items.free[0])
    rounding = GRADIENT_ROUNDING * np.sqrt(len(gradient))
    return Look(np.linalg.norm(gradient) + rounding, residual, separates)


def decided(data, penalties, estimate, seconds, symmetric=True, absent=None):
    """`Existence` of the maximum of a machine without missing targets."""
    coupled = ~np.eye(len(data.sizes), dtype=bool)
    if absent is not None:
        coupled[tuple(absent.T)] = coupled[tuple(absent.T[::-1])] = False
    l2, l2_field = penalties
    items = items_of(
        data.labels, data.labels, data.sizes, coupled, (not l2_field, not l2), symmetric
    )
    rows = data.labels, data.labels, data.weights / data.total

    def looks():
        yield looked_at(rows, data.sizes, items, *estimate)
        better = fit(data, Options(0.0, l2_field, "newton", tol=1e-9, max_iter=8), absent)
        yield looked_at(rows, data.sizes, items, better.couplings, better.field)

    return existence(items, looks() if symmetric else (), seconds)
