"""Adaptive TAP: expectation propagation with couplings instead of data.

With couplings J, sites t = (B2, A2), cavities c = (B1, A1), and means a and variances v of the
units under their cavities (Opper & Winther 2005; Tramel et al. 2018, Algorithm 3),

    C = (diag(A2) - J)^-1,  v = diag C,  a = C B2
    A1 = 1 / v - A2,        B1 = a / v - B2
"""

import numpy as np
from scipy import linalg

from fastmf._common import arguments as check
from fastmf._common.arguments import iteration
from fastmf._outcomes import DIVERGED, LOST, MESSAGES
from fastmf._threads.workers import one_blas_thread
from fastmf.inference.ep.parallel import proper_start
from fastmf.inference.ep.result import (
    ExpectationPropagation,
    log_normaliser,
    result_of,
    stacked_rows,
)
from fastmf.inference.ep.schedules import SCHEDULES
from fastmf.inference.ep.sites import EPTrace, first_sites, problem_of
from fastmf.inference.fixed_point import Question, with_changes, with_check
from fastmf.inference.gaussian import gaussian_side
from fastmf.inference.gaussian.bipartite import Bipartite
from fastmf.inference.mean_field._layouts import layout_of, start_and_tilt
from fastmf.inference.mean_field.tap import tap
from fastmf.models.boltzmann import dense_machine
from fastmf.models.layered import Layered
from fastmf.priors._groups import NO_COVARIANCE, refuse_groups
from fastmf.priors._queries import directions, precisions, unbounded


def adaptive_tap(
    model,
    init=None,
    *,
    schedule="auto",
    field=None,
    precision=None,
    damping=None,
    tol=1e-8,
    max_iter=1000,
    history=False,
    n_threads=None,
):
    """Solve the adaptive TAP equations of a machine.

    Parameters
    ----------
    model : BoltzmannMachine, RBM or DBM
    init : None, "up", array, pair (mean, var) or FixedPoint
        Starting point, as in `tap`, from which one sweep of TAP gives the first sites. None: the
        uncoupled units. A result of `adaptive_tap`: its sites.
    schedule : {"auto", "convergent", "parallel"}, default "auto"
        As in `expectation_propagation`.
    field, precision : array or tuple of arrays, optional
        External tilt exp(field x - precision x^2 / 2), as in `tap`.
    damping, tol, max_iter, history, n_threads
        As in `expectation_propagation`.

    Returns
    -------
    ExpectationPropagation
        `mean`, `var`, `b` and `a` are tuples (visible, hidden, ...) for an RBM or DBM; `sites` has
        even layers first, shape (2, n_units) or (n_rows, 2, n_units).

    Raises
    ------
    ValueError, TypeError
        For arguments of wrong shapes, types or ranges, and if no sites make the Gaussian proper.
        Rows that do not converge raise no error: see `converged` and `message`.

    Notes
    -----
    Opper & Winther (2005); Tramel et al. (2018), Algorithm 3, with two corrections: the second half
    uses the fields of the previous step, and B2 = a1 / c1 - B1 in general. This is expectation
    propagation with couplings instead of a linear model: t = (B2, A2) are the sites, c = (B1, A1)
    the cavities, and the Gaussian has precision diag(A2) - J. A DBM is solved as `bipartite()`. For
    an RBM only a matrix of the size of the smaller layer is factorised. Exact for Gaussian units.
    In well-trained machines units are correlated, and the parallel schedule does not converge,
    whatever the damping; then "auto" descends on the energy, for binary units as a function of
    their means (`fastmf.inference.ep.mean_descent`), unless binary and other units are mixed.

    Examples
    --------
    >>> import numpy as np, fastmf as mf
    >>> rng = np.random.default_rng(0)
    >>> model = mf.RBM(rng.normal(size=(8, 5)) / 4, mf.Ising(np.zeros(8)), mf.Ising(np.ones(5) / 2))
    >>> result, exact = mf.adaptive_tap(model), mf.exact(model)
    >>> bool(result.converged), bool(abs(result.log_partition - exact.log_partition) < 0.05)
    (True, True)
    """
    check.one_of("schedule", schedule, ("auto", "convergent", "parallel"))
    damping, *options = iteration(damping, tol, max_iter, n_threads)
    model = dense_machine("adaptive_tap", model)
    refuse_groups("adaptive_tap", model.layers, NO_COVARIANCE)
    # The units are in the order of the layout.
    flat = model.bipartite() if isinstance(model, Layered) else model
    with np.errstate(over="ignore", invalid="ignore"):  # rows that meet an infinity say so
        common = problem_of(flat, -np.inf, *options)
        return _solved(model, common, init, (field, precision), schedule, damping, history)


def few_iterations(model, init, max_iter, damping=None, n_threads=None):
    """Run some iterations of the parallel schedule in the precision of the machine.

    In single precision this takes half of the time of `adaptive_tap`, and gives about six digits.
    """
    refuse_groups("adaptive_tap", model.layers, NO_COVARIANCE)
    common = problem_of(model, -np.inf, max_iter=max_iter, n_threads=n_threads)
    common = common._replace(side=_side_as_it_is(model))
    return _solved(model, common, init, (None, None), "parallel", damping, False)


def _side_as_it_is(model):
    """Make the Gaussian side of an RBM in the precision of its weights."""
    return Bipartite(model.weights) if model.n_hidden else gaussian_side(model)


def _solved(model, common, init, tilts, schedule, damping, history):
    """Solve all rows, given the problem that they have in common."""
    sites = None
    if isinstance(init, ExpectationPropagation):
        sites, init = init.sites, None
    start, tilt, outside, single = _start_and_tilt(model, init, sites, *tilts)
    side = common.side
    problems = [common._replace(side=side.tilted(of_row), evaluations=[0]) for of_row in tilt]
    if sites is None:
        of_prior = common.prior.moments(*np.zeros((2, side.n_units)))
        starts = [_first_sites(common, of_row, of_prior) for of_row in np.moveaxis(start, 1, 0)]
    else:
        # A copy, because kernels would be compiled once more for read-only arrays.
        sites = np.broadcast_to(sites, (len(tilt), 2, side.n_units)).copy()
        starts = [(site, np.zeros(side.n_units)) for site in sites]
    normaliser, rows = log_normaliser(common), []
    # Without external precisions all rows have one matrix.
    matrices = problems[:1] if tilts[1] is None else problems
    divergent = np.resize(list(map(_is_divergent, matrices)), len(problems))
    with one_blas_thread(side.n_units):
        for problem, first, has_no_moments in zip(problems, starts, divergent, strict=True):
            trace, state = EPTrace(history), proper_start(problem, *first)
            end = state, DIVERGED, 0
            if not has_no_moments:
                end = SCHEDULES[schedule](problem, state, damping, trace)
            rows.append(result_of(problem, end, trace, normaliser))
    result = rows[0] if single else stacked_rows(rows)
    from_uncoupled = start is not None and init is None
    return with_check(_in_model_type(model, result), Question(model, outside, from_uncoupled))


def _is_divergent(problem):
    """Return whether no moments exist: the exponent rises in a direction of unbounded units."""
    units = unbounded(problem.prior)
    if not units.any():
        return False
    side, precision = problem.side.among(units), np.where(units, precisions(problem.prior), 1.0)
    if side.inverse(precision) is not None:
        return False
    matrix = side.dense().precision + np.diag(precision)
    matrix, signs = matrix[np.ix_(units, units)], directions(problem.prior)[units]
    vector = linalg.eigh(matrix, subset_by_index=[0, 0])[1][:, 0]
    # Units with one bound have large values of one sign only.
    possible = [np.where(signs * x < 0, 0, x) for x in (vector, -vector)]
    return any(x.any() and x @ matrix @ x <= 0 for x in possible)


def _in_model_type(model, result):
    """Split a result into layers, in the type of the model; rows that overflow did not converge."""
    split, names = layout_of(model, 2, "blocked").split, ("mean", "var", "b", "a")
    with np.errstate(over="ignore"):
        parts = {name: getattr(result, name).astype(model.dtype, copy=False) for name in names}
    finite = np.all([np.isfinite(part).all(-1) for part in parts.values()], axis=0)
    fields = {name: split(part) for name, part in parts.items()}
    if not finite.all():
        lost = result.converged & ~finite
        fields["converged"] = result.converged & finite
        fields["message"] = np.where(lost, MESSAGES[LOST], result.message)
    return with_changes(result, **fields)


def mean_covariance(model, solutions, precision=0.0):
    """Compute the covariances of visible with hidden units, averaged over rows."""
    sites = np.array(solutions.sites).reshape(-1, 2, sum(model.weights.shape))
    sites[:, 1] += precision
    return _side_as_it_is(model).mean_covariance(sites)


def _start_and_tilt(model, init, sites, field, precision):
    """Return starting moments, the external tilt in two forms, and whether there is no row axis."""
    layout = layout_of(model, 2, "blocked")
    start, outside, n_rows = start_and_tilt(model, layout, init, field, precision, None)
    if sites is not None:
        if sites.shape[-1] != layout.n_units:
            raise ValueError(f"init has sites of {sites.shape[-1]} units, not {layout.n_units}.")
        if sites.ndim == 3 and n_rows not in (None, 1, len(sites)):
            raise ValueError(f"init has {len(sites)} rows of sites, but field has {n_rows}.")
        n_rows = len(sites) if sites.ndim == 3 else n_rows
    tilt = np.zeros((n_rows or 1, 2, layout.n_units))
    for k, part in enumerate((outside.field, outside.precision)):
        if part.size:
            tilt[:, k] = part
    if sites is not None:
        return None, tilt, outside, n_rows is None
    if init is None:
        return start.astype(np.float64), tilt, outside, n_rows is None
    moments = tuple(layout.split(part) for part in start[:2])
    options = {"max_iter": 1, "acceleration": False, "log_partition": False}
    swept = tap(model, moments, field=field, precision=precision, **options)
    start = np.zeros(start.shape)
    for plane, part in zip(start, (swept.mean, swept.var, swept.b, swept.a), strict=True):
        layout.join(part if isinstance(part, tuple) else (part,), plane)
    return start, tilt, outside, n_rows is None


def _first_sites(problem, swept, of_prior):
    """Return sites and means of one row; units without moments in TAP use their priors."""
    mean, var, b, a = swept
    exist = np.isfinite(swept).all(0) & (var > 0)
    mean, var = (np.where(exist, *pair) for pair in zip((mean, var), of_prior, strict=True))
    return first_sites(problem, mean, var, np.where(exist, [b, a], 0))
