"""Existence of the maximum of the pseudo-likelihood of ordinal items.

Without penalties it does not exist where data are separated
(`fastmf.learning.pseudo_likelihood.existence`): the margins are those of the observed category a of
item i over any other b, mu_ia - mu_ib + (a - b) s_i. A category that was never observed suffices if
thresholds are free; a ridge on couplings leaves directions of thresholds alone, a ridge on both
leaves nothing.

*A maximum exists* if a point is near enough to it. Along a unit direction in the metric of the
negative Hessian H no log-odds of two categories change faster than C, and the second derivative
of ln sum exp by at most a factor e^(C t): with the gradient g and lambda^2 = g' H^-1 g the
directional derivative is at most lambda - (1 - e^(-C t)) / C, which becomes negative if
lambda C < 1. With the largest derivative z of log-odds C^2 is at most z'z tr H^-1.
"""

import numpy as np
from scipy import linalg, sparse

from fastmf._common.linalg import cholesky
from fastmf.learning.pseudo_likelihood.existence import (
    Existence,
    TimeLimit,
    rising_margins,
    undecided,
)
from fastmf.learning.pseudo_likelihood.lbfgs import lbfgs
from fastmf.learning.pseudo_likelihood.newton import newton

# Parameters up to which Hessians are factorised for a proof.
_MAX_PARAMETERS = 2000
# How solvers are continued that stopped too far from the maximum for a proof.
_NEWTON, _LBFGS = {"tol": 1e-7, "max_iter": 5}, {"tol": 1e-9, "max_iter": 100}
# Numbers in the matrix of the linear programme up to which it is solved.
_MAX_ENTRIES = 3_000_000
# Condition number beyond which eigenvalues in double precision prove nothing.
_MAX_CONDITION = 1e12
_NAMED = 20


def existence(objective, parameters, seconds=10.0):
    """Whether the maximum exists, and which items are separated if it does not.

    Parameters
    ----------
    objective : OrdinalLikelihood
    parameters : array of shape (n_parameters,)
        Where a solver stopped.
    seconds : float, default 10
        Limit of the time of the linear programme.

    Returns
    -------
    Existence
        Its `units` are items.
    """
    free = objective.ridge == 0
    if not free.any():
        return Existence(True)
    item, category = np.array(unseen(objective)).T
    if objective.thresholds.kind == "free" and len(item) and free[: objective.n_fields].all():
        named = [f"category {c} of item {i}" for i, c in zip(item, category, strict=True)]
        more = ", ..." if len(named) > _NAMED else ""
        return _not(
            f"nobody is in {', '.join(named[:_NAMED])}{more}, whose thresholds fall without end; "
            "merge categories, or give a ridge penalty l2_field", item,
        )  # fmt: skip
    if certified(objective, parameters):
        return Existence(True)
    limit, n_margins = TimeLimit(seconds), len(objective.weights) * len(objective.thresholds.item)
    if n_margins * objective.n_units <= _MAX_ENTRIES:
        margins, item = margin_matrix(objective)
        rising = rising_margins(limit, margins[:, free]) if limit.left() else None
        if rising is None:
            return undecided(limit)
        return _separated(item[rising]) if rising.any() else Existence(True)
    few = objective.n_parameters <= _MAX_PARAMETERS
    solver, options = (newton, _NEWTON) if few else (lbfgs, _LBFGS)
    if free.all() and certified(objective, solver(objective, parameters, **options).parameters):
        return Existence(True)
    return Existence(
        None, (),
        "whether the maximum exists was not decided: there are too many rows and items for a "
        "proof; with ridge penalties l2 and l2_field it exists",
    )  # fmt: skip


def unseen(objective):
    """Pairs (item, category) that no row has, (n_pairs, 2)."""
    there = np.arange(objective.thresholds.width)[:, None] < objective.thresholds.n_categories
    return np.argwhere((there & (objective.frequencies == 0)).T)


def _not(message, items):
    return Existence(False, tuple(map(int, np.unique(items))), f"no maximum exists: {message}")


def _separated(items):
    items = np.unique(items)
    names = ", ".join(map(str, items[:_NAMED])) + (", ..." if len(items) > _NAMED else "")
    return _not(
        f"the data separate items {names}, so that their parameters grow for ever; give a ridge "
        "penalty l2, merge rare categories, or take more rows or fewer items", items,
    )  # fmt: skip


def certified(objective, parameters):
    """Whether a maximum provably exists, from a point near to it; False proves nothing.

    Parameters
    ----------
    objective : OrdinalLikelihood
    parameters : array of shape (n_parameters,)

    Notes
    -----
    Couplings of its own for each item make the Hessian smaller, so that the smallest eigenvalue mu
    of the items' own Hessians, in `ItemCoordinates`, bounds that of H. Only where
    lambda C <= |g| |z| / mu is not small enough, and parameters are not too many, is H made.
    """
    coordinates, smallest, largest = objective.coordinates(separate=True), np.inf, 0.0
    gradient = objective.value_and_gradient(parameters)[1]
    for i, (_, block) in enumerate(objective.item_hessians(parameters)):
        matrix = coordinates.of_item(i)
        block = matrix.T @ block @ matrix
        # Less the rounding error of an eigenvalue.
        value = linalg.eigvalsh(block, subset_by_index=[0, 0])[0]
        smallest = min(smallest, value - block.trace() / _MAX_CONDITION)
        largest = max(largest, _largest_derivative(objective, i, matrix))
    if np.linalg.norm(coordinates.gradient(gradient)) * np.sqrt(largest) < smallest / 2:
        return True
    if objective.n_parameters > _MAX_PARAMETERS:
        return False
    hessian = objective.hessian(parameters)
    try:
        factor = cholesky(hessian.T)
    except linalg.LinAlgError:
        return False
    # The trace of the inverse is a bound on its largest eigenvalue.
    trace = np.linalg.norm(factor.inverse_factor()) ** 2
    if not trace * np.linalg.norm(hessian) < _MAX_CONDITION:
        return False
    largest = max(_largest_derivative(objective, i) for i in range(objective.n_units))
    decrement = np.sqrt(max(gradient @ factor.solve(gradient), 0))
    return bool(decrement * np.sqrt(largest * trace) < 0.5)


def _largest_derivative(objective, i, matrix=None):
    """Bound on the squared derivative of any log-odds of an item, by coordinates if given."""
    _, fields, block = objective.thresholds.of_item(i)
    of_fields, n = _with_first(block), len(fields)
    of_couplings = objective.states[:, np.flatnonzero(objective.index[i] >= 0)]
    if matrix is not None:
        # The first threshold has the slope one.
        of_couplings = of_couplings @ matrix[n:, n:] + block[0] @ matrix[:n, n:]
        of_fields = of_fields @ matrix[:n, :n]
    c = np.arange(len(of_fields))
    squares = np.square(of_fields[:, None] - of_fields).sum(-1)
    return (squares + (c[:, None] - c) ** 2 * np.square(of_couplings).sum(1).max()).max()


def _with_first(block):
    """Derivatives of thresholds by their parameters, that of category 0 included."""
    return np.vstack([np.zeros(block.shape[1]), block])


def margin_matrix(objective):
    """Margins of all rows as a sparse matrix times the parameters, and the item of each."""
    blocks, items, n = [], [], objective.n_parameters
    for i in range(objective.n_units):
        _, fields, block = objective.thresholds.of_item(i)
        block = _with_first(block)
        others = np.flatnonzero(objective.index[i] >= 0)
        x = objective.states[:, i].astype(int)
        for b in range(len(block)):
            rows = np.flatnonzero(x != b)
            change = (x[rows] - b)[:, None] * objective.states[np.ix_(rows, others)]
            values = np.hstack([block[x[rows]] - block[b], change])
            columns = np.tile(np.append(fields, objective.index[i, others]), len(rows))
            starts = np.arange(len(rows) + 1) * values.shape[1]
            blocks.append(sparse.csr_array((values.reshape(-1), columns, starts), (len(rows), n)))
            items.append(np.full(len(rows), i))
    return sparse.vstack(blocks, format="csr"), np.concatenate(items)
