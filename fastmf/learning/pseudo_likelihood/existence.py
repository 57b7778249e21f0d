"""Existence of the maximum of the pseudo-likelihood: proofs that it exists, or that it does not.

It does not exist where the data are separated (Albert & Anderson 1984): there is a direction of the
parameters along which no margin x_ij eta_ij falls and some rise, each coupling being shared by its
two units. Along it the log-pseudo-likelihood increases without end.

*A maximum exists* if a point is near enough to it. The second derivative of ln cosh changes by at
most a factor e^(2 |change of eta|), so that along a ray from a point with negative Hessian H and
gradient g, with lambda^2 = g' H^-1 g and C^2 = 4 max over rows and units of z' H^-1 z, the
directional derivative of the objective, per unit length in the metric H, is at most
lambda - (1 - e^(-C t)) / C: if lambda C < 1 it becomes negative on every ray, and the concave
function has exactly one maximum. (Bach 2010 has theorems of this kind.)

*No maximum exists* if a direction of separation is found. Newton's method diverges along one, which
can mostly be computed from where it stopped; otherwise a linear programme decides. The separated
units are named.
"""

from typing import NamedTuple

import numpy as np
import scipy
from scipy import linalg, sparse

from fastmf._common.linalg import cholesky
from fastmf.learning.pseudo_likelihood.newton import newton
from fastmf.learning.pseudo_likelihood.objective import MAX_HESSIAN_PARAMETERS
from fastmf.learning.pseudo_likelihood.solvers import lbfgs

# Condition number beyond which eigenvalues and inverses in double precision prove nothing.
_MAX_CONDITION = 1e12
# Entries of the joint linear programme up to which it is solved without one programme per unit.
_MAX_JOINT_ENTRIES = 200_000
# Margins beyond this may be those of separated rows.
_LARGE_MARGIN = 4.0
# Gaps between such margins and all others that are tried.
_MAX_GAPS = 4
# Parameters up to which a Newton step and eigenvectors take little time.
_MAX_EIGENVECTOR_PARAMETERS = 1300
# Multiply-adds for a lower bound on the curvature.
_CURVATURE_BUDGET = 2e11
# Numbers times units up to which the linear programme is solved.
_MAX_PROGRAMME_SIZE = 3e7


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


def certified(objective, parameters):
    """Whether a maximum provably exists near `parameters`; False proves nothing.

    Parameters
    ----------
    objective : PseudoLikelihood
    parameters : array of shape (n_parameters,)

    Notes
    -----
    The smallest eigenvalue mu of H bounds lambda C by 2 |g| sqrt(d) / mu. It is itself bounded from
    below by the smallest eigenvalue of any unit's own block over some of the rows, or with smaller
    weights: dropping rows, lowering weights and giving each unit couplings of its own all make the
    Hessian smaller. Only where that is not enough, and parameters are not too many, is H made.
    """
    gradient = objective.value_and_gradient(parameters, once=True)[1]
    required = 4 * np.linalg.norm(gradient) * np.sqrt(objective.n_units)
    # Smaller groups give sharper bounds but take longer, in the end as long as H itself.
    few = objective.n_parameters <= _MAX_EIGENVECTOR_PARAMETERS
    sizes = (objective.n_units,) if few else (objective.n_units, 16, 1)
    if any(required < _min_curvature(objective, parameters, size) for size in sizes):
        return True
    if objective.n_parameters > MAX_HESSIAN_PARAMETERS:
        return False
    hessian = objective.hessian(parameters)
    try:
        factor = cholesky(hessian.T)
    except linalg.LinAlgError:
        return False
    # The trace of the inverse is a bound on its largest eigenvalue.
    largest = np.linalg.norm(factor.inverse_factor()) ** 2
    if not np.isfinite(largest) or largest * np.linalg.norm(hessian) > _MAX_CONDITION:
        return False
    decrement = np.sqrt(max(gradient @ factor.solve(gradient), 0))
    return bool(2 * decrement * np.sqrt(objective.n_units * largest) < 0.5)


def _min_curvature(objective, parameters, size, budget=_CURVATURE_BUDGET):
    """Lower bound on the smallest eigenvalue of the Hessian.

    All units of a group of `size` are given the smallest weight w_i sech^2(eta_ij) of the group in
    each row. Rows are left out beyond a budget of multiply-adds.
    """
    d, states = objective.n_units, objective.rows.states
    groups = range(0, d, size)
    n_rows = min(len(states), int((budget / len(groups) - 10 * d**3) / d**2))
    if n_rows < 2 * d:
        return 0.0
    # Equally spaced: the rows may be sorted.
    rows = np.linspace(0, len(states) - 1, n_rows).astype(int)
    grams = np.zeros((len(groups), d + 1, d + 1))
    for some in np.array_split(rows, -(-n_rows // 4096)):
        sech2 = objective.weighted_sech2(parameters, some)
        with_one = np.hstack([np.ones((len(some), 1)), states[some]])
        for gram, j in zip(grams, groups, strict=True):
            scaled = with_one * np.sqrt(sech2[:, j : j + size].min(1, keepdims=True))
            gram += scaled.T @ scaled
    # Less the rounding error of an eigenvalue.
    smallest = min(
        linalg.eigvalsh(gram, subset_by_index=[0, 0], check_finite=False)[0]
        - gram.trace() / _MAX_CONDITION
        for gram in grams
    )
    return max(smallest, 0.0) + objective.l2


_NOT_UNIQUE = Existence(
    False,
    (),
    "the maximum is not unique: units depend on each other linearly; leave some out or give a "
    "ridge penalty l2",
)


def existence_with_firth(objective):
    """Whether the maximum with Firth's penalty exists: if the Hessian is not singular.

    Parameters
    ----------
    objective : PseudoLikelihood
        Without penalty.

    Returns
    -------
    Existence
    """
    # sech^2 is positive everywhere: its values make no difference to the rank.
    values = linalg.eigvalsh(objective.common_hessian(np.ones(objective.n_units)))
    return Existence(True) if values[0] > values[-1] / _MAX_CONDITION else _NOT_UNIQUE


def _separated_by(units):
    names = ", ".join(map(str, units[:20])) + (", ..." if len(units) > 20 else "")
    return Existence(
        False,
        tuple(int(j) for j in units),
        f"no maximum exists: the data separate units {names}, so that their parameters grow for "
        "ever; give a ridge penalty l2, penalty='firth', more rows or fewer units",
    )


def diverging_units(objective, parameters):
    """Units separated along the direction in which a solver diverges.

    Where the margins x_j eta_j of some rows are far larger than all others, the parameters are
    projected on the directions that leave those others unchanged; the result separates if no margin
    falls along it, which is checked.

    Parameters
    ----------
    objective : PseudoLikelihood
        Without penalty.
    parameters : array of shape (n_parameters,)
        Where Newton's method stopped.

    Returns
    -------
    int array of shape (n_units_found,)
        Empty if no direction was found, which proves nothing.
    """
    states = objective.rows.states

    def margins(vector):
        couplings, field = objective.unpacked(vector)
        return states * (states @ couplings + field)

    reached = margins(parameters)
    large = np.sort(reached[reached > _LARGE_MARGIN])
    gaps = np.flatnonzero(np.diff(large, prepend=_LARGE_MARGIN) > 0.5)
    # The fewest unchanged margins first: then more rows, and units, can be separated.
    for gap in gaps[:_MAX_GAPS]:
        kept = reached < large[gap]
        values, vectors = linalg.eigh(objective.hessian_from_sech2(kept.astype(float)))
        free = vectors[:, values <= 1e-10 * values[-1]]
        changes = margins(free @ (free.T @ parameters))
        largest = abs(changes).max()
        if changes.min() >= -1e-9 * largest and (changes > 1e-6 * largest).any():
            return np.flatnonzero((changes > 1e-6 * largest).any(0))
    return np.zeros(0, int)


def _margin_matrix(states, units):
    """Sparse matrix that maps fields of `units` and couplings among them to margins x_j eta_j."""
    n, q = len(states), len(units)
    first, second = np.triu_indices(q, 1)
    blocks = []
    for a in range(q):
        x = states[:, units[a]]
        columns = np.zeros((n, q + len(first)))
        columns[:, a] = x
        for c in np.flatnonzero((first == a) | (second == a)):
            other = second[c] if first[c] == a else first[c]
            columns[:, q + c] = x * states[:, units[other]]
        blocks.append(sparse.csr_array(columns))
    return sparse.vstack(blocks)


def _jointly_separated(states, units):
    """The `units` strictly separated along some direction; None if that could not be decided."""
    margins = sparse.csr_array(_margin_matrix(states, units))
    # Maximise sum t with 0 <= t <= 1 and t <= margins: directions add up, so that the optimum has
    # t = 1 wherever any direction has a positive margin. Solved by its dual, minimise sum v with
    # margins' (1 - v + s) = 0, 0 <= v <= 1 and 0 <= s, which has far fewer constraints.
    m, transposed = len(states) * len(units), margins.T
    matrix = sparse.hstack([transposed, -transposed])
    cost = np.repeat([1.0, 0.0], m)
    bounds = np.transpose([np.zeros(2 * m), np.repeat([1.0, np.inf], m)])
    right = transposed @ np.ones(m)
    found = scipy.optimize.linprog(cost, A_eq=matrix, b_eq=right, bounds=bounds, method="highs")
    if found.status != 0:
        return None
    strict = margins @ found.eqlin.marginals > 0.5
    return units[strict.reshape(len(units), len(states)).any(1)]


def _separated_alone(states, j, others):
    """Whether unit j is separated by its own field and couplings to `others`, not shared."""
    x = states[:, j : j + 1]
    margins = np.unique(x * np.hstack([np.ones_like(x), states[:, others]]), axis=0)
    # Any direction with margins >= 0 and a positive sum; the box makes it a bounded programme.
    found = scipy.optimize.linprog(
        -margins.sum(0), -margins, np.zeros(len(margins)), bounds=(-1, 1), method="highs"
    )
    return found.status != 0 or -found.fun > 1e-7


def separation(objective):
    """Decide by linear programming whether the maximum exists.

    Large problems are first decided unit by unit: a unit that is not separated even with couplings
    of its own, not shared, is left out of the programmes of the others, until nothing changes. The
    remaining units, if any, are decided by one programme with shared couplings.

    Parameters
    ----------
    objective : PseudoLikelihood
        Without penalty.

    Returns
    -------
    Existence
    """
    states = objective.rows.states
    centred = states - states.mean(0)
    min_variance = linalg.eigvalsh(centred.T @ centred / len(states))[0]
    units = np.arange(states.shape[1])
    # Without full rank of [1, x] some unit is a combination of others, and separated with them.
    if min_variance > 1e-10 and states.size * len(units) > _MAX_JOINT_ENTRIES:
        while len(units):
            remaining = [j for j in units if _separated_alone(states, j, units[units != j])]
            if len(remaining) == len(units):
                break
            units = np.array(remaining, int)
    if len(units):
        units = _jointly_separated(states, units)
        if units is None:
            return Existence(None, (), "the linear programme of separation was not solved")
    if not len(units):
        if min_variance <= 1e-10:
            return _NOT_UNIQUE
        return Existence(True)
    return _separated_by(units)


def existence(objective, parameters):
    """Whether the maximum exists: a proof from where the solver stopped, or by `separation`.

    Parameters
    ----------
    objective : PseudoLikelihood
    parameters : array of shape (n_parameters,)
        Where a solver stopped.

    Returns
    -------
    Existence
    """
    if objective.l2 > 0 or certified(objective, parameters):
        return Existence(True)
    few = objective.n_parameters <= _MAX_EIGENVECTOR_PARAMETERS
    if few:
        polished = newton(objective, parameters, max_iter=25).parameters
    else:
        polished = lbfgs(objective, parameters, tol=1e-9, max_iter=100).parameters
    if certified(objective, polished):
        return Existence(True)
    units = diverging_units(objective, polished) if few else ()
    if len(units):
        return _separated_by(units)
    if objective.rows.states.size * objective.n_units <= _MAX_PROGRAMME_SIZE:
        return separation(objective)
    return Existence(
        None, (), "whether the maximum exists is undecided: the problem is too large for a proof"
    )
