"""The rule by which rows are judged; see `fastmf.inference.checks`."""

import numpy as np

from fastmf._common.arguments import generator
from fastmf.inference.checks.exact_sums import exact_rows, ranges
from fastmf.inference.checks.other_methods import (
    MAX_SECONDS,
    AdaptiveTap,
    HeldUnits,
    JudgedRows,
    MessagesFromMeans,
    adaptive_mixture,
    answers_of,
    are_too_large,
    asked,
    joined,
    machine_of,
    seconds_of_starts,
    split,
)
from fastmf.inference.checks.reasons import Answer, Reason, agree
from fastmf.inference.mean_field.mixture import N_CHECKED_STARTS, moved_from
from fastmf.priors._protocol import can_sample

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
        by_methods = _by_other_answers(question, judged, numbers)
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


def _by_other_answers(question, rows, numbers):
    """Reason why each row is not reliable, "" if it is; None if methods would take too long."""
    if question.whole:
        return _of_whole_model(question, rows, numbers)
    for method, reason in (
        (AdaptiveTap, Reason.ADAPTIVE_TAP),
        (MessagesFromMeans, Reason.MESSAGES),
    ):
        other = method(rows)
        if other.seconds <= MAX_SECONDS:
            start = moved_from(rows.mean, np.where(rows.clamped, 0, rows.var), generator(0))
            init = split(rows.machine, start), split(rows.machine, rows.var)
            return _contradictions(rows, other.answers(init), reason)
    return None


def _of_whole_model(question, rows, numbers):
    """The same of rows without starts of their own."""
    reasons, held, unsettled = [""] * len(numbers), HeldUnits(rows), []
    for k, row in enumerate(numbers):
        if question.stable is not None and not question.stable[row]:
            reasons[k] = Reason.UNSTABLE
            continue
        others, settled = held.answers(k) if held.seconds <= MAX_SECONDS else ([], False)
        answer = Answer(rows.log_partition[k], rows.mean[k])
        if not all(agree(answer, other, _widths(rows, k)) for other in others):
            reasons[k] = Reason.HELD_UNITS
        elif not settled:
            unsettled.append(k)
    if not unsettled:
        return reasons
    more = _of_starts_and_adaptive_tap(question, rows.chosen(unsettled))
    if more is None:
        return None
    for k, reason in zip(unsettled, more, strict=True):
        reasons[k] = reason
    return reasons


def _of_starts_and_adaptive_tap(question, rows):
    """The same where units are not discrete, or messages with held units do not settle."""
    adaptive, reasons = AdaptiveTap(rows), [""] * len(rows.mean)
    if adaptive.seconds > MAX_SECONDS:
        return None
    if question.mixed is not None:
        reasons = _contradictions(rows, adaptive.answers(), Reason.ADAPTIVE_TAP)
    if can_sample(rows.machine.layers[0]):
        mixtures = 2 * N_CHECKED_STARTS * adaptive.seconds
        if question.mixed is not None:
            mixtures = seconds_of_starts(rows)
        if mixtures > MAX_SECONDS:
            return None
        mixed = question.mixed or adaptive_mixture
        others = answers_of(asked(mixed, rows.machine, **rows.tilts()), rows)
        more = _contradictions(rows, others, Reason.STARTS)
        reasons = [x or y for x, y in zip(reasons, more, strict=True)]
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
