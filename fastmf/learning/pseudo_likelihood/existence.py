"""Whether the maximum of a pseudo-likelihood exists, for all kinds of items.

The log-odds of two categories a, b of item i given all others are

    eta_ia - eta_ib = (F_i[a] - F_i[b]) h_i + (T_i[a] - T_i[b]) sum_j J_ij T_j[x_j]

with tables F of fields and T of scores. The margins are those of the observed category x over each
other one. No maximum exists if and only if the data are separated (Albert & Anderson 1984): along
some direction D of the parameters no margin falls and some rise. Directions add up, so that one
linear programme finds all margins that rise along any of them. Some directions are known in closed
form:

*Categories that were never seen*, if fields are free.

*Categories a of i and b of j that never meet*: eta_ia falls where x_j = b, eta_jb where x_i = a.

*Linear dependence*: if u_0 + sum_j u_j T_j[x_j] = 0 in all rows, the couplings -u_i u_j and fields
-u_0 u_i T_i - (u_i T_i)^2 / 2 raise the margin of x over b by (u_i (T_i[x] - T_i[b]))^2 / 2.

*Proofs of a maximum* need a point near to it. With the residuals r = w p_b > 0 of all margins m the
gradient is g = sum r m, and along a direction D of separation g'D = sum r (m'D) >= min r |margins|.

1. |margins| >= sigma |D|, where sigma^2 is at least the smallest eigenvalue of [1, T]'[1, T] over
   the rows times that of the centred tables: a maximum exists if |g| < sigma min r.
2. Along a direction with D'H D = 1 no log-odds change faster than C = c tr(H^-1)^(1/2), where c^2
   bounds their squared derivatives, and the curvature falls by at most a factor e^(-C t). With
   lambda^2 = g'H^-1 g the slope is at most lambda - (1 - e^(-C t)) / C: it becomes negative on
   every ray, and a maximum exists, if lambda C < 1. (Bach 2010 has theorems of this kind.)
"""

import time
from itertools import permutations
from typing import NamedTuple

import numpy as np
import scipy
from scipy import sparse

from fastmf._common.linalg import LinAlgError, cholesky
from fastmf.learning.pseudo_likelihood.lbfgs import lbfgs
from fastmf.learning.pseudo_likelihood.newton import GRADIENT_ROUNDING, hessian_solver, newton

# Condition number beyond which eigenvalues in double precision prove nothing.
MAX_CONDITION = 1e12
# Units, or categories, that a message names.
MAX_NAMED = 10
# Largest sum, over a row, of a linear dependence with coefficients of norm one.
_DEPENDENCE = 1e-7
# Parameters up to which Hessians are factorised for a proof.
_MAX_DENSE_PARAMETERS = 2000
# Numbers in the matrix of a linear programme up to which it is solved.
_MAX_PROGRAMME_NUMBERS = 3_000_000


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


class Items(NamedTuple):
    """Rows of items, and how their log-odds depend on parameters.

    Parameters
    ----------
    labels : int array of shape (n_rows, n_items)
        Categories of neighbours, negative where missing.
    targets : int array of shape (n_rows, n_items)
        Categories whose probabilities are in the pseudo-likelihood, negative where there is none.
    fields, scores : list of arrays of shapes (n_categories, n_fields), (n_categories, n_scores)
        F and T of each item.
    coupled : bool array of shape (n_items, n_items)
    free : tuple of bool
        Whether fields, and couplings, have no penalty.
    name, remedies : str
        What messages call the items, and what helps beside a ridge penalty.
    shared : bool, default True
        Whether two items share their coupling.
    """

    labels: np.ndarray
    targets: np.ndarray
    fields: list
    scores: list
    coupled: np.ndarray
    free: tuple
    name: str
    remedies: str
    shared: bool = True


class Look(NamedTuple):
    """A point near to a maximum, if there is one.

    Parameters
    ----------
    gradient : float
        Norm of the gradient by free parameters.
    residual : float
        Smallest residual w p_b.
    separates : bool
        Whether all margins are positive.
    decrement : callable
        lambda tr(H^-1)^(1/2); called if the other proof fails.
    """

    gradient: float
    residual: float
    separates: bool
    decrement: object = lambda: np.inf


def decided(objective, parameters, l1=0.0, seconds=10.0):
    """`Existence` of the maximum of a `CompositeLikelihood`, from where a solver stopped."""
    deadline = time.monotonic() + seconds
    return existence(objective.items(l1), _looks(objective, parameters, deadline), seconds)


def existence(items, looks=(), seconds=10.0):
    """Whether the maximum exists, and which items are separated if it does not."""
    deadline = time.monotonic() + seconds
    fields_free, couplings_free = items.free
    unseen = _unbounded(items) if fields_free else np.zeros(0, int)
    if not couplings_free:
        return _separated(items, unseen, "never seen") if len(unseen) else Existence(True)
    spectrum = _Spectrum(items)
    never, dependent = _never_meeting(items), spectrum.dependent()
    for units, reason in ((unseen, "never seen"), (never, "never meet"), (dependent, "dependent")):
        if len(units):
            return _separated(items, np.unique(np.concatenate([unseen, never, dependent])), reason)
    for look in looks:
        if look.separates:
            return _separated(items, np.arange(len(items.coupled)))
        near = look.gradient < look.residual * spectrum.bound()
        if near or look.decrement() * _steepest(items) < 0.5:
            return Existence(True)
        if time.monotonic() > deadline:
            break
    return _by_programmes(items, deadline, seconds)


def _separated(items, units, reason=None):
    """The result where data separate some items."""
    named = ", ".join(map(str, units[:MAX_NAMED])) + (", ..." if len(units) > MAX_NAMED else "")
    binary = items.name == "units"
    why = {
        "never seen": " (units that are constant)" if binary else " (states that were never seen)",
        "never meet": " (pairs of states never meet)",
        "dependent": " (they depend on each other linearly)",
    }.get(reason, "")
    penalty = "l2_field" if reason == "never seen" and not binary else "l2"
    return Existence(
        False, tuple(map(int, units)),
        f"no maximum exists: the data separate {items.name} {named}, so that their parameters grow "
        f"without bound{why}; give a ridge penalty {penalty}, {items.remedies}",
    )  # fmt: skip


def _rank(table):
    return np.linalg.matrix_rank(table - table.mean(0))


def _unbounded(items):
    """Items whose fields alone separate them."""
    out = []
    for i, table in enumerate(items.fields):
        counts = np.bincount(items.targets[:, i] + 1, minlength=len(table) + 1)[1:]
        if (counts > 0).all():
            continue
        seen = np.flatnonzero(counts)
        margins = (table[seen, None] - table).reshape(-1, table.shape[1])
        if _rank(table) == len(table) - 1 or rising_margins(sparse.csr_array(margins)).any():
            out.append(i)
    return np.array(out, int)


def _never_meeting(items):
    """Items with a category whose probability falls without bound beside one of another item."""
    sizes = np.array([len(table) for table in items.scores])
    # Of saturated items each pair of categories has a coupling of its own.
    of_fields = int(items.free[0])
    saturated = np.array([table.shape[1] >= len(table) - of_fields for table in items.scores])
    if not saturated.any():
        return np.zeros(0, int)
    first, position = np.cumsum(sizes) - sizes, np.repeat(np.arange(len(sizes)), sizes)

    one_hot = [np.eye(size, dtype=np.float32) for size in sizes]
    labels = _encoded(one_hot, items.labels)
    targets = labels if items.targets is items.labels else _encoded(one_hot, items.targets)
    # Where the item of the row is a target, and that of the column is there.
    meet = targets.T @ labels > 0
    of_item = np.logical_or.reduceat(meet, first, axis=0)[position]
    pairs = (items.coupled & saturated & saturated[:, None])[position][:, position]
    return np.unique(position[(~meet & ~meet.T & of_item & pairs).any(1)])


def _encoded(tables, labels):
    """Rows of tables for labels side by side, zero where they are missing."""
    padded = (np.vstack([table, np.zeros_like(table[:1])]) for table in tables)
    return np.hstack([table[own] for table, own in zip(padded, labels.T, strict=True)])


class _Spectrum:
    """Eigenvalues of [1, T]'[1, T] over the rows, made when they are asked for."""

    def __init__(self, items):
        self.items, self._smallest = items, None
        one = np.ones((len(items.labels), int(items.free[0])))
        self.features = np.hstack([one, _encoded(items.scores, items.labels)])
        widths = [one.shape[1], *(table.shape[1] for table in items.scores)]
        self.item = np.repeat(np.arange(-1, len(items.scores)), widths)

    def dependent(self):
        """Items that a linear dependence separates."""
        n, targets = len(self.items.coupled), self.items.targets
        if self.items.coupled.sum() < n * (n - 1) or (targets < 0).any():
            return np.zeros(0, int)
        values, vectors = np.linalg.eigh(self.features.T @ self.features)
        self._smallest = values[0] - values[-1] / MAX_CONDITION
        if not self.items.free[0]:
            return np.zeros(0, int)
        null = vectors[:, values < values[-1] * np.sqrt(1 / MAX_CONDITION)]
        null = null[:, abs(self.features @ null).max(0) < _DEPENDENCE * abs(self.features).max()]
        items = np.unique(self.item[np.square(null).sum(1) > _DEPENDENCE])
        return items[items >= 0]

    def bound(self):
        """sigma."""
        items = self.items
        tables = items.scores + items.fields if items.free[0] else items.scores
        own = min(map(_smallest_singular_value, {id(table): table for table in tables}.values()))
        if self._smallest is None:
            self._smallest = self._of_incomplete_rows()
        return own * np.sqrt(max(self._smallest, 0.0))

    def _of_incomplete_rows(self):
        smallest, there = np.inf, self.items.targets >= 0
        for i, coupled in enumerate(self.items.coupled):
            used = np.append(coupled, True)[self.item]
            rows = self.features[np.ix_(there[:, i], used)]
            values = np.linalg.eigvalsh(rows.T @ rows)
            smallest = min(smallest, values[0] - values[-1] / MAX_CONDITION)
        return smallest


def _steepest(items):
    """Bound c on the norm of the derivatives of any log-odds by the parameters."""

    def range_of(table):
        return np.square(table[:, None] - table).sum(-1).max()

    scores = np.array([np.square(table).sum(1).max() for table in items.scores])
    by_couplings = np.array([range_of(table) for table in items.scores]) * (items.coupled @ scores)
    by_fields = items.free[0] * np.array([range_of(table) for table in items.fields])
    return np.sqrt((by_couplings + by_fields).max())


def _smallest_singular_value(table):
    values = np.linalg.svd(table - table.mean(0), compute_uv=False)
    return values[values > values.max(initial=0.0) / np.sqrt(MAX_CONDITION)].min(initial=np.inf)


def _looks(objective, point, deadline):
    """`Look` at where a solver stopped, and after some of its iterations more."""
    few = objective.n_parameters <= _MAX_DENSE_PARAMETERS or objective.singular
    solver, options = (newton, (5, 1e-7)) if few else (lbfgs, (20, 1e-9))
    yield objective.look(point)
    for _ in range(5):
        found = solver(objective, point, max_iter=options[0], tol=options[1])
        point = found.parameters
        yield objective.look(point)
        if found.stopped:
            break
    # Values no longer tell L-BFGS where the maximum is when gradients still do.
    for _ in range(0 if few else 3):
        gradient, solve = objective.value_and_gradient(point)[1], hessian_solver(objective, point)
        point = point + solve(gradient, 1e-6, 100, lambda: time.monotonic() > deadline)[0]
        if not np.isfinite(point).all():
            break
        yield objective.look(point)


def look(objective, point, residual, separates):
    """`Look` at a point of an objective, from its smallest residual and whether it separates."""
    gradient = objective.value_and_gradient(point)[1]
    free = np.broadcast_to(np.equal(objective.ridge, 0), gradient.shape)
    norm = np.linalg.norm(gradient[free]) + GRADIENT_ROUNDING * np.sqrt(len(gradient))

    def decrement():
        if objective.n_parameters > _MAX_DENSE_PARAMETERS or objective.singular:
            return np.inf
        try:
            factor = cholesky(objective.hessian(point)[np.ix_(free, free)].T)
        except LinAlgError:
            return np.inf
        # The trace of the inverse is a bound on its largest eigenvalue.
        trace = np.linalg.norm(factor.inverse_factor()) ** 2
        if not trace * abs(objective.hessian(point)).max() < MAX_CONDITION:
            return np.inf
        rounding = GRADIENT_ROUNDING**2 * len(gradient) * trace
        square = max(gradient[free] @ factor.solve(gradient[free]), 0.0) + rounding
        return np.sqrt(square * trace)

    return Look(norm, residual, separates, decrement)


def unique_with_firth(objective):
    """`Existence` of the maximum with Firth's penalty: the Hessian must not be singular."""
    # sech^2 is positive everywhere: its values make no difference to the rank.
    values = np.linalg.eigvalsh(objective.common_hessian(np.ones(objective.n_units)))
    return Existence(True) if values[0] > values[-1] / MAX_CONDITION else Existence(
        False, (), "the maximum is not unique: units depend on each other linearly; leave some out "
        "or give a ridge penalty l2",
    )  # fmt: skip


def rising_margins(margins, seconds=np.inf):
    """Which margins rise along a direction along which none falls.

    Notes
    -----
    Maximise sum t with 0 <= t <= 1 and t <= margins: directions add up, so that the optimum has
    t = 1 wherever any direction has a positive margin. Solved by its dual, minimise sum v with
    margins' (1 - v + s) = 0, 0 <= v <= 1 and 0 <= s, which has far fewer constraints.
    """
    m, transposed = margins.shape[0], margins.T
    found = scipy.optimize.linprog(
        np.repeat([1.0, 0.0], m), method="highs",
        A_eq=sparse.hstack([transposed, -transposed]), b_eq=transposed @ np.ones(m),
        bounds=np.transpose([np.zeros(2 * m), np.repeat([1.0, np.inf], m)]),
        options={"time_limit": seconds} if np.isfinite(seconds) else {},
    )  # fmt: skip
    return margins @ found.eqlin.marginals > 0.5 if found.status == 0 else None


def _by_programmes(items, deadline, seconds):
    """`Existence` by linear programming: one programme, or one for each item."""
    n_margins = sum((items.targets[:, i] >= 0).sum() * (len(table) - 1)
                    for i, table in enumerate(items.scores))  # fmt: skip
    widths = np.array([min(2, table.shape[1]) for table in items.scores])
    numbers = n_margins * (1 + (items.coupled @ widths).max(initial=0))
    groups = np.arange(len(widths)).reshape(1 if items.shared else len(widths), -1)
    large, separated = numbers > _MAX_PROGRAMME_NUMBERS * len(groups), []
    for group in groups:
        left, rising = deadline - time.monotonic(), None
        if left > 0 and not large:
            margins, item = margins_of(items, group)
            rising = rising_margins(margins, left)
        if rising is None:
            reason = f"within {seconds:g} s: raise existence_seconds, or"
            if left > 0 and large:
                reason = f"as there are too many rows and {items.name} for a linear programme:"
            return Existence(
                None, (), f"whether the maximum exists was not decided {reason} give a ridge "
                "penalty l2, with which it exists",
            )  # fmt: skip
        separated.append(item[rising])
    units = np.unique(np.concatenate(separated))
    return _separated(items, units) if len(units) else Existence(True)


def margins_of(items, group):
    """Margins of the items of a group as a sparse matrix times free parameters, and their items."""
    spectrum = _Spectrum(items._replace(free=(False, True)))
    features, n = sparse.csr_array(spectrum.features), spectrum.features.shape[1]
    places, entries, of_item, start = spectrum.item, [], [], 0
    first = n**2 + np.cumsum([0, *(table.shape[1] for table in items.fields)])
    for i in group:
        fields, scores, neighbours = items.fields[i], items.scores[i], items.coupled[i][places]
        own, others = np.flatnonzero(places == i), np.flatnonzero(neighbours)
        # Numbers of couplings, one of each pair of scores if they are shared.
        a, b = own[:, None], others[None, :]
        columns = np.minimum(a, b) * n + np.maximum(a, b) if items.shared else a * n + b
        columns, near = columns.reshape(-1), features[:, others]
        for x, other in permutations(range(len(scores)), 2):
            rows = np.flatnonzero(items.targets[:, i] == x)
            block = sparse.kron((scores[x] - scores[other])[None], near[rows], "coo")
            entries.append((start + block.row, columns[block.col], block.data))
            row, k = np.indices((len(rows), items.free[0] * fields.shape[1])).reshape(2, -1)
            change = (fields[x] - fields[other])[k]
            entries.append((start + row, first[i] + k, change))
            start += len(rows)
            of_item.append(np.full(len(rows), i))
    rows, columns, values = map(np.concatenate, zip(*entries, strict=True))
    used, columns = np.unique(columns, return_inverse=True)
    matrix = sparse.coo_array((values, (rows, columns)), shape=(start, len(used))).tocsr()
    return matrix, np.concatenate(of_item)
