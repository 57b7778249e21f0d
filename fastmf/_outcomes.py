"""How the solution of one row ended: the codes that solvers write and the messages users read.

One set for all solvers. Kernels compile the codes in, hence this file is at the root of the
package, where the fingerprint of the cache sees every change.
"""

import numpy as np

# While a row is iterated. CONFIRMING: the next sweep is undamped and decides on convergence.
CONFIRMING, RUNNING = range(-1, 1)
# How a row may end.
CONVERGED, OUT_OF_ITERATIONS, CYCLING, DIVERGED = range(1, 5)
# How it may end in expectation propagation, and on graphs with forbidden pairs of states.
IMPROPER, BOUNDED, STALLED, LOST, INFEASIBLE = range(5, 10)

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
