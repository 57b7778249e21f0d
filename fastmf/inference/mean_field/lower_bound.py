"""Certified lower bounds of log-partitions, which reveal estimates that are too low.

A product of units q_i ~ prior_i(x) exp(b_i x - p_i x^2 / 2) with means m has, at any tilts b, the
variational bound of naive mean field

    L = sum_i [log Z_i(b_i, p_i) - (b_i - f_i) m_i] + sum_(i,j) J_ij m_i m_j  <=  log Z

for external fields f and precisions p, evaluated in double precision. For a clamped unit, log
prior(x) + f x - p x^2 / 2 replaces the bracket. The mixture of several such products with weights
pi_k in proportion to exp(L_k) gives

    log sum_k exp(L_k) - H(k | x),   H(k | x) <= 2 log(2) sum_{k < l} sqrt(pi_k pi_l) B_kl,

where B_kl, the sum over states of sqrt(q_k q_l), has a closed form for products of tilted units.
So the weights of phases that do not overlap add up. (For two probabilities this is the well-known
H <= 2 log(2) sqrt(p (1 - p)), and induction over states extends it to more.) The sum of the
weights of some distinct states of discrete units is another bound; if one side has few states,
all of them are summed, and the bound is the log-partition.

Products approximate strongly coupled Gaussian units badly. So these are integrated out, and the
machine of their two-valued neighbours is bounded instead.
"""

from typing import NamedTuple

import numpy as np

from fastmf._common.arguments import generator
from fastmf._common.rows import is_sparse
from fastmf.inference.mean_field._layouts import drawn_starts, layout_of_checks
from fastmf.inference.mean_field.gaussian_layers import collapsed_tap
from fastmf.kernels.mean_field.units import Tilt
from fastmf.models import BoltzmannMachine
from fastmf.models.boltzmann import MAX_DENSE_UNITS
from fastmf.models.exact import states_of
from fastmf.models.layered import Layered
from fastmf.priors import Bernoulli, Gaussian, Ising
from fastmf.priors._groups import column_sizes, has_groups
from fastmf.priors._protocol import as_dtype, can_sample, has_log_prob, n_units, sample
from fastmf.priors._queries import extreme_starts, is_discrete, number_of_states, two_values

# Maximum number of rows of each array of starts, and twice the maximum number of mixed products.
MAX_STARTS = 100
# Maximum of states times units up to which all states of a side are summed.
MAX_SUMMED_NUMBERS = 2**19
# Relative error of sums in double precision.
SUM_ROUNDING = 64 * np.finfo(np.float64).eps


class Sides(NamedTuple):
    """The two sides of a bipartite machine, or a fully visible one, in double precision."""

    # Priors of the units of each side, in the order of the layout: of an RBM visible and hidden
    # ones, of a DBM even and odd layers, and of a fully visible machine all units, coupled to
    # themselves.
    priors: tuple
    couplings: np.ndarray  # float64 (n_first, n_last), or csr_array

    @property
    def slices(self):
        """Where the units of each side are among all units."""
        n, total = self.couplings.shape[0], sum(self.couplings.shape)
        return (slice(0, n), slice(n, total))[: len(self.priors)]


def sides_of(model):
    """The `Sides` of an RBM, DBM or BoltzmannMachine."""
    if isinstance(model, Layered):
        model = model.bipartite()
        priors, couplings = model.layers, model.weights
    else:
        priors, couplings = (model.prior,), model.couplings
    priors = tuple(as_dtype(prior, np.float64) for prior in priors)
    return Sides(priors, couplings.astype(np.float64))


def naive_bound(sides, b, tilt, values=None):
    """Return bounds for rows of tilts b, -inf if not finite, and the sums of absolute terms."""
    b = b.astype(np.float64)
    means, total, size = [], 0.0, 1.0
    for prior, units in zip(sides.priors, sides.slices, strict=True):
        field, precision, clamped = (
            np.broadcast_to(part[:, units], b[:, units].shape) for part in tilt
        )
        x = None
        if clamped.any():
            x = np.broadcast_to(values[:, units], clamped.shape).astype(np.float64)
        tilts = b[:, units], field.astype(np.float64), precision.astype(np.float64)
        mean, of_units = terms_of_units(prior, *tilts, clamped, x)
        means.append(mean)
        total = total + of_units.sum(1)
        size = size + abs(of_units).sum(1)
    first, last = means[0], means[-1]
    products = (first @ sides.couplings) * last / (3 - len(means))
    with np.errstate(invalid="ignore"):
        total, size = total + products.sum(1), size + abs(products).sum(1)
    finite = np.isfinite(total)
    return np.where(finite, total, -np.inf), np.where(finite, size, 0.0)


def terms_of_units(prior, b, field, precision, clamped, values=None):
    """Return the means of units and their terms in the bound.

    With b = field the terms are the log-partitions of the units.
    """
    with np.errstate(invalid="ignore", over="ignore"):
        mean = prior.moments(b, precision)[0]
        # A group of states has one log-partition.
        log_partition = prior.log_partition(b, precision)
        of_units = (field - b) * mean
    if values is not None and clamped.any():
        sizes = column_sizes(prior)
        log_partition = np.where(clamped[:, np.cumsum(sizes) - sizes], 0, log_partition)
        x = mean = np.where(clamped, values, mean)
        of_units = np.where(
            clamped, prior.log_prob(x) + field * x - precision * x * x / 2, of_units
        )
    return mean, np.hstack([log_partition, of_units])


def random_starts(model, n_starts, rng):
    """Draw values of the first layer; add the means of its uncoupled units as the last row."""
    return np.vstack([drawn_starts(model, n_starts, rng), _means(model)])


def naive_solutions(solve, model, layout, init, tilt, values, max_iter=1000):
    """Solve naive mean field from means of the first or of all layers; tilts are as in a layout."""
    # Blocks of a dense machine are coupled, colours of a sparse one are not.
    dense = not isinstance(model, Layered) and not is_sparse(model.couplings)
    options = {"schedule": "sequential" if dense else "blocked", "max_iter": max_iter}
    clamp = np.where(tilt.clamped, values, np.nan)
    for name, part, used in (
        ("field", tilt.field, tilt.field.any()),
        ("precision", tilt.precision, tilt.precision.any()),
        ("clamp", clamp, tilt.clamped.any()),
    ):
        if used:
            rows = part[0] if len(part) == 1 else part
            options[name] = layout.split(rows.astype(model.dtype))
    means = tuple(x.astype(model.dtype) for x in (init if isinstance(init, tuple) else (init,)))
    starts = means, tuple(np.zeros_like(part) for part in means)
    if len(means) == 1:  # of the first layer
        starts = tuple(parts[0] for parts in starts)
    return solve(model, starts, order=1, log_partition=False, **options)


def bounded_products(solve, model, starts, tilt, values, max_iter=1000):
    """Bound log Z by products of units at naive mean-field solutions, and by uncoupled units.

    Return the solutions, the tilts b of the products in the order of `sides_of` (the uncoupled
    units last), their bounds, and the sums of the absolute terms.
    """
    layout, sides = layout_of_checks(model), sides_of(model)
    solved = naive_solutions(solve, model, layout, starts, tilt, values, max_iter)
    b = solved.b if isinstance(solved.b, tuple) else (solved.b,)
    b = layout.join(b, np.zeros((len(starts), tilt.field.shape[1]))).astype(np.float64)
    b = np.vstack([np.where(np.isfinite(b), b, 0), tilt.field[:1]])
    return solved, b, *naive_bound(sides, b, tilt, values)


class LowerBound(NamedTuple):
    """Result of `lower_bound`."""

    value: float  # lower bound of the log-partition; -inf if none is known
    # float64 (n_solutions, n_units): tilts of the mean-field solutions, in the order of `sides_of`,
    # largest bound first
    b: np.ndarray
    bounds: np.ndarray  # (n_solutions,): the bound of each
    # list of int: solutions that hardly overlap, whose mixture has the largest bound; the largest
    # first
    phases: list


def lower_bound(model, starts=(), rng=0, *, max_iter=200):
    """Bound the log-partition from below by naive mean field and by sums over states."""
    rng, sides = generator(rng), sides_of(model)
    given = [np.asarray(rows, model.dtype)[:MAX_STARTS] for rows in starts]
    starts = np.vstack([*given, spread_states(model, rng), _means(model)])
    n = sum(units.stop - units.start for units in sides.slices)
    none = np.zeros((1, n))
    tilt = Tilt(none, none, none.astype(bool))
    with np.errstate(over="ignore", invalid="ignore"):
        _, b, bounds, sizes = bounded_products(collapsed_tap, model, starts, tilt, none, max_iter)
        finite = np.isfinite(bounds)
        bounds, b = (bounds - SUM_ROUNDING * sizes)[finite], b[finite]
        order = np.argsort(-bounds, kind="stable")
        bounds, b = bounds[order], b[order]
        first = _components(b, bounds)
        value, chosen = mixture_bound(sides, b[first], bounds[first])
        phases = [int(first[k]) for k in chosen]
        value = max([value, *_sums_over_states(sides, b[first], rng)])
        if (integrated := without_gaussian_units(model)) is not None:
            machine, constant, couplings = integrated
            given = [] if couplings is None else [machine.prior.moments(starts @ couplings, 0.0)[0]]
            value = max(value, constant + lower_bound(machine, given, rng).value)
    return LowerBound(float(value), b, bounds, phases)


def without_gaussian_units(model):
    """Integrate a Gaussian layer beside a two-valued one: machine, constant, couplings, or None.

    The log-partition of the machine is smaller by the constant. The couplings are of the visible
    units with its units; None if its units are the visible ones.
    """
    kinds = [type(layer) for layer in model.layers]
    if len(kinds) != 2 or Gaussian not in kinds or not {Bernoulli, Ising} & set(kinds):
        return None
    k = kinds.index(Gaussian)
    if n_units(model.layers[1 - k]) > MAX_DENSE_UNITS:  # all of them will be coupled
        return None
    integrated = model.integrate_gaussians()
    prior = as_dtype(model.layers[1 - k], np.float64)
    low, high = two_values(prior)
    # x^2 = (low + high) x - low high.
    prior = prior._replace(
        field=prior.field + integrated.field - integrated.precision * (low + high) / 2
    )
    terms = integrated.precision * low * high / 2
    constant = integrated.log_partition + terms.sum()
    field, precision = (x[integrated.gaussian] for x in (integrated.fields, integrated.precisions))
    size = (abs(np.log(2 * np.pi / precision)) + field**2 / precision).sum() / 2 + abs(terms).sum()
    machine = BoltzmannMachine(integrated.couplings, prior)
    return machine, constant - SUM_ROUNDING * size, None if k else model.weights


def lacking(estimate, bound, dtype, error):
    """Return the nats by which an estimate is below a bound, 0 if its error explains them."""
    allowed = error + np.finfo(dtype).eps * abs(estimate)
    return bound - estimate if bound - estimate > allowed else 0.0


def starts_at(solutions):
    """Return the means of the first units in the distinct solutions of largest weight."""
    parts = solutions.mean if isinstance(solutions.mean, tuple) else (solutions.mean,)
    means = np.hstack(parts[::2])
    values = np.round(solutions.log_partition, 2)
    values[~np.isfinite(means).all(1) | ~np.isfinite(values)] = -np.inf
    values, rows = np.unique(values, return_index=True)
    return means[rows[values > -np.inf][: -MAX_STARTS - 1 : -1]]


def _means(model):
    """Return the means of the uncoupled first units as a row."""
    return model.uncoupled_moments[0][0].astype(model.dtype)


def spread_states(model, rng):
    """Draw visible states, (n_states, n_visible), of all magnetisations."""
    states = _spread(model.layers[0], rng).astype(model.dtype)
    if len(model.layers) == 1 or not can_sample(model.layers[0]):
        return states
    fields = _spread(model.layers[1], rng).astype(model.dtype) @ model.weights.T
    given = sample(model.layers[0], fields, np.zeros_like(fields), rng)
    return np.vstack([states, given.astype(model.dtype)])


def _spread(prior, rng):
    """Draw values of uncoupled units; add discrete states of all fractions at the highest value.

    Units that cannot be sampled have their means.
    """
    n = MAX_STARTS // 3
    zeros = np.zeros((n, n_units(prior)))
    if not can_sample(prior):
        return prior.moments(zeros[:1], zeros[:1])[0]
    states = [sample(as_dtype(prior, np.float64), zeros, zeros, rng)]
    if is_discrete(prior):
        states.append(extreme_starts(prior))
        if not has_groups(prior):
            low, high = states[1][[0, -1]]
            fractions = np.sin(np.pi / 2 * (np.arange(n) + 0.5) / n) ** 2
            at_high = rng.random((n, len(low))) < fractions[:, None]
            states.append(np.where(at_high, high, low))
    return np.vstack(states)


def mixture_bound(sides, b, bounds):
    """Add products of units to a mixture if its bound rises; return bound and chosen products."""
    if not len(bounds):
        return -np.inf, []
    logs = log_overlaps(sides, b)
    chosen, best = [0], bounds[0]
    for k in range(1, len(bounds)):
        more = [*chosen, k]
        total = np.logaddexp.reduce(bounds[more])
        half = (bounds[more] - total) / 2
        terms = np.exp(half[:, None] + half + logs[np.ix_(more, more)])
        value = total - np.log(2) * (terms.sum() - np.trace(terms))
        if value > best:
            chosen, best = more, value
    return best - SUM_ROUNDING * abs(best), chosen


def _components(b, bounds):
    """Return positions of products whose rounded bounds or tilts differ, in order.

    Products whose weight is below rounding are left out.
    """
    near = bounds[bounds > bounds.max(initial=-np.inf) + np.log(SUM_ROUNDING)]
    along = np.tanh(b[: len(near)]) @ np.cos(np.arange(b.shape[1]))
    keys = np.column_stack([np.round(near, 5), np.round(along, 2)])
    return np.sort(np.unique(keys, axis=0, return_index=True)[1])[: MAX_STARTS // 2]


def log_overlaps(sides, b):
    """Bound log sum_x sqrt(q_k q_l) of products of units from above, (n_solutions, n_solutions)."""
    out, zero = np.zeros((len(b), len(b))), np.float64(0)
    for prior, units in zip(sides.priors, sides.slices, strict=True):
        of_units = prior.log_partition(b[:, units], zero)
        for k in range(len(b) - 1):
            middle = prior.log_partition((b[k, units] + b[k + 1 :, units]) / 2, zero)
            ends = (of_units[k] + of_units[k + 1 :]) / 2
            sizes = (abs(middle) + abs(ends)).sum(1)
            out[k, k + 1 :] += (middle - ends).sum(1) + SUM_ROUNDING * sizes
    return np.minimum(np.where(np.isnan(out), 0, out + out.T), 0)


def _sums_over_states(sides, b, rng):
    """Yield the log of the sum of weights of all states of one side, or of samples of each side."""
    counts = [number_of_states(prior) for prior in sides.priors]
    if min(counts) * b.shape[1] <= MAX_SUMMED_NUMBERS:
        k = int(np.argmin(counts))
        sides_of_states = {k: np.vstack(list(states_of(sides.priors[k], 1)))}
    else:
        sides_of_states = {}
        for k, (prior, units) in enumerate(zip(sides.priors, sides.slices, strict=True)):
            if is_discrete(prior):
                tilts = np.repeat(b[:, units], -(-4 * MAX_STARTS // len(b)), axis=0)
                x = sample(prior, tilts, np.zeros_like(tilts), rng)
                x = x + 0.0  # no -0, whose bytes differ
                sides_of_states[k] = x[list({r.tobytes(): i for i, r in enumerate(x)}.values())]
    for k, x in sides_of_states.items():
        if has_log_prob(sides.priors[k]):
            yield log_sum_of_weights(sides, k, x)


def log_sum_of_weights(sides, k, x):
    """Return the log of the sum of weights of distinct states of a side, summed over the other."""
    of_units = sides.priors[k].log_prob(x)
    fields = x @ (sides.couplings.T if k else sides.couplings)
    if len(sides.priors) == 1:
        of_side = fields * x / 2
    else:
        of_side = sides.priors[1 - k].log_partition(fields, np.float64(0))
    total, size = of_units.sum(1) + of_side.sum(1), abs(of_units).sum(1) + abs(of_side).sum(1)
    total = (total - SUM_ROUNDING * size)[np.isfinite(total)]
    return np.logaddexp.reduce(total) if len(total) else -np.inf
