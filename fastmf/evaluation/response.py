"""Linear response of fixed points: derivatives of all means with respect to all fields.

In naive mean field, TAP and adaptive TAP, units have the tilts b = field + J m + a m and a, where a
is a function of the variances v. The derivatives of the moments of each unit by its tilts give

    dm = v db + M da,    dv = V db + U da,    db = dfield + J dm + a dm + m da,    da = S dv,
    M = -V / 2 - m v,    S = 0,    -J o J    or    (C o C)^-1 - diag(1 / v^2),

where o is the elementwise product and C the covariance of the Gaussian of adaptive TAP. For belief
propagation, the inverse of dm / dfield is the Hessian of the Bethe free energy: the sum over edges
of the inverse covariance of two units, minus (number of neighbours - 1) / v for each unit.
"""

import numpy as np

from fastmf._common.arguments import refusing_overflow
from fastmf._common.linalg import LinAlgError, cholesky
from fastmf._common.rows import is_sparse
from fastmf.inference.bp.beliefs import Beliefs
from fastmf.inference.ep.result import ExpectationPropagation
from fastmf.inference.fixed_point import FixedPoint
from fastmf.models.boltzmann import check_machine
from fastmf.models.layered import Layered
from fastmf.priors._groups import has_groups
from fastmf.priors._queries import two_values
from fastmf.priors.concatenated import concatenate


@refusing_overflow
def susceptibility(model, result):
    """Compute the linear response d mean_i / d field_j, an estimate of the covariance of units.

    Parameters
    ----------
    model : RBM, DBM or BoltzmannMachine
    result : FixedPoint
        Result of `tap` (order 1 or 2), `adaptive_tap` or, with pairwise=True and two-valued units,
        `belief_propagation`; use tol=1e-12 for eight digits.

    Returns
    -------
    array of shape (n_units, n_units) or (n_rows, n_units, n_units)
        Units in the order of the layers; zeros for clamped units. The sum of its elements is the
        response of the sum of all means to a uniform field.

    Raises
    ------
    ValueError, TypeError, FloatingPointError
        If the result has not converged or is not stable (the matrix is not positive definite); if
        units or the solver are not supported; with an external precision; or if numbers overflow.

    Notes
    -----
    Opper & Winther (2001); Welling & Teh (2004) for belief propagation, which is exact on trees.
    For `model.at_temperature(T)` it is T times the susceptibility to the fields of `model`.

    Examples
    --------
    >>> import numpy as np, fastmf as mf
    >>> chain = mf.BoltzmannMachine([[0.0, 0.5], [0.5, 0.0]], mf.Ising(np.zeros(2)))
    >>> result = mf.belief_propagation(chain, pairwise=True)
    >>> mf.evaluation.susceptibility(chain, result).round(4).tolist()
    [[1.0, 0.4621], [0.4621, 1.0]]
    """
    check_machine(model)
    if not isinstance(result, FixedPoint):
        raise TypeError(f"result must be a FixedPoint of the model, got {type(result).__name__}.")
    if not np.all(result.converged):
        raise ValueError("susceptibility: the result has not converged.")
    J, mean, var = _couplings(model), _flat(result.mean), _flat(result.var)
    if mean.shape[1] != len(J):
        raise ValueError(f"result must be of {model!r}, got means of {mean.shape[1]} units.")
    response = _bethe_response if isinstance(result, Beliefs) else _mean_field_response
    rows = []
    for k in range(len(mean)):
        free, matrix = var[k] > 0, np.zeros(J.shape)
        try:
            chi = response(model, result, k, J, mean[k], var[k])[np.ix_(free, free)]
            cholesky((chi + chi.T) / 2)
        except LinAlgError:
            raise ValueError("susceptibility: the solution is not stable.") from None
        matrix[np.ix_(free, free)] = (chi + chi.T) / 2
        rows.append(matrix)
    return rows[0] if np.ndim(result.converged) == 0 else np.stack(rows)


def _flat(x):
    """Concatenate the values of all layers, one row for each row of the result."""
    return np.atleast_2d(np.concatenate(x, -1) if isinstance(x, tuple) else x).astype(np.float64)


def _couplings(model):
    """Return the couplings of all units in the order of the layers, as a dense matrix."""
    if not isinstance(model, Layered):
        J = model.couplings
        return (J.toarray() if is_sparse(J) else J).astype(np.float64)
    starts = np.cumsum([0, *model.sizes])
    J = np.zeros((starts[-1],) * 2)
    for k, weights in enumerate(model.couplings):
        J[starts[k] : starts[k + 1], starts[k + 1] : starts[k + 2]] = weights
    return J + J.T


def _bethe_response(model, result, k, J, m, v):
    """Invert the Hessian of the Bethe free energy."""
    n_axes = np.ndim(result.converged) + 1 + isinstance(model, Layered)  # less for means over rows
    if np.ndim(result.pairwise) != n_axes or not all(map(two_values, model.layers)):
        raise TypeError("susceptibility: needs pairwise=True and units of two values.")
    if isinstance(model, Layered):
        i, j = np.nonzero(model.weights)
        pairs, j = result.pairwise[..., i, j], j + len(model.weights)
    else:
        (i, j), pairs = result.edges.T, result.pairwise
    both = (v[i] > 0) & (v[j] > 0)
    i, j = i[both], j[both]
    c = np.atleast_2d(pairs)[k, both] - m[i] * m[j]
    determinant = v[i] * v[j] - c * c
    hessian = np.diag(1 / np.where(v > 0, v, 1))
    np.add.at(hessian, (i, i), v[j] / determinant - 1 / v[i])
    np.add.at(hessian, (j, j), v[i] / determinant - 1 / v[j])
    hessian[i, j] = hessian[j, i] = -c / determinant
    return np.linalg.inv(hessian)


def _mean_field_response(model, result, k, J, m, v):
    """Differentiate the fixed-point equations of means and variances."""
    if result.b is None or any(map(has_groups, model.layers)):
        raise TypeError("susceptibility: needs one solution, of units without groups of states.")
    n, b, a = len(m), _flat(result.b)[k], _flat(result.a)[k]
    free = v > 0
    v = np.where(free, v, 1.0)
    if isinstance(result, ExpectationPropagation):
        precision = np.reshape(result.sites, (-1, 2, n))[k, 1]
        if isinstance(model, Layered):  # sites are ordered with even layers first
            precision = np.concatenate([precision[units] for units in model.bounds])
        C, onsager = np.linalg.inv(np.diag(precision) - J), 1 / v - precision
        slope, error = np.linalg.inv(C * C) - np.diag(1 / v**2), abs(C.diagonal() / v - 1).max()
    else:
        # Naive mean field has no Onsager terms.
        onsager = -(J * J) @ (v * free)
        slope = -J * J
        if abs(a)[free].max(initial=0) <= abs(onsager - a)[free].max(initial=0):
            onsager, slope = np.zeros(n), np.zeros_like(J)
        error = (abs(onsager - a) / (1 + abs(a)))[free].max(initial=0)
    if error > 1e-3:
        raise ValueError(
            "susceptibility: the result is no solution of the model by tap (order 1 or 2) or "
            "adaptive_tap without an external precision."
        )
    V, U = (np.where(free, x, 0.0) for x in _slopes_of_variance(model, b, a, v))
    M, v = np.where(free, -V / 2 - m * v, 0), v * free
    columns = (v, V), (v * m + M, V * m + U)
    by_field, by_slope = (np.vstack([np.diag(x) for x in pair]) for pair in columns)
    system = np.eye(2 * n) - np.hstack([by_field @ (J + np.diag(onsager)), by_slope @ slope])
    return np.linalg.solve(system, by_field)[:n]


def _slopes_of_variance(model, b, a, v):
    """Yield derivatives of variances by b and a: sixth-order differences with the best step."""
    moments = concatenate(list(model.layers)).moments
    fractions = 2.0 ** -np.arange(3, 24)[:, None]
    for is_b in (True, False):
        steps, total = fractions / (np.sqrt(v) if is_b else v), 0.0
        with np.errstate(all="ignore"):
            for times, weight in ((1, 3 / 4), (2, -3 / 20), (3, 1 / 60)):
                ends = (times * s * steps for s in (1, -1))
                up, down = (moments(b + x * is_b, a + x * (not is_b))[1] for x in ends)
                total = total + weight * (up - down) / steps
            changes = np.nan_to_num(abs(np.diff(total, axis=0)), nan=np.inf)
        yield total[changes.argmin(0), np.arange(len(b))]
