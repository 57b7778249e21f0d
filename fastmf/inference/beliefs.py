"""What belief propagation returns."""

from dataclasses import dataclass

import numpy as np

from fastmf.inference.fixed_point import FixedPoint


@dataclass(frozen=True, eq=False, repr=False)
class Beliefs(FixedPoint):
    """What `belief_propagation` returns: a `FixedPoint` with more in it.

    Parameters
    ----------
    log_partition : float or array
        Sum-product: Bethe log-partition. Max- and mixed-product: `objective`.
    assignment : tuple of arrays (visible, hidden)
        Sum-product: the likelier value of each unit. Max- and mixed-product: the best visible
        assignment of any sweep, and the best hidden one beside it.
    objective : float or array
        Max-product: minus the energy of the assignment, a lower bound of its maximum.
        Mixed-product: log of the sum of exp(-energy) over the hidden units, likewise.
        Sum-product: None.
    messages : array of shape (n_visible, n_hidden) or (n_rows, n_visible, n_hidden), optional
        Log-ratios m(high) / m(low) of the messages from visible to hidden units.
    pairwise : array of shape (n_visible, n_hidden) or (n_rows, n_visible, n_hidden), optional
        Expected products <v_i h_j>, of each row or averaged over rows.
    damping : float or array
        Damping in the last sweep.
    spectral_radius : float, optional
        Below 1, sum-product has one fixed point, whatever the fields, and converges from any start.
        An upper bound; above 1 it says nothing.
    """

    assignment: tuple | None = None
    objective: np.ndarray | float | None = None
    messages: np.ndarray | None = None
    pairwise: np.ndarray | None = None
    damping: np.ndarray | float = 0.0
    spectral_radius: float | None = None
