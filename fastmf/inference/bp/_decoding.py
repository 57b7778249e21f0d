"""Decoding by restarts and local search."""

from typing import NamedTuple

import numpy as np

from fastmf._common.arguments import generator
from fastmf.inference.bp._assignments import (
    best_assignments,
    climbed,
    margin_of,
    objective_of,
    problem_of,
)
from fastmf.inference.fixed_point import ending_of, replaced, with_check
from fastmf.kernels.bp.arguments import BPRecord

# Chains with which a check looks for better assignments, the multiple of their rounds, and the
# number of chains that must end at the best one for it to be reliable.
CHECKED_CHAINS, CHECK_EFFORT, MIN_AGREEING = 64, 2, 4
IS_BEST = "; no assignment is more probable: all states of a layer were compared"
BETTER = "another assignment is more probable, by {:.3g} nats; take n_restarts=20"
FEW = f"%d of {CHECKED_CHAINS} annealed chains found it, so that a more probable one may exist"


def draws_per_row(model, n_restarts):
    """Random numbers that `set_assignments` draws for a row.

    A row can so be given the same random numbers whichever other rows are solved with it.
    """
    return (n_restarts + 1) * len(model.weights)


def set_assignments(units, record, starts, n_starts, rng):
    """Start rows from assignments, except the first of each `n_starts` rows.

    From those in `starts`, the same for each group of rows, or random ones if that is None.
    """
    n_rows, n = record.visible.shape
    if starts is None:
        visible = generator(rng).random((n_rows, n)) < 0.5
    else:
        visible = np.tile(np.vstack([np.zeros((1, n), bool), starts]), (n_rows // n_starts, 1))
    at_assignments = np.arange(n_rows) % n_starts > 0
    set_visible(units, record, at_assignments, visible[at_assignments])


def set_visible(units, record, rows, visible):
    """Start some rows from visible {0, 1} units: one assignment each, or the same for all."""
    weights = units.model.weights
    record.visible[rows] = np.where(visible, 1.0, -1.0)
    sums = visible.astype(weights.dtype) @ weights
    record.hidden[rows, : weights.shape[1]] += sums.astype(np.float64) * units.factor


def polish_rows(options, units, fields, record):
    """Make the best assignment of each row a local maximum, all in float64."""
    joint, n_threads = options.algorithm == "max", options.n_threads
    problem = units.weights(), fields, joint, record.best
    record.objective[:], optimal = climbed(*problem, n_threads=n_threads)
    return optimal


def assigned_rows(options, units, ends, n_starts, moves):
    """Decoded rows that are polished, the best of several starts, and of annealed chains."""
    _, problem, record = ends
    optimal, is_best = None, False
    if options.polishes:
        fields = problem.visible_field, problem.hidden_field[:, : units.model.weights.shape[1]]
        optimal = polish_rows(options, units, fields, record)
    if n_starts > 1:
        record, optimal = best_of(record, optimal, n_starts)
    moved = None
    if options.polishes and moves:
        moved = best_assignments(units, options.algorithm == "max", record.best)
    if moved is not None:
        record.best[:] = moved.visible
        optimal = polish_rows(options, units, units.fields, record)
        is_best = moved.is_best
    return record, optimal, is_best


def with_assignment_check(found, options, units, is_best):
    """The same decoded `Beliefs`, whose assignments are compared with others when that is read."""
    if is_best:
        ending = ending_of(found)
        ending = np.where(found.converged, ending, np.char.add(ending, IS_BEST))
        found = replaced(found, message=ending[()])
    check = AssignmentCheck(units, options.algorithm == "max", is_best)
    return with_check(found, check) if options.polishes else found


class AssignmentCheck(NamedTuple):
    """A search for more probable assignments than the decoded ones.

    Parameters
    ----------
    units : BinaryUnits
    joint : bool
        Whether hidden units are maximised, too.
    is_best : bool
    """

    units: object
    joint: bool
    is_best: bool

    def __call__(self, found):
        """Reason why each row is not reliable, "" if it is; None if the layers are large."""
        bits = self.units.is_one(np.atleast_2d(found.assignment[0]))
        if self.is_best:
            return [""] * len(bits)
        size = CHECKED_CHAINS, CHECK_EFFORT
        others = best_assignments(self.units, self.joint, bits, *size, rng=1)
        if others is None:
            return None
        own = objective_of(*problem_of(self.units, len(bits)), self.joint, bits)
        rise, n = others.objective - own, others.n_agreeing
        few = np.where(n < MIN_AGREEING, np.char.mod(FEW, n), "")
        better = rise > margin_of(own)
        return [BETTER.format(x) if y else z for x, y, z in zip(rise, better, few, strict=True)]


def best_of(record, optimal, n_starts):
    """The record of the best of each `n_starts` rows, and whether it is a local maximum."""
    first = np.arange(0, len(record.objective), n_starts)
    best = first + record.objective.reshape(-1, n_starts).argmax(1)
    record = BPRecord(*(part[best] if len(part) else part for part in record))
    return record, None if optimal is None else optimal[best]
