"""The result of a solver."""

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any, NamedTuple

import numpy as np

from fastmf._common.names import pandas

# Joins the message of a converged row and the reason why it is not reliable.
BUT = ", but not reliable: "

# Holds the function judge(answer, question) that `FixedPoint.reliable` calls. `fastmf.inference`
# appends it, so that no solver imports the checks.
JUDGES: list = []


class Question(NamedTuple):
    """The problem that a `FixedPoint` solves, for the checks behind its `reliable`."""

    model: object  # RBM, DBM or BoltzmannMachine
    # External `Tilt` with one row, or a row for each row of the answer; its units are in the order
    # of `model.bipartite()`
    tilt: tuple
    whole: bool  # whether no start was given, so that rows describe the whole model
    # callable, optional: mixed(model, **tilts) returns mixtures of the solver's fixed points from
    # random starts; None for adaptive TAP, and if the rows are such mixtures
    mixed: Callable | None = None
    # list of bool, optional: whether each row, if it is a mixture, has a stable fixed point
    stable: list | None = None


class _Message:
    """The attribute `message`: how the row ended and, where a check failed, why.

    The checks run when the message is first read, so that they cost nothing otherwise.
    """

    def __get__(self, result, owner=None):
        if result is None:
            raise AttributeError("message")  # no default for the dataclass
        endings, reasons = ending_of(result), result._reasons()
        if reasons is None or not any(reasons):
            return endings
        pairs = zip(np.atleast_1d(endings), reasons, strict=True)
        texts = np.array([str(end) + (BUT + why if why else "") for end, why in pairs])
        return texts if np.ndim(endings) else texts[0]

    def __set__(self, result, endings):
        result.__dict__["message"] = endings


@dataclass(frozen=True, eq=False, repr=False)
class FixedPoint:
    """Marginals, log-partition and convergence record of a deterministic approximation.

    For a model of one layer `mean`, `var`, `b` and `a` are arrays, for a layered one tuples of
    arrays (visible, hidden, ...). Without rows in the start or in the field, arrays are (n_units,)
    and everything else is a scalar; with rows, everything leads with (n_rows,).

    Parameters
    ----------
    mean, var : array or tuple of arrays
        Marginal means and variances.
    b, a : array or tuple of arrays
        Tilt exp(b x - a x^2 / 2) of each unit; its moments are `mean` and `var`. If a row was
        damped or accelerated by momentum, this is exact for the variances; the means differ by up
        to `tol`, or by the last change if the row has not converged.
    log_partition : float, array or None
        Minus the approximate free energy at this state, with clamped units fixed. Never NaN:
        -inf if the row diverged. None if it was not computed.
    converged : bool or array
        Whether means, variances and log-partition belong to a fixed point: see the notes.
    n_iter : int or array
        Number of sweeps.
    residual : float or array
        Largest change of a mean or variance in the last sweep, before damping, as measured for
        `tol`.
    message : str or array of str
        How the row ended and, where it is not `reliable`, why.
    history : array, optional
        Residual of each sweep, shape (n_sweeps,) or (n_rows, n_sweeps); rows that ended earlier
        repeat their last value.
    solutions : Solutions or list of Solutions, optional
        Set by `mixture`: the distinct stable fixed points (of each row) and their weights.
        `mean` and `var` are the moments of their mixture, and `log_partition` is the logarithm
        of the sum of their exp(log_partition).

    Notes
    -----
    `tol` means the same in all solvers. A row has converged when one more sweep without damping
    changes no mean and no variance v of a unit by more than `tol`; where v exceeds 1, by more than
    `tol` standard deviations and `tol` v. (Expectation propagation compares the moments of the
    Gaussian with the moments of the units instead.) In relaxed belief propagation the same holds
    for the messages. Rows that are damped or oscillate are confirmed by such a sweep; in other
    rows one more sweep may change means and variances by up to about 2 `tol`.
    Near a fixed point the log-partition changes by terms of second order. For a unit whose mean and
    variance change by dm and dv these are dm^2 / v and (a dv)^2, and neither may exceed `tol`: so
    the log-partition is accurate to about `tol` nats a unit even where all values are far below 1.
    Changes of means by 4 units in the last place of the largest mean (or variance up to 1), and
    changes of a variance by 16 units in the last place of 1 or of the variance, if larger, count as
    rounding errors, whatever `tol` is: in float32 about 5e-7 and 2e-6.

    Examples
    --------
    >>> import numpy as np, fastmf as mf
    >>> model = mf.BoltzmannMachine(np.zeros((3, 3)), mf.Ising(np.ones(3)))
    >>> result = mf.tap(model)
    >>> result.converged, result.message
    (np.True_, np.str_('converged'))
    >>> np.allclose(result.mean, np.tanh(1)), result.reliable
    (True, np.True_)
    """

    mean: np.ndarray | tuple
    var: np.ndarray | tuple
    b: np.ndarray | tuple
    a: np.ndarray | tuple
    log_partition: np.ndarray | float | None
    converged: np.ndarray | bool
    n_iter: np.ndarray | int
    residual: np.ndarray | float
    message: Any = _Message()
    history: np.ndarray | None = None
    solutions: Any = None

    @property
    def reliable(self):
        """Whether each row agrees with exact sums or other methods, or None if that is not known.

        bool, bool array (n_rows,) or None. False: the row has not converged, or a check contradicts
        it; `message` has the reason. Checks run when one of the two is first read.

        Answers agree if their log-partitions differ by at most 1 nat, and means by at most 0.05 of
        the range of a unit on average and 0.2 of one (4 standard deviations of unbounded units).
        Exact sums decide where they take up to some 0.5 s for all rows. Otherwise a row must agree
        with belief propagation in which single units are held at each of their values; if that does
        not converge, or units are not discrete, with the mixture from 20 starts and `adaptive_tap`.
        A row solved from `init` may be one solution of several: it is compared with `adaptive_tap`,
        or belief propagation, from its means. None: the checks would take longer than about 0.5 s,
        or no method supports such units. See `fastmf.inference.checks` and the guide.
        """
        reasons = self._reasons()
        if reasons is None:
            return None
        passed = np.array([not why for why in reasons]) & self._judged()
        return passed if np.ndim(self.converged) else passed[0]

    def as_frame(self):
        """Return means and variances of all units as a data frame of pandas.

        Returns
        -------
        pandas.DataFrame
            Columns mean and var. Its index has the layer, of a layered model, the row, of results
            with rows, and the unit.
        """

        def of_layer(mean, var):
            axes = ["row", "unit"] if np.ndim(mean) == 2 else ["unit"]
            index = pandas().MultiIndex.from_product(map(range, np.shape(mean)), names=axes)
            return pandas().DataFrame({"mean": np.ravel(mean), "var": np.ravel(var)}, index)

        if not isinstance(self.mean, tuple):
            return of_layer(self.mean, self.var)
        layers = dict(enumerate(map(of_layer, self.mean, self.var)))
        return pandas().concat(layers, names=["layer"])

    def _reasons(self):
        """Reason why each row is not reliable, "" where it is; None if nothing was checked."""
        cached = self.__dict__
        if "_known_reasons" not in cached:
            check = cached.pop("_check", None)
            if isinstance(check, Question):
                reasons = JUDGES[0](self, check)
            else:
                reasons = None if check is None else check(self)
            if reasons is not None:
                reasons = [
                    why if ok else "" for why, ok in zip(reasons, self._judged(), strict=True)
                ]
            cached["_known_reasons"] = reasons
        return cached["_known_reasons"]

    def _judged(self):
        """Return the mask of the converged rows, which are checked."""
        return np.atleast_1d(self.converged)

    def _mixed(self, weights):
        """Return the fields that a subclass adds, for the mixture of all rows."""
        return {}

    def __getstate__(self):
        """Leave out a pending check, which refers to the model."""
        return {name: value for name, value in self.__dict__.items() if name != "_check"}

    def __repr__(self):
        converged = np.atleast_1d(self.converged)
        return (
            f"{type(self).__name__}({converged.sum()} of {converged.size} converged, "
            f"at most {np.max(self.n_iter)} sweeps, residual {np.max(self.residual):.3g})"
        )


def ending_of(result):
    """Return how the rows of a `FixedPoint` ended, without running its checks."""
    return result.__dict__["message"]


def with_check(result, check):
    """Attach the check that `reliable` runs when it is read: a `Question` or check(answer).

    It yields the reason why each row is not reliable, "" if it is, or None if nothing is known.
    """
    result.__dict__["_check"] = check
    return result


def with_changes(result, **changes):
    """Return `dataclasses.replace` of a `FixedPoint`, without running its checks."""
    return replace(result, **({"message": ending_of(result)} | changes))


def trace_of(record):
    """Return the residual of every sweep, or None; rows that ended early repeat their last one."""
    if not record.history.size:
        return None
    n_sweeps = min(int(record.n_iter.max()), record.history.shape[1])  # forests take two sweeps
    last = np.minimum(np.arange(n_sweeps), record.n_iter[:, None] - 1)
    return record.history[np.arange(len(last))[:, None], last]


def average(weights, x):
    """Average rows with weights of sum 1, as one row; the average of equal values is exact."""
    return (x[:1] + np.tensordot(weights, x - x[:1], 1)).astype(x.dtype)


def _row_fields(answer):
    """The fields of a `FixedPoint` that have a value for each row, by name."""
    shared = ("solutions", "method", "edges", "edge_probability", "n_states")
    return {f.name: answer.__dict__[f.name] for f in fields(answer) if f.name not in shared}


def stacked(*parts):
    """Concatenate the rows of several `FixedPoint`s of the same model and tilts.

    The result has the question of the first one, and neither history nor solutions.
    """

    def stack(*values):
        if any(x is None for x in values):
            return None
        if isinstance(values[0], tuple):
            return tuple(map(stack, *values))
        return np.concatenate(values)

    check, columns = parts[0].__dict__.get("_check"), list(map(_row_fields, parts))
    rows = {name: stack(*(x[name] for x in columns)) for name in columns[0] if name != "history"}
    joined = replace(parts[0], **rows, history=None, solutions=None)
    return with_check(joined, check if isinstance(check, Question) else None)


def some_rows(answer, rows):
    """Select rows of a `FixedPoint`, with their question."""

    def chosen(x):
        if isinstance(x, tuple):
            return tuple(map(chosen, x))
        return None if x is None else x[rows]

    changes = {name: chosen(x) for name, x in _row_fields(answer).items()}
    part = replace(answer, **changes, solutions=None)
    if "_states" in answer.__dict__:
        beliefs, decode = answer.__dict__["_states"]
        part.__dict__["_states"] = beliefs[rows], decode
    question = answer.__dict__.get("_check")
    if isinstance(question, Question):
        tilt = question.tilt
        tilt = tilt._make(x[rows] if len(x) > 1 else x for x in tilt)
        with_check(part, question._replace(tilt=tilt))
    return part
