"""Expectation propagation for sparse linear models.

The posterior N(y; X w, s2 I) prod p_i(w_i) is approximated by a Gaussian with sites
exp(t1 w - t2 w^2 / 2) instead of the priors p_i. The cavity c of a unit is its marginal without its
site, in naturals. At a fixed point

    moments of p_i(w) exp(c1 w - c2 w^2 / 2)  =  moments of the Gaussian, for every unit

See `sites` for the state and the energy, `schedules` for the iterations.
"""

from dataclasses import replace

import numpy as np

from fastmf._common import arguments as check
from fastmf._common.arguments import iteration
from fastmf._threads.workers import one_blas_thread
from fastmf.inference.ep.block_sites import solve_with_blocks
from fastmf.inference.ep.parallel import parallel_sweeps, proper_start
from fastmf.inference.ep.partition import (
    FoundBlocks,
    correlated_blocks,
    cut_blocks,
    full_blocks,
    joined_blocks,
    members_with,
    one_block,
)
from fastmf.inference.ep.posterior_check import PosteriorCheck
from fastmf.inference.ep.result import ExpectationPropagation, result_of
from fastmf.inference.ep.schedules import SCHEDULES, descent
from fastmf.inference.ep.sites import EPTrace, first_sites, problem_of
from fastmf.inference.fixed_point import with_check
from fastmf.inference.gaussian import order_of
from fastmf.inference.gaussian.blocks import labels_of
from fastmf.models import SparseLinearModel
from fastmf.priors import GaussBernoulli
from fastmf.priors._protocol import n_units, parts_of
from fastmf.special import sigmoid

# Tolerance and iterations of the fit with single sites that selects the blocks.
LEAD_TOL, LEAD_ITERATIONS = 1e-2, 15
# Maximum number of times that blocks are joined without convergence: with 8 a fit of 1,001 variants
# takes twice as long and has the same result.
MAX_JOINS = 3


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
        Update all sites at once; one site after another, by rank-one updates; or descend on the
        energy. "auto" descends if parallel updates make no progress.
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
    points, or by their double loop (`fastmf.inference.ep.double_loop`) if precisions are bounded.
    Blocks of up to 11 features sum over all patterns; `full_probability` is the weight of the
    largest patterns. An iteration takes O(n_samples^2 n_features), or O(n_features^3) if less.

    Examples
    --------
    >>> import numpy as np, fastmf as mf
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(30, 50))
    >>> y = 2 * X[:, 3] + 0.1 * rng.normal(size=30)
    >>> prior = mf.GaussBernoulli(np.zeros(50), np.ones(50), np.full(50, -3.0))
    >>> result = mf.expectation_propagation(mf.SparseLinearModel(X, y, 0.01, prior))
    >>> result.converged, int(abs(result.mean).argmax())
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
    lead = None
    if isinstance(blocks, str) and blocks == "auto":
        members, lead = found_blocks(model, model.n_features, n_threads=options[-1])
        blocks = FoundBlocks(labels_of(members, model.X.shape[1]), shares=True)
    else:
        members = members_with(blocks, model.X.shape[1])
    if members:
        # With a bound, the result need not be a fixed point, and blocks do not change.
        variable = blocks if isinstance(blocks, FoundBlocks) and bound == -np.inf else None
        init = lead.sites if init is None and lead is not None else init
        settings = damping, history, bound, *options
        result = _with_blocks(model, members, variable, init, settings)
        return with_check(_with_absent(model.log_absent, result), PosteriorCheck(model))
    trace = EPTrace(history)
    was_convergent = isinstance(init, ExpectationPropagation) and init.schedule == "convergent"
    at_once = schedule == "convergent" and init is not None
    at_once = at_once or (schedule == "auto" and was_convergent)
    run = descent if at_once else SCHEDULES[schedule]
    with one_blas_thread(order_of(model)):
        problem = problem_of(model, bound, *options)
        end = run(problem, start_of(problem, init), damping, trace)
        result = _with_absent(model.log_absent, result_of(problem, end, trace))
    prior, n = parts_of(model.prior)[0], model.n_features
    if isinstance(prior, GaussBernoulli) and n_units(prior) == n:
        included = sigmoid(prior.tilted_log_odds(result.b[:n], result.a[:n]))
        result = replace(result, inclusion_probability=included)
    return with_check(result, PosteriorCheck(model))


def found_blocks(model, n, n_rows=None, n_threads=None):
    """Select blocks of the first n features; return them and the fit with single sites."""
    X = model.X if n == model.X.shape[1] else model.X[:, :n]
    members = None if model.has_latent else one_block(X)
    if members is not None:
        return members, None
    with one_blas_thread(order_of(model)):
        problem = problem_of(model, -np.inf, LEAD_TOL, LEAD_ITERATIONS, n_threads)
        # Single sites of correlated units cycle; the first rejected step ends the fit.
        trace, start = EPTrace(False), start_of(problem)
        end = parallel_sweeps(problem, start, None, trace, max_rejected=1)
        lead = result_of(problem, end, trace)
    prior, scores = parts_of(model.prior)[0], None
    if isinstance(prior, GaussBernoulli):  # other priors have no blocks
        units = slice(n_units(prior))
        scores = prior.tilted_log_odds(lead.b[units], lead.a[units])[:n]
    return correlated_blocks(X, scores, n_rows), lead


def _with_absent(constant, result):
    """Add the log-density of data that are not in the rows of the model to a result."""
    if constant == 0:
        return result
    energies = None if result.energies is None else result.energies - constant
    return replace(
        result,
        log_partition=result.log_partition + constant,
        log_evidence=result.log_evidence + constant,
        energies=energies,
    )


def _with_blocks(model, members, variable, init, settings):
    """Solve a model with blocks; join or cut `FoundBlocks` if the result shows the need."""
    damping, history, *options = settings

    def solve(members, init):
        return solve_with_blocks(model, members, init, damping, options, EPTrace(history))

    with one_blas_thread(order_of(model)):
        (result, last), n_joins = solve(members, init), MAX_JOINS
        while variable:
            changed = None
            if n_joins and not result.converged:
                changed, n_joins = joined_blocks(model.X, members, last), n_joins - 1
            if changed is None:
                changed, n_joins = cut_blocks(model.X, members, result), 0
            if changed is None:
                break
            new, last = solve(changed, last)
            if variable.shares and result.converged and not new.converged:
                break
            members, result = changed, new
        shares = variable and variable.shares and result.converged
        while shares and (members := joined_blocks(model.X, members, result)):
            shared, _ = solve(members, result)
            # A block with more effects than its patterns include is worse than its parts.
            shares = shared.converged and not full_blocks(shared)
            result = shared if shares else result
    return result


def start_of(problem, init=None):
    """Return the state with the sites of `init`, or with sites that match the priors' moments."""
    n_units = problem.side.n_units
    if init is None:
        mean, var = problem.prior.moments(*np.zeros((2, n_units)))
        return proper_start(problem, *first_sites(problem, mean, var))
    sites = np.asarray(init.sites if isinstance(init, ExpectationPropagation) else init)
    if sites.dtype.kind in "fiub" and sites.shape != (2, n_units):
        raise ValueError(f"init must have shape {(2, n_units)}, got {sites.shape}.")
    sites = check.rows("init", sites, n_units, np.dtype(np.float64))
    bounded = np.maximum(sites[1], problem.min_site_precision)
    state = problem.state_of(np.stack([sites[0], bounded]))
    if state is None:
        raise ValueError("init must leave a proper Gaussian: the site precisions are too small.")
    return state
