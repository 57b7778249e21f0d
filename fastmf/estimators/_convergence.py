"""Warnings of estimators of layered machines: solutions or learning that have not converged."""

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from fastmf._common.warning import warn_user
from fastmf.priors._queries import columns_of_values

# Learning counts as diverged at so many times the log-likelihood of uniform values, with which it
# may begin, and of real values at so many nats a unit below independent units.
BELOW_UNIFORM, BELOW_INDEPENDENT = 1.1, 0.02


def warn_unless_converged(converged):
    """Say for how many rows means are returned that are of no solution."""
    n = np.count_nonzero(~converged)
    if n:
        warn_user(
            f"The mean-field solutions of {n} of {len(converged)} rows did not converge: their "
            "means are those of the last iteration.",
            ConvergenceWarning,
        )


def warn_if_diverged(model, history):
    """Say so if uniformly drawn values would explain the data better, of discrete units."""
    values = columns_of_values(model.layers[0])
    if values is None or not history.get("log_likelihood"):
        return
    found = history["log_likelihood"][-1] * sum(model.sizes)
    uniform = -np.log([len(column) for column in values]).sum()
    if found < BELOW_UNIFORM * uniform:
        warn_user(
            f"learning has diverged: the log-likelihood of the last epoch, {found:.0f} nats a "
            f"row, is below that of values drawn uniformly at random, {uniform:.0f}. Use a "
            "smaller learning_rate, or with chains more of them (n_starts).",
            ConvergenceWarning,
        )


def warn_if_below_uniform(found, n_labels):
    """Say so if the log-likelihood of a row of labels is below that of labels drawn at random."""
    uniform = -n_labels * np.log(2)
    if not found >= BELOW_UNIFORM * uniform:
        warn_user(
            f"learning has diverged: the log-likelihood of the labels, {found:.3g} nats a row, is "
            f"below that of values drawn uniformly at random, {uniform:.3g}. Use a smaller "
            "learning_rate, or standardize=True.",
            ConvergenceWarning,
        )


def warn_if_below_independent(model, history, independent):
    """Say so if the independent units that learning began with would explain real values better.

    Parameters
    ----------
    model : RBM or DBM
    history : dict of lists
    independent : float or None
        Log-likelihood of the independent units, nats a row.
    """
    if independent is None:
        return
    found = history["log_likelihood"][-1] * sum(model.sizes)
    if not np.isfinite(found):
        warn_user(
            "the log-likelihood of the last epoch is unknown, because mean-field iterations of "
            "this machine have no moments: compare `score` with that of independent units. "
            "Bounded units, such as 'truncated_gaussian', have moments always.",
            ConvergenceWarning,
        )
        return
    if found < independent - BELOW_INDEPENDENT * model.sizes[0]:
        warn_user(
            f"learning has diverged: the log-likelihood of the last epoch, {found:.4g} nats a row, "
            "is below that of the independent units that learning began with, "
            f"{independent:.4g}. Use a smaller learning_rate, more epochs, or gradient='exact'.",
            ConvergenceWarning,
        )
