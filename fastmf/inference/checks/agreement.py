"""Whether rows agree with other methods, where no exact sums are made."""

import numpy as np

from fastmf._common.arguments import generator
from fastmf.inference.checks.exact_sums import ranges
from fastmf.inference.checks.other_methods import (
    AdaptiveTap,
    HeldUnits,
    MessagesFromMeans,
    adaptive_mixture,
    answers_of,
    asked,
    seconds_of_starts,
)
from fastmf.inference.checks.reasons import Answer, Reason, agree
from fastmf.inference.checks.rows import MAX_SECONDS, split
from fastmf.inference.mean_field.mixture import N_CHECKED_STARTS, moved_from
from fastmf.priors._protocol import can_sample


def by_other_answers(question, rows, numbers):
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
