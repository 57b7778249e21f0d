"""Sequences: contact maps, effects of mutations."""

import numpy as np

from fastmf._common.arguments import count, number, real_array
from fastmf.evaluation.contacts import ranked_pairs
from fastmf.plotting._axes import axes, coloured, drawing


@drawing
def contact_map(scores, distances=None, *, n_top=None, separation=5, cutoff=8.0, ax=None):
    """Pairs of the largest scores over the true contacts.

    Parameters
    ----------
    scores : fitted PottsMachine, or array of shape (n_columns, n_columns)
        Symmetric, such as `PottsMachine.contact_scores` gives, which takes the state of gaps.
    distances : array of shape (n_columns, n_columns), optional
        With it contacts are grey, and predicted pairs that are none have another colour; pairs
        whose distance is unknown (NaN) are not drawn.
    n_top : int, optional
        Predicted pairs to draw; by default the number of columns.
    separation : int, default 5
        Least ``|i - j|`` of these pairs.
    cutoff : float, default 8.0
        Pairs at a smaller distance are contacts.
    %(ax)s

    Examples
    --------
    >>> import numpy as np
    >>> import fastmf as mf
    >>> scores = np.exp(-0.1 * abs(np.arange(12)[:, None] - np.arange(12)))
    >>> figure = mf.plotting.contact_map(scores, n_top=3)
    >>> figure.axes[0].get_xlabel()
    'column'
    """
    if hasattr(scores, "contact_scores"):
        scores = scores.contact_scores()
    scores = real_array("scores", scores, missing=True)
    cutoff = number("cutoff", cutoff, -np.inf, np.inf)
    with_distance, n_top = None, count("n_top", n_top, optional=True)
    if distances is not None:
        distances = real_array("distances", distances, missing=True)
        if distances.shape != scores.shape:
            raise ValueError(
                f"distances must have the shape of scores, {scores.shape}, got {distances.shape}."
            )
        with_distance = ~np.isnan(distances)
    pairs = np.stack(ranked_pairs(scores, separation, with_distance))
    pairs = pairs[:, : len(scores) if n_top is None else n_top]
    ax = axes(ax, (5.5, 5.5))
    hit = np.ones(pairs.shape[1], bool)
    if distances is not None:
        contacts = np.argwhere(distances < cutoff)
        contacts = contacts[abs(contacts[:, 0] - contacts[:, 1]) >= separation] + 1
        ax.plot(*contacts.T, "s", color="0.8", markersize=3, label=f"distance < {cutoff:g}")
        hit = distances[tuple(pairs)] < cutoff
    kinds = (("C0", hit, "predicted"), ("C3", ~hit, "predicted, no contact"))
    for colour, which, label in kinds:
        if which.any():
            first, second = pairs[:, which] + 1
            both = np.r_[first, second], np.r_[second, first]
            ax.plot(*both, ".", color=colour, markersize=4, label=label)
    ax.set_xlim(0.5, len(scores) + 0.5)
    ax.set_ylim(len(scores) + 0.5, 0.5)
    ax.set_aspect("equal")
    ax.set_xlabel("column")
    ax.set_ylabel("column")
    # Pairs are far from the diagonal, so the corners above it may be full: the legend is outside.
    outside = {"loc": "lower center", "bbox_to_anchor": (0.5, 1), "ncols": 3, "fontsize": "small"}
    if ax.get_legend_handles_labels()[0]:  # none where columns are few
        ax.legend(frameon=False, **outside)
    return ax.figure


@drawing
def mutation_matrix(effects, alphabet=None, *, sequence=None, ax=None):
    """Effects of all single mutations of a sequence as colours, on a scale symmetric about 0.

    Parameters
    ----------
    effects : fitted PottsMachine, or array of shape (n_columns, n_states)
        Effects, for instance changes of the log-probability; NaN is left white. A machine has those
        of the mutations of `sequence`.
    alphabet : str, optional
        Letters of the states; needed unless the machine has its own (``fastmf dca``).
    sequence : int array of shape (n_columns,), optional
        States of the sequence that is mutated, marked by dots; -1 where there is none. A machine
        needs all of them.
    %(ax)s

    Examples
    --------
    >>> import numpy as np
    >>> import fastmf as mf
    >>> effects = np.array([[0.0, -1.0, 0.5, -2.0], [-0.3, 0.0, 0.1, 0.2]])
    >>> figure = mf.plotting.mutation_matrix(effects, "ACGU", sequence=[0, 1])
    >>> [label.get_text() for label in figure.axes[0].get_yticklabels()]
    ['A', 'C', 'G', 'U']
    >>> X = np.random.default_rng(0).integers(0, 4, (200, 6))
    >>> machine = mf.PottsMachine(l2=0.01).fit(X)
    >>> figure = mf.plotting.mutation_matrix(machine, "ACGU", sequence=X[0])
    """
    if hasattr(effects, "mutants"):
        if sequence is None:
            raise ValueError("sequence is needed beside a machine: the states that are mutated.")
        alphabet = getattr(effects, "alphabet_", None) if alphabet is None else alphabet
        effects = effects.mutants(sequence)
    if not isinstance(alphabet, str):
        error = ValueError if alphabet is None else TypeError
        raise error(
            f"alphabet is needed, the letters of the states, got {type(alphabet).__name__}."
        )
    effects = real_array("effects", effects, missing=True)
    if effects.ndim != 2 or effects.size == 0 or np.isinf(effects).any():
        raise ValueError(
            f"effects must have shape (n_columns, n_states), and be finite, got {effects.shape}."
        )
    if len(alphabet) != effects.shape[1]:
        raise ValueError(
            f"effects has {effects.shape[1]} states, but the alphabet {alphabet} {len(alphabet)} "
            "letters."
        )
    n_columns, n_states = effects.shape
    ax = axes(ax, (max(4, min(16, 0.1 * n_columns + 2)), max(2, 0.17 * n_states + 0.8)))
    extent = (0.5, n_columns + 0.5, n_states - 0.5, -0.5)
    label = "change of log-probability (nats)"
    coloured(ax, effects.T, label, quantile=0.99, extent=extent, aspect="auto")
    if sequence is not None:
        states = real_array("sequence", sequence)
        if states.shape != (n_columns,) or states.dtype.kind not in "iu":
            raise ValueError(f"sequence must be {n_columns} integer states, got {states!r:.60}.")
        if states.max(initial=-1) >= n_states:
            raise ValueError(f"sequence has the state {states.max()}, of {n_states} from 0.")
        sites = np.flatnonzero(states >= 0)
        ax.plot(sites + 1, states[sites], "o", color="k", markersize=1.5, label="sequence")
    ax.set_ylabel("mutated to")
    ax.set_yticks(np.arange(n_states), list(alphabet), fontsize="x-small")
    ax.tick_params(axis="y", length=0)
    ax.set_xlabel("column")
    ax.xaxis.get_major_locator().set_params(integer=True)
    ax.spines[:].set_visible(False)
    return ax.figure
