"""Minimisation of an energy by Newton's steps with Levenberg's term, from points of either descent.

A point has `value`, `rounding_error`, `state(problem)` and `step(problem, levenberg)`; a step has
`point` (where it starts), `derivative` (of the energy along it) and `at(length)` (the point there,
None outside the domain). Levenberg's parameter falls where steps succeed and rises where none does.
"""

from numpy.linalg import LinAlgError

# Levenberg's parameter: the first, the smallest after a step that failed, the smallest after one
# that succeeded, and where the search is given up.
FIRST_LEVENBERG, MIN_RAISED, MIN_LEVENBERG, MAX_LEVENBERG = 1.0, 1e-6, 1e-12, 1e8
# Lengths of a step that are tried, and what Levenberg's parameter is multiplied by if they succeed.
LENGTHS_AND_FACTORS = (1.0, 0.3), (0.3, 2), (0.1, 5)
# The energy falls enough if it does so by this fraction of the linear prediction (Armijo).
ARMIJO = 1e-4
# Falls below so many times the rounding error of the energy cannot be told from rounding. Then the
# residual must fall by this factor: else poor steps along flat directions would go on and on.
HIDDEN_BY_ROUNDING, RESIDUAL_FALL = 100, 0.9


def descend(problem, point, trace):
    """Minimise the energy from a point."""
    levenberg, state = FIRST_LEVENBERG, None
    for _ in range(problem.max_iter):
        state = point.state(problem)
        trace.add(state.residual(), lambda value=point.value: float(value))
        if state.agrees(problem.tol):
            return state, True
        new = None
        while new is None and levenberg < MAX_LEVENBERG:
            new, levenberg = _advance(problem, point, levenberg, trace.residuals[-1])
        if new is None:
            break
        point = new
    return state, False


def _advance(problem, point, levenberg, residual):
    """The next point, None if no step was accepted, and the next parameter of Levenberg's."""
    raised = max(10 * levenberg, MIN_RAISED)
    try:
        step = point.step(problem, levenberg)
    except (LinAlgError, ValueError):
        return None, raised
    for length, factor in LENGTHS_AND_FACTORS:
        new = step.at(length)
        if new is not None and _accepted(problem, step, length, new, residual):
            # The parameter should vanish as fast as the derivative, for quadratic convergence.
            return new, max(min(factor * levenberg, abs(step.derivative)), MIN_LEVENBERG)
    return None, raised


def _accepted(problem, step, length, new, residual):
    """Whether the energy falls, or the residual where rounding hides the fall of the energy."""
    point = step.point
    change = abs(step.derivative) + abs(new.value - point.value)
    if change < HIDDEN_BY_ROUNDING * point.rounding_error:
        return new.state(problem).residual() < RESIDUAL_FALL * residual
    enough = point.value + ARMIJO * length * min(step.derivative, 0.0) + point.rounding_error
    return new.value <= enough
