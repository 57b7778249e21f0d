"""Couplings between the visible groups of an RBM, as its hidden units mediate them."""

import numpy as np

from fastmf._common.arguments import count, generator, row_weights
from fastmf._threads.workers import in_parallel, workers_for
from fastmf.kernels.sampling.effective_couplings import effective_couplings as fill
from fastmf.models import RBM
from fastmf.models._checks import visible_rows
from fastmf.models._gauge import in_gauge
from fastmf.priors._compiled import units_of
from fastmf.priors._groups import as_labels, column_is_group


def effective_couplings(model, X, *, n_background=50, sample_weight=None, n_threads=None, rng=0):
    """Pair couplings of the visible groups of an RBM in the zero-sum gauge.

    Parameters
    ----------
    model : RBM
        With categorical visible units, and any hidden units, which are summed exactly.
    X : array of shape (n_rows, n_groups)
        Labels of background sequences: couplings are averaged over them.
    n_background : int, default 50
        Number of rows of `X` that are drawn as background.
    sample_weight : array of shape (n_rows,), optional
        Rows are drawn in proportion to it.
    n_threads : int, optional
    rng : numpy.random.Generator or int, default 0

    Returns
    -------
    array of shape (n_groups, q, n_groups, q), or (n_states, n_states) for groups of unequal sizes
        Symmetric, zero within groups.

    Raises
    ------
    TypeError
        If the model is not an RBM whose visible units are all categorical.
    ValueError
        If rows are incomplete.

    Notes
    -----
    J_ij(a, b) is the zero-sum part, over a and b, of the mean over background rows of
    sum_k log Z_k(I_k + W_iak + W_jbk), where I is the field on the hidden units of all other
    groups. For Gaussian hidden units it is W V^-1 W' whatever the background.

    Examples
    --------
    >>> import numpy as np, fastmf as mf
    >>> weights = np.array([[1.0], [-1.0], [0.5], [-0.5]])
    >>> model = mf.RBM(weights, mf.Categorical(np.zeros((2, 2))), mf.Gaussian(0.0, [1.0]))
    >>> mf.evaluation.effective_couplings(model, [[0, 1]])[0, :, 1].tolist()
    [[0.5, -0.5], [-0.5, 0.5]]
    """
    if not isinstance(model, RBM) or not column_is_group(model.visible).all():
        raise TypeError("model must be an RBM whose visible units are all categorical.")
    visible, rng = model.visible, generator(rng, optional=True)
    n_threads = count("n_threads", n_threads, optional=True)
    flat = visible_rows("X", model, X, support=False)
    weights = row_weights(1.0 if sample_weight is None else sample_weight, len(flat))
    n = min(count("n_background", n_background), np.count_nonzero(weights))
    probabilities = None if sample_weight is None else weights / weights.sum()
    chosen = rng.choice(len(flat), n, replace=False, p=probabilities)
    starts = np.append(visible.starts, model.n_visible).astype(np.int64)
    states = starts[:-1] + as_labels(visible, flat[chosen])
    out, weights = np.zeros((model.n_visible, model.n_visible)), model.weights
    units = units_of(model.hidden, model.dtype, ("log_partition",))
    arguments = units, weights, starts, flat[chosen] @ weights, states, np.zeros(1, np.int64), out
    work = 10 * n * out.size * model.n_hidden // 2
    in_parallel(fill, arguments, workers_for(visible.n_groups, work, n_threads))
    fields = np.zeros(model.n_visible)
    couplings, _ = in_gauge(out + out.T, fields, visible.sizes, "zero-sum")
    if (visible.sizes == visible.sizes[0]).all():
        shape = visible.n_groups, int(visible.sizes[0])
        return couplings.reshape(*shape, *shape)
    return couplings
