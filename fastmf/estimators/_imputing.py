"""Missing values of fully visible machines, and warnings where their means are uncertain."""

import warnings

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state

from fastmf._common.arguments import one_of
from fastmf.inference.missing.fully_visible import MAX_ERROR, METHODS, conditional_means


def means_of_missing(machine, X, method, random_state):
    """Means of the units of a fitted machine given those of rows that are not missing.

    Parameters
    ----------
    machine : estimator
        With `model_` and `n_threads`.
    X : array of shape (n_rows, n_units)
        With NaN for missing values.
    method, random_state
        See `FullyVisibleBoltzmannMachine.impute`.

    Returns
    -------
    array of shape (n_rows, n_units)

    Warns
    -----
    ConvergenceWarning
        If some of the means are uncertain.
    """
    one_of("method", method, METHODS)
    seed = check_random_state(random_state).randint(2**31 - 1)
    found = conditional_means(machine.model_, X, method, seed=seed, n_threads=machine.n_threads)
    n = np.count_nonzero(~found.converged)
    if n:
        reason = "mean-field solutions did not converge"
        if method != "tap":
            error = found.error.max()
            reason = f"probabilities have standard errors of up to {error:.2g}, above {MAX_ERROR}"
        warnings.warn(
            f"The means of {n} of {len(X)} rows are uncertain: their {reason}. Compare with "
            "another method, or another random_state.",
            ConvergenceWarning,
            stacklevel=3,
        )
    return found.mean
