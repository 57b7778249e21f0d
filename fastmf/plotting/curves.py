"""Curves of the log-likelihood by epoch and of denoising by noise level."""

from itertools import cycle

import numpy as np

from fastmf._common.arguments import real_array
from fastmf.plotting._axes import axes, mapping, tidy


def learning_curve(history, *, label=None, ax=None):
    """Mean-field log-likelihood per unit by epoch; dashed for validation data.

    Parameters
    ----------
    history : dict of lists
        "epoch", "log_likelihood" and perhaps "validation_log_likelihood", as in the attribute
        `history_` of a fitted estimator.
    label : str, optional
        Name of the machine in the legend, to compare several on one `ax`.
    ax : matplotlib.axes.Axes, optional
        Where to draw.

    Returns
    -------
    matplotlib.figure.Figure

    Raises
    ------
    ValueError
        If the history lacks "epoch" or "log_likelihood", or one is not as long as the other.
    ImportError
        If matplotlib is not installed.

    Examples
    --------
    >>> import fastmf as mf
    >>> history = {"epoch": [1, 2, 3], "log_likelihood": [-0.6, -0.4, -0.3]}
    >>> figure = mf.plotting.learning_curve(history, label="TAP")
    >>> figure.axes[0].get_xlabel()
    'epoch'
    """
    missing = {"epoch", "log_likelihood"} - set(mapping("history", history))
    if missing:
        raise ValueError(
            f"history must have 'epoch' and 'log_likelihood', lacks {sorted(missing)}."
        )
    epoch = history["epoch"]
    _check_length("log_likelihood", history["log_likelihood"], "epoch", epoch)
    ax = axes(ax, (6, 4))
    (line,) = ax.plot(epoch, history["log_likelihood"], label=label or "training data")
    validation = history.get("validation_log_likelihood")
    if validation is not None:
        _check_length("validation_log_likelihood", validation, "epoch", epoch)
        name = None if label else "validation data"
        ax.plot(epoch, validation, "--", color=line.get_color(), label=name)
    ax.set_xlabel("epoch")
    ax.set_ylabel("log-likelihood per unit (nats)")
    dashed = label and validation is not None
    ax.legend(frameon=False, title="dashed: validation data" if dashed else None)
    tidy(ax)
    return ax.figure


def denoising_accuracy(flip_probability, scores, *, ax=None):
    """Matthews correlation of several estimates against the probability of a flip.

    Parameters
    ----------
    flip_probability : array of shape (n_levels,)
    scores : dict of str to array of shape (n_levels,)
        Matthews correlation of each method, by its name.
    ax : matplotlib.axes.Axes, optional
        Where to draw.

    Returns
    -------
    matplotlib.figure.Figure

    Raises
    ------
    ValueError
        If there is no method, or one has not as many scores as there are probabilities.
    ImportError
        If matplotlib is not installed.

    Examples
    --------
    >>> import fastmf as mf
    >>> scores = {"TAP": [0.9, 0.8], "pointwise": [0.8, 0.6]}
    >>> figure = mf.plotting.denoising_accuracy([0.1, 0.2], scores)
    >>> len(figure.axes[0].lines)
    2
    """
    for name, values in mapping("scores", scores, "method").items():
        _check_length(f"scores[{name!r}]", values, "flip_probability", flip_probability)
    ax = axes(ax, (6, 4))
    for (name, values), marker in zip(scores.items(), cycle("os^Dvx"), strict=False):
        ax.plot(flip_probability, values, marker=marker, label=name)
    ax.set_xlabel("flip probability $p$")
    ax.set_ylabel("Matthews correlation")
    ax.set_ylim(min(0, *(np.min(values) for values in scores.values())), 1)
    ax.legend(frameon=False)
    tidy(ax)
    return ax.figure


def _check_length(name, values, other, reference):
    values, reference = real_array(name, values), real_array(other, reference)
    if values.shape != reference.shape or values.ndim != 1:
        raise ValueError(
            f"{name} must be one-dimensional and as long as {other}, got shapes "
            f"{values.shape} and {reference.shape}."
        )
