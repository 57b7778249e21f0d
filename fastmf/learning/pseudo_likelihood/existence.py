"""Whether the pseudo-likelihood has a maximum at all, proved one way or the other.

It has none if parameters can grow for ever without a row objecting: a direction along which no
x_j eta_j of any row falls and some rise ("separation", Albert & Anderson 1984), couplings being
shared by their two units.

*A maximum exists* if a point is near enough to it. The second derivative of ln cosh changes by at
most a factor e^(2 |change of eta|), so that along a ray from a point with negative Hessian H and
gradient g, with lambda^2 = g' H^-1 g and C^2 = 4 max over rows and units of z' H^-1 z, the slope of
the objective, per unit length in the metric H, is at most lambda - (1 - e^(-C t)) / C: if
lambda C < 1 it becomes negative on every ray, and the concave function has a maximum, only one.
(Bach 2010 has theorems of this kind.)

*No maximum exists* if there is such a direction. Newton's method leaves along one, which is mostly
found from where it stopped; otherwise a linear programme decides. The units of the rows that it
separates are named.
"""

from typing import NamedTuple

import numpy as np
from scipy import linalg, optimize, sparse

from fastmf.learning.pseudo_likelihood.solvers import lbfgs, newton, solved

# Parameters beyond which no Hessian is made: 6,000 take 290 MB each.
LARGEST = 6000
# Condition numbers beyond which eigenvalues and inverses in double precision prove nothing.
_CONDITION = 1e12
# Entries of a programme of all units that is solved as it is, without asking them one by one first.
_AT_ONCE = 200_000
# Margins beyond which rows may be on their way to certainty.
_GROWN = 4.0
# Gaps between such margins and all others that are tried.
_GAPS = 4
# Parameters up to which eigenvectors are quickly found.
_FEW = 1300


class Existence(NamedTuple):
    """What is known about the maximum.

    Parameters
    ----------
    exists : bool or None
        None if undecided.
    units : tuple of int
        Units that are separated: determined by the others, or constant.
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
    slope = objective.value_and_gradient(parameters)[1]
    needed = 4 * np.linalg.norm(slope) * np.sqrt(objective.n_units)
    # The smaller the groups the sharper the bound, and the dearer: as dear as H of few parameters.
    sizes = (objective.n_units, 16, 1)[: 1 if objective.n_parameters <= _FEW else 3]
    if any(needed < _least_curvature(objective, parameters, size) for size in sizes):
        return True
    if objective.n_parameters > LARGEST:
        return False
    hessian = objective.hessian(parameters)
    factor, failed = linalg.lapack.dpotrf(hessian.T, lower=1, clean=1)
    if failed:
        return False
    # The trace of the inverse is a bound on its largest eigenvalue.
    inverse_factor, failed = linalg.lapack.dtrtri(factor, lower=1)
    largest = np.linalg.norm(inverse_factor) ** 2
    if failed or not np.isfinite(largest) or largest * np.linalg.norm(hessian) > _CONDITION:
        return False
    decrement = np.sqrt(max(slope @ solved(factor, slope), 0))
    return bool(2 * decrement * np.sqrt(objective.n_units * largest) < 0.5)


def _least_curvature(objective, parameters, size, budget=2e11):
    """Lower bound on the smallest eigenvalue of the Hessian.

    In groups of `size` units all have the least weight w_i s_ij of the group in every row; no more
    rows are used than multiply-adds are in the budget.
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
        slopes = objective.slopes(parameters, some)
        with_one = np.hstack([np.ones((len(some), 1)), states[some]])
        for gram, j in zip(grams, groups, strict=True):
            scaled = with_one * np.sqrt(slopes[:, j : j + size].min(1, keepdims=True))
            gram += scaled.T @ scaled
    # An eigenvalue is known up to rounding.
    least = min(
        linalg.eigvalsh(g, subset_by_index=[0, 0], check_finite=False)[0] - g.trace() / _CONDITION
        for g in grams
    )
    return max(least, 0.0) + objective.l2


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
    # All slopes of tanh are positive: which ones they are makes no difference to the rank.
    values = linalg.eigvalsh(objective.common_hessian(np.ones(objective.n_units)))
    return Existence(True) if values[0] > values[-1] / _CONDITION else _NOT_UNIQUE


def _separated_by(units):
    names = ", ".join(map(str, units[:20])) + (", ..." if len(units) > 20 else "")
    return Existence(
        False,
        tuple(int(j) for j in units),
        f"no maximum exists: the data separate units {names}, so that their parameters grow for "
        "ever; give a ridge penalty l2, penalty='firth', more rows or fewer units",
    )


def growing(objective, parameters):
    """Units whose parameters grow for ever along a direction in which a solver has left.

    Where margins x_j eta_j of some rows have grown far beyond all others, parameters are projected
    on the directions that leave those others as they are; that none falls along it is then checked.

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
    large = np.sort(reached[reached > _GROWN])
    gaps = np.flatnonzero(np.diff(large, prepend=_GROWN) > 0.5)
    # With the fewest margins to keep first: more rows, and units, can be separated.
    for gap in gaps[:_GAPS]:
        kept = reached < large[gap]
        values, vectors = linalg.eigh(objective.hessian_of_slopes(kept.astype(float)))
        free = vectors[:, values <= 1e-10 * values[-1]]
        along = margins(free @ (free.T @ parameters))
        largest = abs(along).max()
        if along.min() >= -1e-9 * largest and (along > 1e-6 * largest).any():
            return np.flatnonzero((along > 1e-6 * largest).any(0))
    return np.zeros(0, int)


def _programme(states, units):
    """Margins x_j eta_j of the couplings among `units`, and of their fields: a sparse matrix."""
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


def _separated(states, units):
    """Which of `units` are strictly separated by some direction of their shared parameters."""
    margins = sparse.csr_array(_programme(states, units))
    # Maximise sum t with 0 <= t <= 1 and t <= margins: directions add up, so that the optimum has
    # t = 1 wherever any direction has a positive margin. Solved by its dual, minimise sum v with
    # margins' (1 - v + s) = 0, 0 <= v <= 1 and 0 <= s, which has far fewer constraints.
    m, transposed = len(states) * len(units), margins.T
    matrix = sparse.hstack([transposed, -transposed])
    cost = np.repeat([1.0, 0.0], m)
    bounds = np.transpose([np.zeros(2 * m), np.repeat([1.0, np.inf], m)])
    right = transposed @ np.ones(m)
    found = optimize.linprog(cost, A_eq=matrix, b_eq=right, bounds=bounds, method="highs")
    if found.status != 0:
        return None
    strict = margins @ found.eqlin.marginals > 0.5
    return units[strict.reshape(len(units), len(states)).any(1)]


def _alone(states, j, others):
    """Whether unit j is separated by its own field and couplings to `others`, not shared."""
    x = states[:, j : j + 1]
    margins = np.unique(x * np.hstack([np.ones_like(x), states[:, others]]), axis=0)
    # Any direction with margins >= 0 and a positive sum; the box makes it a bounded programme.
    found = optimize.linprog(
        -margins.sum(0), -margins, np.zeros(len(margins)), bounds=(-1, 1), method="highs"
    )
    return found.status != 0 or -found.fun > 1e-7


def separation(objective):
    """Decide by linear programming whether the maximum exists.

    If there is much to decide, first unit by unit: who is not separated even with couplings of its
    own has none that can grow, and is left out of the programmes of the others, until nothing
    changes. What is left, if anything, is decided by one programme with shared couplings.

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
    least = linalg.eigvalsh(centred.T @ centred / len(states))[0]
    units = np.arange(states.shape[1])
    # Without full rank of [1, x] some unit is a combination of others, and separated with them.
    if least > 1e-10 and states.size * len(units) > _AT_ONCE:
        while len(units):
            kept = [j for j in units if _alone(states, j, units[units != j])]
            if len(kept) == len(units):
                break
            units = np.array(kept, int)
    if len(units):
        units = _separated(states, units)
        if units is None:
            return Existence(None, (), "the linear programme of separation was not solved")
    if not len(units):
        if least <= 1e-10:
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
    few = objective.n_parameters <= _FEW
    if few:
        polished = newton(objective, parameters, max_iter=25).parameters
    else:
        polished = lbfgs(objective, parameters, tol=1e-9, max_iter=100).parameters
    if certified(objective, polished):
        return Existence(True)
    units = growing(objective, polished) if few else ()
    if len(units):
        return _separated_by(units)
    if objective.rows.states.size * objective.n_units <= 3e7:
        return separation(objective)
    return Existence(
        None, (), "whether the maximum exists is undecided: the problem is too large for a proof"
    )
