"""Most probable assignments of two layers of binary units, by enumeration or simulated annealing.

Where one layer has few states, each is completed by the best state of the other, so that the best
assignment is found. Otherwise chains of single flips are annealed, with units of the other layer
maximised or summed out at each flip. If the other layer is maximised, too, the smaller of both is
flipped.
"""

from typing import NamedTuple

import numpy as np

from fastmf._outcomes import LOG_EPSILON
from fastmf._threads.workers import in_parallel, one_blas_thread, workers_for
from fastmf.inference.bp._kernel_arguments import MAX_LOG_OF_PRODUCT
from fastmf.kernels.bp.local_search import ClimbSettings, climb
from fastmf.kernels.bp.messages import BPProblem
from fastmf.models.exact import MAX_LAYER_STATES

# Chains of each row, their rounds for each unit, the fewest rounds, and the first temperature
# relative to the fields.
N_ANNEALED_CHAINS, ROUNDS_PER_UNIT, MIN_ANNEALED_ROUNDS, FIRST_TEMPERATURE = 16, 4, 100, 0.2
# Random numbers that all chains share, an eighth of the numbers in the chains of some rows.
N_RANDOM = 1 << 17
# Products of all rows that bound the rounds.
MAX_ANNEALED_PRODUCTS = 2e9
# Chains with which a check looks for better assignments, and the number of chains that must end at
# the best one for it to be reliable.
CHECKED_CHAINS, MIN_AGREEING = 64, 4
BETTER = "another assignment is more probable, by {:.3g} nats; take {}"
NO_STATE = "no state is possible"
FEW = f"%d of {CHECKED_CHAINS} annealed chains found it, so that a more probable one may exist"
# Temperatures and random numbers of a local search alone.
CLIMB_ONLY = np.empty(0), np.zeros(1)


class Assignments(NamedTuple):
    """Visible {0, 1} units of rows, and whether all states of a layer were compared."""

    visible: np.ndarray
    objective: np.ndarray
    is_best: bool
    n_agreeing: np.ndarray | None = None  # number of chains that ended at such an objective


@one_blas_thread()
def best_assignments(units, joint, visible, chains=N_ANNEALED_CHAINS, rng=0):
    """Assignments that are as probable as given ones, or more."""
    weights, fields = problem_of(units, len(visible))
    n_rows, given = len(visible), objective_of(weights, fields, joint, visible)
    result = _enumerated(weights, fields, joint)
    if result is not None:
        # Where they are as probable, the given ones stay.
        no_better = result.objective <= given + margin_of(given) / 1000
        return result._replace(visible=np.where(no_better[:, None], visible, result.visible))
    rounds = _rounds(weights, joint, chains * n_rows)
    if rounds < MIN_ANNEALED_ROUNDS:
        return None
    best, objective, n_agreeing = visible.copy(), given.copy(), np.zeros(n_rows, int)
    step = max(1, 8 * N_RANDOM // (chains * sum(weights.shape)))
    for first in range(0, n_rows, step):
        rows = slice(first, first + step)
        given_fields = [f[rows] for f in fields]
        new = _annealed(weights, given_fields, joint, (chains, rounds), np.random.default_rng(rng))
        values = objective_of(weights, [f[:, None] for f in given_fields], joint, new)
        top = values.argmax(1)[:, None]
        highest = np.take_along_axis(values, top, 1)[:, 0]
        better = highest > objective[rows]
        best[rows][better] = np.take_along_axis(new, top[:, :, None], 1)[better, 0]
        objective[rows][better] = highest[better]
        lowest = objective[rows] - margin_of(objective[rows])
        n_agreeing[rows] = (values >= lowest[:, None]).sum(1)
    return Assignments(best, objective, False, n_agreeing)


def margin_of(objective):
    """Differences of objectives that are rounding."""
    return 1e-9 * (1 + abs(objective))


def problem_of(units, n_rows):
    """Weights of {0, 1} units, and fields of all rows.

    Fields are clipped where they decide on a unit alone, so that sums keep the digits of the
    weights.
    """
    weights, fields = units.weights(), []
    for axis, field in enumerate(units.fields):
        decisive = 2 * abs(weights).sum(1 - axis) - LOG_EPSILON
        clipped = np.clip(field, -decisive, decisive)
        fields.append(np.broadcast_to(clipped, (n_rows, field.shape[1])))
    return weights, fields


def objective_of(weights, fields, joint, visible):
    """Exponent of visible states with the best hidden ones, or log p(v) without its constant."""
    b = fields[1] + visible @ weights
    return (visible * fields[0]).sum(-1) + _of_hidden(b, joint)


def _of_hidden(b, joint):
    return np.maximum(b, 0).sum(-1) if joint else np.logaddexp(0, b).sum(-1)


def _enumerated(weights, fields, joint):
    """The best `Assignments` by all states of one layer; None where these are many."""
    n, m = weights.shape
    n_rows = len(fields[0])
    by_hidden = joint and m < n
    size = m if by_hidden else n
    if n_rows * 2.0 ** min(size, 64) * (n + m) > MAX_LAYER_STATES:
        return None
    states = ((np.arange(2**size)[:, None] >> np.arange(size)) & 1).astype(np.float64)
    sums = states @ (weights.T if by_hidden else weights)
    best = np.empty((n_rows, n), bool)
    for k in range(n_rows):
        given, summed = (f[k] for f in (fields[::-1] if by_hidden else fields))
        top = (states @ given + _of_hidden(sums + summed, joint)).argmax()
        best[k] = sums[top] + summed > 0 if by_hidden else states[top] > 0
    return Assignments(best, objective_of(weights, fields, joint, best), True)


def _rounds(weights, joint, n_chains):
    """Number of rounds over all units of chains that time allows; 0 without weights."""
    if not weights.size:
        return 0
    units = min(weights.shape) if joint else len(weights)
    wanted = max(ROUNDS_PER_UNIT * units, MIN_ANNEALED_ROUNDS)
    return min(wanted, int(MAX_ANNEALED_PRODUCTS / (n_chains * weights.size)))


def _annealed(weights, fields, joint, size, rng):
    """Visible units at the ends of chains, of shape (n_rows, n_chains, n_visible)."""
    (chains, rounds), (n, m), n_rows = size, weights.shape, len(fields[0])
    hot = FIRST_TEMPERATURE * np.sqrt((weights**2).sum() / min(n, m))
    by_hidden = joint and m < n
    flipped, summed = fields[::-1] if by_hidden else fields
    states = rng.random((n_rows * chains, flipped.shape[1])) < 0.5
    climbed(
        np.ascontiguousarray(weights.T) if by_hidden else weights,
        (np.repeat(flipped, chains, axis=0), np.repeat(summed, chains, axis=0)),
        joint,
        states,
        annealing=(hot * (1 - np.arange(rounds) / rounds), np.log1p(-rng.random(N_RANDOM))),
    )
    if by_hidden:
        states = states @ weights.T + np.repeat(summed, chains, axis=0) > 0
    return states.reshape(n_rows, chains, n)


def climbed(weights, fields, joint, visible, *, annealing=CLIMB_ONLY, n_threads=None):
    """Flip units of rows, which are changed in place, until no single flip helps."""
    (n, m), n_rows, sums = weights.shape, len(visible), abs(weights).sum(1)
    problem = BPProblem(
        weights=weights,
        exponentials=np.exp(weights[:0] if joint else weights),
        starts=weights[:0],
        row_sums=weights.sum(1),
        visible_field=np.ascontiguousarray(fields[0]),
        hidden_field=np.ascontiguousarray(fields[1]),
    )
    max_weight = max(0.1, abs(weights).max(initial=0))
    max_factors = max(1, int(MAX_LOG_OF_PRODUCT[weights.dtype] / max_weight))
    settings = ClimbSettings(joint, max_factors, 1 + sums, *annealing)
    objective, optimal = np.empty(n_rows), np.zeros(n_rows, bool)
    n_rounds = 10 + len(annealing[0])
    n_workers = workers_for(n_rows, 2 * n_rounds * n_rows * n * m, n_threads)
    memory, queue = np.empty((n_workers, 3, m)), np.zeros(2, np.int64)
    in_parallel(climb, (settings, problem, memory, visible, objective, optimal, queue), n_workers)
    return objective, optimal


def reasons(given, best, advice):
    """Reason why each row is not reliable: a more probable assignment, or none that is possible."""
    texts = []
    for objective, highest in zip(given, best, strict=True):
        is_lower = highest > -np.inf and highest - objective > margin_of(highest)
        text = BETTER.format(highest - objective, advice) if is_lower else ""
        texts.append(NO_STATE if highest == -np.inf else text)
    return texts


def search_again(units, joint, result):
    """Search more probable assignments: the reason why each row is not reliable, "" if it is.

    None if the layers are large.
    """
    bits = units.is_one(np.atleast_2d(result.assignment[0]))
    better = best_assignments(units, joint, bits, CHECKED_CHAINS, rng=1)
    if better is None:
        return None
    given = objective_of(*problem_of(units, len(bits)), joint, bits)
    n, why = better.n_agreeing, reasons(given, better.objective, "n_starts=20")
    rare = np.where(n < MIN_AGREEING, np.char.mod(FEW, n), "")
    return [reason or doubt for reason, doubt in zip(why, rare, strict=True)]
