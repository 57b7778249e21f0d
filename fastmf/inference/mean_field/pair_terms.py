"""Terms of single pairs of discrete units in a log-partition, beyond the second order.

With the probabilities q of the values of each unit, or of the states of each group, at a solution,
a pair (i, j) adds in all orders

    ln sum_(s,t) q_i(s) q_j(t) exp(C_st),    to second order    sum_(s,t) q_i(s) q_j(t) C_st^2 / 2

where C is the coupling of the values s and t less its means over either under q.
"""

import numpy as np
from scipy.sparse import coo_array, csr_array, triu

from fastmf.priors._groups import column_is_group, column_sizes
from fastmf.priors._protocol import has_log_prob, n_units, parts_of
from fastmf.priors._queries import support

# Numbers in the couplings of values of pairs that are held at a time.
_PAIR_NUMBERS = 1 << 20


class PairTerms:
    """Terms of all pairs of columns that are coupled: groups, or units that are alone.

    Parameters
    ----------
    sides : Sides
        Sides of discrete units with `log_prob`.
    """

    def __init__(self, sides):
        self.sides = [_Values(prior) for prior in sides.priors]
        couplings = csr_array(sides.couplings)
        if len(self.sides) == 1:
            couplings = csr_array(triu(couplings))
        self._couplings, self._prepared = couplings, False
        self._powers = [abs(couplings).power(k) for k in (3, 4)]

    def _prepare(self):
        """Entries of the couplings of values, pair by pair."""
        first, last = self.sides[0], self.sides[-1]
        entries = coo_array(first.matrix.T @ self._couplings @ last.matrix)
        s, t = entries.coords
        keys = first.column[s].astype(np.int64) * len(last.start) + last.column[t]
        keys, pair = np.unique(keys, return_inverse=True)
        self.first, self.last = np.divmod(keys, len(last.start))
        order = np.argsort(pair, kind="stable")
        self._entries = (
            pair[order],
            first.place[s[order]],
            last.place[t[order]],
            entries.data[order],
        )
        self._prepared = True

    def excess(self, mean, b, a, clamped, negligible=0.0):
        """Terms of all orders but the second, of one row.

        Parameters
        ----------
        mean, b, a : array of shape (n_units,)
            Means and tilts of the units, side by side.
        clamped : bool array of shape (n_units,)
        negligible : float, default 0.0
            Nats of the third and fourth order, about, below which 0 is returned.

        Returns
        -------
        float
        """
        q, free, sizes, start = [], [], [], 0
        for side in self.sides:
            own = slice(start, start + side.matrix.shape[0])
            q.append(side.probabilities(mean[own], b[own], a[own]))
            free.append(~clamped[own][side.start])
            sizes.append(side.absolute_moments(q[-1], mean[own]) * ~clamped[own])
            start = own.stop
        terms = zip(sizes[0], self._powers, sizes[-1], (6, 24), strict=True)
        if sum(x @ (w @ y) / factor for x, w, y, factor in terms) < negligible:
            return 0.0
        if not self._prepared:
            self._prepare()
        kept = free[0][self.first] & free[-1][self.last]
        size = max(1, _PAIR_NUMBERS // (self.sides[0].width * self.sides[-1].width))
        total = 0.0
        for start in range(0, len(self.first), size):
            pairs = slice(start, start + size)
            p, r = q[0][self.first[pairs]], q[-1][self.last[pairs]]
            total += _excess(self._block(start, size), p, r)[kept[pairs]].sum()
        return float(total)

    @property
    def n_numbers(self):
        """Most numbers in the tables of the couplings of all pairs."""
        widths = [side.width if side.alone.any() else 1 for side in self.sides]
        return self._couplings.nnz * widths[0] * widths[-1]

    def edges_and_tables(self):
        """Columns of all pairs among those of both sides, and the couplings of their values.

        Returns
        -------
        first, last : int array of shape (n_pairs,)
        couplings : array of shape (n_pairs, n_values, n_values)
        """
        if not self._prepared:
            self._prepare()
        n = len(self.sides[0].start)
        tables = np.zeros((len(self.first), self._width, self._width))
        first, last = self.sides[0].width, self.sides[-1].width
        tables[:, :first, :last] = self._block(0, max(len(self.first), 1))
        return self.first, self.last + (n if len(self.sides) == 2 else 0), tables

    def by_columns(self, state, tilt):
        """Log-weights of the values of all columns without couplings, and their probabilities.

        Parameters
        ----------
        state : tuple (mean, b, a) of arrays of shape (n_units,)
        tilt : Tilt
            Tilt of one row; clamped columns have their value alone.

        Returns
        -------
        own, probabilities : array of shape (n_columns, n_values)
        """
        own, q, start = [], [], 0
        for side in self.sides:
            here = slice(start, start + side.matrix.shape[0])
            start = here.stop
            parts = [part[here] for part in state]
            p = side.probabilities(*parts)
            logs = side.log_weights(tilt.field[here], tilt.precision[here])
            with np.errstate(divide="ignore"):
                fixed = np.where(side.is_at(parts[0]), logs, -np.inf)
            clamped = tilt.clamped[here][side.start]
            logs = np.where(clamped[:, None], fixed, logs)
            p = np.where(clamped[:, None], np.isfinite(fixed), p)
            extra = ((0, 0), (0, self._width - side.width))
            own.append(np.pad(logs, extra, constant_values=-np.inf))
            q.append(np.pad(p, extra))
        return np.concatenate(own), np.concatenate(q)

    def means(self, probabilities, n_units):
        """Means of all units, from the probabilities of the values of their columns."""
        parts, column, unit = [], 0, 0
        for side in self.sides:
            n = len(side.start)
            p = probabilities[column : column + n][side.column, side.place]
            parts.append(np.bincount(side.unit, p * side.value, side.matrix.shape[0]))
            column, unit = column + n, unit + side.matrix.shape[0]
        return np.concatenate(parts)[:n_units]

    @property
    def _width(self):
        return max(side.width for side in self.sides)

    def _block(self, start, size):
        """Couplings of the values of some pairs, (n_pairs, n_values, n_values)."""
        pair, s, t, value = self._entries
        a, b = np.searchsorted(pair, [start, start + size])
        n = min(size, len(self.first) - start)
        out = np.zeros((n, self.sides[0].width, self.sides[-1].width))
        out[pair[a:b] - start, s[a:b], t[a:b]] = value[a:b]
        return out


def _excess(C, p, r):
    """All orders but the second of some pairs with probabilities of values p and r."""
    by_first, by_last = np.einsum("kst,kt->ks", C, r), np.einsum("kst,ks->kt", C, p)
    whole = np.einsum("ks,ks->k", by_first, p)
    C = C - by_first[:, :, None] - by_last[:, None, :] + whole[:, None, None]
    second = np.einsum("ks,kst,kt->k", p, C * C, r) / 2
    top = C.max((1, 2))
    all_orders = top + np.log(np.einsum("ks,kst,kt->k", p, np.exp(C - top[:, None, None]), r))
    return all_orders - second


class _Values:
    """The values of the columns of one side, those of each column after those of the last.

    Parameters
    ----------
    prior : unit prior
        Prior of discrete units.
    """

    def __init__(self, prior):
        self.parts, value, counts = parts_of(prior), [], []
        is_group, sizes = column_is_group(prior), column_sizes(prior)
        self.start = np.cumsum(sizes) - sizes  # first unit of each column
        for part in self.parts:
            if column_is_group(part).all():
                value.append(np.ones(n_units(part)))
                counts.append(column_sizes(part))
            else:
                columns = support(part).T
                value.append(columns[~np.isnan(columns)])
                counts.append((~np.isnan(columns)).sum(1))
        counts = np.concatenate(counts)
        self.width = int(counts.max(initial=1))
        self.column = np.repeat(np.arange(len(counts)), counts)
        self.place = np.arange(len(self.column)) - np.repeat(np.cumsum(counts) - counts, counts)
        unit = self.start[self.column] + np.where(is_group[self.column], self.place, 0)
        self.unit, self.value = unit, np.concatenate(value)
        self.alone = ~is_group[self.column]
        entries = self.value, (unit, np.arange(len(unit)))
        self.matrix = csr_array(entries, shape=(int(sizes.sum()), len(unit)))

    def probabilities(self, mean, b, a):
        """Probabilities of values, (n_columns, width), zero beyond those of a column."""
        logs = self.log_weights(b, a)
        p = np.exp(logs - logs.max(1, keepdims=True))
        # The tilts of groups are not known: their means are their probabilities.
        p[self.column, self.place] = np.where(
            self.alone, p[self.column, self.place], np.maximum(mean[self.unit], 0)
        )
        return p / p.sum(1, keepdims=True)

    def log_weights(self, field, precision):
        """Log-weights of values without couplings, (n_columns, width), -inf beyond those."""
        out, start = [], 0
        for part in self.parts:
            own = slice(start, start + n_units(part))
            start = own.stop
            if column_is_group(part).all():
                out.append(part.field + field[own] - precision[own] / 2)
                continue
            columns = support(part)
            there = ~np.isnan(columns)
            x = np.where(there, columns, np.nanmin(columns, axis=0))
            logs = part.log_prob(x) + field[own] * x - precision[own] * x * x / 2
            out.append(logs.T[there.T])
        whole = np.full((len(self.start), self.width), -np.inf)
        whole[self.column, self.place] = np.concatenate(out)
        return whole

    def is_at(self, mean):
        """Whether each value of a column is that of these means, (n_columns, width)."""
        there = np.where(self.alone, self.value == mean[self.unit], mean[self.unit] > 0.5)
        whole = np.zeros((len(self.start), self.width), bool)
        whole[self.column, self.place] = there
        return whole

    def absolute_moments(self, probabilities, mean):
        """Third and fourth absolute moments of the units, (2, n_units); of states their means."""
        p = probabilities[self.column, self.place]
        deviation = np.where(self.alone, abs(self.value - mean[self.unit]), 1.0)
        return np.stack([np.bincount(self.unit, p * deviation**k, len(mean)) for k in (3, 4)])


def has_pair_terms(sides):
    """Whether units are discrete, with log-weights of their values.

    Parameters
    ----------
    sides : Sides
    """
    return all(
        has_log_prob(part) and (column_is_group(part).all() or support(part) is not None)
        for prior in sides.priors
        for part in parts_of(prior)
    )
