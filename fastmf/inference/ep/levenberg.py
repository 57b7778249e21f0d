"""Minimisation of an energy by Newton's steps with Levenberg's term, for both kinds of descent.

A point has `value`, `rounding_error`, `state(problem)` and `step(problem, levenberg)`; a step has
`point` (its start), `derivative` (of the energy along it) and `at(length)` (the point at a length,
None outside the domain). Levenberg's parameter falls after successful steps and rises otherwise.
"""

import numpy as np
from numpy.linalg import LinAlgError


def descend(problem, point, trace):
    """Minimise the energy from a point; return the last state, and whether it converged."""
    levenberg, state = 1.0, None
    for _ in range(problem.max_iter):
        state = point.state(problem)
        trace.add(state.residual, lambda value=point.value: float(value))
        if state.agrees(problem.tol):
            return state, True
        new = None
        # With larger parameters, the energy along steps falls by less than rounding.
        while new is None and levenberg < np.finfo(float).eps ** -0.5:
            new, levenberg = _advance(problem, point, levenberg, trace.residuals[-1])
        if new is None:
            break
        point = new
    return state, False


def _advance(problem, point, levenberg, residual):
    """Return the next point, None if no step was accepted, and the next Levenberg parameter."""
    raised = max(10 * levenberg, 1e-6)
    try:
        step = point.step(problem, levenberg)
    except (LinAlgError, ValueError):
        return None, raised
    for length, factor in ((1.0, 0.3), (0.3, 2), (0.1, 5)):
        new = step.at(length)
        if new is not None and _accepted(problem, step, length, new, residual):
            # The parameter should vanish as fast as the derivative, for quadratic convergence.
            return new, max(min(factor * levenberg, abs(step.derivative)), 1e-12)
    return None, raised


def _accepted(problem, step, length, new, residual):
    """Whether the energy falls by Armijo's rule or, if that is below rounding, the residual falls.

    Otherwise poor steps along flat directions would be repeated without end.
    """
    point = step.point
    change = abs(step.derivative) + abs(new.value - point.value)
    if change < 100 * point.rounding_error:
        return new.state(problem).residual < 0.9 * residual
    enough = point.value + 1e-4 * length * min(step.derivative, 0.0) + point.rounding_error
    return new.value <= enough
