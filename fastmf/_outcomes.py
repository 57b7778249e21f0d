"""How the solution of one row ends, with messages for users; numbers of kernels and their twins.

One set for all solvers. Kernels compile the numbers in, hence this file is at the root of the
package, where the fingerprint of the cache sees every change.
"""

import numpy as np

# While a row is iterated. CONFIRMING: the next sweep is undamped and decides on convergence.
CONFIRMING, RUNNING = range(-1, 1)
# How a row may end.
CONVERGED, OUT_OF_ITERATIONS, CYCLING, DIVERGED = range(1, 5)
# How it may end in expectation propagation, and on graphs with forbidden pairs of states.
IMPROPER, BOUNDED, STALLED, LOST, INFEASIBLE = range(5, 10)

# Oscillations are detected from the residuals of windows of this many sweeps. Rows of belief
# propagation that have no new smallest residual in a window are damped more.
WINDOW_SWEEPS = 16
# Damping is raised 0, 1/2, 3/4, ... up to this.
MAX_DAMPING = 0.97
# Limit of the momentum of an accelerated row, while consecutive steps point the same way; sweeps
# after which rows are accelerated at larger residuals.
MAX_MOMENTUM, LATE_SWEEPS = 0.9, 100
# Changes of a mean, relative to the largest one, and of a variance that are rounding errors, in
# units of the resolution of the floating type; they may grow by STEEPNESS in a sweep that confirms.
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
# A gain below this fraction of the terms it is the difference of may be rounding, and would recur.
GAIN_TOLERANCE = 1e-11
# Rounds of local search over all units: rounding errors of couplings of many orders of magnitude
# may exceed the tolerance.
MAX_ROUNDS = 1000
# Random numbers by which each annealed row begins after the one before.
LOG_STRIDE = 7919
# Logarithm of the rounding error of probabilities in float64.
LOG_EPSILON = float(np.log(np.finfo(np.float64).eps))
# Forests of one move: in dense graphs, where forests have few units, not all are moved.
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
    """Whether a row, or each of an array of rows, ended at a fixed point."""
    return status == CONVERGED


def messages_of(status):
    """The message of every row, as an array of str."""
    return np.array([MESSAGES[int(code)] for code in status])
