"""Directions along which the log-pseudo-likelihood increases without end.

Along a direction of separation (`fastmf.learning.pseudo_likelihood.binary.existence`) no margin
x_ij eta_ij falls, and some rise.

*Linear dependence.* If u_0 + sum_k u_k x_ik = 0 in all rows, couplings J_jk = -u_j u_k and fields
h_j = -u_0 u_j raise the margins of unit j by u_j^2 in every row. So all units of the null space of
[1, x] are separated, those of fewer rows than units, constant ones and copies among them.

*Two values that never meet.* If x_j = a and x_k = b never occur together, coupling -ab and fields
-a, -b lower the probability of that pair alone: the margin of unit j rises in rows with x_k = b.

*Divergence.* The margins of separated rows grow with the iterations of a solver. Its parameters are
projected on the directions that leave all other margins unchanged; rows whose margins fall along
the projection join the others, until none does.
"""

import numpy as np
from scipy import linalg

from fastmf._common.linalg import LinAlgError, cholesky
from fastmf.learning.pseudo_likelihood.existence import NO_LIMIT
from fastmf.learning.pseudo_likelihood.fit import MAX_HESSIAN_PARAMETERS

# Eigenvalues and elements of projections below this are rounding errors.
_TOLERANCE = 1e-9
# Margins of solvers beyond this may be those of separated rows.
_LARGE_MARGIN = 4.0
# Gaps between such margins and all others that are tried, and projections for each.
_MAX_GAPS, _MAX_PROJECTIONS = 4, 10
# Ridge of the projection, in units of the largest diagonal element, and times it is applied.
_RIDGE, _N_SOLUTIONS = 1e-9, 4
# Operations a second of a factorisation.
_OPERATIONS_PER_SECOND = 1e10


def gram(states):
    """The matrix [1, x]'[1, x] of rows x, (n_units + 1, n_units + 1)."""
    with_one = np.hstack([np.ones((len(states), 1)), states])
    return with_one.T @ with_one


def dependent_units(states):
    """Units that depend linearly on others and a constant, and are separated by that.

    Parameters
    ----------
    states : array of shape (n_rows, n_units)

    Returns
    -------
    int array of shape (n_units_found,)
    """
    values, vectors = linalg.eigh(gram(states))
    null = vectors[:, values <= _TOLERANCE * values[-1]]
    return np.flatnonzero(np.square(null[1:]).sum(1) > _TOLERANCE)


def units_that_never_meet(states):
    """Units that are separated because they and another unit never have some pair of values.

    Parameters
    ----------
    states : array of shape (n_rows, n_units)
        Spins, -1 and +1.

    Returns
    -------
    int array of shape (n_units_found,)
    """
    sums, products = states.sum(0), states.T @ states
    found = np.zeros(len(sums), bool)
    for a in (-1, 1):
        for b in (-1, 1):
            # Four times the rows in which the unit of the row is a and that of the column b.
            together = len(states) + a * sums[:, None] + b * sums + a * b * products
            np.fill_diagonal(together, 1)
            found |= ((together == 0) & (len(states) + b * sums > 0)).any(1)
    return np.flatnonzero(found)


def diverging_units(objective, parameters, limit=NO_LIMIT):
    """Units separated along the direction in which a solver diverges.

    Parameters
    ----------
    objective : PseudoLikelihood
        Without penalty.
    parameters : array of shape (n_parameters,)
        Where a solver stopped.
    limit : TimeLimit, optional

    Returns
    -------
    int array of shape (n_units_found,)
        Empty if no direction was found, which proves nothing.
    """
    reached = margins(objective, parameters)
    if reached.min() > 0:
        return np.arange(objective.n_units)
    large = np.sort(reached[reached > _LARGE_MARGIN])
    if not len(large) or objective.n_parameters > MAX_HESSIAN_PARAMETERS:
        return np.zeros(0, int)
    gaps = large[np.flatnonzero(np.diff(large, prepend=_LARGE_MARGIN) > 0.5)]
    # The fewest unchanged margins first: then more rows, and units, can be separated.
    for margin in (_LARGE_MARGIN, *gaps[:_MAX_GAPS]):
        units = _separated_beyond(objective, parameters, reached < margin, limit)
        if len(units):
            return units
    return np.zeros(0, int)


def margins(objective, vector):
    """Margins x_ij eta_ij of all rows and units at some parameters, (n_rows, n_units)."""
    couplings, field = objective.unpacked(vector)
    states = objective.rows.states
    return states * (states @ couplings + field)


def _separated_beyond(objective, parameters, kept, limit):
    """Units with margins that rise along the projection that leaves those `kept` unchanged."""
    for _ in range(_MAX_PROJECTIONS):
        if objective.n_parameters**3 / 3 > _OPERATIONS_PER_SECOND * limit.left():
            break
        direction = _projection(objective, kept, parameters)
        changes = margins(objective, direction)
        largest = abs(changes).max()
        # What is left of the parameters is a rounding error.
        if not largest > _TOLERANCE * abs(parameters).max():
            break
        rising = changes > 1e-6 * largest
        if changes.min() >= -_TOLERANCE * largest:
            return np.flatnonzero(rising.any(0))
        kept = kept | (changes <= _TOLERANCE * largest)
    return np.zeros(0, int)


def _projection(objective, kept, vector):
    """The part of a vector that leaves some margins unchanged."""
    matrix = np.array(objective.hessian_from_sech2(kept.astype(float)))
    ridge = _RIDGE * matrix.diagonal().max()
    matrix[np.diag_indices_from(matrix)] += ridge
    try:
        factor = cholesky(matrix.T, overwrite=True)
    except LinAlgError:
        return np.zeros_like(vector)
    for _ in range(_N_SOLUTIONS):
        vector = ridge * factor.solve(vector)
    return vector
