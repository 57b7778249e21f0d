"""Labels of a conditional RBM that are not known: draws given all others, and likelihoods."""

import numpy as np
from scipy.special import expit

from fastmf.inference.missing.seen import log_prob_of_seen, means_given_seen
from fastmf.learning.conditional import hidden_means
from fastmf.learning.training.completion import Completion
from fastmf.models import RBM
from fastmf.priors import Bernoulli


def label_completion(data, model, *, draws=True):
    """The `Completion` of labels and features (Y, X), or None if all labels are known.

    Parameters
    ----------
    data : tuple of arrays (Y, X)
    model : CRBM
    draws : bool
        Whether labels are drawn, as suits objectives of probabilities; if not, the most probable
        ones given the last hidden units are taken.
    """
    Y, X = data
    if not np.isnan(Y).any():
        return None

    def draw(model, rows, before, missing, n_sweeps, rng, n_threads):
        fields = model.fields(X[rows])
        return drawn_labels(model, before, missing, fields, n_sweeps, rng, draws=draws)

    def admits(model, y):
        return np.isin(y, (0, 1)).all()

    return Completion(np.array(Y, model.dtype, order="C"), draw, admits, others=(X,))


def drawn_labels(model, Y, missing, fields, n_sweeps, rng, *, draws=True):
    """Labels with draws in the place of those that are not known, by Gibbs sampling.

    Parameters
    ----------
    model : CRBM
    Y : array of shape (n_rows, n_visible)
        Where chains start; from the means without hidden units where there is NaN.
    missing : bool array of shape (n_rows, n_visible)
    fields : tuple of arrays of shape (n_rows, n_units)
        Of labels and hidden units given the features.
    n_sweeps : int
    rng : numpy Generator
    draws : bool
        See `label_completion`.

    Returns
    -------
    array of shape (n_rows, n_visible)
    """
    b, c = fields
    y = np.where(np.isnan(Y), expit(b), Y).astype(model.dtype)
    for _ in range(n_sweeps):
        hidden = rng.random(c.shape, model.dtype) < hidden_means(model, y, c)
        mean = expit(hidden.astype(model.dtype) @ model.weights.T + b)
        y = np.where(missing, rng.random(b.shape, model.dtype) < mean, y).astype(model.dtype)
    return y if draws else np.where(missing, mean > 0.5, y).astype(model.dtype)


def log_weights_of_known(model, Y, X):
    """Log of the sum over hidden units and unknown labels of exp(-energy), for each row.

    Parameters
    ----------
    model : CRBM
    Y : array of shape (n_rows, n_visible)
        Labels 0 and 1, or NaN.
    X : array or sparse matrix of shape (n_rows, n_features)

    Returns
    -------
    float64 array of shape (n_rows,)
        By enumeration where `exact_given` takes a row, and else by a mean-field solution.
    """
    out = np.empty(len(Y))
    unknown = np.isnan(Y).any(1)
    if not unknown.all():
        out[~unknown] = -model.free_energy(Y[~unknown], X[~unknown])
    for r, b, c in zip(np.flatnonzero(unknown), *model.fields(X[unknown]), strict=True):
        if not model.n_hidden:
            out[r] = np.where(np.isnan(Y[r]), np.logaddexp(0, b), np.nan_to_num(Y[r]) * b).sum()
            continue
        of_row = RBM(model.weights, Bernoulli(b), Bernoulli(c))
        y = Y[r : r + 1]
        seen = log_prob_of_seen(of_row.visible, y)
        out[r] = (seen + means_given_seen(of_row, y).log_partition)[0]
    return out
