"""Existence of the maximum of the pseudo-likelihood: proofs that it exists, or that it does not.

It does not where the data are separated (`fastmf.learning.pseudo_likelihood.existence`): where no
margin x_ij eta_ij falls along some direction, each coupling being shared by its two units.

*A maximum exists* if a point is near enough to it
(`fastmf.learning.pseudo_likelihood.existence.near_maximum`; the derivatives of log-odds are 2 z).

The same follows if the gradient is small beside all residuals: along a direction v with margins
m_ij >= 0 the derivative g'v is the sum of r_ij m_ij with r_ij = w_i (1 - x_ij tanh eta_ij) > 0, at
least min r |m| >= min r sigma |v|, where sigma^2 is the smallest eigenvalue of [1, x]'[1, x] over
distinct rows. If |g| < min r sigma there is no such direction.

*No maximum exists* if a direction of separation is found. Some can be written down
(`fastmf.learning.pseudo_likelihood.binary.separation`): where units depend on each other linearly,
as in fewer rows than units, and where two units never take some pair of values together. Solvers
diverge along others, which can mostly be computed from where they stopped; what is left is for
linear programmes, which end at a limit of time. The separated units are named.
"""

import numpy as np
from scipy import linalg, sparse

from fastmf._jit.messages import LOGGER
from fastmf.learning.pseudo_likelihood.binary.separation import (
    dependent_units,
    diverging_units,
    gram,
    margins,
    units_that_never_meet,
)
from fastmf.learning.pseudo_likelihood.existence import (
    MAX_CONDITION,
    NO_LIMIT,
    Existence,
    TimeLimit,
    linear_programme,
    near_maximum,
    rising_margins,
    separated_by,
    undecided,
)
from fastmf.learning.pseudo_likelihood.lbfgs import lbfgs
from fastmf.learning.pseudo_likelihood.newton import GRADIENT_ROUNDING, hessian_solver, newton

# Multiply-adds for a lower bound on the curvature.
_CURVATURE_BUDGET = 3e10
# Parameters up to which solvers are continued by Newton's method, in at most so many iterations,
# with so many between looks at the result and the clock; beyond, by L-BFGS.
_MAX_DENSE_PARAMETERS = 2000
_MAX_ITER, _ITERATIONS_AT_A_TIME = {"newton": 25, "lbfgs": 100}, {"newton": 3, "lbfgs": 20}
# Steps of Newton's method by conjugate gradients after that, and products for each.
_MAX_NEWTON_STEPS, _MAX_PRODUCTS = 3, 100
# Numbers times units up to which one programme for all units takes little time, up to which it is
# solved without one programme per unit, and up to which programmes are solved at all.
_MAX_SMALL_ENTRIES = 5000
_MAX_JOINT_ENTRIES = 200_000
_MAX_PROGRAMME_SIZE = 3e7


def certified(objective, parameters):
    """Whether a maximum provably exists, from a point near to it; False proves nothing.

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
    norm = np.linalg.norm(gradient)
    if _all_directions_fall(objective, parameters, norm):
        return True
    required = 4 * norm * np.sqrt(objective.n_units)
    # Smaller blocks give sharper bounds but take longer, in the end as long as H itself.
    few = objective.n_parameters <= _MAX_DENSE_PARAMETERS
    sizes = (objective.n_units,) if few else (objective.n_units, 16, 1)
    # No bound is larger than the curvature of a field.
    if required < objective.smallest_field_curvature(parameters) and any(
        required < _min_curvature(objective, parameters, size) for size in sizes
    ):
        return True
    if not few:
        return False
    hessian = objective.hessian(parameters)
    return near_maximum(hessian, gradient, 4 * objective.n_units)


def _all_directions_fall(objective, parameters, norm):
    """Whether min r sigma is larger than the norm of the gradient, with its rounding error."""
    norm = norm + GRADIENT_ROUNDING * np.sqrt(objective.n_parameters)
    residual = objective.smallest_residual(parameters)
    # No eigenvalue is larger than the number of rows: most often that is enough to say no.
    if norm >= residual * np.sqrt(len(objective.weights)):
        return False
    values = linalg.eigvalsh(gram(objective.rows.states), check_finite=False)
    # Less the rounding error of an eigenvalue.
    smallest = max(values[0] - values[-1] / MAX_CONDITION, 0)
    return bool(norm < residual * np.sqrt(smallest))


def _min_curvature(objective, parameters, size, budget=_CURVATURE_BUDGET):
    """Lower bound on the smallest eigenvalue of the Hessian.

    All units of a block of `size` are given the smallest weight w_i sech^2(eta_ij) of the block in
    each row. Rows are left out beyond a budget of multiply-adds.
    """
    d, states = objective.n_units, objective.rows.states
    starts = range(0, d, size)
    n_rows = min(len(states), int((budget / len(starts) - 10 * d**3) / d**2))
    if n_rows < 2 * d:
        return 0.0
    # Equally spaced: the rows may be sorted.
    rows = np.linspace(0, len(states) - 1, n_rows).astype(int)
    grams = np.zeros((len(starts), d + 1, d + 1))
    for some in np.array_split(rows, -(-n_rows // 4096)):
        sech2 = objective.weighted_sech2(parameters, some)
        with_one = np.hstack([np.ones((len(some), 1)), states[some]])
        for block, j in zip(grams, starts, strict=True):
            scaled = with_one * np.sqrt(sech2[:, j : j + size].min(1, keepdims=True))
            block += scaled.T @ scaled
    # Less the rounding error of an eigenvalue.
    smallest = min(
        linalg.eigvalsh(block, subset_by_index=[0, 0], check_finite=False)[0]
        - block.trace() / MAX_CONDITION
        for block in grams
    )
    return max(smallest, 0.0) + objective.l2


_NOT_UNIQUE = Existence(
    False,
    (),
    "the maximum is not unique: units depend on each other linearly; leave some out or give a "
    "ridge penalty l2",
)


def existence_in_graph(objective, parameters):
    """Whether the maximum exists where only some pairs of units may be coupled.

    Parameters
    ----------
    objective : PseudoLikelihood
        With `edges`.
    parameters : array of shape (n_parameters,)
        Where a solver stopped.

    Returns
    -------
    Existence
        Not decided unless a proof is near: separation is not searched for.
    """
    if objective.l2:
        return Existence(True)
    constant = objective.rows.constant_units()
    if len(constant):
        return Existence(
            False, tuple(map(int, constant)),
            "no maximum exists: units are constant; leave them out or give a ridge penalty l2",
        )  # fmt: skip
    if certified(objective, parameters):
        return Existence(True)
    return Existence(
        None, (), "it is not decided whether a maximum exists; if not, give a ridge penalty l2"
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
    return Existence(True) if values[0] > values[-1] / MAX_CONDITION else _NOT_UNIQUE


def _margin_matrix(states, units):
    """Sparse matrix that maps fields of `units` and couplings among them to margins x_j eta_j."""
    x, q = states[:, units], len(units)
    with_one = np.hstack([np.ones((len(x), 1)), x])
    # Column of the field of a unit (0), and of its coupling to another.
    column = np.zeros((q, q + 1), np.int64)
    column[:, 0] = np.arange(q)
    first, second = np.triu_indices(q, 1)
    column[first, second + 1] = column[second, first + 1] = q + np.arange(len(first))
    starts, blocks = np.arange(0, len(x) * q + 1, q), []
    for a in range(q):
        kept = np.arange(q + 1) != a + 1
        values = (x[:, a : a + 1] * with_one[:, kept]).reshape(-1)
        entries = values, np.tile(column[a, kept], len(x)), starts
        blocks.append(sparse.csr_array(entries, shape=(len(x), q + len(first))))
    return sparse.vstack(blocks, format="csr")


def _jointly_separated(states, units, limit):
    """The `units` strictly separated along some direction; None if that could not be decided."""
    rising = rising_margins(limit, _margin_matrix(states, units))
    return None if rising is None else units[rising.reshape(len(units), len(states)).any(1)]


def _separated_alone(states, j, others, limit=NO_LIMIT):
    """Whether unit j is separated by its own field and couplings to `others`, not shared.

    True, too, if there is no time to decide.
    """
    if not limit.left():
        return True
    x = states[:, j : j + 1]
    margins = np.unique(x * np.hstack([np.ones_like(x), states[:, others]]), axis=0)
    # Any direction with margins >= 0 and a positive sum; the box makes it a bounded programme.
    found = linear_programme(
        limit, -margins.sum(0), A_ub=-margins, b_ub=np.zeros(len(margins)), bounds=(-1, 1)
    )
    return found.status != 0 or -found.fun > 1e-7


def separation(objective, limit=NO_LIMIT):
    """Decide by linear programming whether the maximum exists.

    Large problems are first decided unit by unit: a unit that is not separated even with couplings
    of its own, not shared, is left out of the programmes of the others, until nothing changes. The
    remaining units, if any, are decided by one programme with shared couplings.

    Parameters
    ----------
    objective : PseudoLikelihood
        Without penalty.
    limit : TimeLimit, optional

    Returns
    -------
    Existence
    """
    states = objective.rows.states
    units = np.arange(states.shape[1])
    # Units that depend on each other linearly are separated together.
    if states.size * len(units) > _MAX_JOINT_ENTRIES and not len(dependent_units(states)):
        while len(units) and limit.left():
            LOGGER.info(
                "linear programmes decide whether the maximum exists: %d of %d units left, %.3g s",
                len(units), states.shape[1], limit.left(),
            )  # fmt: skip
            others = {j: units[units != j] for j in units}
            remaining = [j for j in units if _separated_alone(states, j, others[j], limit)]
            if len(remaining) == len(units):
                break
            units = np.array(remaining, int)
    if len(units):
        units = _jointly_separated(states, units, limit) if limit.left() else None
        if units is None:
            return undecided(limit)
    return separated_by(units) if len(units) else Existence(True)


_TOO_LARGE = Existence(
    None, (),
    "whether the maximum exists was not decided: there are too many rows and units for a proof; "
    "with a ridge penalty l2 it exists",
)  # fmt: skip


def existence(objective, parameters, seconds=10.0):
    """Whether the maximum exists: a proof from where the solver stopped, or by `separation`.

    Parameters
    ----------
    objective : PseudoLikelihood
    parameters : array of shape (n_parameters,)
        Where a solver stopped.
    seconds : float, default 10
        Limit of what is done beyond proofs that take the time of some iterations.

    Returns
    -------
    Existence
    """
    if objective.l2 > 0 or certified(objective, parameters):
        return Existence(True)
    limit, states = TimeLimit(seconds), objective.rows.states
    if margins(objective, parameters).min() > 0:
        return separated_by(np.arange(objective.n_units))
    units = np.union1d(dependent_units(states), units_that_never_meet(states))
    if len(units) == objective.n_units:
        return separated_by(units.astype(int))
    # Directions add up, so that the units of several are separated together.
    units = np.union1d(units, diverging_units(objective, parameters, limit)).astype(int)
    if not len(units):
        parameters, exists = _continued(objective, parameters, limit)
        if exists:
            return Existence(True)
        units = diverging_units(objective, parameters, limit)
    entries = states.size * objective.n_units
    if entries <= (_MAX_SMALL_ENTRIES if len(units) else _MAX_PROGRAMME_SIZE) and limit.left():
        found = separation(objective, limit)
        if found.exists is not None:
            return found
    if len(units):
        return separated_by(units)
    return undecided(limit) if entries <= _MAX_PROGRAMME_SIZE else _TOO_LARGE


def _continued(objective, parameters, limit):
    """Parameters after more iterations, and whether they prove that the maximum exists."""
    few = objective.n_parameters <= _MAX_DENSE_PARAMETERS
    name, solver, tol = ("newton", newton, 1e-5) if few else ("lbfgs", lbfgs, 1e-9)
    for _ in range(0, _MAX_ITER[name], _ITERATIONS_AT_A_TIME[name]):
        if not limit.left():
            break
        found = solver(objective, parameters, tol=tol, max_iter=_ITERATIONS_AT_A_TIME[name])
        parameters = found.parameters
        if found.stopped or (few and certified(objective, parameters)):
            break
    if certified(objective, parameters):
        return parameters, True
    # Values no longer tell L-BFGS where the maximum is when gradients still do.
    point = parameters
    for _ in range(0 if few else _MAX_NEWTON_STEPS):
        gradient, solve = objective.value_and_gradient(point)[1], hessian_solver(objective, point)
        point = point + solve(gradient, 1e-6, _MAX_PRODUCTS, lambda: not limit.left())[0]
        if np.isfinite(point).all() and certified(objective, point):
            return point, True
    return parameters, False
