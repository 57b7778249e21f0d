"""Categorical (Potts) units: groups of states that exclude each other.

A group of q states has the one-hot values x = e_1, ..., e_q and the weight exp(field . x). Arrays
are flat, the states of all groups side by side. As x_a^2 = x_a, the tilt is t = field + b - a / 2,
and in each group

    log_partition = log sum_a exp(t_a),     mean = softmax(t),     var = mean (1 - mean)

The states of a group are correlated: C = diag(mean) - mean mean'. Solvers get the groups of a layer
from `_groups.groups`, and multiply with C themselves.
"""

import math
from typing import NamedTuple

import numpy as np

from fastmf._common.arguments import number, real_array
from fastmf._common.rows import is_sparse, row_blocks
from fastmf._jit.intrinsics import larger, row
from fastmf._jit.kernel import REORDER, kernel
from fastmf.priors._registry import floating_type, unit_prior
from fastmf.special import constant, exp, log

# Field of states that no row has: their weight is the smallest number of single precision.
UNSEEN_FIELD = math.log(np.finfo(np.float32).tiny)
# Larger labels are refused as a mistake in the data.
MAX_STATES = 2**16


class _Fields(NamedTuple):
    field: np.ndarray
    state: np.ndarray


@unit_prior("categorical", missing=True)
class Categorical(_Fields):
    """Groups of states that exclude each other, with weight exp(field) of each state.

    Parameters
    ----------
    field : array of shape (n_groups, q), or list of one array for each group
        Log-weights of the states, -inf for states that do not occur; at least one of each group is
        finite. A list may have groups of different sizes, of at least two states.
    state : array of shape (n_states,), optional
        For a flat `field`: the number of each state in its group, 0, 1, ...; a group begins at each
        0. Not learned.

    Attributes
    ----------
    field, state : arrays of shape (n_states,)
        Flat arrays over the states of all groups.
    sizes : int array of shape (n_groups,)
        Number of states of each group.

    Raises
    ------
    ValueError
        If there is no group, a group has fewer than two states, a field is NaN or +inf, or all
        fields of a group are -inf.
    TypeError
        If the fields are not numbers.

    Notes
    -----
    A Bernoulli unit is a group of two states, the first of which has field 0 and no couplings. Rows
    of data are labels, one integer for each group, negative if missing; results are flat.

    Examples
    --------
    >>> import fastmf as mf
    >>> units = mf.Categorical([[0.0, 0.0], [0.0, 1.0]])
    >>> mean, var = units.moments(0.0, 0.0)
    >>> units.by_group(mean).round(2).tolist()
    [[0.5, 0.5], [0.27, 0.73]]
    >>> units.one_hot([1, 0]).tolist()
    [0.0, 1.0, 1.0, 0.0]
    """

    __slots__ = ()

    log_prob_is_linear = True
    parameters = ("field",)

    def __new__(cls, field, state=None):
        """Check and flatten the fields."""
        groups = _fields_by_group(field) if state is None else None
        flat = np.concatenate(groups) if state is None else _field_array(field)
        if flat.dtype != np.float32:
            flat = flat.astype(np.float64)
        if state is None:
            state = np.concatenate([np.arange(len(group)) for group in groups])
        state = _field_array(state)
        if not (flat < np.inf).all():
            raise ValueError("Categorical: field must be finite or -inf, got NaN or infinity.")
        _check_states(flat, state)
        return cls._make((np.array(flat, order="C"), np.array(state, flat.dtype)))

    # --- groups -----------------------------------------------------------------------------------

    @property
    def starts(self):
        """Positions of the first states of the groups, int array of shape (n_groups,)."""
        return _boundaries(self.state)[0]

    @property
    def sizes(self):
        """Number of states of each group, int array of shape (n_groups,)."""
        return _boundaries(self.state)[1]

    @property
    def n_groups(self):
        """Number of groups."""
        return int((self.state == 0).sum())

    def one_hot(self, labels):
        """Convert rows of labels to flat values.

        Parameters
        ----------
        labels : integer array of shape (..., n_groups)
            Negative labels, or NaN, are missing values.

        Returns
        -------
        array of shape (..., n_states)
            In the type of `field`; all states of a missing group are NaN.

        Raises
        ------
        ValueError
            If a label is not a state of its group.
        """
        labels, sizes = np.asarray(labels), self.sizes
        if labels.ndim == 0 or labels.shape[-1] != len(sizes):
            raise ValueError(
                f"Categorical: labels must have shape (..., {len(sizes)}), got {labels.shape}."
            )
        if labels.dtype.kind not in "iufb":
            raise TypeError(f"Categorical: labels must be integers, got dtype {labels.dtype}.")
        missing = ~(labels >= 0)
        numbers = np.where(missing, 0, labels).astype(np.int64)
        wrong = ~missing & ((numbers != labels) | (numbers >= sizes))
        if wrong.any():
            group = np.nonzero(wrong)[-1][0]
            raise ValueError(
                f"Categorical: labels of group {group} must be integers from 0 to "
                f"{sizes[group] - 1} (negative: missing), got {labels[wrong][0]:g}."
            )
        x = np.zeros((*labels.shape[:-1], len(self.state)), self.field.dtype)
        np.put_along_axis(x, self.starts + numbers, x.dtype.type(1), axis=-1)
        if missing.any():
            x[np.repeat(missing, sizes, axis=-1)] = np.nan
        return x

    def labels(self, x):
        """Return the most probable state of each group.

        Parameters
        ----------
        x : array of shape (..., n_states)
            Values, or means. Of equally probable states, the first is returned.

        Returns
        -------
        int64 array of shape (..., n_groups)
            -1 where the states of a group are NaN.
        """
        x = np.asarray(x)
        groups = np.split(x, self.starts[1:], axis=-1)
        states = np.stack([np.nan_to_num(group, nan=-1.0).argmax(-1) for group in groups], axis=-1)
        return np.where(np.isnan(x[..., self.starts]), -1, states)

    def by_group(self, x):
        """Return an array with axes for groups and for states: a view if sizes are equal.

        Parameters
        ----------
        x : array of shape (..., n_states)

        Returns
        -------
        array of shape (..., n_groups, q), or list of n_groups arrays (..., q) for unequal sizes
        """
        x, sizes = np.asarray(x), self.sizes
        if (sizes == sizes[0]).all():
            return x.reshape(*x.shape[:-1], len(sizes), sizes[0])
        return np.split(x, self.starts[1:], axis=-1)

    def take(self, units):
        """Return the prior of a slice of the states, which must consist of whole groups."""
        start, stop, step = units.indices(len(self.state))
        ends = [*self.starts, len(self.state)]
        if step != 1 or start not in ends or stop not in ends:
            raise ValueError("Categorical: groups cannot be divided.")
        return self._make((self.field[start:stop], self.state[start:stop]))

    # --- the protocol of priors -------------------------------------------------------------------

    def log_partition(self, b, a):
        """Return the log of the sum over states of exp(field + b - a / 2), for each group.

        Returns
        -------
        array of shape (..., n_groups)
        """
        return self._log_totals(self._tilted(b, a))

    def moments(self, b, a):
        """Return mean and variance of each state under the tilt exp(b x - a x^2 / 2).

        Returns
        -------
        mean, var : arrays of shape (..., n_states)
        """
        t = self._tilted(b, a)
        log_totals = self._log_totals(t)
        mean = np.exp(t - np.repeat(log_totals, self.sizes, axis=-1))
        mean /= np.repeat(np.add.reduceat(mean, self.starts, axis=-1), self.sizes, axis=-1)
        return mean, mean * (1 - mean)

    def _tilted(self, b, a):
        return self.field + b - np.asarray(a) * np.asarray(0.5, np.asarray(a).dtype.type)

    def _log_totals(self, t):
        """Return the log of the sum of the exponentials of each group."""
        top = np.maximum.reduceat(t, self.starts, axis=-1)
        weights = np.exp(t - np.repeat(top, self.sizes, axis=-1))
        return top + np.log(np.add.reduceat(weights, self.starts, axis=-1))

    @staticmethod
    def moments_of_units(prior, start, b, a, mean, var):
        """Fill in the moments of whole groups, inside kernels."""
        _fill_moments(prior, start, b, a, mean, var)

    @staticmethod
    def log_partition_of_units(prior, start, b, a, out):
        """Fill in log-partitions of groups, inside kernels: at first states, 0 at later states."""
        n, first, size = b.shape[0], np.int64(0), np.int64(2)
        while first < n:
            last = _end_of_group(prior, start, first, size, n)
            top = -np.inf
            for i in range(first, last):
                out[i] = prior.field[start + i] + b[i] - constant(0.5, b[i]) * a[i]
                top = larger(top, out[i])
            top, total = constant(top, b[first]), constant(0.0, b[first])
            for i in range(first, last):
                total += exp(out[i] - top)
                out[i] = constant(0.0, total)
            out[first] = top + log(total)
            first, size = last, last - first

    def log_prob(self, x):
        """Return field x if the states of a group are one-hot, else -inf; flat as `x`."""
        valid = np.repeat(self._is_one_hot(x), self.sizes, axis=-1)
        return np.where(valid, self.weighted(x), -np.inf)

    def weighted(self, x):
        """Return field x, which for impossible states is 0 if x is 0, and -inf otherwise."""
        impossible = np.isneginf(self.field)
        if not impossible.any():
            return self.field * x
        return np.where(impossible & (x > 0), -np.inf, np.where(impossible, 0, self.field) * x)

    def contains(self, x):
        """Return whether the states of each group are one-hot and possible; flat as `x`."""
        return np.repeat(self._is_one_hot(x), self.sizes, axis=-1)

    def _is_one_hot(self, x):
        x = np.broadcast_to(x, np.broadcast_shapes(np.shape(x), self.field.shape))
        possible = self.field > -np.inf
        binary = np.logical_and.reduceat((x == 0) | ((x == 1) & possible), self.starts, axis=-1)
        return binary & (np.add.reduceat(x, self.starts, axis=-1) == 1)

    def admits(self, x):
        """Return whether the states of each group are probabilities of sum 1; flat as `x`."""
        totals = np.add.reduceat(x, self.starts, axis=-1)
        fine = np.logical_and.reduceat(x >= 0, self.starts, axis=-1) & (abs(totals - 1) < 1e-3)
        return np.repeat(fine, self.sizes, axis=-1)

    def sample(self, b, a, rng):
        """Draw from the tilted distribution, with one uniform number for each group."""
        mean = self.moments(b, a)[0]
        return self._drawn(mean, rng.random((*mean.shape[:-1], self.n_groups)))

    def draw(self, b, a, u):
        """Return draws as functions of uniform numbers, of which each group uses the first."""
        mean, u = np.broadcast_arrays(self.moments(b, a)[0], u)
        return self._drawn(mean, u[..., self.starts])

    def _drawn(self, mean, u):
        """Return one-hot draws, with one uniform number for each group, (..., n_groups)."""
        if (self.sizes == self.sizes[0]).all():
            return _draw(self.by_group(mean), u[..., None]).reshape(mean.shape)
        groups = zip(self.by_group(mean), np.split(u, self.n_groups, axis=-1), strict=True)
        return np.concatenate([_draw(*group) for group in groups], axis=-1)

    @staticmethod
    def draws_of_units(prior, start, b, a, u, out, scratch):
        """Fill in draws of whole groups, inside kernels."""
        _fill_moments(prior, start, b, a, out, scratch)
        n, first = b.shape[0], np.int64(0)
        while first < n:
            last, taken, below = first + 1, first, out[first]
            while last < n and prior.state[start + last] != 0:
                taken, below = (last, below + out[last]) if u[first] >= below else (taken, below)
                last += 1
            for i in range(first, last):
                out[i] = 0
            out[taken] = 1
            first = last

    def moment_gradient(self, mean, var):
        """Return derivatives of the log-partition, from the moments."""
        return self._make((mean, 0 * mean))

    def project(self):
        """Return the prior with fields of mean zero over the possible states of each group."""
        possible = self.field > -np.inf
        totals = np.add.reduceat(np.where(possible, self.field, 0), self.starts)
        mean = totals / np.add.reduceat(possible, self.starts, dtype=self.field.dtype)
        return self._replace(field=self.field - np.repeat(mean, self.sizes))

    @classmethod
    def from_data(cls, X, sizes=None, *, pseudocount=1.0):
        """Fit the fields of independent groups to the frequencies of data.

        Parameters
        ----------
        X : integer array of shape (n_samples, n_groups)
            Labels; negative labels are missing values.
        sizes : int or int array of shape (n_groups,), optional
            Number of states of each group. Default: its largest label plus one; then states that
            no row has get a negligible weight, 1e-38.
        pseudocount : float, default 1.0
            Number that is added to the count of each state.

        Returns
        -------
        Categorical
            The fields have mean zero in each group.
        """
        dtype, by_labels = floating_type(X), sizes is None
        if by_labels:
            sizes = np.fmax.reduce(X, axis=0, initial=1)
            if not sizes.max(initial=1) < MAX_STATES:
                raise ValueError(f"X must hold labels below {MAX_STATES}, got {sizes.max():g}.")
            sizes = sizes.astype(np.int64) + 1
        sizes = real_array("sizes", sizes)
        if sizes.dtype.kind not in "iu" or sizes.shape not in ((), (X.shape[1],)):
            raise TypeError(f"sizes must be an integer or one for each group, got {sizes!r:.60}.")
        fields = [np.zeros(size, dtype) for size in np.broadcast_to(sizes, X.shape[1])]
        for field, column in zip(fields, X.T, strict=True):
            seen = np.isin(np.arange(len(field)), column)
            field[~seen & by_labels & seen.any()] = UNSEEN_FIELD
        return cls(fields).refit(X, pseudocount=pseudocount)

    def refit(self, X, *, pseudocount=1.0):
        """Fit the same groups to the frequencies of labels or flat values.

        States of negligible weight get no pseudocount.
        """
        X = X if is_sparse(X) else np.asarray(X)
        pseudocount = number("pseudocount", pseudocount, 0, np.inf, below=True)
        top = np.repeat(np.maximum.reduceat(self.field, self.starts), self.sizes)
        counts = np.where(self.field - top < UNSEEN_FIELD / 2, np.exp(UNSEEN_FIELD), pseudocount)
        for block in row_blocks(X):
            x = X[block].toarray() if is_sparse(X) else X[block]
            x = x if x.shape[-1] == len(self.state) else self.one_hot(x)
            counts += np.nansum(x, axis=0, dtype=np.float64)
        if not (counts > 0).all():
            raise ValueError("Categorical: a state never occurs; pass a positive pseudocount.")
        field = np.where(np.isneginf(self.field), self.field, np.log(counts))
        return self._replace(field=field.astype(floating_type(x))).project()


def _fields_by_group(field):
    """Return the fields of each group as a list of arrays."""
    several = isinstance(field, list | tuple | np.ndarray) and len(np.atleast_1d(field[:1])) > 0
    if not several or any(np.ndim(group) != 1 or not np.size(group) for group in field):
        got = f"shape {field.shape}" if isinstance(field, np.ndarray) else repr(field)[:40]
        raise ValueError(
            "Categorical: field must have shape (n_groups, q) or be a list of one array for each "
            f"group, got {got}."
        )
    return [_field_array(group) for group in field]


def _field_array(value):
    """Convert a field to an array of numbers."""
    return real_array("Categorical: field", value)


def _check_states(field, state):
    """Raise a ValueError unless `state` numbers the states of groups of at least two."""
    if field.ndim != 1 or state.shape != field.shape or len(state) == 0 or state[0] != 0:
        raise ValueError(
            "Categorical: a flat field and its states, from 0 on, must have one shape (n_states,), "
            f"got {field.shape} and {state.shape}."
        )
    starts, sizes = _boundaries(state)
    if (sizes < 2).any() or (state != np.arange(len(state)) - np.repeat(starts, sizes)).any():
        raise ValueError(
            "Categorical: field must have two states at least in each group, numbered 0, 1, 2, ..."
        )
    if np.isneginf(np.maximum.reduceat(field, starts)).any():
        raise ValueError("Categorical: field must be finite for one state at least of each group.")


def _boundaries(state):
    """Return the position of the first state of each group, and its number of states."""
    starts = np.flatnonzero(state == 0)
    return starts, np.diff(starts, append=len(state))


def _draw(probabilities, u):
    """Return one-hot draws of the states on the last axis, from uniform numbers (..., 1)."""
    below = np.cumsum(probabilities, axis=-1)
    label = np.minimum((below <= u).sum(-1, keepdims=True), below.shape[-1] - 1)
    return (label == np.arange(below.shape[-1])).astype(probabilities.dtype)


# --- inside kernels -------------------------------------------------------------------------------


@kernel(mode="merged")
def _end_of_group(prior, start, first, size, n):
    """Return the end of the group that begins at `first` of `n` states; `size` is a guess."""
    last = first + size
    is_end = last == n or (last < n and prior.state[start + last] == 0)
    if is_end and prior.state[start + last - 1] == size - 1:
        return last
    last = first + 1
    while last < n and prior.state[start + last] != 0:
        last += 1
    return last


@kernel(mode="merged")
def _fill_moments(prior, start, b, a, mean, var):
    """Fill in the moments of whole groups, inside kernels."""
    n, half, one = b.shape[0], constant(0.5, b[0]), constant(1.0, b[0])
    first, size = np.int64(0), np.int64(2)
    field = row(prior.field, (start,), n)
    for i in range(n):
        var[i] = field[i] + b[i] - half * a[i]
    while first < n:
        last, top = _end_of_group(prior, start, first, size, n), var[first]
        for i in range(first, last):
            top = larger(top, var[i])
        for i in range(first, last):
            var[i] -= top
        first, size = last, last - first
    # One loop over all states, which vectorises.
    for i in range(n):
        var[i] = exp(var[i])
    first = np.int64(0)
    while first < n:
        last = _end_of_group(prior, start, first, size, n)
        size = last - first
        _normalise(row(var, (first,), size), row(mean, (first,), size))
        first = last
    for i in range(n):
        var[i] = mean[i] * (one - mean[i])


@kernel(mode="inner", fastmath=REORDER)
def _normalise(weights, out):
    """Set `out` to the weights of one group over their sum."""
    total = weights[0]
    for i in range(1, weights.shape[0]):
        total += weights[i]
    factor = 1 / total
    for i in range(weights.shape[0]):
        out[i] = factor * weights[i]
