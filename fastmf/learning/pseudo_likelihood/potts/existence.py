"""Existence of the maximum of a Potts machine's pseudo-likelihood.

Without penalties it does not exist where data are separated: where along some direction D of the
parameters no row's margin eta_{x_i} - eta_b, of any position and any other state b, falls, and some
rise. Two states of two positions that never meet suffice, and real alignments always have such; in
general a linear programme decides. A ridge on couplings leaves only fields of states that are never
seen, a ridge on both leaves nothing.

Where there are too many rows for a programme, estimates can be a proof. Along a direction D of
separation the derivative g'D of the log-pseudo-likelihood is the sum of residuals r = w p_b > 0
times margins, at least min r |margins| >= min r sigma |D|, where sigma^2 is the smallest eigenvalue
of [1, X]'[1, X] over distinct one-hot rows, restricted to vectors that add up to zero over the
states of each position: every direction is one of them in the zero-sum gauge. If |g| < min r sigma
there is no such direction. If all margins at the estimates are positive, they are one themselves.
"""

from typing import NamedTuple

import numpy as np
import scipy

from fastmf.learning.pseudo_likelihood.existence import (
    Existence,
    TimeLimit,
    near_maximum,
    no_maximum,
    rising_margins,
    undecided,
)
from fastmf.learning.pseudo_likelihood.newton import GRADIENT_ROUNDING
from fastmf.learning.pseudo_likelihood.potts.couplings import one_hot
from fastmf.learning.pseudo_likelihood.potts.fitting import Options, fit
from fastmf.models._gauge import PositionStates

# Numbers in the matrix of the linear programme up to which it is solved.
_MAX_ENTRIES = 400_000
# States up to which eigenvalues of their matrices take little time.
_MAX_STATES = 1000
# Rows whose fields are made together.
_ROWS_OF_FIELDS = 1024
# Rounding error of eigenvalues, beside the largest.
_EIGENVALUE_ROUNDING = 1e-12

_UNSEEN = (
    "states were never seen, whose fields fall without end; leave them out or give a ridge "
    "penalty l2_field"
)
_UNDECIDED = Existence(
    None, (), "it is not decided whether a maximum exists; if not, give a ridge penalty l2"
)
_STRANGERS = "pairs of states never meet, whose couplings fall without end; give a ridge penalty l2"


def existence(data, l2, l2_field, symmetric=True, seconds=10.0, estimate=None):
    """Whether the maximum exists, and which positions are separated if it does not.

    Parameters
    ----------
    data : PottsData
    l2, l2_field : float
    symmetric : bool, default True
    seconds : float, default 10
        Limit of the time of linear programmes.
    estimate : tuple of Dense or OfFewRows, and array of shape (n_states,), optional
        Couplings and field where a solver stopped.

    Returns
    -------
    Existence
        Its `units` are positions.
    """
    if not l2_field:
        unseen = PositionStates(data.sizes).means(data.counts == 0) > 0
        if unseen.any():
            return no_maximum(_UNSEEN, np.flatnonzero(unseen))
    if l2:
        return Existence(True)
    strangers = _never_meeting(data.labels, data.labels, data.sizes)
    if strangers.any():
        return no_maximum(_STRANGERS, np.flatnonzero(strangers.any(0)))
    limit = TimeLimit(seconds)
    if estimate is not None and not l2_field and data.n_states <= _MAX_STATES:
        found = _by_estimate(data, symmetric, *estimate)
        if found is None and symmetric and limit.left():
            better = fit(data, _REFINED)
            found = _by_estimate(data, symmetric, better.couplings, better.field)
        if found is not None:
            return found
    return _by_programmes(data, l2_field, symmetric, limit)


def existence_in_graph(data, l2, l2_field, absent, seconds=10.0):
    """Whether the maximum exists where some pairs of positions have no couplings.

    Parameters
    ----------
    data : PottsData
    l2, l2_field : float
    absent : int array of shape (n_pairs, 2)
        Pairs of positions without couplings.
    seconds : float, default 10

    Returns
    -------
    Existence
        It exists where that of all pairs does, and is not decided where only pairs of the graph,
        or none, tell.
    """
    found = existence(data, l2, l2_field, True, seconds)
    if found.exists or (not l2_field and "never seen" in found.message):
        return found
    strangers = _never_meeting(data.labels, data.labels, data.sizes)
    strangers[tuple(absent.T)] = strangers[tuple(absent.T[::-1])] = False
    if strangers.any():
        return no_maximum(_STRANGERS, np.flatnonzero(strangers.any(0)))
    return _UNDECIDED


def existence_of_available(objective, parameters):
    """Whether the maximum exists over available cases.

    Parameters
    ----------
    objective : DenseObjective
        With `targets` and `edges`.
    parameters : array of shape (n_parameters,)
        Where a solver stopped.

    Returns
    -------
    Existence
        Proved by `fastmf.learning.pseudo_likelihood.existence.near_maximum` in the zero-sum gauge,
        in which the Hessian is not singular.
    """
    l2, l2_field, *_ = objective.options
    sizes = objective.positions.sizes
    counts = one_hot(objective.targets, sizes).sum(0)
    if not l2_field:
        unseen = objective.positions.means(np.asarray(counts).reshape(-1) == 0) > 0
        if unseen.any():
            return no_maximum(_UNSEEN, np.flatnonzero(unseen))
    if l2:
        return Existence(True)
    strangers = _never_meeting(objective.labels, objective.targets, sizes) & objective.coupled
    if strangers.any():
        return no_maximum(_STRANGERS, np.flatnonzero(strangers.any(0)))
    basis = np.vstack([objective.field_contrasts(), objective.contrasts()[0].toarray()])
    hessian = objective.hessian(parameters) - np.diag(objective.ridge)
    # Two fields change the log-odds of two states, and two couplings with each neighbour.
    largest = 2 * (1 + objective.coupled.sum(0).max())
    gradient = basis @ objective.mean_score(parameters)
    return Existence(True) if near_maximum(basis @ hessian @ basis.T, gradient, largest) else (
        _UNDECIDED)  # fmt: skip


def _never_meeting(labels, targets, sizes):
    """For each pair of positions, whether two states never meet, one of them seen there."""
    n_positions = len(sizes)
    found = np.zeros((n_positions, n_positions), bool)
    for i in range(n_positions):
        for j in range(i):
            of_i = _meetings(targets[:, i], labels[:, j], sizes[i], sizes[j])
            of_j = _meetings(labels[:, i], targets[:, j], sizes[i], sizes[j])
            tells = of_j.any(1)[:, None] | of_i.any(0)
            found[i, j] = found[j, i] = (~of_i & ~of_j & tells).any()
    return found


def _meetings(x, y, n_x, n_y):
    """Which of the values of two columns meet in a row."""
    both = (x >= 0) & (y >= 0)
    pairs = x[both].astype(np.int64) * n_y + y[both]
    return (np.bincount(pairs, minlength=n_x * n_y) > 0).reshape(n_x, n_y)


_SEPARATED = "positions are separated, as if determined by others; give a ridge penalty l2"


# How estimates are refined that are too far from the maximum to prove that it exists.
_REFINED = Options(0.0, 0.0, "newton", tol=1e-9, max_iter=8)


def _by_estimate(data, symmetric, couplings, field):
    """Existence if an estimate is a proof, else None."""
    at = _looked_at(data, couplings, field)
    if at.margin > 0:
        return no_maximum(_SEPARATED, np.arange(len(data.sizes)))
    if symmetric and at.gradient < at.residual * _smallest_singular_value(data):
        return Existence(True)
    return None


class _Estimate(NamedTuple):
    """Smallest margin, norm of the mean gradient, and smallest residual at an estimate."""

    margin: float
    gradient: float
    residual: float


def _looked_at(data, couplings, field):
    positions, n, shares = PositionStates(data.sizes), data.n_states, data.weights / data.total
    first, position = positions.first, positions.position
    of_couplings, of_field, margin, residual = np.zeros((n, n)), np.zeros(n), np.inf, np.inf
    for start in range(0, len(data.labels), _ROWS_OF_FIELDS):
        labels = data.labels[start : start + _ROWS_OF_FIELDS]
        share, X = shares[start : start + _ROWS_OF_FIELDS, None], one_hot(labels, data.sizes)
        own, present = X.toarray() > 0, (labels >= 0)[:, position]
        eta = couplings.fields(labels) + field
        p = positions.softmax(eta)
        others = np.maximum.reduceat(np.where(own, -np.inf, eta), first, axis=1)[:, position]
        margin = min(margin, (eta - others)[own].min())
        residual = min(residual, (share * p)[present & ~own].min(initial=np.inf))
        r = np.where(present, share * (own - p), 0)
        of_couplings += X.T @ r
        of_field += r.sum(0)
    of_couplings = (of_couplings + of_couplings.T)[position[:, None] < position]
    gradient = np.sqrt(of_couplings @ of_couplings + of_field @ of_field)
    rounding = GRADIENT_ROUNDING * np.sqrt(len(of_couplings) + n)
    return _Estimate(margin, gradient + rounding, residual)


def _smallest_singular_value(data):
    """sigma: the smallest of those of the rows in which some position is present."""
    bases = [scipy.linalg.helmert(q).T for q in data.sizes]
    basis, X = scipy.linalg.block_diag(*bases), one_hot(data.labels, data.sizes)
    with_one = np.hstack([np.ones((len(data.labels), 1)), X @ basis])
    smallest = np.inf
    for present in np.unique(data.labels >= 0, axis=1).T:
        some = with_one[present]
        values = scipy.linalg.eigvalsh(some.T @ some)
        smallest = min(smallest, values[0] - _EIGENVALUE_ROUNDING * values[-1])
    return np.sqrt(max(smallest, 0))


def _by_programmes(data, l2_field, symmetric, limit):
    n_positions = len(data.sizes)
    n_margins = len(data.labels) * (data.n_states - n_positions)
    if 2 * n_margins * (n_positions + 1) > _MAX_ENTRIES * (1 if symmetric else n_positions):
        return Existence(None, (), "whether the maximum exists was not decided: too many rows")
    problems = [range(n_positions)] if symmetric else [[i] for i in range(n_positions)]
    separated = set()
    for positions in problems:
        margins, position = _margins(data, positions, symmetric, l2_field)
        rising = rising_margins(limit, margins) if limit.left() else None
        if rising is None:
            return undecided(limit)
        separated.update(position[rising])
    if separated:
        return no_maximum(_SEPARATED, sorted(separated))
    return Existence(True)


def _margins(data, positions, symmetric, l2_field):
    """Margins of all rows as a sparse matrix times the parameters, and the position of each."""
    entries, position, n = [], [], 0
    for i in positions:
        present = np.flatnonzero(data.labels[:, i] >= 0)
        for b in range(data.sizes[i]):
            others = present[data.labels[present, i] != b]
            own, other = data.labels[others, i].astype(np.int64), np.full(len(others), b)
            for state, sign in ((own, 1.0), (other, -1.0)):
                rows, there = _influences(data, others, i, state, l2_field)
                here = (PositionStates(data.sizes).first[i] + state)[rows]
                low = np.minimum(here, there) if symmetric else here
                high = np.maximum(here, there) if symmetric else there
                signs = np.full(len(rows), sign)
                entries.append(np.stack([n + rows, low * data.n_states + high, signs]))
            n += len(others)
            position += [i] * len(others)
    rows, columns, values = np.concatenate(entries, axis=1)
    used, columns = np.unique(columns, return_inverse=True)
    entries = values, (rows.astype(np.int64), columns)
    matrix = scipy.sparse.coo_array(entries, shape=(n, len(used))).tocsr()
    return matrix, np.array(position)


def _influences(data, rows, i, state, l2_field):
    """Numbers of rows, and flat states whose parameters with one of position i add to its field.

    The field itself stands at the state of position i, unless it is penalised.
    """
    first = PositionStates(data.sizes).first
    flat = np.where(data.labels[rows] >= 0, first + data.labels[rows], -1)
    flat[:, i] = -1 if l2_field else first[i] + state
    found = np.nonzero(flat >= 0)
    return found[0], flat[found]
