"""Values in the place of missing ones, drawn from the model given what was seen: data augmentation.

Before each epoch the missing values of all rows are drawn anew, by Gibbs sampling of the model from
the values of the epoch before (stochastic EM, Celeux & Diebolt 1985). An epoch then follows the
gradient of the likelihood of complete rows, whose average over draws is that of what was seen.
"""

import numpy as np

from fastmf.inference.missing.seen import incomplete_rows, is_incomplete
from fastmf.inference.sampling.gibbs import even_layers, gibbs
from fastmf.priors._domain import admissible, independent_units
from fastmf.priors._groups import column_sizes, columns_by_parts, has_groups
from fastmf.priors._protocol import by_parts, is_concatenated, take

# Sweeps before an epoch, and of rows that are completed once.
SWEEPS, SWEEPS_FROM_MEANS = 5, 20


class Completion:
    """Rows of data, of which missing values are drawn before each epoch.

    Parameters
    ----------
    X : array of shape (n_rows, n_visible)
        With NaN for missing values.
    model : RBM or DBM

    Attributes
    ----------
    X : array of shape (n_rows, n_visible)
        The rows as they were completed last; changed in place.
    """

    def __init__(self, X, model):
        self.missing = np.isnan(X)
        self.rows = np.flatnonzero(self.missing.any(1))
        self.X = np.array(X, model.dtype, order="C")

    def __call__(self, state, rng, n_threads):
        """Complete the rows: with new values, or without `rng` with those of the state."""
        if rng is not None:
            before = self._completed(state) if state.completed else self.X[self.rows]
            n_sweeps = SWEEPS if state.completed else SWEEPS_FROM_MEANS
            missing = self.missing[self.rows]
            drawn = completed(state.model, before, missing, n_sweeps, rng, n_threads)
            state.completed = (drawn[missing][None],)
        self.X[self.missing] = state.completed[0][0]

    def _completed(self, state):
        x = self.X[self.rows]
        x[self.missing[self.rows]] = state.completed[0][0]
        return x

    def check(self, state):
        """Raise a ValueError for a state from a file that holds no values of the missing units."""
        begun = state.epoch or state.batch
        expected = [(1, np.count_nonzero(self.missing))] if begun else []
        found = [array.shape for array in state.completed]
        if found != expected:
            raise ValueError(
                f"members completed/... must be of the shapes {expected}, got {found}."
            )
        if begun:
            x = self._completed(state)
            for part, values in by_parts(state.model.layers[0], x):
                if not np.all(admissible(part, values, means=True)):
                    raise ValueError("members completed/... must hold values of the visible units.")


def completion(X, model):
    """The `Completion` of rows, or None if none of their values are missing."""
    return Completion(X, model) if is_incomplete(X) else None


def completed(model, X, missing, n_sweeps, rng, n_threads=None):
    """Rows with missing values drawn from the model given the others, by Gibbs sampling.

    Parameters
    ----------
    model : RBM or DBM
    X : array of shape (n_rows, n_visible)
        Where chains start; from the means of the units where there is NaN.
    missing : bool array of shape (n_rows, n_visible)
    n_sweeps : int
    rng : numpy Generator
    n_threads : int or None

    Returns
    -------
    array of shape (n_rows, n_visible)
    """
    zero = model.dtype.type(0)
    means = model.layers[0].moments(zero, zero)[0]
    x = np.where(np.isnan(X), means, X).astype(model.dtype)
    even, pair = even_layers(model, x, rng), model.bipartite()
    for _ in range(n_sweeps):
        even = gibbs(pair, even, 1, rng, n_threads)[0]
        even[:, : x.shape[1]] = np.where(missing, even[:, : x.shape[1]], x)
    return even[:, : x.shape[1]].copy()


def completed_once(model, X, seed, n_threads=None):
    """The rows, with missing values drawn from the model given the others.

    Parameters
    ----------
    model : RBM or DBM
    X : array or csr_array of shape (n_rows, n_visible)
    seed : list of int
        Of the random numbers.
    n_threads : int or None

    Returns
    -------
    array or csr_array of shape (n_rows, n_visible)
        `X` itself if nothing is missing.
    """
    if not is_incomplete(X):
        return X
    X, rows = X.copy(), incomplete_rows(X)
    rng, missing = np.random.default_rng([*seed, 5]), np.isnan(X[rows])
    X[rows] = completed(model, X[rows], missing, SWEEPS_FROM_MEANS, rng, n_threads)
    return X


# --- before learning ------------------------------------------------------------------------------


def with_values_of_columns(X):
    """Rows in which missing values are values of their column, all of them about as often."""
    X = X.copy()
    for j in np.flatnonzero(np.isnan(X).any(0)):
        missing = np.isnan(X[:, j])
        values, n = X[~missing, j], np.count_nonzero(missing)
        X[missing, j] = values[np.arange(n) * len(values) // n]
    return X


def independent_of_seen(prior, X):
    """The prior of independent units, each fitted to the values of it that were seen.

    Parameters
    ----------
    prior : unit prior
    X : array of shape (n_rows, n_units)
        With NaN for missing values.

    Returns
    -------
    unit prior
        See `fastmf.priors._domain.independent_units`.
    """
    if not is_incomplete(X):
        return independent_units(prior, X)
    parts = tuple(_fitted_to_seen(*part) for part in columns_by_parts(prior, X))
    return prior._make((parts,)) if is_concatenated(prior) else parts[0]


def _fitted_to_seen(prior, X):
    if has_groups(prior):  # which count what was seen
        return independent_units(prior, X)
    prior, n = independent_units(prior, with_values_of_columns(X)), len(column_sizes(prior))
    fields = [np.array(field) for field in prior]
    for j in np.flatnonzero(np.isnan(X).any(0)):
        column = X[~np.isnan(X[:, j]), j : j + 1]
        own = independent_units(take(prior, slice(j, j + 1)), column)
        for field, value in zip(fields, own, strict=True):
            if field.shape == (n,):
                field[j] = np.ravel(value)[0]
    return prior._make(fields)
