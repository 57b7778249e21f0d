"""Existence of the maximum of the pseudo-likelihood of ordinal items.

Without penalties it does not exist where data are separated
(`fastmf.learning.pseudo_likelihood.existence`): the margins are those of the observed category a of
item i over any other b, mu_ia - mu_ib + (a - b) s_i. A category that was never observed suffices if
thresholds are free; a ridge on couplings leaves directions of thresholds alone, a ridge on both
leaves nothing.

*A maximum exists* if a point is near enough to it
(`fastmf.learning.pseudo_likelihood.existence.near_maximum`).
"""

import numpy as np
from scipy import linalg, sparse

from fastmf.learning.pseudo_likelihood.existence import (
    MAX_CONDITION,
    MAX_NAMED,
    Existence,
    TimeLimit,
    near_maximum,
    no_maximum,
    rising_margins,
    separated_by,
    undecided,
)
from fastmf.learning.pseudo_likelihood.lbfgs import lbfgs
from fastmf.learning.pseudo_likelihood.newton import newton

# Parameters up to which Hessians are factorised for a proof.
_MAX_PARAMETERS = 2000
# How solvers are continued that stopped too far from the maximum for a proof.
_NEWTON, _LBFGS = {"tol": 1e-7, "max_iter": 5}, {"tol": 1e-9, "max_iter": 100}
# Numbers in the matrix of the linear programme up to which it is solved.
_MAX_PROBLEM_ENTRIES = 3_000_000
_REMEDIES = "merge rare categories, or take more rows or fewer items"


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
        more = ", ..." if len(named) > MAX_NAMED else ""
        return no_maximum(
            f"nobody is in {', '.join(named[:MAX_NAMED])}{more}, whose thresholds fall without "
            "end; merge categories, or give a ridge penalty l2_field", item,
        )  # fmt: skip
    if certified(objective, parameters):
        return Existence(True)
    limit, n_margins = TimeLimit(seconds), len(objective.weights) * len(objective.thresholds.item)
    if n_margins * objective.n_units <= _MAX_PROBLEM_ENTRIES:
        margins, item = margin_matrix(objective)
        rising = rising_margins(limit, margins[:, free]) if limit.left() else None
        if rising is None:
            return undecided(limit)
        return separated_by(item[rising], "items", _REMEDIES) if rising.any() else Existence(True)
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


def unbounded(objective):
    """Items whose thresholds grow without end though their couplings are bounded.

    They have a category that no row has; of the form of Blume and Capel, those whose rows have a
    single category, or two neighbouring corners of the polygon of the points (c, (c - r)^2).

    Returns
    -------
    int array of shape (n_items,)
    """
    if objective.thresholds.kind == "free":
        return np.unique(unseen(objective)[:, 0])
    out = []
    for i, size in enumerate(objective.thresholds.n_categories):
        seen = np.flatnonzero(objective.frequencies[:, i] > 0)
        neighbours = len(seen) == 2 and seen[1] - seen[0] in (1, size - 1)
        if len(seen) == 1 or (size > 2 and neighbours):
            out.append(i)
    return np.array(out, int)


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
        smallest = min(smallest, value - block.trace() / MAX_CONDITION)
        largest = max(largest, _largest_derivative(objective, i, matrix))
    if np.linalg.norm(coordinates.gradient(gradient)) * np.sqrt(largest) < smallest / 2:
        return True
    if objective.n_parameters > _MAX_PARAMETERS:
        return False
    largest = max(_largest_derivative(objective, i) for i in range(objective.n_units))
    return near_maximum(objective.hessian(parameters), gradient, largest)


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
