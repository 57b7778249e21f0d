"""Contact scores from couplings, and effective couplings mediated by hidden units of an RBM."""

import numpy as np

from fastmf._common.arguments import count, flag, generator, number, one_of, real_array, row_weights
from fastmf._threads.workers import in_parallel, workers_for
from fastmf.kernels.linear.product import new_work
from fastmf.kernels.sampling.effective_couplings import effective_couplings as fill
from fastmf.learning.pseudo_likelihood.potts.couplings import average_product_corrected, norms
from fastmf.learning.training.trainer import resampled_rows
from fastmf.models import RBM
from fastmf.models._checks import visible_rows
from fastmf.models._gauge import in_gauge
from fastmf.priors._compiled import units_of
from fastmf.priors._groups import as_labels, column_is_group


def contact_scores(couplings, gauge="zero-sum", ignore=None, apc=True, *, sizes=None):
    """Compute the Frobenius norms of the couplings of all pairs of positions.

    Parameters
    ----------
    couplings : array of shape (n_groups, q, n_groups, q), or (n_states, n_states) with `sizes`
        Symmetric, for example the result of `effective_couplings`.
    gauge : {"zero-sum", None}, default "zero-sum"
        None: the couplings as given.
    ignore : int, optional
        Index of a state, such as the gap, that is omitted from the norms.
    apc : bool, default True
        Average product correction: subtract ``F_i. F_.j / F_..`` (Dunn, Wahl & Gloor 2008).
    sizes : int array of shape (n_groups,), optional
        Number of states of each position, for couplings of shape (n_states, n_states).

    Returns
    -------
    array of shape (n_groups, n_groups)
        Symmetric, with zero diagonal.

    Examples
    --------
    >>> import numpy as np
    >>> import fastmf as mf
    >>> couplings = np.zeros((3, 2, 3, 2))
    >>> couplings[0, :, 2] = couplings[2, :, 0] = [[1, -1], [-1, 1]]
    >>> mf.evaluation.contact_scores(couplings, apc=False)[0].tolist()
    [0.0, 0.0, 2.0]
    """
    one_of("gauge", gauge, ("zero-sum", None))
    couplings, apc = real_array("couplings", couplings), flag("apc", apc)
    if sizes is not None:
        sizes = real_array("sizes", sizes)
        if sizes.dtype.kind not in "iu" or sizes.ndim != 1:
            raise TypeError(f"sizes must be an integer for each group, got {sizes!r:.60}.")
    if couplings.ndim == 4 and couplings.size and sizes is None:
        sizes = np.full(couplings.shape[0], couplings.shape[1])
        couplings = couplings.reshape(int(sizes.sum()), -1)
    n_states = 0 if sizes is None else int(np.sum(sizes))
    if couplings.shape != (n_states, n_states) or not np.isfinite(couplings).all():
        raise ValueError(
            "couplings must be finite and have shape (n_groups, q, n_groups, q), or with sizes "
            f"(n_states, n_states), got {couplings.shape}."
        )
    if ignore is not None and count("ignore", ignore, 0) >= np.max(sizes):
        raise ValueError(f"ignore must be a state, below {np.max(sizes)}, got {ignore}.")
    scores = norms(couplings, sizes, gauge, ignore)
    return average_product_corrected(scores) if apc else scores


def contact_precision(scores, distances, n_top, separation=5, cutoff=8.0):
    """Compute the share of true contacts among the pairs with the largest scores (PPV).

    Parameters
    ----------
    scores, distances : array of shape (n_columns, n_columns)
        Symmetric; pairs whose distance is NaN are ignored.
    n_top : int or array of int
        Number of pairs with the largest scores.
    separation : int, default 5
        Smallest ``|i - j|`` of the pairs considered.
    cutoff : float, default 8.0
        Pairs at a smaller distance are contacts; usually in Angstrom.

    Returns
    -------
    precision : float or array
        Precision, of the shape of `n_top`. Pairs with equal scores are in the order of columns.

    Notes
    -----
    F. Morcos et al., PNAS 108 (2011) E1293-E1301.

    Examples
    --------
    >>> import numpy as np
    >>> import fastmf as mf
    >>> positions = np.arange(8.0)
    >>> distances = 5 * abs(positions[:, None] - positions)
    >>> scores = -distances
    >>> mf.evaluation.contact_precision(scores, distances, [7, 14], separation=1)
    array([1. , 0.5])
    """
    separation = count("separation", separation)
    scores, distances = _square("scores", scores), _square("distances", distances)
    if scores.shape != distances.shape:
        raise ValueError(
            f"scores and distances must have one shape, got {scores.shape} and {distances.shape}."
        )
    cutoff = number("cutoff", cutoff, -np.inf, np.inf)
    first, second = ranked_pairs(scores, separation, ~np.isnan(distances))
    n_top = real_array("n_top", n_top)
    if n_top.dtype.kind not in "iu" or n_top.size == 0:
        raise TypeError(f"n_top must be an int or an array of them, got {n_top!r:.60}.")
    if n_top.min() < 1 or n_top.max() > len(first):
        raise ValueError(
            f"n_top must be between 1 and the {len(first)} pairs of columns at least {separation} "
            f"apart with a distance, got {n_top.min()} to {n_top.max()}."
        )
    hits = np.cumsum(distances[first, second] < cutoff)
    precision = hits[n_top - 1] / n_top
    return precision if n_top.ndim else float(precision)


def ranked_pairs(scores, separation=5, allowed=None):
    """Sort pairs of columns by decreasing score.

    Parameters
    ----------
    scores : array of shape (n_columns, n_columns)
        Symmetric.
    separation : int, default 5
        Smallest ``|i - j|`` of the pairs.
    allowed : bool array of shape (n_columns, n_columns), optional
        Pairs that are False are omitted.

    Returns
    -------
    first, second : int array of shape (n_pairs,)
        ``first < second``; pairs with equal scores are in the order of columns.

    Examples
    --------
    >>> import numpy as np
    >>> from fastmf.evaluation import ranked_pairs
    >>> ranked_pairs(np.array([[0, 1, 2], [1, 0, 3], [2, 3, 0]]), separation=1)
    (array([1, 0, 0]), array([2, 2, 1]))
    """
    scores = _square("scores", scores)
    first, second = np.triu_indices(len(scores), count("separation", separation))
    if allowed is not None:
        allowed = real_array("allowed", allowed)
        if allowed.shape != scores.shape:
            raise ValueError(f"allowed must have shape {scores.shape}, got {allowed.shape}.")
        keep = allowed.astype(bool)[first, second]
        first, second = first[keep], second[keep]
    values = scores[first, second]
    if np.isnan(values).any():
        raise ValueError("scores must not be NaN for pairs that count.")
    order = np.argsort(-values, kind="stable")
    return first[order], second[order]


def _square(name, values):
    values = real_array(name, values, missing=True)
    if values.ndim != 2 or values.shape[0] != values.shape[1]:
        raise ValueError(f"{name} must have shape (n_columns, n_columns), got {values.shape}.")
    values = values.astype(np.float64)
    if not np.allclose(values, values.T, rtol=1e-4, equal_nan=True):
        raise ValueError(f"{name} must be symmetric.")
    return values


def effective_couplings(model, X, *, n_background=50, sample_weight=None, n_threads=None, rng=0):
    """Compute effective couplings between the visible groups of an RBM, in the zero-sum gauge.

    Parameters
    ----------
    model : RBM
        Visible units must be categorical; hidden units of any kind are summed out exactly.
    X : array of shape (n_rows, n_groups)
        Labels of background sequences, over which couplings are averaged.
    n_background : int, default 50
        Number of rows of `X` that are drawn as background.
    sample_weight : array of shape (n_rows,), optional
        Rows are drawn, repeatedly if need be, in proportion to these weights.
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
    groups. For Gaussian hidden units it is W V^-1 W' for any background.

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
    chosen = rng.permutation(len(flat))[: count("n_background", n_background)]
    if sample_weight is not None:
        chosen = resampled_rows(row_weights(sample_weight, len(flat)), n_background, rng.random())
    n = len(chosen)
    starts = np.append(visible.starts, model.n_visible).astype(np.int64)
    states = starts[:-1] + as_labels(visible, flat[chosen])
    out, weights = np.zeros((model.n_visible, model.n_visible)), model.weights
    units = units_of(model.hidden, model.dtype, ("log_partition",))
    work = 10 * n * out.size * model.n_hidden // 2
    n_workers = workers_for(visible.n_groups, work, n_threads)
    memory = new_work(np.zeros((n_workers, 5, model.n_hidden), model.dtype))
    arguments = units, weights, starts, flat[chosen] @ weights, states, memory, out
    in_parallel(fill, arguments, n_workers)
    out /= n
    couplings, _ = in_gauge(out + out.T, np.zeros(model.n_visible), visible.sizes, "zero-sum")
    if (visible.sizes == visible.sizes[0]).all():
        shape = visible.n_groups, int(visible.sizes[0])
        return couplings.reshape(*shape, *shape)
    return couplings
