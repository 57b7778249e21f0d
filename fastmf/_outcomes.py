"""Outcomes of solves with their messages, and constants that kernels share with their twins.

All solvers use the same outcomes. The numbers are compiled into kernels, so that this file is at
the root of the package, where the fingerprint of the cache depends on it.
"""

import numpy as np

# Status of a row during iteration. CONFIRMING: an undamped sweep, which decides on convergence.
CONFIRMING, RUNNING = range(-1, 1)
# Status of a row at the end of iteration.
CONVERGED, OUT_OF_ITERATIONS, CYCLING, DIVERGED = range(1, 5)
# Further outcomes in expectation propagation, and on graphs with forbidden pairs of states.
IMPROPER, BOUNDED, STALLED, LOST, INFEASIBLE = range(5, 10)

# Oscillations are detected from the residuals of windows of this many sweeps. Rows of belief
# propagation that have no new smallest residual in a window are damped more.
WINDOW_SWEEPS = 16
# Limit of the damping, which increases as 0, 1/2, 3/4, ...
MAX_DAMPING = 0.97
# Limit of the momentum of an accelerated row, while consecutive steps have similar directions; and
# number of sweeps after which rows with larger residuals are accelerated, too.
MAX_MOMENTUM, LATE_SWEEPS = 0.9, 100
# Largest rounding errors of a mean, relative to the largest mean, and of a variance, in units of
# machine epsilon. A confirming sweep may enlarge them by a factor of STEEPNESS.
MEAN_ROUNDING, VAR_ROUNDING, STEEPNESS = 4, 16, 16
# A variance whose inverse is finite in any floating type.
SMALLEST_NORMAL = float(np.finfo(np.float32).tiny)

# --- belief propagation ---------------------------------------------------------------------------

SUM_PRODUCT, MAX_PRODUCT, MIXED_PRODUCT = range(3)
# Values of `GraphState.receivers`: units send to all neighbours, to the neighbours that follow in
# the order of the sweep (the ones before have the final messages of a forest), or to none.
ALL, FOLLOWING, NO_RECEIVERS = range(3)

# Visible units of one block: the product of their messages is accumulated before its logarithm.
BLOCK_UNITS = 256
# Smallest factor of `BPRecord.limit` after an undamped sweep that has changed too much, and of all
# such sweeps together.
MIN_LIMIT_FACTOR, MIN_LIMIT = 1 / 64, 1e-4
# Smaller gains, relative to the terms of the difference, may be rounding errors that recur.
GAIN_TOLERANCE = 1e-11
# Rounds of local search over all units: rounding errors of couplings of many orders of magnitude
# may exceed the tolerance.
MAX_ROUNDS = 1000
# Offset between the random numbers of consecutive annealed rows.
LOG_STRIDE = 7919
# Logarithm of the rounding error of probabilities in float64.
LOG_EPSILON = float(np.log(np.finfo(np.float64).eps))
# Largest number of forests in one move: in dense graphs forests have few units, and not all move.
MAX_FORESTS = 32

# --- pseudo-likelihood ----------------------------------------------------------------------------

# Label of a position that is absent from a row.
ABSENT = 255

# --- messages -------------------------------------------------------------------------------------

MESSAGES = {
    CONVERGED: "converged",
    OUT_OF_ITERATIONS: "not converged: max_iter iterations done while still moving; raise max_iter",
    CYCLING: "not converged: cycling; leave damping=None, or raise damping or max_iter",
    DIVERGED: "diverged: the moments of a unit do not exist (its tilted precision is not positive, "
    "or its mean grows without bound)",
    IMPROPER: "not converged: no step leaves a proper Gaussian; try schedule='convergent'",
    BOUNDED: "not converged: site_precision_min holds sites back, so that not all moments can "
    "agree; lower it, or try schedule='convergent', which minimises the energy under the bound",
    STALLED: "not converged: no step lowers the energy, as far as rounding lets it be known; start "
    "from other sites (init), or, of a linear model, raise a noise variance that is tiny",
    LOST: "not converged: fields or couplings, or their range, are so large that a cavity or the "
    "log-partition is lost in rounding; make them smaller, or use tap",
    INFEASIBLE: "infeasible: forbidden states and pairs of states leave none to some unit, so that "
    "the log-partition is -inf and there are no marginals (means are 0)",
}


def is_converged(status):
    """Return whether a row, or each of an array of rows, ended at a fixed point."""
    return status == CONVERGED


def messages_of(status):
    """Return the message of every row, as an array of str."""
    return np.array([MESSAGES[int(code)] for code in status])
