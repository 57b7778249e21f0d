"""Log-pseudo-likelihood of RBMs."""

import numpy as np

from fastmf._common.arguments import refusing_overflow
from fastmf._threads.workers import one_blas_thread
from fastmf.models import RBM
from fastmf.models._checks import visible_rows
from fastmf.priors._protocol import take
from fastmf.priors._queries import columns_of_values


@refusing_overflow
def pseudo_log_likelihood(model, X):
    """Compute the log-pseudo-likelihood, the sum over visible units of log P(unit | other units).

    Parameters
    ----------
    model : RBM
        Visible units must be discrete (priors with a `support`); hidden units of any kind are
        summed out exactly.
    X : array of shape (n_rows, n_visible)
        Rows of data; labels or one-hot states for categorical units, whose groups are one unit.

    Returns
    -------
    array of shape (n_rows,), float64
        In nats.

    Raises
    ------
    ValueError, FloatingPointError
        If X has values outside the support of the visible units, or numbers overflow.
    TypeError
        If the model is not an RBM with discrete visible units.

    Notes
    -----
    Besag (1975). The log-partition is not needed; the cost is one evaluation of all hidden units
    for each value of each visible unit. The sum is exact, whereas scikit-learn's
    `BernoulliRBM.score_samples` estimates it from one random unit of each row.

    Examples
    --------
    >>> import numpy as np, fastmf as mf
    >>> model = mf.RBM(np.zeros((4, 2)), mf.Ising(np.zeros(4)), mf.Ising(np.zeros(2)))
    >>> found = mf.evaluation.pseudo_log_likelihood(model, np.ones((2, 4)))
    >>> np.allclose(found, -4 * np.log(2))
    True
    """
    columns = columns_of_values(model.visible) if isinstance(model, RBM) else None
    if columns is None:
        raise TypeError(
            "model must be an RBM with discrete visible units, got "
            f"{model if isinstance(model, RBM) else type(model).__name__}."
        )
    return _sums_of_columns(model, columns, visible_rows("X", model, X))


@one_blas_thread()
def _sums_of_columns(model, columns, X):
    """Sum over the units, or groups; `columns` has the values of each."""
    first, zero = 0, model.dtype.type(0)
    fields = X @ model.weights
    current = model.hidden.log_partition(fields, zero).sum(-1, dtype=np.float64)
    total = model.visible.log_prob(X).sum(1, dtype=np.float64) + len(columns) * current
    for values in columns:
        units = slice(first, first + values.shape[1])
        prior, first = take(model.visible, units), units.stop
        log_weights = np.empty((len(values), len(X)))
        for log_weight, value in zip(log_weights, values.astype(model.dtype), strict=True):
            changed = (X[:, units] != value).any(1)
            new = fields[changed] + (value - X[changed, units]) @ model.weights[units]
            log_weight[:] = current
            log_weight[changed] = model.hidden.log_partition(new, zero).sum(-1, dtype=np.float64)
            log_weight += prior.log_prob(value).sum(dtype=np.float64)
        total -= np.logaddexp.reduce(log_weights, axis=0)
    return total
