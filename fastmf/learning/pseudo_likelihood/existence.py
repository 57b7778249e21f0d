"""Existence of the maximum of a pseudo-likelihood, for all kinds of items.

The log-odds of two categories a, b of item i given all others are

    eta_ia - eta_ib = (F_i[a] - F_i[b]) h_i + (T_i[a] - T_i[b]) sum_j J_ij T_j[x_j]

with tables F of fields and T of scores. The margins compare the observed category x with any other.
No maximum exists if and only if the data are separated (Albert & Anderson 1984): along some
direction D of the parameters no margin falls and some rise. Directions can be added, so that one
linear programme finds all margins that rise along any of them. Some have a closed form:

*Categories that are never observed*, if fields are free.

*Categories a of i, b of j that never co-occur*: eta_ia falls where x_j = b, eta_jb where x_i = a.

*Linear dependence*: if u_0 + sum_j u_j T_j[x_j] = 0 in all rows, the couplings -u_i u_j and fields
-u_0 u_i T_i - (u_i T_i)^2 / 2 raise the margin of x over b by (u_i (T_i[x] - T_i[b]))^2 / 2.

*Proof of a maximum.* With the residuals r = w p_b > 0 of all margins m the gradient is g = sum r m.
Along a direction D of separation m'D >= 0, so that g'D is at least the norm of all r (m'D), which
is at least sigma |D|. With the smallest residual r_s of row s, sigma^2 is the product of the least
eigenvalues of sum_s r_s^2 [1, T]'[1, T] and of the centred tables. |g| < sigma proves a maximum.
"""

from itertools import permutations
from typing import NamedTuple

import numpy as np
import scipy
from scipy import sparse

from fastmf._common.rows import BLOCK_ENTRIES
from fastmf._common.warning import listed
from fastmf._threads.workers import computed_once, one_blas_thread
from fastmf.learning.pseudo_likelihood.fit import gradient_rounding, maximum

# Condition number beyond which eigenvalues in double precision are not reliable.
MAX_CONDITION = 1e12


class Existence(NamedTuple):
    """Whether the maximum exists, and which units are separated if it does not.

    Parameters
    ----------
    exists : bool or None
        None if undecided.
    units : tuple of int
        Separated units: determined by other units, or constant.
    message : str
    """

    exists: bool | None
    units: tuple = ()
    message: str = ""


class Items(NamedTuple):
    """Rows of items, and the dependence of their log-odds on parameters.

    `labels` (n_rows, n_items) are negative if missing, and `targets` also if a term is omitted;
    `features` are the scores T of the labels, 0 if missing; `fields` and `scores` are the tables F
    and T of each item; `coupled` (n_items, n_items) is a mask; `free` is whether fields, and
    couplings, have no penalty; `name` and `remedies` are for messages, and `shared` is whether two
    items share their coupling.
    """

    labels: np.ndarray
    targets: np.ndarray
    features: np.ndarray
    fields: list
    scores: list
    coupled: np.ndarray
    free: tuple
    name: str
    remedies: str
    shared: bool = True


@one_blas_thread()
def decided(objective, point=None, l1=0.0, refine=None):
    """Decide whether the maximum of a `PairwiseLikelihood` exists, given a solver's estimate."""
    items = objective.items(l1)
    if not items.free[1]:
        unseen = _unbounded(items)
        return _separated(items, unseen, "never seen") if len(unseen) else Existence(True)
    features = _Features(items)

    def decide_at(parameters):
        """Return whether a maximum exists; None if residuals and gradient do not decide it."""
        residuals, separates = objective.look(parameters)
        if separates:
            return False
        gradient = objective.value_and_gradient(parameters)[1]
        norm = np.linalg.norm(gradient * np.equal(objective.ridge, 0))
        norm += gradient_rounding() * np.sqrt(len(gradient))
        return True if features.margins_exceed(norm, residuals) else None

    exists = None if point is None else decide_at(point)
    if exists:
        return Existence(True)
    unseen, never, dependent = _unbounded(items), _never_meeting(items), features.dependent()
    for units, reason in ((unseen, "never seen"), (never, "never meet"), (dependent, "dependent")):
        if len(units):
            return _separated(items, np.unique(np.concatenate([unseen, never, dependent])), reason)
    if exists is None and point is not None:
        parameters = maximum(objective, point, 1e-7).parameters if refine is None else refine(point)
        exists = decide_at(parameters)
    if exists is None:
        return _by_programmes(items)
    return Existence(True) if exists else _separated(items, np.arange(len(items.coupled)))


def _separated(items, units, reason=None):
    """Return the `Existence` for data that separate some items."""
    binary = items.name == "units"
    why = {
        "never seen": " (units that are constant)" if binary else " (states that were never seen)",
        "never meet": " (pairs of states never meet)",
        "dependent": " (they depend on each other linearly)",
    }.get(reason, "")
    penalty = "l2_field" if reason == "never seen" and not binary else "l2"
    return Existence(
        False, tuple(map(int, units)),
        f"no maximum exists: the data separate {items.name} {listed(units)}, so that their "
        f"parameters grow without bound{why}; give a ridge penalty {penalty}, {items.remedies}",
    )  # fmt: skip


def _unbounded(items):
    """Return items that are separated by their fields; none if fields have a penalty."""
    out = []
    for i, table in enumerate(items.fields if items.free[0] else ()):
        counts = np.bincount(items.targets[:, i] + 1, minlength=len(table) + 1)[1:]
        if (counts > 0).all():
            continue
        margins = (table[np.flatnonzero(counts), None] - table).reshape(-1, table.shape[1])
        free = np.linalg.matrix_rank(table - table.mean(0)) == len(table) - 1
        if free or rising_margins(sparse.csr_array(margins)).any():
            out.append(i)
    return np.array(out, int)


def _never_meeting(items):
    """Return items with a category that never occurs together with one of another item."""
    sizes = np.array([len(table) for table in items.scores])
    # In pairs of saturated items, each pair of categories has its own coupling.
    of_fields = int(items.free[0])
    saturated = np.array([table.shape[1] >= len(table) - of_fields for table in items.scores])
    if not saturated.any():
        return np.zeros(0, int)
    first, position = np.cumsum(sizes) - sizes, np.repeat(np.arange(len(sizes)), sizes)
    category = np.arange(len(position)) - first[position]
    labels, targets = ((x[:, position] == category).astype(np.float32)
                       for x in (items.labels, items.targets))  # fmt: skip
    # Pairs of categories of a target and of an observed item.
    meet = targets.T @ labels > 0
    of_item = np.logical_or.reduceat(meet, first, axis=0)[position]
    pairs = (items.coupled & saturated & saturated[:, None])[position][:, position]
    return np.unique(position[(~meet & ~meet.T & of_item & pairs).any(1)])


class _Features:
    """The features [1, T] of the rows, and properties of their Gram matrix."""

    def __init__(self, items):
        self.items, one = items, np.ones((len(items.labels), int(items.free[0])))
        self.values = np.hstack([one, items.features])
        widths = [one.shape[1], *(table.shape[1] for table in items.scores)]
        self.item = np.repeat(np.arange(-1, len(items.scores)), widths)
        n = len(items.coupled)
        self.complete = items.coupled.sum() == n * (n - 1) and (items.targets >= 0).all()

    @computed_once
    def gram(self):
        """The features' Gram matrix."""
        return self.values.T @ self.values

    def dependent(self):
        """Return items that are separated by a linear dependence."""
        if not (self.complete and self.items.free[0]):
            return np.zeros(0, int)
        rounding = np.sqrt(1 / MAX_CONDITION)
        if _exceed(self.gram, rounding * np.linalg.norm(self.gram)):
            return np.zeros(0, int)
        values, vectors = np.linalg.eigh(self.gram)
        null = vectors[:, values < values[-1] * rounding]
        null = null[:, abs(self.values @ null).max(0) < rounding * abs(self.values).max()]
        items = np.unique(self.item[np.square(null).sum(1) > rounding])
        return items[items >= 0]

    def margins_exceed(self, norm, residuals):
        """Whether margins times residuals provably exceed a gradient of this norm."""
        items = self.items
        tables = items.scores + items.fields if items.free[0] else items.scores
        tables = {id(table): table for table in tables}.values()
        bound = (norm / min(map(_smallest_singular_value, tables))) ** 2
        values = self.values * residuals[:, None]
        if self.complete:
            return _exceed(values.T @ values, bound)
        for targets, coupled in zip(items.targets.T, items.coupled, strict=True):
            # The features in the log-odds of the item, for the rows with a term.
            rows = values[np.ix_(targets >= 0, np.append(coupled, True)[self.item])]
            if not _exceed(rows.T @ rows, bound):
                return False
        return True


def _exceed(gram, bound):
    """Whether the eigenvalues of a Gram matrix exceed a bound by more than rounding errors."""
    shift = bound + np.linalg.norm(gram) / MAX_CONDITION
    return not scipy.linalg.lapack.dpotrf((gram - shift * np.eye(len(gram))).T, overwrite_a=1)[1]


def _smallest_singular_value(table):
    values = np.linalg.svd(table - table.mean(0), compute_uv=False)
    return values[values > values.max(initial=0.0) / np.sqrt(MAX_CONDITION)].min(initial=np.inf)


def rising_margins(margins):
    """Return a mask of the margins that rise along any direction of separation, or None.

    Maximise sum t with 0 <= t <= 1 and t <= margins. As directions can be added, the optimum has
    t = 1 for all margins that are positive along any direction. The dual has far fewer constraints:
    minimise sum v with margins' (1 - v + s) = 0, 0 <= v <= 1 and 0 <= s. None: no solution in time.
    """
    m, transposed = margins.shape[0], margins.T
    solution = scipy.optimize.linprog(
        np.repeat([1.0, 0.0], m), method="highs",
        A_eq=sparse.hstack([transposed, -transposed]), b_eq=transposed @ np.ones(m),
        bounds=np.transpose([np.zeros(2 * m), np.repeat([1.0, np.inf], m)]),
        options={"time_limit": 10.0},
    )  # fmt: skip
    return margins @ solution.eqlin.marginals > 0.5 if solution.status == 0 else None


def _by_programmes(items):
    """Decide by linear programming, with one programme for all items or for each item."""
    n_margins = sum((items.targets[:, i] >= 0).sum() * (len(table) - 1)
                    for i, table in enumerate(items.scores))  # fmt: skip
    widths = np.array([min(2, table.shape[1]) for table in items.scores])
    numbers = n_margins * (1 + (items.coupled @ widths).max(initial=0))
    groups = np.arange(len(widths)).reshape(1 if items.shared else len(widths), -1)
    separated = []
    for group in groups:
        rising = None
        # Larger programmes might take minutes.
        if numbers <= BLOCK_ENTRIES * len(groups):
            margins, item = margins_of(items, group)
            rising = rising_margins(margins)
        if rising is None:
            return Existence(
                None, (), "whether the maximum exists was not decided, as there are too many rows "
                f"and {items.name} for a linear programme: give a ridge penalty l2, with which it "
                "exists",
            )  # fmt: skip
        separated.append(item[rising])
    units = np.unique(np.concatenate(separated))
    return _separated(items, units) if len(units) else Existence(True)


def margins_of(items, group):
    """Return the derivatives of margins of a group of items by parameters, and their items."""
    places = _Features(items._replace(free=(False, True))).item
    features = sparse.csr_array(items.features)
    n, entries, of_item, start = features.shape[1], [], [], 0
    first = n**2 + np.cumsum([0, *(table.shape[1] for table in items.fields)])
    for i in group:
        fields, scores, neighbours = items.fields[i], items.scores[i], items.coupled[i][places]
        inside, outside = np.flatnonzero(places == i), np.flatnonzero(neighbours)
        # Indices of couplings; symmetric pairs of scores have one index if they are shared.
        a, b = inside[:, None], outside[None, :]
        columns = np.minimum(a, b) * n + np.maximum(a, b) if items.shared else a * n + b
        columns, near = columns.reshape(-1), features[:, outside]
        for x, b in permutations(range(len(scores)), 2):
            rows = np.flatnonzero(items.targets[:, i] == x)
            block = sparse.kron((scores[x] - scores[b])[None], near[rows], "coo")
            entries.append((start + block.row, columns[block.col], block.data))
            row, k = np.indices((len(rows), items.free[0] * fields.shape[1])).reshape(2, -1)
            change = (fields[x] - fields[b])[k]
            entries.append((start + row, first[i] + k, change))
            start += len(rows)
            of_item.append(np.full(len(rows), i))
    rows, columns, values = map(np.concatenate, zip(*entries, strict=True))
    used, columns = np.unique(columns, return_inverse=True)
    matrix = sparse.coo_array((values, (rows, columns)), shape=(start, len(used))).tocsr()
    return matrix, np.concatenate(of_item)
