"""The result of belief propagation on a graph."""

from dataclasses import dataclass

import numpy as np

from fastmf.inference.bp.beliefs import Beliefs


@dataclass(frozen=True, eq=False, repr=False)
class GraphBeliefs(Beliefs):
    """Result of `belief_propagation` for a `BoltzmannMachine`: the `Beliefs` of a graph.

    There is one layer: `mean`, `var`, `b` and `a` are arrays, and so is `assignment`, with labels
    of groups of states.

    Parameters
    ----------
    edges : int array of shape (n_edges, 2)
        Pairs of coupled units (groups of states are one), the smaller number first.
    edge_probability : array of shape (n_edges,), optional
        Tree-reweighted: probability of each edge in a spanning tree.
    messages : array of shape (n_messages,) or (n_rows, n_messages), optional
        Logarithms, to start from with `init`.
    pairwise : array of shape (n_edges,), (n_values,) or with rows, optional
        Expected products <x_i x_j> of two-valued units. For other units, probabilities of the pairs
        of states, a table of n_states[i] * n_states[j] numbers for each edge: see `table`.
    n_states : int array of shape (n_units,)
        Number of states of each unit.

    Examples
    --------
    >>> import numpy as np, fastmf as mf
    >>> chain = np.diag([1.0, 2.0], 1) + np.diag([1.0, 2.0], -1)
    >>> found = mf.belief_propagation(mf.BoltzmannMachine(chain, mf.Ising(np.zeros(3))))
    >>> found.edges.tolist()
    [[0, 1], [1, 2]]
    >>> np.isclose(found.log_partition, np.log(8 * np.cosh(1) * np.cosh(2)))
    np.True_
    """

    edges: np.ndarray | None = None
    edge_probability: np.ndarray | None = None
    n_states: np.ndarray | None = None

    def table(self, i, j, row=None):
        """Probabilities of the pairs of states of two coupled units that are not two-valued.

        Parameters
        ----------
        i, j : int
            Units, in either order.
        row : int, optional
            Row of fields or clamps, where there are rows.

        Returns
        -------
        array of shape (n_states[i], n_states[j])

        Raises
        ------
        ValueError
            If there are no pair beliefs, or none of these units.
        """
        if self.pairwise is None or self.pairwise.shape[-1] == len(self.edges):
            raise ValueError("tables need pairwise=True and units that are not two-valued.")
        at = np.flatnonzero((self.edges == sorted((i, j))).all(1))
        if not len(at):
            raise ValueError(f"units {i} and {j} are not coupled.")
        counts = self.n_states[self.edges].prod(1)
        first = counts[: at[0]].sum()
        values = self.pairwise if row is None else self.pairwise[row]
        values = values[..., first : first + counts[at[0]]]
        table = values.reshape(self.n_states[self.edges[at[0]]])
        return table if i < j else table.T
