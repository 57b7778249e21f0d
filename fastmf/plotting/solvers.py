"""How solvers converged, and log-partitions by several methods."""

import numpy as np

from fastmf._common.arguments import number
from fastmf.plotting._axes import axes, tidy, with_attributes


def convergence_history(result, *, tol=None, ax=None):
    """Residuals by sweep, one line for each row; red for rows that did not converge.

    Parameters
    ----------
    result : FixedPoint
        Result of a solver that was called with `history=True`.
    tol : float, optional
        Marked by a horizontal line: the tolerance of the solver.
    ax : matplotlib.axes.Axes, optional
        Where to draw.

    Returns
    -------
    matplotlib.figure.Figure

    Raises
    ------
    ValueError
        If the result has no history.
    ImportError
        If matplotlib is not installed.

    Examples
    --------
    >>> import numpy as np, fastmf as mf
    >>> model = mf.RBM(np.ones((3, 2)), mf.Bernoulli(np.zeros(3)), mf.Bernoulli(np.zeros(2)))
    >>> found = mf.tap(model, np.eye(3), history=True)
    >>> figure = mf.plotting.convergence_history(found)
    >>> figure.axes[0].get_title()
    '3 of 3 rows converged'
    """
    with_attributes("result", result, "FixedPoint", "history")
    tol = None if tol is None else number("tol", tol, 0, np.inf)
    if result.history is None:
        raise ValueError("the result has no history: call the solver with history=True.")
    residuals = np.atleast_2d(result.history)
    n_iter = np.broadcast_to(result.n_iter, len(residuals))
    converged = np.broadcast_to(result.converged, len(residuals))
    ax = axes(ax, (6, 4))
    for row, n, ended in zip(residuals, n_iter, converged, strict=True):
        values = np.where(row[:n] > 0, row[:n], np.nan)  # no logarithm of a residual of zero
        sweeps, colour = np.arange(1, len(values) + 1), "C0" if ended else "C3"
        ax.plot(sweeps, values, color=colour, alpha=max(0.1, len(residuals) ** -0.5))
    if tol is not None:
        ax.axhline(tol, color="0.3", linestyle=":", label="tolerance")
        ax.legend(frameon=False)
    ax.set_yscale("log")
    ax.set_xlabel("sweep")
    ax.set_ylabel("residual")
    ax.set_title(f"{converged.sum()} of {converged.size} rows converged")
    tidy(ax)
    return ax.figure


def log_partitions(report, *, ax=None):
    """Log-partitions of one model by several methods, with bars of two standard errors.

    Parameters
    ----------
    report : LogPartitionReport
        Report of `fastmf.log_partition_report`. The vertical line is its first entry: the exact
        value, if there is one.
    ax : matplotlib.axes.Axes, optional
        Where to draw.

    Returns
    -------
    matplotlib.figure.Figure

    Raises
    ------
    ValueError
        If the report is empty.
    ImportError
        If matplotlib is not installed.

    Examples
    --------
    >>> import numpy as np, fastmf as mf
    >>> model = mf.RBM(np.zeros((3, 2)), mf.Ising(np.zeros(3)), mf.Ising(np.zeros(2)))
    >>> report = mf.log_partition_report(model, n_chains=10, n_steps=10)
    >>> figure = mf.plotting.log_partitions(report)
    >>> figure.axes[0].get_yticklabels()[0].get_text()
    'exact'
    """
    with_attributes("report", report, "LogPartitionReport", "__len__", "__getitem__")
    for entry in report:
        with_attributes("report", entry, "LogPartitionReport", "log_partition", "error", "name")
    if not len(report):
        raise ValueError("the report is empty.")
    rows = np.arange(len(report))
    values = np.array([entry.log_partition for entry in report], float)
    errors = np.array([entry.error or 0.0 for entry in report], float)
    finite = np.isfinite(values) & np.isfinite(errors)
    ax = axes(ax, (6, 1 + 0.3 * len(report)))
    if finite[0]:
        ax.axvline(values[0], color="0.6", linestyle=":", zorder=0)
    ax.errorbar(values[finite], rows[finite], xerr=2 * errors[finite], fmt="o", ecolor="0.5")
    ax.set_yticks(rows, [entry.name for entry in report])
    ax.set_ylim(len(report) - 0.5, -0.5)
    ax.set_xlabel("log-partition (nats)")
    ax.set_ylabel("estimate")
    tidy(ax)
    return ax.figure
