"""Expectation propagation for sparse linear models."""

from dataclasses import dataclass

import numpy as np

from fastmf._common import arguments as check
from fastmf._common.arguments import iteration
from fastmf._outcomes import (
    BOUNDED,
    CONVERGED,
    IMPROPER,
    MESSAGES,
    OUT_OF_ITERATIONS,
    STALLED,
)
from fastmf._threads import one_blas_thread
from fastmf.inference.ep import mean_descent, moment_descent
from fastmf.inference.ep.double_loop import double_loop
from fastmf.inference.ep.inner_loop import exhausted
from fastmf.inference.ep.parallel import alone, proper_start, sweeps
from fastmf.inference.ep.sequential import sequential
from fastmf.inference.ep.sites import Problem, Trace, energy, first_sites, state_of
from fastmf.inference.fixed_point import FixedPoint
from fastmf.inference.gaussian import gaussian_side
from fastmf.models import SparseLinearModel
from fastmf.priors._protocol import as_dtype
from fastmf.priors.concatenated import concatenate

# Dampings of the parallel schedule without progress after which descent takes over.
RETREATS = 3
SCHEDULES: dict = {}
# Ways to descend, by which units allow of them.
WAYS = (moment_descent, mean_descent)


@dataclass(frozen=True, eq=False, repr=False)
class ExpectationPropagation(FixedPoint):
    """What `expectation_propagation` returns: a `FixedPoint` with the sites and the evidence.

    Parameters
    ----------
    sites : array of shape (2, n_units)
        Linear coefficients t1 and precisions t2 of the Gaussian factors exp(t1 w - t2 w^2 / 2) that
        stand for the prior. Pass it as `init` to start from here.
    log_evidence : float
        `log_partition` with the prior normalised: the log-evidence of a linear model.
    energies : array of shape (n_iter,), optional
        Energy of every iteration (of every outer one for "convergent"), with history=True.
    schedule : str
        What was run in the end.
    """

    sites: np.ndarray | None = None
    log_evidence: float = -np.inf
    energies: np.ndarray | None = None
    schedule: str = ""


def expectation_propagation(
    model,
    init=None,
    *,
    schedule="parallel",
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
    init : None, array of shape (2, n_features) or ExpectationPropagation
        Sites to start from. None: those that match the prior's own moments.
    schedule : {"parallel", "sequential", "convergent", "auto"}, default "parallel"
        Parallel: all sites at once, then the Gaussian anew. Sequential: one site after another,
        each seeing the newest values (exact rank-one updates). Convergent: after a few parallel
        steps, or at once from `init`, descent on an energy that never increases, see Notes. Auto:
        parallel for longer, and convergent from where it was if that makes no progress, or at once
        if `init` was found so.
    damping : float in [0, 1), optional
        Share of the old sites in the new ones. None: chosen, and raised when the residual does not
        fall (parallel); 0 (sequential). The convergent schedule needs none.
    site_precision_min : float, optional
        Smallest precision that a site may have, and a cavity in the convergent schedule: Eq. 13 of
        the paper. None: no bound; negative precisions are natural, and needed for the solution to
        be a fixed point.
    tol : float, default 1e-8
        Largest difference in a mean or variance between the Gaussian and the units, in units of the
        coefficients: it should be small beside their prior variance.
    max_iter : int, default 1000
        Iterations, sweeps, or inner iterations of the double loop; of either schedule of "auto".
    history : bool, default False
        Keep the residual and the energy of every iteration.
    n_threads : int, optional
        Threads of the compiled kernels, which do most of the work if n_samples < n_features;
        results do not depend on it. BLAS, which does the rest, has one thread up to orders of 1000,
        if threadpoolctl is installed; else, or beyond, its threads are the user's to set.

    Returns
    -------
    ExpectationPropagation
        `mean`, `var` are moments of the units under the tilts `b`, `a`, their cavities.

    Raises
    ------
    ValueError, TypeError
        For arguments of wrong shapes, types or ranges. Not converging is no error.

    Notes
    -----
    Hernández-Lobato & Hernández-Lobato (2011). The convergent schedule descends on the energy as a
    function of the moments (`fastmf.inference.ep.moment_descent`), with the same stationary points
    and the same values there as the energy of their double loop, or of the means alone for units of
    two values (`fastmf.inference.ep.mean_descent`); the double loop itself
    (`fastmf.inference.ep.double_loop`) serves units of two values among others, and bounded site
    precisions. There may be several minima. With n_samples < n_features the cost of an iteration is
    O(n_samples^2 n_features), and memory beyond X is some matrices of n_samples by n_samples and
    vectors of n_features (30 MB at 200 by 50,000); otherwise, and in that descent for up to 2500
    units of two values, O(n_features^3) and matrices of n_features by n_features. Rules for
    negative precisions: a unit whose tilted moments do not exist keeps its site; a parallel step
    after which the Gaussian would not be proper is halved until it is; in a sequential sweep a
    single update that would do so is not made.
    """
    if not isinstance(model, SparseLinearModel):
        raise TypeError(f"model must be a SparseLinearModel, got {type(model).__name__}.")
    check.one_of("schedule", schedule, tuple(SCHEDULES))
    least = -np.inf
    if site_precision_min is not None:
        least = check.number("site_precision_min", site_precision_min, -np.inf, np.inf, below=True)
    damping, *options = iteration(damping, tol, max_iter, n_threads)
    trace = Trace(bool(history))
    again = schedule == "auto" and getattr(init, "schedule", "") == "convergent"
    straight = again or (schedule == "convergent" and init is not None)
    solver = descent if straight else SCHEDULES[schedule]
    with one_blas_thread(min(model.X.shape)):
        problem = prepare(model, least, *options)
        state, outcome, ran = solver(problem, start_of(problem, init), damping, trace)
        return result(problem, state, outcome, ran, trace, history)


def prepare(model, least=-np.inf, tol=1e-8, max_iter=1000, n_threads=None):
    """The problem that a model poses."""
    # In double precision.
    prior = concatenate([as_dtype(layer, np.float64) for layer in model.layers])
    side = gaussian_side(model, n_threads)
    zero = np.zeros(side.n_units)
    mean, var = prior.moments(zero, zero)
    second = mean * mean + var
    own = 1 / np.where(np.isfinite(second) & (second > 0), second, np.ones(side.n_units))
    return Problem(side, prior, least, tol, max_iter, n_threads, own, evaluations=[0])


def start_of(problem, init=None):
    """The state at these sites, or at the first ones."""
    if init is None:
        mean, var = problem.prior.moments(*np.zeros((2, problem.side.n_units)))
        return alone(problem, proper_start(*first_sites(problem, mean, var)))
    sites, shape = np.asarray(getattr(init, "sites", init)), (2, problem.side.n_units)
    if sites.dtype.kind in "fiub" and sites.shape != shape:
        raise ValueError(f"init must have shape {shape}, got {sites.shape}.")
    sites = check.rows("init", sites, problem.side.n_units, np.dtype(np.float64))
    state = state_of(problem, np.stack([sites[0], np.maximum(sites[1], problem.least)]))
    if state is None:
        raise ValueError("init must leave a proper Gaussian: the site precisions are too small.")
    return state


def result(problem, state, outcome, ran, trace, history):
    """What is returned of a state."""
    log_partition = -energy(problem, state)
    held = np.isclose(state.proposal[1], problem.least, rtol=1e-6).sum()
    if held and outcome == OUT_OF_ITERATIONS and ran != "convergent":
        outcome = BOUNDED
    zero = np.zeros(problem.side.n_units)
    normaliser = problem.prior.log_partition(zero, zero).sum()
    mean, var = state.tilted
    improper = ~(np.isfinite(mean) & np.isfinite(var))
    mean, var = np.where(improper, state.gaussian, state.tilted)
    return ExpectationPropagation(
        mean=mean,
        var=var,
        b=state.cavity[0],
        a=state.cavity[1],
        log_partition=log_partition,
        converged=outcome == CONVERGED,
        n_iter=len(trace.residuals),
        residual=state.residual(),
        message=MESSAGES[outcome],
        history=np.array(trace.residuals) if history else None,
        sites=state.site,
        log_evidence=log_partition - normaliser if np.isfinite(normaliser) else -np.inf,
        energies=np.array(trace.energies) if history else None,
        schedule=ran,
    )


# --- schedules ------------------------------------------------------------------------------------


def parallel(problem, state, damping, trace):
    """All sites at once."""
    return alone(problem, sweeps(problem, state, damping, trace))


def one_by_one(problem, state, damping, trace):
    """Site after site."""
    state, converged = sequential(problem, state, damping, trace)
    if converged:
        return state, CONVERGED, "sequential"
    done = len(trace.residuals) == problem.max_iter
    return state, OUT_OF_ITERATIONS if done else IMPROPER, "sequential"


def convergent(problem, state, damping, trace):
    """Descent on the energy, from where the parallel schedule has led."""
    start, _, _ = alone(problem, sweeps(problem, state, damping, Trace(False), patience=1))
    return descent(problem, start, damping, trace)


def auto(problem, state, damping, trace):
    """The parallel schedule as long as it makes progress, then descent on the energy."""
    tried = alone(problem, sweeps(problem, state, damping, trace, RETREATS))
    return tried if tried[1] == CONVERGED else descent(problem, tried[0], damping, trace)


def descent(problem, state, damping, trace):
    """By the moments, or by the double loop for units and bounds that allow of nothing else."""
    ways = WAYS if problem.least == -np.inf else ()
    points = (way.first_point(problem, state) for way in ways)
    point = next((point for point in points if point is not None), None)
    before = len(trace.residuals)
    if point is None:
        end, converged = double_loop(problem, state, trace)
    else:
        end, converged = moment_descent.descend(problem, point, trace)
    if converged:
        return end, CONVERGED, "convergent"
    done = len(trace.residuals) - before == problem.max_iter or exhausted(problem)
    # Where rounding decides which moments exist, the end may have none.
    end = end if end.residual() < np.inf else state
    return end, OUT_OF_ITERATIONS if done else STALLED, "convergent"


SCHEDULES |= {
    "parallel": parallel,
    "sequential": one_by_one,
    "convergent": convergent,
    "auto": auto,
}
