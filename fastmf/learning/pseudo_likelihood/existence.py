"""Whether the maximum of a composite likelihood exists, and what decides that takes time.

A maximum does not exist where the data are separated (Albert & Anderson 1984): there is a direction
of the parameters along which no margin, the log-odds of what was seen beside anything else, falls,
and some rise. Along it the log-pseudo-likelihood increases without end. Directions add up, so that
one linear programme finds all margins that rise along any of them.
"""

import time
from typing import NamedTuple

import numpy as np
import scipy
from scipy import sparse

from fastmf._common.linalg import LinAlgError, cholesky

# Condition number beyond which eigenvalues in double precision prove nothing.
MAX_CONDITION = 1e12
# Units, or categories, that a message names.
MAX_NAMED = 20


class Existence(NamedTuple):
    """Whether the maximum exists, and which units are separated if it does not.

    Parameters
    ----------
    exists : bool or None
        None if undecided.
    units : tuple of int
        Separated units: determined by the others, or constant.
    message : str
    """

    exists: bool | None
    units: tuple = ()
    message: str = ""


def no_maximum(message, units):
    """The result where no maximum exists, for a reason."""
    return Existence(False, tuple(map(int, np.unique(units))), f"no maximum exists: {message}")


def separated_by(units, name="units", remedies="penalty='firth', more rows or fewer units"):
    """The result where data separate some units."""
    units = np.unique(units)
    names = ", ".join(map(str, units[:MAX_NAMED])) + (", ..." if len(units) > MAX_NAMED else "")
    return no_maximum(
        f"the data separate {name} {names}, so that their parameters grow for ever; give a ridge "
        f"penalty l2, {remedies}", units,
    )  # fmt: skip


def near_maximum(hessian, gradient, largest):
    """Whether a point is so near to a maximum that there is one; False proves nothing.

    Along a unit direction in the metric of the negative Hessian H no log-odds change faster than C,
    and second derivatives by at most a factor e^(C t). With lambda^2 = g' H^-1 g the directional
    derivative is at most lambda - (1 - e^(-C t)) / C: if lambda C < 1 it becomes negative on every
    ray, and the concave function has exactly one maximum. (Bach 2010 has theorems of this kind.)

    Parameters
    ----------
    hessian : array of shape (n_parameters, n_parameters)
    gradient : array of shape (n_parameters,)
    largest : float
        Bound z'z on the squared derivative of any log-odds by the parameters: C^2 is at most
        z'z tr H^-1.
    """
    try:
        factor = cholesky(hessian.T)
    except LinAlgError:
        return False
    # The trace of the inverse is a bound on its largest eigenvalue.
    trace = np.linalg.norm(factor.inverse_factor()) ** 2
    if not trace * np.linalg.norm(hessian) < MAX_CONDITION:
        return False
    decrement = np.sqrt(max(gradient @ factor.solve(gradient), 0))
    return bool(decrement * np.sqrt(largest * trace) < 0.5)


def undecided(limit):
    """The result where a limit of time ended the search for a proof."""
    return Existence(
        None, (),
        f"whether the maximum exists was not decided within {limit.seconds:g} s: raise "
        "existence_seconds, or give a ridge penalty l2, with which it exists",
    )  # fmt: skip


class TimeLimit:
    """A limit of time.

    Parameters
    ----------
    seconds : float, default infinity
    """

    def __init__(self, seconds=np.inf):
        self.seconds, self._end = seconds, time.monotonic() + seconds

    def left(self):
        """Seconds that are left, at least 0."""
        return max(self._end - time.monotonic(), 0.0)


NO_LIMIT = TimeLimit()


def linear_programme(limit, cost, **constraints):
    """The result of `scipy.optimize.linprog`, which ends when the time is over.

    Parameters
    ----------
    limit : TimeLimit
    cost : array of shape (n_variables,)
    **constraints
        As `linprog` takes them.
    """
    options = {"time_limit": limit.left()} if np.isfinite(limit.seconds) else {}
    return scipy.optimize.linprog(cost, method="highs", options=options, **constraints)


def rising_margins(limit, margins):
    """Which margins rise along a direction along which none falls.

    Parameters
    ----------
    limit : TimeLimit
    margins : sparse array of shape (n_margins, n_parameters)

    Returns
    -------
    bool array of shape (n_margins,)
        None if the time was not enough.

    Notes
    -----
    Maximise sum t with 0 <= t <= 1 and t <= margins: directions add up, so that the optimum has
    t = 1 wherever any direction has a positive margin. Solved by its dual, minimise sum v with
    margins' (1 - v + s) = 0, 0 <= v <= 1 and 0 <= s, which has far fewer constraints.
    """
    m, transposed = margins.shape[0], margins.T
    matrix = sparse.hstack([transposed, -transposed])
    cost = np.repeat([1.0, 0.0], m)
    bounds = np.transpose([np.zeros(2 * m), np.repeat([1.0, np.inf], m)])
    right = transposed @ np.ones(m)
    found = linear_programme(limit, cost, A_eq=matrix, b_eq=right, bounds=bounds)
    return margins @ found.eqlin.marginals > 0.5 if found.status == 0 else None
