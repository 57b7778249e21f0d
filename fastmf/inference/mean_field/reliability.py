"""Checks of converged fixed points, made when their `reliable` or `message` is read.

Where exact sums are quick, they decide (`fastmf.inference.mean_field.exact_check`). Otherwise a row
is not reliable if

- its log-partition is below a naive mean-field bound, found by descending from near its means, and
  from several other starts if it has no start of its own;
- it is unstable: with the variances v of the units, random perturbations of the tilts b grow from
  sweep to sweep if the matrix W_ij^2 v_i v_j on walks that do not turn back has a spectral radius
  beyond 1. On dense random couplings that is the condition of Plefka and of de Almeida & Thouless;
- the next term of the expansion in the couplings, of third order, exceeds 1 nat and the
  second-order term (order 2 and binary units). In a fully visible machine that is

      sum_(i,j) W^3 k_i k_j / 6 + sum_(i,j,l) W_ij W_jl W_li v_i v_j v_l,     k third cumulants;
- all orders but the second of single pairs of binary units exceed 1 nat together (order 2); of
  other discrete units, see `fastmf.inference.mean_field.pair_terms`;
- belief propagation from its means changes them or its log-partition, or does not settle (units of
  more than two values; `fastmf.inference.mean_field.pair_beliefs`);
- it stands for a machine of units with more than two values, and another solution matters, too
  (`fastmf.inference.mean_field.second_solutions`).
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy.sparse import csr_array, issparse, triu

from fastmf.inference.mean_field import _sparse_checks, pair_beliefs
from fastmf.inference.mean_field._rows import start_and_tilt
from fastmf.inference.mean_field._sparse_checks import POWER_ITERATIONS, grow
from fastmf.inference.mean_field.corrections import MIN_VARIANCE, pair_covariances
from fastmf.inference.mean_field.exact_check import reasons_by_exact_sums
from fastmf.inference.mean_field.naive_bound import (
    N_BOUND_SWEEPS,
    best_bound,
    layout_of_checks,
    naive_bound,
    naive_solutions,
    sides_of,
    starts_elsewhere,
)
from fastmf.inference.mean_field.pair_terms import PairTerms, has_pair_terms
from fastmf.inference.mean_field.second_solutions import (
    has_many_values,
    is_discrete,
    second_solutions,
    widths,
)
from fastmf.kernels.mean_field.arguments import Tilt
from fastmf.models._couplings import with_entries
from fastmf.models._layered import is_integrated
from fastmf.priors._groups import has_groups
from fastmf.priors._protocol import has_third_cumulant, n_units, sample
from fastmf.priors._queries import two_values

# Nats by which a bound must exceed a log-partition: rounding, and the tolerance of the solvers.
BOUND_MARGIN, RELATIVE_MARGIN = 1e-2, 1e-6
MAX_THIRD_ORDER = 1.0
# Size that couplings have at most in sums of their powers, which otherwise overflow.
MAX_COUPLING = 1e50
# Fraction of the way to a random state from which naive mean field descends.
MOVED = 0.1
UNSTABLE = "it is unstable (spin glass)"
STRONG_PAIRS = "pairs of its units are coupled too strongly for an expansion to second order"
LARGE_THIRD_ORDER = "its third order in the couplings exceeds the second"


class FixedPointCheck(NamedTuple):
    """Arguments of checks of the rows of a result of TAP, relaxed BP or adaptive TAP.

    Parameters
    ----------
    solve : callable
        `fastmf.tap`.
    model : RBM, DBM or BoltzmannMachine
    tilt : Tilt
        In the order of the layout.
    third_order : bool
        Whether the third order is the first that the solver leaves out.
    whole : bool
        Whether rows stand for the whole machine, having no starts of their own: their bounds are
        the best from several starts.
    own : AdaptiveCheck, optional
        Checks of the solver, in the place of those of its expansion in the couplings: called with
        the result, rows, and their states and tilts, it returns pairs of whether rows fail, and the
        reasons.
    """

    solve: Callable
    model: object
    tilt: Tilt
    third_order: bool
    whole: bool
    own: Callable | None = None

    def __call__(self, found):
        """Reason why each row is not reliable, "" if it is; None if nothing can be checked.

        Parameters
        ----------
        found : FixedPoint

        Returns
        -------
        list of str, one a row, or None
        """
        if found.log_partition is None:
            return None
        known = self.by_exact_sums(found)
        reasons, ended = [why or "" for why in known], np.atleast_1d(found.converged)
        # Where exact sums say that a row is wrong, a search would only say so again.
        open_rows = np.flatnonzero(ended & [why is None for why in known])
        doubtful = np.flatnonzero(ended & [why != "" for why in known])
        # Nothing else is known of units that the solver integrates out.
        if is_integrated(self.model) and self.own is None:
            return None if len(open_rows) else reasons
        others = [(open_rows, self._reasons_by_search), (doubtful, self._reasons_of_couplings)]
        for rows, check in others:
            for failed, why in check(found, rows) if len(rows) else ():
                for row, bad, text in zip(rows, failed, why, strict=True):
                    reasons[row] += ("; " if bad and reasons[row] else "") + (text if bad else "")
        return reasons

    def by_exact_sums(self, found):
        """Reason why each row is wrong by exact sums, "" if it is right; None if not known.

        Parameters
        ----------
        found : FixedPoint

        Returns
        -------
        list of str or None, one a row
        """
        values, known = np.atleast_1d(found.log_partition), [None] * np.size(found.converged)
        rows = np.flatnonzero(np.atleast_1d(found.converged) & np.isfinite(values))
        if not len(rows):
            return known
        mean = joined(layout_of_checks(self.model), found.mean)[rows]
        some = reasons_by_exact_sums(
            self.model, self._tilt_of(rows), mean, values[rows], self.whole
        )
        for row, why in zip(rows, some or (), strict=some is not None):
            known[row] = why
        return known

    def _tilt_of(self, rows):
        return self.tilt._make(part[rows] if len(part) > 1 else part for part in self.tilt)

    def _rows_of(self, found, rows):
        """Sides of the machine, and the states, tilts and log-partitions of some rows."""
        layout, sides = layout_of_checks(self.model), sides_of(self.model)
        parts = found.mean, found.var, found.b, found.a
        state = np.stack([joined(layout, part)[rows] for part in parts])
        return sides, state, self._tilt_of(rows), np.atleast_1d(found.log_partition)[rows]

    def _reasons_by_search(self, found, rows):
        """Pairs of whether rows fail a check, and the reasons, by solutions elsewhere."""
        sides, state, tilt, values = self._rows_of(found, rows)
        own = [] if self.own is None else self.own(found, rows, state, tilt)
        if is_integrated(self.model):
            return own
        below = self._below_bound(layout_of_checks(self.model), sides, state, tilt, values)
        why = "its log-partition is {:.3g} nats below a naive mean-field bound"
        checks = [(below > 0, [why.format(x) for x in below]), *own]
        if self.own is not None:
            return checks
        many = not all(map(two_values, sides.priors))
        if many and has_pair_terms(sides):
            checks.append(self._other_beliefs(sides, state, tilt, values))
        if self.whole and has_many_values(sides.priors):
            others = [self._second_solutions(state, tilt, k) for k in range(len(rows))]
            checks.append((np.array([why != "" for why in others]), others))
        return checks

    def _reasons_of_couplings(self, found, rows):
        """The same by the sizes of terms that are left out."""
        if self.own is not None and (is_integrated(self.model) or self.own.has_pairs(len(rows))):
            return []
        sides, state, tilt, _ = self._rows_of(found, rows)
        limited = with_entries(sides.couplings, lambda w: np.clip(w, -MAX_COUPLING, MAX_COUPLING))
        sides, checks = sides._replace(couplings=limited), []
        if _is_simple(sides):
            mean, var = state[0], np.where(tilt.clamped, 0, state[1])
            checks.append((unstable_rows(sides, var), UNSTABLE))
            if self.third_order and all(map(two_values, sides.priors)):
                checks.append((pairs_exceed(sides, mean, var), STRONG_PAIRS))
            if self.third_order and all(map(has_third_cumulant, sides.priors)):
                checks.append((third_order_exceeds(sides, mean, var), LARGE_THIRD_ORDER))
        many = not all(map(two_values, sides.priors))
        if self.third_order and many and has_pair_terms(sides):
            checks.append((self._strong_pairs(sides, state, tilt), STRONG_PAIRS))
        return [(failed, [why] * len(rows)) for failed, why in checks]

    def _strong_pairs(self, sides, state, tilt):
        """Whether all orders but the second of pairs of discrete units exceed 1 nat together."""
        mean, _, b, a = state.astype(np.float64)
        pairs, clamped = PairTerms(sides), np.broadcast_to(tilt.clamped, mean.shape)
        rows = zip(mean, b, a, clamped, strict=True)
        excess = [pairs.excess(*row, negligible=MAX_THIRD_ORDER / 2) for row in rows]
        return abs(np.array(excess)) > MAX_THIRD_ORDER

    def _other_beliefs(self, sides, state, tilt, values):
        """Whether belief propagation contradicts each row, and the reasons."""
        mean, _, b, a = state.astype(np.float64)
        pairs, reasons = PairTerms(sides), [""] * len(mean)
        if pair_beliefs.is_small(pairs, len(mean)):
            ranges = np.concatenate([widths(prior) for prior in sides.priors])
            tilts = [np.broadcast_to(part, mean.shape) for part in tilt]
            for k, row in enumerate(zip(mean, b, a, strict=True)):
                own = tilt._make(part[k] for part in tilts)
                reasons[k] = pair_beliefs.second_opinion(pairs, row, own, values[k], ranges)
        return np.array([why != "" for why in reasons]), reasons

    def _second_solutions(self, state, tilt, k):
        own = tilt._make(part[[min(k, len(part) - 1)]] for part in tilt)
        return second_solutions(self.solve, self.model, *state[:2, [k]], own)

    @property
    def _n_first(self):
        return n_units(self.model.layers[0])

    def _below_bound(self, layout, sides, state, tilt, values):
        """Nats by which the bound of each row exceeds its log-partition, 0 if it does not."""
        mean = state[0]
        start = np.where(tilt.clamped, mean, mean + MOVED * (_other_states(sides, state) - mean))
        starts = layout.split(start)
        arguments = self.model, layout, starts if isinstance(starts, tuple) else (starts,)
        found = naive_solutions(self.solve, *arguments, tilt, mean, N_BOUND_SWEEPS)
        bounds, sizes = naive_bound(sides, joined(layout, found.b), tilt, mean)
        for k in range(len(mean)) if self.whole else ():
            row = tilt._make(part[[min(k, len(part) - 1)]] for part in tilt)
            elsewhere = starts_elsewhere(self.model, mean[k, : self._n_first])
            best, size = best_bound(self.solve, self.model, elsewhere, row, mean[[k]])
            if best > bounds[k]:
                bounds[k], sizes[k] = best, size
        excess = bounds - values - BOUND_MARGIN - RELATIVE_MARGIN * sizes
        return np.where(excess > 0, bounds - values, 0.0)


def check_at_tilts(solve, model, tilts, whole):
    """The `FixedPointCheck` of rows at tilts as users pass them.

    Parameters
    ----------
    solve : callable
        `fastmf.tap`.
    model : RBM, DBM or BoltzmannMachine
    tilts : tuple (field, precision, clamp)
        As for `tap`.
    whole : bool
    """
    tilt = start_and_tilt(model, layout_of_checks(model), None, *tilts, None)[1]
    return FixedPointCheck(solve, model, tilt, False, whole)


def joined(layout, parts):
    """Arrays of one layer or a tuple of those of all layers, side by side in a layout."""
    parts = parts if isinstance(parts, tuple) else (parts,)
    parts = [np.atleast_2d(part) for part in parts]
    return layout.join(parts, np.zeros((len(parts[0]), layout.n_units)))


def _other_states(sides, state):
    """Random states: a standard deviation above or below the means, and drawn ones of groups."""
    rng, (mean, var, b, a) = np.random.default_rng(0), state
    # The same for all rows, so that no row depends on the others.
    out = mean + np.where(rng.random(mean.shape[1]) < 0.5, -1, 1) * np.sqrt(np.maximum(var, 0))
    for prior, units in zip(sides.priors, sides.slices, strict=True):
        if has_groups(prior):
            out[:, units] = sample(prior, b[:, units], a[:, units], rng)
    return out


def _is_simple(sides):
    """Whether units are discrete and no groups: their variances say how they respond."""
    return not any(map(has_groups, sides.priors)) and all(
        is_discrete(prior) for prior in sides.priors
    )


def unstable_rows(sides, var):
    """Whether random perturbations grow, by the spectral radius of W_ij^2 v_i v_j.

    Parameters
    ----------
    sides : Sides
    var : array of shape (n_rows, n_units)

    Returns
    -------
    bool array of shape (n_rows,)
    """
    squares = with_entries(sides.couplings, np.square)
    parts = [var[:, units] for units in sides.slices]
    first, last = parts[0], parts[-1]
    # All walks: an upper bound of the radius without those that turn back, by Collatz and Wielandt.
    x, bound = np.ones(first.shape), np.full(len(var), np.inf)
    for _ in range(POWER_ITERATIONS):
        there = (x * first) @ squares * last
        back = (there * last) @ squares.T * first
        bound = np.minimum(bound, (back / x).max(1, initial=0))
        x = back + 0.1 * bound[:, None] * x + 1e-300
        x = np.maximum(x / x.max(1, keepdims=True), 1e-200)
    out = np.zeros(len(var), bool)
    for row in np.flatnonzero(bound > 1):
        if issparse(squares):
            out[row] = _sparse_checks.radius_exceeds_one(squares, first[row])
        else:
            out[row] = radius_exceeds_one(squares, first[row], last[row], len(parts) == 1)
    return out


def radius_exceeds_one(squares, first, last, one_side):
    """Whether the spectral radius of walks that do not turn back exceeds 1, for one row.

    Parameters
    ----------
    squares : array of shape (n_first, n_last)
    first, last : array
        Variances of the units.
    one_side : bool
        Whether both are the same units.
    """
    to_last, to_first = squares * np.square(first)[:, None], squares * np.square(last)

    def after_step(x):
        new = to_last * x
        new = new.sum(0) - new
        if one_side:
            return new.T
        new = to_first * new
        return new.sum(1, keepdims=True) - new

    # Variances of the perturbations of cavity fields: of `first` units without one of `last`.
    return grow(after_step, np.full(squares.shape, 1 / max(squares.size, 1)))


def third_order_exceeds(sides, mean, var):
    """Whether the third order exceeds 1 nat and the second order.

    Parameters
    ----------
    sides : Sides
    mean, var : array of shape (n_rows, n_units)

    Returns
    -------
    bool array of shape (n_rows,)
    """
    couplings, twice = sides.couplings, len(sides.priors) == 1
    parts = [(mean[:, here], var[:, here]) for here in sides.slices]
    third = [
        np.where(v > 0, prior.third_cumulant(m)[0], 0)
        for prior, (m, v) in zip(sides.priors, parts, strict=True)
    ]
    first, last = parts[0][1], parts[-1][1]
    half = 2 if twice else 1
    second = np.einsum("ij,ij->i", first @ with_entries(couplings, np.square), last) / (2 * half)
    total = np.einsum("ij,ij->i", third[0] @ with_entries(couplings, _cube), third[-1]) / (6 * half)
    if twice:
        for row, v in enumerate(first):
            total[row] += _triangles(couplings, v)
    return abs(total) > np.maximum(second, MAX_THIRD_ORDER)


def _cube(w):
    return w**3


def _triangles(couplings, var):
    """Sum over triangles of the couplings and the variances, for one row."""
    if issparse(couplings):
        return _sparse_checks.triangles(couplings, var)
    paths = (couplings * var) @ couplings
    return var @ (paths * couplings) @ var / 6


def pairs_exceed(sides, mean, var):
    """Whether all orders but the second of single pairs exceed 1 nat together.

    Parameters
    ----------
    sides : Sides
        Sides of two-valued units.
    mean, var : array of shape (n_rows, n_units)

    Returns
    -------
    bool array of shape (n_rows,)
    """
    values = [two_values(prior) for prior in sides.priors]
    scales = [high - low for low, high in values]
    weights = sides.couplings * scales[0] * scales[-1]
    if len(sides.priors) == 1:
        weights = csr_array(triu(weights)) if issparse(weights) else np.triu(weights)
    means, variances = [], []
    for (low, high), here in zip(values, sides.slices, strict=True):
        p = (mean[:, here] - low) / (high - low)
        means.append(np.clip(p, MIN_VARIANCE, 1 - MIN_VARIANCE))
        variances.append(var[:, here] / (high - low) ** 2)
    # About the size of the third and fourth order: far below 1 nat in most machines.
    size = with_entries(weights, lambda w: abs(w) ** 3 / 6 + w**4 / 24)
    out = np.einsum("ij,ij->i", variances[0] @ size, variances[-1]) > MAX_THIRD_ORDER / 2
    for row in np.flatnonzero(out):
        second = variances[0][row] @ with_entries(weights, np.square) @ variances[-1][row] / 2
        # Units without variance are clamped: their fields are part of the model.
        free = [v[row] > 0 for v in (variances[0], variances[-1])]
        if issparse(weights):
            i, j, here = _sparse_checks.edges_of(weights)
            kept = free[0][i] & free[1][j]
            i, j, here = i[kept], j[kept], here[kept, None]
            # One pair a row.
            pairs = _pair_terms(here, means[0][row][i], means[-1][row][j][:, None])
        else:
            here = weights[np.ix_(*free)]
            pairs = _pair_terms(here, means[0][row][free[0]], means[-1][row][free[1]])
        out[row] = abs(pairs - second) > MAX_THIRD_ORDER
    return out


def _pair_terms(weights, first, last):
    """Sum over pairs of what a coupling adds to the log-partition at given means."""
    covariances = pair_covariances(weights, first, last)
    total, x, y = (weights * covariances).sum(), first[:, None], last
    signed = ((1, x * y), (1, (1 - x) * (1 - y)), (-1, x * (1 - y)), (-1, (1 - x) * y))
    for sign, p in signed:
        ratio = np.maximum(sign * covariances / p, MIN_VARIANCE - 1)
        total -= ((p + sign * covariances) * np.log1p(ratio)).sum()
    return total
