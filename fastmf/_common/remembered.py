"""Results of a function that are asked for again."""

import functools
from collections import deque

import numpy as np

# Calls whose results are kept.
N_CALLS = 4


def remembered(function):
    """Decorator: a function of arrays keeps the results of its last calls.

    Arguments are compared by their contents, so that they may be changed in place. For functions
    that take much longer than that.
    """
    calls = deque(maxlen=N_CALLS)

    @functools.wraps(function)
    def call(*arrays):
        for given, result in tuple(calls):
            if all(map(_is_same, given, arrays)):
                return result
        result = tuple(map(np.asarray, function(*arrays)))
        for array in result:
            array.flags.writeable = False
        calls.append((tuple(np.array(array) for array in arrays), result))
        return result

    return call


def _is_same(one, other):
    return one.dtype == other.dtype and np.array_equal(one, other)
