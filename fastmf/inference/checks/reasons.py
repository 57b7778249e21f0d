"""Reasons why a row is not reliable, and when two answers agree."""

from enum import StrEnum
from typing import NamedTuple

import numpy as np

# Nats, and fractions of the range of units on average and of one unit, by which answers may differ.
MAX_NATS, MAX_MEAN, MAX_ONE_MEAN = 1.0, 0.05, 0.2


class Reason(StrEnum):
    """Reason why a row is not reliable, as its `message` has it."""

    EXACT = (
        "exact sums, which are quick, have another log-partition or other means; take "
        "fastmf.exact, or belief_propagation with algorithm='auto'"
    )
    IMPOSSIBLE = "no state is possible, as exact sums say: the log-partition is -inf"
    UNSTABLE = "no start leads to a stable solution, and this is the solution of the first start"
    STARTS = (
        "other starts lead to fixed points of which the mixture has another log-partition or other "
        "means: take fastmf.mixture, or `init` for one of them"
    )
    HELD_UNITS = (
        "belief propagation with single units held at each of their values has another "
        "log-partition or other means"
    )
    ADAPTIVE_TAP = "adaptive_tap has another log-partition or other means"
    MESSAGES = "belief propagation from its means has another log-partition or other means"


class Answer(NamedTuple):
    """Log-partition and means (n_units,) of one row."""

    log_partition: float
    mean: np.ndarray


def agree(answer, other, width, slack=0.0):
    """Whether two answers agree, where units have these ranges and means may differ by `slack`."""
    off = np.maximum(abs(other.mean - answer.mean) / width - slack, 0)
    means = off.mean() <= MAX_MEAN and off.max() <= MAX_ONE_MEAN if off.size else True
    return bool(abs(other.log_partition - answer.log_partition) <= MAX_NATS and means)
