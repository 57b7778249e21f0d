"""Expectation propagation for sparse linear models.

The posterior N(y; X w, s2 I) prod p_i(w_i) is approximated by a Gaussian with sites
exp(t1 w - t2 w^2 / 2) in the place of the priors p_i. With the cavity c = marginal less site of
every unit, the fixed point is where

    moments of p_i(w) exp(c1 w - c2 w^2 / 2)  =  moments of the Gaussian, for every unit

See `sites` for the state and the energy, `schedules` for the iterations.
"""

from dataclasses import replace

import numpy as np

from fastmf._common import arguments as check
from fastmf._common.arguments import iteration
from fastmf._threads.workers import one_blas_thread
from fastmf.inference.ep.block_partition import (
    MAX_CUTS,
    MAX_JOINS,
    FoundBlocks,
    blocks_of,
    full_blocks,
    joined_blocks,
    may_stay_whole,
    sharing_blocks,
    without_full_blocks,
)
from fastmf.inference.ep.block_schedules import solve_with_blocks
from fastmf.inference.ep.block_sweeps import MAX_BARREN_ITERATIONS
from fastmf.inference.ep.parallel import proper_start, run_one
from fastmf.inference.ep.posterior_check import PosteriorCheck
from fastmf.inference.ep.result import ExpectationPropagation, result_of
from fastmf.inference.ep.schedules import SCHEDULES, descent
from fastmf.inference.ep.sites import EPTrace, first_sites, problem_of, state_of
from fastmf.inference.fixed_point import with_check
from fastmf.inference.gaussian import order_of
from fastmf.models import SparseLinearModel
from fastmf.priors import GaussBernoulli
from fastmf.priors._protocol import n_units, parts_of

# Tolerance, and iterations, of the fit with single sites by which blocks are found.
LEAD_TOL, LEAD_ITERATIONS = 1e-2, 15
# Iterations without progress after which blocks are joined.
JOIN_PATIENCE = 8


def expectation_propagation(
    model,
    init=None,
    *,
    schedule="parallel",
    blocks=None,
    damping=None,
    site_precision_min=None,
    tol=1e-8,
    max_iter=1000,
    history=False,
    n_threads=None,
):
    """Approximate the posterior of a sparse linear model by expectation propagation.

    Parameters
    ----------
    model : SparseLinearModel
    init : None, array of shape (2, n_units) or ExpectationPropagation
        Initial sites. None: sites that match the moments of the prior.
    schedule : {"parallel", "sequential", "convergent", "auto"}, default "parallel"
        Update all sites at once; one site after another, by rank-one updates; or descend on an
        energy that never increases. "auto" descends where parallel updates make no progress.
    blocks : None, "auto" or array of shape (n_features,), optional
        Labels of features that share a site and a sum over their inclusion patterns, for correlated
        features, whose posterior has several modes. "auto" chooses blocks around features with an
        effect. None: single sites. The prior must be a GaussBernoulli.
    damping : float in [0, 1), optional
        Weight of the previous sites. None: adaptive in parallel updates, 0 in sequential ones.
    site_precision_min : float, optional
        Lower bound of the precisions of sites (Eq. 13). None: no bound, so that solutions are fixed
        points.
    tol : float, default 1e-8
        Tolerance of convergence; see the notes of `FixedPoint`.
    max_iter : int, default 1000
        Iterations, sweeps, or inner iterations of the double loop.
    history : bool, default False
        Store the residual and the energy of every iteration.
    n_threads : int, optional
        Threads of compiled kernels; results do not depend on it.

    Returns
    -------
    ExpectationPropagation
        `mean` and `var` are moments of the units under the tilts `b` and `a`, their cavities.
        `reliable` compares inclusion probabilities with sums or chains over models.

    Raises
    ------
    ValueError, TypeError
        If arguments have wrong shapes, types or ranges.

    Notes
    -----
    Hernández-Lobato & Hernández-Lobato (2011). The convergent schedule descends on their energy as
    a function of the moments (`fastmf.inference.ep.moment_descent`), with the same stationary
    points; `fastmf.inference.ep.double_loop` has their double loop, for bounded precisions. Blocks
    sum over all patterns of up to 11 features; `full_probability` is the weight of the largest
    patterns. An iteration takes O(n_samples^2 n_features), or O(n_features^3) where that is less.

    Examples
    --------
    >>> import numpy as np, fastmf as mf
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(30, 50))
    >>> y = 2 * X[:, 3] + 0.1 * rng.normal(size=30)
    >>> prior = mf.GaussBernoulli(np.zeros(50), np.ones(50), np.full(50, -3.0))
    >>> found = mf.expectation_propagation(mf.SparseLinearModel(X, y, 0.01, prior))
    >>> found.converged, int(abs(found.mean).argmax())
    (True, 3)
    """
    if not isinstance(model, SparseLinearModel):
        raise TypeError(f"model must be a SparseLinearModel, got {type(model).__name__}.")
    check.one_of("schedule", schedule, tuple(SCHEDULES))
    if model.has_weights:
        if schedule not in ("parallel", "auto"):
            raise ValueError(
                f"schedule must be 'parallel' or 'auto' for a model with row_weights, got "
                f"{schedule!r}: repeat the rows instead, if the weights are whole numbers."
            )
        schedule = "parallel"
    bound = -np.inf
    if site_precision_min is not None:
        bound = check.number("site_precision_min", site_precision_min, -np.inf, np.inf, below=True)
    damping, *options = iteration(damping, tol, max_iter, n_threads)
    leads = Leads(model, options[-1])
    members = blocks_of(model.X, blocks, scores=leads, few_are_one=not model.has_latent)
    if members:
        if init is None and bound == -np.inf:
            lead = blocks.lead if isinstance(blocks, FoundBlocks) else leads.result
            init = None if lead is None else lead.sites
        settings = damping, bool(history)
        options = bound, *options
        if isinstance(blocks, str):
            result = _with_cut_blocks(model, members, init, settings, options)
        else:
            n_joins = blocks.max_joins if isinstance(blocks, FoundBlocks) else 0
            result = _with_blocks(model, members, n_joins, init, settings, options)
        return with_check(_with_absent(model.log_absent, result), PosteriorCheck(model))
    trace = EPTrace(bool(history))
    was_convergent = isinstance(init, ExpectationPropagation) and init.schedule == "convergent"
    at_once = schedule == "convergent" and init is not None
    at_once = at_once or (schedule == "auto" and was_convergent)
    run = descent if at_once else SCHEDULES[schedule]
    with one_blas_thread(order_of(model)):
        problem = problem_of(model, bound, *options)
        end = run(problem, start_of(problem, init), damping, trace)
        result = _with_absent(model.log_absent, result_of(problem, end, trace, history))
    return with_check(result, PosteriorCheck(model))


class Leads:
    """How likely each feature is to have an effect, by a few iterations with single sites.

    Parameters
    ----------
    model : SparseLinearModel
    n_threads : int, optional

    Attributes
    ----------
    result : ExpectationPropagation, or None
        The last of these iterations, once there are any: sites of blocks are most often near.
    """

    def __init__(self, model, n_threads=None):
        self._model, self._n_threads, self.result = model, n_threads, None

    def __call__(self):
        """Log-odds of inclusion, or squared means over variances where there is no spike."""
        options = {"tol": LEAD_TOL, "max_iter": LEAD_ITERATIONS, "n_threads": self._n_threads}
        self.result = found = expectation_propagation(self._model, **options)
        prior, n_features = parts_of(self._model.prior)[0], self._model.n_features
        if not isinstance(prior, GaussBernoulli):
            return (found.mean**2 / found.var)[:n_features]
        n = n_units(prior)
        return prior.tilted_log_odds(found.b[:n], found.a[:n])[:n_features]


def _with_absent(constant, result):
    """The result with the log-density of what is in the data, and not in the rows of the model."""
    if constant == 0:
        return result
    energies = None if result.energies is None else result.energies - constant
    return replace(
        result,
        log_partition=result.log_partition + constant,
        log_evidence=result.log_evidence + constant,
        energies=energies,
    )


def _with_cut_blocks(model, members, init, settings, options):
    """The result with blocks found in the data, cut where patterns are too small.

    Unless that does not converge: a block that had to be joined is better whole, with patterns that
    are too small, than its parts are. At the end two that may share an effect are joined.
    """
    whole = None
    for k in range(MAX_CUTS):
        # What was cut is not joined again.
        n_joins = MAX_JOINS if k == 0 else 0
        found = _with_blocks(model, members, n_joins, init, settings, options)
        if not full_blocks(found):
            break
        whole = found if may_stay_whole(found) else whole
        members = [units for units, _ in found.block_sites]
        members, init = without_full_blocks(model.X, members, found), found
    found = found if found.converged or whole is None else whole
    if not found.converged:
        return found
    joined = sharing_blocks(model.X, [units for units, _ in found.block_sites], found)
    if joined is None:
        return found
    shared = _with_blocks(model, joined, 0, found, settings, options)
    # A block with more effects than are summed over is worse than its parts.
    return shared if shared.converged and not full_blocks(shared) else found


def _with_blocks(model, members, n_joins, init, settings, options):
    """The result with blocks, which may be joined where the parallel schedule does not converge."""
    damping, history = settings
    n_joins = n_joins if options[0] == -np.inf else 0
    with one_blas_thread(order_of(model)):
        while True:
            trace = EPTrace(history)
            patience = JOIN_PATIENCE if n_joins else MAX_BARREN_ITERATIONS
            given = damping, patience
            found = solve_with_blocks(model, members, init, given, options, trace)
            if found.converged or not n_joins:
                break
            joined, init = joined_blocks(model.X, members, found), found
            n_joins = 0 if joined is None else n_joins - 1
            members = members if joined is None else joined
    return found if history else replace(found, history=None, energies=None)


def start_of(problem, init=None):
    """The state with these sites, or with those that match the moments of the priors."""
    n_units = problem.side.n_units
    if init is None:
        mean, var = problem.prior.moments(*np.zeros((2, n_units)))
        return run_one(problem, proper_start(*first_sites(problem, mean, var)))
    sites = np.asarray(init.sites if isinstance(init, ExpectationPropagation) else init)
    if sites.dtype.kind in "fiub" and sites.shape != (2, n_units):
        raise ValueError(f"init must have shape {(2, n_units)}, got {sites.shape}.")
    sites = check.rows("init", sites, n_units, np.dtype(np.float64))
    bounded = np.maximum(sites[1], problem.min_site_precision)
    state = state_of(problem, np.stack([sites[0], bounded]))
    if state is None:
        raise ValueError("init must leave a proper Gaussian: the site precisions are too small.")
    return state
