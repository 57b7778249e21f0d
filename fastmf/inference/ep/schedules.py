"""The schedules of expectation propagation.

parallel      update all sites from one Gaussian, then the Gaussian; with adaptive damping.
sequential    update one site after another, and the Gaussian after each.
convergent    take a few parallel steps, then descend on the energy.
auto          take parallel steps while the residual falls, then descend on the energy.

A descent takes Newton's steps with Levenberg's term on the energy as a function of the moments, or
of the means for binary units; with a bound on site precisions it is the double loop. Models that
mix binary units with units of other kinds support only the parallel schedule.

A schedule is a function of (problem, state, damping, trace) that returns the last state, an outcome
code of `fastmf._outcomes`, and the name of the schedule that ran last.
"""

import numpy as np

from fastmf._outcomes import CONVERGED, IMPROPER, OUT_OF_ITERATIONS, STALLED
from fastmf.inference.ep import mean_descent, moment_descent
from fastmf.inference.ep.double_loop import double_loop, exhausted
from fastmf.inference.ep.levenberg import descend
from fastmf.inference.ep.parallel import BARREN_SWEEPS, parallel_sweeps
from fastmf.inference.ep.sequential import sequential_sweeps
from fastmf.inference.ep.sites import EPTrace

# Descents in the order of trial: `first_point` returns None for units that are not supported.
DESCENTS = (moment_descent, mean_descent)


def sequential(problem, state, damping, trace):
    """Update one site after another, each seeing the newest values."""
    state, converged = sequential_sweeps(problem, state, damping, trace)
    if converged:
        return state, CONVERGED, "sequential"
    done = len(trace.residuals) == problem.max_iter
    return state, OUT_OF_ITERATIONS if done else IMPROPER, "sequential"


def convergent(problem, state, damping, trace):
    """Take parallel steps until they make no progress, then descend on the energy."""
    start, _, _ = parallel_sweeps(problem, state, damping, EPTrace(False), BARREN_SWEEPS)
    return descent(problem, start, damping, trace)


def auto(problem, state, damping, trace):
    """Take parallel steps while they make progress; without convergence, descend on the energy."""
    end = parallel_sweeps(problem, state, damping, trace, BARREN_SWEEPS)
    return end if end[1] == CONVERGED else descent(problem, end[0], damping, trace)


def descent(problem, state, damping, trace):
    """Descend on the energy from a state: the convergent schedule without parallel steps."""
    n_before = len(trace.residuals)
    if problem.min_site_precision > -np.inf:
        end, converged = double_loop(problem, state, trace)
    else:
        points = (of_units.first_point(problem, state) for of_units in DESCENTS)
        point = next((point for point in points if point is not None), None)
        if point is None:
            return parallel_sweeps(problem, state, damping, trace)
        end, converged = descend(problem, point, trace)
    if converged:
        return end, CONVERGED, "convergent"
    done = len(trace.residuals) - n_before == problem.max_iter or exhausted(problem)
    # The moments of the last state may not exist because of rounding.
    end = end if end.residual < np.inf else state
    return end, OUT_OF_ITERATIONS if done else STALLED, "convergent"


SCHEDULES = {
    "parallel": parallel_sweeps,
    "sequential": sequential,
    "convergent": convergent,
    "auto": auto,
}
