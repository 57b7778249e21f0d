"""The rule by which rows are judged; see `fastmf.inference.checks`."""

import numpy as np

from fastmf.inference.checks.exact_sums import exact_rows
from fastmf.inference.checks.rows import (
    Answer,
    JudgedRows,
    Reason,
    agree,
    are_too_large,
    joined,
    machine_of,
)

# Share of the weight from which on a row with a start of its own is the answer of the whole model.
LARGEST_SHARE = 0.75


def reasons_of(solved, question, exact_sums=True):
    """Return the reason why each row is not reliable, "" if it is; None if that is not known.

    `exact_sums` says whether these may decide.
    """
    n_rows = np.size(solved.converged)
    reasons = [""] * n_rows
    if solved.log_partition is None:
        return None
    values, ended = np.atleast_1d(solved.log_partition), np.atleast_1d(solved.converged)
    rows = np.flatnonzero(ended & np.isfinite(values))
    if not len(rows):
        return reasons
    model, tilt = question.model, question.tilt
    mean, var = (joined(model, part)[rows] for part in (solved.mean, solved.var))
    tilt = tilt._make(part[rows] if len(part) > 1 else part for part in tilt)
    decided = [None] * len(rows)
    if exact_sums:
        decided = _by_exact_sums(question, tilt, mean, values[rows])
    for row, reason in zip(rows, decided, strict=True):
        reasons[row] = reason or ""
    undecided = np.array([reason is None for reason in decided])
    if undecided.any():
        if are_too_large(model, undecided.sum(), question.whole):
            return None
        tilt = [np.broadcast_to(part, mean.shape)[undecided] for part in tilt]
        numbers = rows[undecided]
        log_partition = values[numbers].astype(np.float64)
        judged = JudgedRows(
            machine_of(model), mean[undecided], var[undecided], log_partition, *tilt
        )
        # All solvers are imported where a row is compared with other methods.
        from fastmf.inference.checks.other_methods import by_other_answers

        by_methods = by_other_answers(question, judged, numbers)
        if by_methods is None:
            return None
        for row, reason in zip(numbers, by_methods, strict=True):
            reasons[row] = reason
    return reasons


def _by_exact_sums(question, tilt, mean, values):
    """Reason why each row is wrong, "" if it is right, None where sums do not tell.

    A row with a start of its own may be one solution of several. If its log-partition is d nats too
    low, it has a share w = exp(-d) of the weight, so that means may differ by 1 - w more; and
    whether it is a good solution sums do not tell.
    """
    sums = exact_rows(question.model, tilt, mean)
    if sums is None:
        return [None] * len(values)
    decided = []
    for k, value in enumerate(values):
        exact, width = sums.log_partition[k], sums.width[min(k, len(sums.width) - 1)]
        if np.isnan(exact):
            decided.append(None)
            continue
        if exact == -np.inf:
            decided.append(Reason.IMPOSSIBLE)
            continue
        answer = Answer(value, mean[k])
        if agree(answer, Answer(exact, sums.mean[k]), width):
            decided.append("")
            continue
        share = np.exp(-max(exact - value, 0.0))
        one_of_several = not question.whole and share <= LARGEST_SHARE
        same_value = Answer(value, sums.mean[k])
        tolerated = one_of_several and agree(answer, same_value, width, slack=1 - share)
        decided.append(None if tolerated else Reason.EXACT)
    return decided
