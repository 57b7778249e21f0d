"""Tree-reweighted belief propagation: the public function."""

from fastmf.inference.bp._options import BPOptions
from fastmf.inference.bp.graphs.layers import propagate_on_layers
from fastmf.inference.bp.graphs.propagation import propagate_on_graph
from fastmf.models import RBM, BoltzmannMachine


def tree_reweighted(model, *, field=None, clamp=None, max_iter=1000):
    """Compute an upper bound of the log-partition by tree-reweighted belief propagation.

    Parameters
    ----------
    model : RBM or BoltzmannMachine
        An RBM or a graph (dense or sparse couplings) of discrete units.
    field, clamp : array or pair of arrays, optional
        Extra fields, and values of clamped units, as in `belief_propagation`.
    max_iter : int, default 1000
        Largest number of sweeps. The bound holds after any number of them.

    Returns
    -------
    Beliefs
        `log_partition` is the bound; `mean` and `pairwise` are beliefs of the random trees.
        `GraphBeliefs` for a graph, with the edges' probabilities.

    Raises
    ------
    ValueError, TypeError
        For arguments of wrong shapes, types or ranges.

    See Also
    --------
    log_partition_bounds : This bound and a lower one, for more models.

    Notes
    -----
    Wainwright, Jaakkola and Willsky (2005). Edges have the probabilities that they have in uniform
    random spanning trees or, in large graphs, in random trees that together contain all edges. The
    bound is evaluated at the messages of the last sweep (Globerson and Jaakkola 2007).

    Examples
    --------
    >>> import numpy as np, fastmf as mf
    >>> ring = mf.BoltzmannMachine(np.ones((3, 3)) - np.eye(3), mf.Ising(np.zeros(3)))
    >>> upper = mf.tree_reweighted(ring)
    >>> bool(upper.log_partition >= mf.exact(ring).log_partition)
    True
    """
    options = BPOptions(algorithm="tree_reweighted", max_iter=max_iter, pairwise=True)
    if isinstance(model, BoltzmannMachine):
        return propagate_on_graph(options, model, field, clamp)
    if not isinstance(model, RBM):
        raise TypeError(f"model must be an RBM or a BoltzmannMachine, got {type(model).__name__}.")
    return propagate_on_layers(options, model, field, clamp)
