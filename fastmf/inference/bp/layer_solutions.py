"""Sum-product of RBMs of binary units from many starts."""

from dataclasses import replace

import numpy as np

from fastmf._common import arguments as check
from fastmf._outcomes import is_converged
from fastmf.inference.bp._binary_units import BinaryUnits
from fastmf.inference.bp.rbm import Ends, propagated
from fastmf.inference.bp.solutions import (
    MIN_START_PROBABILITY,
    EndsOfStarts,
    fixed_points,
    random_probabilities,
)
from fastmf.special import sigmoid

# Sweeps to naive mean-field solutions and to states of low energy, which have a low temperature.
N_SWEEPS, COLD = 50, 1e-3


def propagate_from_starts(options, model, fields, n_rows):
    """Units, `Ends` of rows of mixtures of fixed points, their solutions, and which are stable."""
    units, rng = BinaryUnits(model, fields), check.generator(options.rng)
    first = replace(options, n_starts=None, messages=True, pairwise=False)
    last = replace(first, pairwise=bool(options.pairwise))
    parts = []
    for row in range(n_rows or 1):
        of_row = [f if f is None or f.ndim == 1 else f[min(row, len(f) - 1)] for f in fields]
        row_units = BinaryUnits(model, of_row)

        def solve(messages, is_last, units=row_units):
            chosen = last if is_last else first
            return _ends_of_starts(units, propagated(chosen, units, len(messages), messages))

        starts = _starts(row_units, options.n_starts, rng)
        parts.append((row_units, fixed_points(solve, starts, rng)))
    ends, solutions = _joined(parts)
    if options.pairwise == "mean":
        ends = ends._replace(pairs=ends.pairs.mean(0))
    return units, ends, solutions, [mixture.stable for _, mixture in parts]


def _ends_of_starts(units, ends):
    record, m = ends.record, units.model.weights.shape[1]
    log_odds = np.hstack([record.visible, record.hidden[:, :m]])
    return EndsOfStarts(
        beliefs=sigmoid(log_odds),
        log_partition=record.bethe + units.constant,
        converged=is_converged(record.status),
        damping=record.damping,
        messages=ends.messages,
        result=ends,
    )


def _starts(units, n_starts, rng):
    """Log-messages from visible to hidden units of the given number of starts."""
    weights, (b, c) = units.weights(), units.fields
    p = random_probabilities(n_starts - 1, len(weights), rng)
    # Opposites are one after another, and so are of the same kind.
    kinds = np.arange(n_starts - 1) // 2 % 3
    for kind, temperature in ((1, 1.0), (2, COLD)):
        x = p[kinds == kind]
        for _ in range(N_SWEEPS):
            hidden = sigmoid((c + x @ weights) / temperature)
            x = sigmoid((b + hidden @ weights.T) / temperature)
        p[kinds == kind] = x
    random = kinds == 0
    p[random] = np.abs(p[random] - rng.random((random.sum(), 1)) / 2)
    p = np.clip(p, MIN_START_PROBABILITY, 1 - MIN_START_PROBABILITY)[:, :, None]
    messages = np.logaddexp(np.log(1 - p), np.log(p) + weights)
    middle = weights[None] / 2
    return np.concatenate([middle, messages])


def _joined(parts):
    """The `Ends` of all rows one after another, and their solutions."""
    records, pairs, solutions = [], [], []
    for units, mixture in parts:
        record, products, _ = mixture.ends.result
        m = units.model.weights.shape[1]
        means, _ = units.means((record.visible, record.hidden[:, :m]))
        means = [x.astype(units.model.dtype) for x in means]
        solutions.append(mixture.solutions(*means))
        records.append(_mixed(mixture, record, units.constant))
        pairs.append(mixture.average(products))
    record = records[0]._make(np.concatenate(column) for column in zip(*records, strict=True))
    return Ends(record, None if pairs[0] is None else np.concatenate(pairs), None), solutions


def _mixed(mixture, record, constant):
    """The record of a mixture, with one row."""
    rows, best = mixture.rows, mixture.rows[:1]
    record = record._replace(history=record.history[:, :0])
    return type(record)(*(part[best] if len(part) else part for part in record))._replace(
        visible=mixture.average_log_odds(record.visible),
        hidden=mixture.average_log_odds(record.hidden),
        bethe=np.logaddexp.reduce(mixture.log_partitions) - constant,
        n_iter=record.n_iter[rows].max(keepdims=True),
        residual=record.residual[rows].max(keepdims=True),
        damping=record.damping[rows].max(keepdims=True),
    )
