"""Certified bounds of log-partitions: naive mean field below, spanning trees above.

If pairs of states are forbidden, products of independent units still bound ln Z from below,

    L = sum_i [<f_i> + H(q_i)] + sum_(i,j) <J_ij>  <=  ln Z,

if they give no forbidden pair a positive probability. So they start from one possible state of the
machine. Updating a unit to its best distribution given all other units does not lower L: the
possible states of the unit stay possible, and states that no other unit forbids are added. These
depend on the order of the units; several orders are tried.

Units of one colour, which are not coupled, are updated together: sparse graphs need few colours. In
each order, units are coloured one after another.
"""

from dataclasses import replace
from typing import NamedTuple

import numpy as np
from scipy.sparse import csr_array
from scipy.special import xlogy

from fastmf._common import arguments as check
from fastmf._common.warning import short_repr
from fastmf.inference.bp._options import BPOptions
from fastmf.inference.bp.belief_propagation import most_probable
from fastmf.inference.bp.beliefs import margin_of
from fastmf.inference.bp.graphs.layers import propagate_on_layers
from fastmf.inference.bp.graphs.propagation import propagate_on_graph, solve_trees
from fastmf.inference.bp.graphs.starts import likely_state
from fastmf.inference.bp.graphs.units import GraphUnits
from fastmf.inference.mean_field import gaussian_layers
from fastmf.inference.mean_field._layouts import layout_of_checks, start_and_tilt
from fastmf.inference.mean_field._sparse_layout import colours_of, columns_graph
from fastmf.inference.mean_field.lower_bound import (
    SUM_ROUNDING,
    bounded_products,
    random_starts,
    sides_of,
)
from fastmf.inference.mean_field.solutions import distinct
from fastmf.inference.mean_field.tap import tap
from fastmf.kernels.mean_field.units import Tilt
from fastmf.models import RBM, BoltzmannMachine
from fastmf.models._couplings import finite_and_forbidden, has_forbidden
from fastmf.models.boltzmann import machine_of_layers
from fastmf.priors import Categorical
from fastmf.priors._protocol import has_log_prob
from fastmf.priors._queries import columns_of_values


@short_repr
class LogPartitionBounds(NamedTuple):
    """Result of `log_partition_bounds`.

    Parameters
    ----------
    lower, upper : float, or array of shape (n_rows,)
        Certified bounds: lower <= log Z <= upper.
    estimate : float, or array of shape (n_rows,)
        Logarithm of the sum of exp(bound) over the distinct naive mean-field solutions, but at most
        `upper`: no bound, and accurate where solutions do not overlap and units of one solution are
        nearly independent.

    Examples
    --------
    >>> import numpy as np, fastmf as mf
    >>> result = mf.log_partition_bounds(mf.BoltzmannMachine(np.eye(3) * 0, mf.Ising(np.ones(3))))
    >>> bool(result.upper - result.lower < 1e-9)
    True
    """

    lower: np.ndarray | float
    upper: np.ndarray | float
    estimate: np.ndarray | float


@check.refusing_overflow
def log_partition_bounds(model, *, field=None, clamp=None, n_starts=20, max_iter=128, rng=0):
    """Compute certified lower and upper bounds of the log-partition.

    Parameters
    ----------
    model : RBM, DBM or BoltzmannMachine
    field : array or tuple of arrays, optional
        External tilt exp(field x) of the units of the first layer, or of all layers, as in `tap`;
        with rows, each row has bounds.
    clamp : array or tuple of arrays, optional
        Values of clamped units, NaN where free, as in `tap`: bounds hold for the sum over the
        free units.
    n_starts : int, default 20
        Number of random starts of naive mean field; the means of the uncoupled units and, for
        discrete units, a state of large weight are added.
    max_iter : int, default 128
        Largest number of sweeps of tree-reweighted belief propagation.
    rng : numpy.random.Generator or int, default 0
        Generator of the random starts, or its seed.

    Returns
    -------
    LogPartitionBounds

    Raises
    ------
    ValueError, TypeError, FloatingPointError
        For arguments of wrong shapes, types or ranges, and numbers that overflow.

    See Also
    --------
    tap, belief_propagation, log_partition_report, exact

    Notes
    -----
    Both bounds hold before convergence, and allow for rounding errors. `lower` is the largest
    variational bound of the products of tilted units that naive mean field reaches. `upper` is the
    bound of tree-reweighted belief propagation (Wainwright, Jaakkola & Willsky 2005) with uniform
    spanning trees: tight if couplings are weak or few, tens of nats too high if many are strong,
    and exact on a forest. It makes tables of the states of coupled units: 8 GiB for 500 groups of
    21 states. Gaussian units beside bounded ones are integrated out; with other units that are not
    discrete, `upper` is inf. With couplings of -inf, `lower` starts from the state that max-product
    finds (-inf without one), and adds states that no other unit forbids, in `n_starts` orders of
    the units; `estimate` is then equal to `lower`.

    Examples
    --------
    >>> import numpy as np, fastmf as mf
    >>> weights = np.random.default_rng(0).normal(size=(8, 5)) / 4
    >>> model = mf.RBM(weights, mf.Ising(np.zeros(8)), mf.Ising(np.ones(5) / 2))
    >>> bounds = mf.log_partition_bounds(model)
    >>> bool(bounds.lower <= mf.exact(model).log_partition <= bounds.upper)
    True
    >>> bool(bounds.upper - bounds.lower < 2)
    True
    """
    n_starts, max_iter = check.count("n_starts", n_starts), check.count("max_iter", max_iter)
    given_model, model = model, _with_finite_couplings(model)
    rng, layout = check.generator(rng), layout_of_checks(model)
    state, tilt, n_rows = start_and_tilt(model, layout, None, field, None, clamp)
    integrated, sides = model.is_integrated, sides_of(given_model)
    rows = []
    for k in range(n_rows or 1):
        row = [part[[min(k, len(part) - 1)]] for part in (*tilt, state[0])]
        of_row, constant = model, 0.0
        if integrated:
            of_row, row, constant = gaussian_layers.rest_of_row(model, row)
            if of_row is None:
                rows.append(_certified(constant, 0.0, 0.0, 0.0, 0.0))
                continue
            sides = sides_of(of_row)
        units = _graph_of(sides, row)
        if model is not given_model:
            below = _forbidden_bound(sides.couplings, sides.priors[0], row, n_starts, rng)
        else:
            starts = random_starts(of_row, n_starts, rng)
            starts = np.vstack([starts, _likely_start(units, *starts.shape[1:], starts.dtype)])
            below = _below(of_row, starts, row)
        rows.append(_certified(constant, *below, _above(units, max_iter)))
    return LogPartitionBounds(*(rows[0] if n_rows is None else np.transpose(rows)))


def _with_finite_couplings(model):
    """Replace couplings of -inf by 0."""
    if not isinstance(model, BoltzmannMachine) or not has_forbidden(model.couplings):
        return model
    if not isinstance(model.prior, Categorical):
        raise TypeError(
            "log_partition_bounds takes couplings of -inf between Categorical units only, got "
            f"{type(model.prior).__name__} units; make all of them categorical."
        )
    return model.rebuilt(couplings=finite_and_forbidden(model.couplings)[0], prior=model.prior)


def _certified(constant, lower, estimate, size, upper):
    """Return lower, upper and estimate of a row; `size` is the sum of absolute terms of `lower`."""
    if constant == np.inf:  # the machine does not exist
        return constant, constant, constant
    if lower == -np.inf:
        return lower, upper, lower
    rounding = SUM_ROUNDING * (size + abs(constant))
    lower, upper = constant + lower - rounding, constant + upper + SUM_ROUNDING * abs(constant)
    return lower, upper, min(max(constant + estimate, lower), upper)


def _below(model, starts, row):
    """Return the largest variational bound, the estimate, and the sum of absolute terms."""
    solved, _, bounds, sizes = bounded_products(tap, model, starts, Tilt(*row[:3]), row[3])
    best = bounds.argmax()
    rows, _ = distinct(model.layers[0], replace(solved, log_partition=bounds[:-1]))
    estimate = np.logaddexp.reduce(bounds[:-1][rows])
    return bounds[best], estimate, sizes[best]


def _graph_of(sides, row):
    """Make a graph with the tilts and clamps of a row; None if units are not discrete."""
    if any(columns_of_values(prior) is None or not has_log_prob(prior) for prior in sides.priors):
        return None
    field, precision, clamped, values = (np.asarray(part[0], np.float64) for part in row)
    if len(sides.priors) == 2:
        machine = machine_of_layers(sides.couplings, sides.priors)
    else:
        machine = BoltzmannMachine(sides.couplings, sides.priors[0])
    units = GraphUnits(machine, field, np.where(clamped, values, np.nan))
    units.precision = precision[None]
    return units


def _likely_start(units, n, dtype):
    """Return the values of the first units in a state of large weight, (1, n), or no row."""
    labels = None if units is None else likely_state(units.problem()[0])
    if labels is None:
        return np.zeros((0, n), dtype)
    unit, value, _ = units.states
    chosen, x = units.first_state[units.layout.order] + labels, np.zeros(units.field.shape[1])
    x[unit[chosen]] = value[chosen]
    return x[None, :n].astype(dtype)


def _above(units, max_iter):
    """Compute the upper bound by spanning trees, which holds for any messages."""
    if units is None:
        return np.inf
    # Undamped messages between strongly coupled units would not converge in few sweeps.
    options = BPOptions(algorithm="tree_reweighted", max_iter=max_iter, damping=0.5)
    return solve_trees(options, units, 1, None)[0].log_partition[0]


def _forbidden_bound(couplings, prior, row, n_orders, rng):
    """Compute the lower bound with forbidden pairs, the estimate, and the sum of absolute terms."""
    tilt, _, clamped, values = (part[0] for part in row)
    model, starts = BoltzmannMachine(couplings, prior), prior.starts
    labels = np.where(clamped[starts], prior.labels(values), np.nan)
    result = most_probable(model, field=tilt, clamp=labels)
    if not np.isfinite(result.score):
        return -np.inf, -np.inf, 0.0
    one, field = prior.one_hot(result.assignment).astype(float), prior.field + tilt
    free = np.flatnonzero(~clamped[starts])
    graph = columns_graph(csr_array(couplings), prior.sizes)[free][:, free]
    parts = finite_and_forbidden(couplings)
    bounds = []
    for _ in range(n_orders):
        order = rng.permutation(len(free))
        colour = colours_of(graph[order][:, order])
        colours = [np.sort(free[order[colour == k]]) for k in np.unique(colour)]
        bounds.append(_ascent(parts, field, one.copy(), prior, colours))
    lower, size = max(bounds)
    return lower, lower, size


def _ascent(parts, field, q, prior, colours):
    """Sweep groups from `q` to convergence; return the bound and the sum of absolute terms."""
    (finite, forbidden), bound = parts, (-np.inf, 0.0)
    group = np.repeat(np.arange(len(prior.sizes)), prior.sizes)
    places = [(np.flatnonzero(np.isin(group, k)), prior.sizes[k]) for k in colours]
    while True:  # every sweep but the last one gains more than rounding
        for states, sizes in places:
            allowed = forbidden[states] @ (q > 0) == 0
            t = np.where(allowed, field[states] + finite[states] @ q, -np.inf)
            firsts = np.cumsum(sizes) - sizes
            t = np.exp(t - np.repeat(np.maximum.reduceat(t, firsts), sizes))
            q[states] = t / np.repeat(np.add.reduceat(t, firsts), sizes)
        terms = q * np.where(q > 0, field, 0), -xlogy(q, q), q * (finite @ q) / 2
        last, bound = bound[0], (sum(map(np.sum, terms)), sum(abs(t).sum() for t in terms))
        if not bound[0] - last > margin_of(bound[0]):
            return bound


@check.refusing_overflow
def tree_reweighted(model, *, field=None, clamp=None, max_iter=1000):
    """Compute an upper bound of the log-partition by tree-reweighted belief propagation.

    Parameters
    ----------
    model : RBM or BoltzmannMachine
        An RBM or a graph (dense or sparse couplings) of discrete units.
    field, clamp : array or pair of arrays, optional
        Additional fields, and values of clamped units, as in `belief_propagation`.
    max_iter : int, default 1000
        Largest number of sweeps. The bound holds after any number of them.

    Returns
    -------
    Beliefs
        `log_partition` is the bound; `mean` and `pairwise` are beliefs of the random trees.
        `GraphBeliefs` for a graph, with the edges' probabilities.

    Raises
    ------
    ValueError, TypeError, FloatingPointError
        For arguments of wrong shapes, types or ranges, and numbers that overflow.

    See Also
    --------
    log_partition_bounds : This bound and a lower bound, for more models.

    Notes
    -----
    Wainwright, Jaakkola and Willsky (2005). Edge probabilities are those in uniform random spanning
    trees or, in large graphs, in random trees that together contain all edges. The bound is
    evaluated at the messages of the last sweep (Globerson and Jaakkola 2007).

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
