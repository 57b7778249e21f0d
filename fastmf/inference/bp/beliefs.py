"""What belief propagation returns."""

from dataclasses import dataclass

import numpy as np

from fastmf._outcomes import POLISHED, is_converged, messages_of
from fastmf.inference.fixed_point import FixedPoint, trace_of


@dataclass(frozen=True, eq=False, repr=False)
class Beliefs(FixedPoint):
    """What `belief_propagation` returns: a `FixedPoint` with more in it.

    Parameters
    ----------
    log_partition : float or array
        Sum-product: Bethe log-partition. Max- and mixed-product: `objective`.
    assignment : tuple of arrays (visible, hidden)
        Sum-product: the likelier value of each unit. Max- and mixed-product: the best visible
        assignment of any sweep, polished unless that was declined, and the best hidden one beside
        it. `converged` and `mean` are of the messages, not of this assignment.
    objective : float or array
        Max-product: minus the energy of the assignment, a lower bound of its maximum.
        Mixed-product: log of the sum of exp(-energy) over the hidden units, likewise.
        Sum-product: None.
    local_maximum : bool or array, optional
        Whether no flip of one visible unit raises `objective`. None for assignments that were not
        polished.
    messages : array of shape (n_visible, n_hidden) or (n_rows, n_visible, n_hidden), optional
        Log-ratios m(high) / m(low) of the messages from visible to hidden units.
    pairwise : array of shape (n_visible, n_hidden) or (n_rows, n_visible, n_hidden), optional
        Expected products <v_i h_j>, of each row or averaged over rows.
    damping : float or array
        Damping of the row in the end (a sweep that confirms convergence has none).
    spectral_radius : float, optional
        Below 1, sum-product has one fixed point, whatever the fields, and converges from any start.
        An upper bound; above 1 it says nothing.
    """

    assignment: tuple | None = None
    objective: np.ndarray | float | None = None
    local_maximum: np.ndarray | bool | None = None
    messages: np.ndarray | None = None
    pairwise: np.ndarray | None = None
    damping: np.ndarray | float = 0.0
    spectral_radius: float | None = None


def beliefs_of(algorithm, model, bits, record, history, single, messages, pairs, radius, optimal):
    """The `Beliefs` that a record holds."""
    dtype, m = model.dtype, model.weights.shape[1]
    log_odds = record.visible, record.hidden[:, :m]
    means, variances = bits.means(log_odds)
    if algorithm == "sum":
        assignment, objective = tuple(x > 0 for x in log_odds), None
        log_partition = record.bethe + bits.constant
    else:
        fields = bits.fields[1] + (record.best.astype(dtype) @ model.weights) * bits.factor
        assignment = record.best, fields > 0
        log_partition = objective = record.objective + bits.constant
    one = (lambda x: None if x is None else x[0]) if single else (lambda x: x)
    tilts = [
        x / s - prior.field for x, s, prior in zip(log_odds, bits.scales, model.layers, strict=True)
    ]
    cast = lambda parts: tuple(one(np.asarray(x, dtype)) for x in parts)  # noqa: E731
    converged, message = is_converged(record.status), messages_of(record.status)
    if optimal is not None:
        message = np.where(optimal & ~converged, np.char.add(message, POLISHED), message)
    return Beliefs(
        mean=cast(means),
        var=cast(variances),
        b=cast(tilts),
        a=cast([np.zeros_like(x) for x in log_odds]),
        log_partition=one(log_partition),
        converged=one(converged),
        n_iter=one(record.n_iter),
        residual=one(record.residual),
        message=one(message),
        history=one(trace_of(record) if history else None),
        assignment=cast(bits.values(k, x) for k, x in enumerate(assignment)),
        objective=one(objective),
        local_maximum=one(optimal),
        messages=one(messages),
        pairwise=pairs,
        damping=one(record.damping),
        spectral_radius=radius,
    )
