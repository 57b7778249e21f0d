"""The rule by which rows are judged; see `fastmf.inference.checks`."""

import numpy as np

from fastmf.inference.checks.exact_sums import exact_rows, ranges
from fastmf.inference.checks.other_methods import (
    MAX_PRODUCTS,
    AdaptiveTap,
    HeldUnits,
    Messages,
    Rows,
    answers_of,
    joined,
    machine_of,
)
from fastmf.inference.checks.reasons import Answer, Reason, agree

# Starts of the mixture with which a row is compared.
N_STARTS = 20
# Share of the weight from which on a row with a start of its own is the answer of the whole model.
LARGEST_SHARE = 0.75


def reasons_of(solved, question, exact_sums=True):
    """Reason why each row is not reliable, "" if it is; None if nothing is known.

    Parameters
    ----------
    solved : FixedPoint
    question : Question
    exact_sums : bool
        Whether exact sums may decide.
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
        tilt = [np.broadcast_to(part, mean.shape)[undecided] for part in tilt]
        rest = Rows(machine_of(model), mean[undecided], var[undecided],
                    values[rows][undecided].astype(np.float64), *tilt)  # fmt: skip
        found = _by_other_answers(question, rest, rows[undecided])
        if found is None:
            return None
        for row, reason in zip(rows[undecided], found, strict=True):
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


def _by_other_answers(question, rows, numbers):
    """Reason why each row is not reliable, "" if it is; None if methods would take too long."""
    adaptive = AdaptiveTap(rows, question.whole)
    other = HeldUnits(rows) if question.whole else None
    methods = [m for m in (adaptive, other or Messages(rows)) if m.is_possible]
    methods = [m for m in methods if m.products <= MAX_PRODUCTS]
    if not methods:
        return None
    if question.whole:
        return _of_whole_model(question, rows, numbers, *_pair(methods))
    reason = Reason.ADAPTIVE_TAP if methods[0] is adaptive else Reason.MESSAGES
    return _contradictions(rows, methods[0].answers(), reason)


def _pair(methods):
    """(HeldUnits or None, AdaptiveTap or None)."""
    held = next((m for m in methods if isinstance(m, HeldUnits)), None)
    return held, next((m for m in methods if isinstance(m, AdaptiveTap)), None)


def _of_whole_model(question, rows, numbers, held, adaptive):
    reasons = [""] * len(numbers)
    if question.stable is not None:
        reasons = ["" if question.stable[row] else Reason.UNSTABLE for row in numbers]
    elif question.mixed is not None:
        mixed = answers_of(question.mixed(rows.machine, **rows.tilts()), rows)
        reasons = _contradictions(rows, mixed, Reason.STARTS)
    doubtful = []
    for k, reason in enumerate(reasons):
        if reason:
            continue
        answers, settled = held.answers(k) if held else ([], False)
        answer = Answer(rows.log_partition[k], rows.mean[k])
        if not all(agree(answer, other, _widths(rows, k)) for other in answers):
            reasons[k] = Reason.HELD_UNITS
        elif not settled:
            doubtful.append(k)
    if doubtful:
        if adaptive is None:
            return None
        rest = rows.chosen(doubtful)
        others = AdaptiveTap(rest, True).answers()
        for k, reason in zip(doubtful, _contradictions(rest, others, Reason.ADAPTIVE_TAP), strict=True):
            reasons[k] = reason
    return reasons


def _contradictions(rows, others, reason):
    """The reason for each row that does not agree with another answer, "" where there is none."""
    out = []
    for k, other in enumerate(others):
        answer = Answer(rows.log_partition[k], rows.mean[k])
        right = other is None or agree(answer, other, _widths(rows, k))
        out.append("" if right else reason)
    return out


def _widths(rows, k):
    """Ranges of the units of a row."""
    return ranges(rows.prior, rows.var[[k]])[0]
