"""Log-likelihood and log-partition of a layered machine; its hidden layers given data."""

from typing import NamedTuple

import numpy as np

from fastmf._common.arguments import number, refusing_overflow
from fastmf._common.rows import canonical, is_sparse
from fastmf.inference.fixed_point import FixedPoint
from fastmf.inference.mean_field.gaussian_layers import collapsed_tap
from fastmf.inference.mean_field.solutions import distinct, phases
from fastmf.models import DBM, RBM
from fastmf.models._checks import visible_rows
from fastmf.models.layered import check_layered, machine_of
from fastmf.priors._protocol import n_units
from fastmf.priors._values import data_fields, log_prob_of_rows

ESTIMATES = ("log_sum_exp", "mean")


@refusing_overflow
def log_likelihood(model, X, log_partition, **options):
    """Compute the log-likelihood of each row of data, given the log-partition of the model.

    Parameters
    ----------
    model : RBM or DBM
    X : array or SciPy sparse matrix of shape (n_rows, n_visible)
        Entries between the two values of a binary unit, such as grey levels, are probabilities of
        the upper value; the result is then at most the average log-likelihood of rows drawn with
        these probabilities. Categorical units: labels, or probabilities of the states.
    log_partition : float
        Log-partition of the model, for instance from `annealed_importance_sampling`.
    **options
        Options of `tap`, for the hidden layers of a DBM given data; the units of an RBM are summed
        exactly.

    Returns
    -------
    array of shape (n_rows,), float64
        In nats; -inf for rows outside the support, or if their squares overflow.

    Raises
    ------
    ValueError, TypeError, FloatingPointError
        For arguments of wrong shapes, types or ranges, such as entries of a binary unit outside the
        interval of its two values, and for numbers that overflow.

    Notes
    -----
    Tramel et al. (2018), Eq. 39; for deep machines, whose likelihood Appendix E does not print, the
    log-partition given the data takes the place of the sum over hidden units.

    Examples
    --------
    >>> import numpy as np, fastmf as mf
    >>> model = mf.RBM(np.zeros((3, 2)), mf.Bernoulli(np.zeros(3)), mf.Bernoulli(np.zeros(2)))
    >>> log_z = mf.exact(model).log_partition
    >>> values = mf.evaluation.log_likelihood(model, np.array([[0.0, 1.0, 1.0]]), log_z)
    >>> np.allclose(values, -3 * np.log(2))
    True
    """
    check_layered(model)
    X = _checked_rows(model, X)
    log_partition = number("log_partition", log_partition, -np.inf, np.inf)
    with np.errstate(over="ignore", invalid="ignore"):  # overflow gives -inf
        visible = log_prob_of_rows(model.layers[0], X, model.dtype)
        if model.deep:
            hidden = posterior(model, X, **options).solutions.log_partition
        else:
            b = data_fields(model.layers[0], X, model.couplings[0], options.get("n_threads"))
            hidden = model.layers[1].log_partition(b, b.dtype.type(0)).sum(1, dtype=np.float64)
        return np.where(np.isfinite(visible), visible + hidden - log_partition, -np.inf)


def _checked_rows(model, X):
    """Check rows of data; return sparse ones as a CSR array, dense ones as values of all units."""
    n_visible = n_units(model.layers[0])
    if not is_sparse(X):
        return visible_rows("X", model, X, support=False)
    X = canonical(X)
    if X.shape[1] != n_visible or not X.shape[0]:
        raise ValueError(f"X must have shape (n_rows, {n_visible}), got {X.shape}.")
    X = X.astype(model.dtype, copy=False)
    if not np.isfinite(X.data).all():
        raise ValueError(f"X must be finite, got NaN or infinity in {X.dtype}.")
    return X


def log_partition_estimate(model, solutions, how="log_sum_exp", order=None):
    """Estimate the log-partition of a model from its mean-field solutions.

    "log_sum_exp" counts distinct solutions as phases; with an order, all without barriers count
    once (`phases`). "mean" averages, as Tramel et al. (2018) do.
    """
    if order is not None and how == "log_sum_exp":
        _, values = phases(model, solutions, order)
    else:
        rows, _ = distinct(model.layers[0], solutions)
        values = np.asarray(solutions.log_partition, dtype=np.float64)[rows]
        values = values[np.isfinite(values)]
    if not len(values):
        return np.inf
    return float(values.mean() if how == "mean" else np.logaddexp.reduce(values))


class Posterior(NamedTuple):
    """Result of `posterior`."""

    model: RBM | DBM  # RBM or DBM: the machine without its visible layer
    # Solutions of that machine, a row for each row of data; `log_partition` is the log of the sum
    # over hidden states, without the prior of the visible units.
    solutions: FixedPoint


def posterior(model, X, **options):
    """Solve the hidden layers of a deep machine, given data, by mean field.

    Tramel et al. (2018), Appendix E: data enter as a field on the first hidden layer; their
    variance is zero, so that they add no Onsager term.
    """
    first, *above = model.couplings
    hidden = machine_of(above, model.layers[1:])
    field = data_fields(model.layers[0], X, first, options.get("n_threads"))
    return Posterior(hidden, collapsed_tap(hidden, field=field, **options))
