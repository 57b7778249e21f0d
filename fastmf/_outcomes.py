"""How the solution of one row ends: the rule of mean-field solvers, codes, and messages for users.

One set for all solvers, and for kernels and their twins. Kernels compile the codes in, hence this
file is at the root of the package, where the fingerprint of the cache sees every change.
"""

import numpy as np

# While a row is iterated. CONFIRMING: the next sweep is undamped and decides on convergence.
CONFIRMING, RUNNING = range(-1, 1)
# How a row may end.
CONVERGED, OUT_OF_ITERATIONS, CYCLING, DIVERGED = range(1, 5)
# How it may end in expectation propagation, and on graphs with forbidden pairs of states.
IMPROPER, BOUNDED, STALLED, LOST, INFEASIBLE = range(5, 10)

# Oscillations are detected from the residuals of windows of this many sweeps.
WINDOW_SWEEPS = 16
# Damping is raised 0, 1/2, 3/4, ... up to this.
MAX_DAMPING = 0.97
# Limit of the momentum of an accelerated row, while consecutive steps point the same way; sweeps
# after which rows are accelerated at larger residuals.
MAX_MOMENTUM, LATE_SWEEPS = 0.9, 100
# Changes of a mean, relative to the largest one, and of a variance that are rounding errors, in
# units of the resolution of the floating type; they may grow by STEEPNESS in a sweep that confirms.
MEAN_ROUNDING, VAR_ROUNDING, STEEPNESS = 4, 16, 16
# Messages are measured once marginal means change by no more than this many times what they do in
# a row that has converged.
WATCHED_CHANGE = 100
# A variance whose inverse is finite in any floating type.
SMALLEST_NORMAL = 2.0**-126

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
# Added to the message of a decoded assignment.
POLISHED = "; the assignment is polished: no flip of one visible unit improves it"


def is_converged(status):
    """Whether a row, or each of an array of rows, ended at a fixed point."""
    return status == CONVERGED


def messages_of(status):
    """The message of every row, as an array of str."""
    return np.array([MESSAGES[int(code)] for code in status])
