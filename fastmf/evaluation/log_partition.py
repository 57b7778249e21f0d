"""Log-partitions by annealed importance sampling, and a report that compares several methods.

1. Exploration: annealing with `n_steps / 2` steps from unbiased units yields samples of the model.
   A second run starts from a base of independent units, whose fields are half of those that
   reproduce the means of these samples: it is as accurate with a tenth of the steps, and misses
   fewer phases than with the full fields. With `data`, a third run starts from units matched to
   Gibbs chains from the data; the better base is used.
2. The forward estimate anneals from this base, with steps that contribute equally to the variance
   of the log-weights. Its resampled ends, after `n_steps / 2` Gibbs sweeps, start reverse chains.
3. An estimate from the exploration replaces the forward estimate if it is higher by three standard
   errors and has an effective size of about ten chains: the matched base is biased to the phase
   with most of the samples. (Selecting single chains instead would bias the estimate upwards.)
4. The reverse chains start from data only if the effective size of the forward estimate is small,
   or it is lower than the exploration's, since phases have other weights in data than in the model.
5. Naive mean field bounds the log-partition from below, starting at data, samples, states spread
   over the state space, TAP solutions, and the result of max-product. If an estimate is below the
   bound, by three standard errors or by 0.5 nats, chains start from the units of the mean-field
   solutions with the largest weights, and each is weighted by the probability that its end belongs
   to its phase. An estimate that remains below the bound is not converged.
"""

import time
import warnings
from typing import NamedTuple

import numpy as np

from fastmf._common.arguments import count, flag, generator, number, refusing_overflow, rows
from fastmf._common.names import pandas
from fastmf._common.warning import warn_user
from fastmf._jit.messages import to_stderr
from fastmf.inference.bp.belief_propagation import most_probable
from fastmf.inference.bp.graphs.units import MAX_EXPONENT
from fastmf.inference.mean_field.gaussian_layers import collapsed_tap
from fastmf.inference.mean_field.lower_bound import lacking, lower_bound, spread_states, starts_at
from fastmf.inference.mean_field.solutions import distinct
from fastmf.inference.missing.layered import enumerable
from fastmf.inference.sampling.gibbs import (
    Path,
    Phases,
    annealed_model,
    base_between,
    effective_size,
    log_mean,
    neutral_base,
    refined,
)
from fastmf.models import BoltzmannMachine, exact
from fastmf.models._checks import visible_rows
from fastmf.models._couplings import entries
from fastmf.models._graph_sums import is_small
from fastmf.models._state_tables import pairwise_graph
from fastmf.models.boltzmann import check_machine
from fastmf.models.layered import Layered
from fastmf.priors._groups import as_states
from fastmf.priors._protocol import has_log_prob, has_third_cumulant, n_units, parts_of
from fastmf.priors._queries import is_discrete, two_values

# Number of standard errors for a significant difference of two estimates.
CLEAR_ERRORS = 3
# Effective number of chains below which an estimate, forward or reverse, has not converged (half of
# the chains if there are fewer than twenty).
MIN_EFFECTIVE_SIZE = 10


class AnnealedEstimate(NamedTuple):
    """Result of `annealed_importance_sampling`.

    Parameters
    ----------
    log_partition, error : float
        Forward estimate, from independent units to the model, and its standard error in nats. It is
        low on average, and exceeds the truth by x nats with probability below exp(-x).
    reverse, reverse_error : float
        Reverse estimate, from samples of the model to independent units, and its standard error.
        With exact samples it is high on average.
    log_weights, reverse_log_weights : array of shape (n_chains,)
        Estimate for each start of a chain; the total is their log-mean (harmonic for `reverse`).
        Infinite for a start without descendants, as chains are resampled.
    samples : array of shape (n_chains, n_visible)
        Samples of the model at which the reverse chains start.
    n_steps : int
        Number of steps of this estimate, which is larger than the argument if it was doubled.
    tolerance : float
        Largest gap and standard errors of converged estimates, in nats.
    lower_bound : float
        Rigorous lower bound of the log-partition, from naive mean field or a sum over states. Lower
        estimates are wrong.

    Examples
    --------
    >>> import numpy as np, fastmf as mf
    >>> model = mf.RBM(np.zeros((3, 2)), mf.Ising(np.zeros(3)), mf.Ising(np.zeros(2)))
    >>> found = mf.evaluation.annealed_importance_sampling(model, 10, 10, rng=0)
    >>> np.isclose(found.log_partition, 5 * np.log(2)), found.converged
    (np.True_, True)
    """

    log_partition: float
    error: float
    reverse: float
    reverse_error: float
    log_weights: np.ndarray
    reverse_log_weights: np.ndarray
    samples: np.ndarray
    n_steps: int = 0
    tolerance: float = 0.5
    lower_bound: float = -np.inf

    @property
    def gap(self):
        """Reverse minus forward estimate, in nats."""
        return self.reverse - self.log_partition

    @property
    def effective_size(self):
        """Effective number of chains of the forward estimate."""
        return effective_size(self.log_weights)

    @property
    def reverse_effective_size(self):
        """Effective number of chains of the reverse estimate."""
        return effective_size(-self.reverse_log_weights)

    @property
    def converged(self):
        """Whether gap, errors and `lacking` are within the tolerance, and enough chains contribute.

        The effective sizes are at least 10, or half of the chains if there are fewer than 20.
        """
        enough = min(MIN_EFFECTIVE_SIZE, len(self.log_weights) / 2)
        smallest = min(self.effective_size, self.reverse_effective_size)
        sizes = abs(self.gap), self.error, self.reverse_error, self.lacking
        return bool(all(size <= self.tolerance for size in sizes) and smallest >= enough)

    @property
    def lacking(self):
        """Difference of the lower bound and the lower estimate in nats, or 0."""
        return max(0.0, self.lower_bound - min(self.log_partition, self.reverse))

    @property
    def message(self):
        """Whether the estimates have converged, and which argument to increase if not."""
        text = (
            f"forward and reverse estimates are {abs(self.gap):.3g} nats apart, with standard "
            f"errors of {self.error:.2g} and {self.reverse_error:.2g} (tolerance "
            f"{self.tolerance:g}), from effectively {self.effective_size:.1f} and "
            f"{self.reverse_effective_size:.1f} of {len(self.log_weights)} chains"
        )
        if self.converged:
            return (
                f"converged: {text}; certain is that the log-partition is at least "
                f"{self.lower_bound:.6g}, as phases that neither chains nor mean field visit are "
                "missing from both estimates"
            )
        n_steps = 4 * self.n_steps
        if self.lacking > self.tolerance:
            text += (
                f", and {self.lacking:.3g} nats below {self.lower_bound:.6g}, a certain lower "
                "bound of the log-partition: chains miss the states of most weight, as happens "
                "where training has diverged. Pass rows of these states as data, or train with a "
                "smaller learning rate; otherwise"
            )
        return (
            f"not converged: {text}; pass n_steps={n_steps}, or max_steps={n_steps} or more to "
            f"double the {self.n_steps} steps until the ends close, and if that does not close "
            f"them n_chains={4 * len(self.log_weights)}"
        )

    def __repr__(self):
        ended = "converged" if self.converged else "not converged"
        return (
            f"AnnealedEstimate(log-partition {self.log_partition:.6g} +- {self.error:.2g}, reverse "
            f"{self.reverse:.6g} +- {self.reverse_error:.2g}, {ended})"
        )


@refusing_overflow
def annealed_importance_sampling(
    model,
    n_chains=100,
    n_steps=1000,
    *,
    data=None,
    tolerance=0.5,
    max_steps=None,
    n_threads=None,
    rng=None,
    verbose=False,
):
    """Estimate the log-partition of a machine by annealed importance sampling, in both directions.

    Parameters
    ----------
    model : RBM, DBM or BoltzmannMachine
        Machine with any unit priors that can be sampled. A DBM is annealed as `bipartite()`;
        uncoupled units of a BoltzmannMachine are sampled in parallel.
    n_chains : int, default 100
    n_steps : int, default 1000
        Gibbs sweeps on the path between independent units and the model, in each direction.
        Exploration and sampling of the model take one to two times as many additional sweeps.
    data : array of shape (n_rows, n_visible), optional
        Starts of chains that sample the model, for example training data.
    tolerance : float, default 0.5
        Largest difference between the two estimates, and largest standard error of each, for
        convergence, in nats.
    max_steps : int, optional
        Double `n_steps`, to at most this number, until the estimates have converged. Default:
        `n_steps`.
    n_threads : int, optional
        Default: Numba's number of threads. Results do not depend on it.
    rng : numpy.random.Generator or int, optional
    verbose : bool, default False
        Print each stage and estimate to stderr.

    Returns
    -------
    AnnealedEstimate

    Raises
    ------
    ValueError, TypeError
        If the model is of another class, a coupling is -inf, a coupling or field of discrete units
        exceeds 1e12 (fields that decide a unit of an RBM or DBM may), or an argument is invalid.
    FloatingPointError
        If the samples diverge (units whose distribution cannot be normalised).

    Warns
    -----
    UserWarning
        If the estimates have not converged; the message says which argument to increase.

    Notes
    -----
    Neal (2001); Salakhutdinov & Murray (2008); in reverse Burda, Grosse & Salakhutdinov (2015);
    with resampling Del Moral, Doucet & Jasra (2006). `fastmf.evaluation.log_partition` describes
    the algorithm. Estimates that agree can still miss phases that neither chains nor mean field
    reach; for a trained machine, pass its training `data`.

    Examples
    --------
    >>> import numpy as np, fastmf as mf
    >>> weights = 0.5 * np.random.default_rng(0).normal(size=(8, 5))
    >>> model = mf.RBM(weights, mf.Bernoulli(np.zeros(8)), mf.Bernoulli(np.zeros(5)))
    >>> found = mf.evaluation.annealed_importance_sampling(model, 100, 100, rng=0)
    >>> found.converged, abs(found.log_partition - mf.exact(model).log_partition) < 0.05
    (True, True)
    """
    check_machine(model)
    n_chains, n_steps = count("n_chains", n_chains, 2), count("n_steps", n_steps)
    max_steps = n_steps if max_steps is None else count("max_steps", max_steps, n_steps)
    tolerance = number("tolerance", tolerance, 0, np.inf)
    n_threads = count("n_threads", n_threads, optional=True)
    say = to_stderr if flag("verbose", verbose) else (lambda text: None)
    n_visible, starts = n_units(model.layers[0]), None
    if data is not None:
        starts = np.resize(visible_rows("data", model, data), (n_chains, n_visible))
    rng = generator(rng, optional=True)
    problem, starts, values = annealed_model(model, starts, rng)
    _check_sizes(problem[0])
    path = Path.of(*problem, n_chains, rng, n_threads)

    say("annealing: exploration ...")
    two_valued = all(map(two_values, path.model.layers))
    exploration = Exploration(path, two_valued, starts, n_steps, tolerance)
    say(f"annealing: {n_steps} steps ...")
    estimate = exploration.estimate(n_steps)
    while not estimate.converged and 2 * n_steps <= max_steps:
        n_steps *= 2
        say(f"annealing: {estimate.log_partition:.6g} to {estimate.reverse:.6g} nats; "
            f"{n_steps} steps ...")  # fmt: skip
        estimate = exploration.estimate(n_steps)
    if not estimate.converged:
        warn_user(f"annealed importance sampling: {estimate.message}.")
    samples = estimate.samples
    if values:
        samples = np.where(samples == 1, *(model.dtype.type(x) for x in values[::-1]))
    return estimate._replace(samples=samples[:, :n_visible])


def annealed_quietly(model, n_chains, n_steps, **options):
    """Call `annealed_importance_sampling` without its warning on convergence."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "annealed importance sampling: not converged")
        return annealed_importance_sampling(model, n_chains, n_steps, **options)


def estimated_log_partition(model, data, tolerance, n_threads=None, rng=0, n_steps=200):
    """Return the mean of the forward and reverse estimates, whose biases cancel, and its error."""
    # The mean has a smaller error than each estimate, so that the tolerance can be larger.
    options = {"max_steps": 8 * n_steps, "n_threads": n_threads, "tolerance": tolerance * 2**0.5}
    estimate = annealed_quietly(model, 100, n_steps, data=data, rng=rng, **options)
    value = (estimate.log_partition + estimate.reverse) / 2
    error = max(abs(estimate.gap), np.hypot(estimate.error, estimate.reverse_error)) / 2
    return max(value, estimate.lower_bound), float(max(error, estimate.lower_bound - value))


def _check_sizes(model):
    """Raise a ValueError if rounding errors of energies of discrete units may exceed a nat."""
    couplings = model.couplings if isinstance(model, BoltzmannMachine) else model.weights
    parts = [part for layer in model.layers for part in parts_of(layer)]
    if not all(map(is_discrete, parts)):
        return
    fields = [np.asarray(x, np.float64).ravel() for part in parts for x in part]
    sizes = np.abs(np.concatenate([entries(couplings).ravel(), *fields]))
    largest = sizes[np.isfinite(sizes)].max(initial=0.0)
    if largest > MAX_EXPONENT:
        raise ValueError(
            f"model must have couplings and fields of at most {MAX_EXPONENT:g} to be annealed, "
            f"got {largest:.3g}: sums of these are not known to a nat in double precision. Divide "
            "them by a number, fix the units that they decide, or take log_partition_bounds."
        )


class Exploration:
    """Choice of the base distribution and the annealing schedule, and the best estimate so far.

    `phases` is the base of independent units, `leg` the last forward annealing from this base, and
    `best` (n_chains,) the log-weights of the preferred forward estimate. `from_data` are the ends
    of Gibbs chains that start at `starts` (n_chains, n_visible), or None.
    """

    def __init__(self, path, two_valued, starts, n_steps, tolerance):
        self.path, self.tolerance = path, tolerance
        self.lower_bound, self._bounded = -np.inf, None
        self.neutral = neutral_base(path.model, two_valued)
        n_steps = max(1, n_steps // 2)
        betas = np.linspace(0, 1, n_steps + 1)
        first = path.forward(self.neutral, betas)
        samples = path.sample(self.neutral, first.ends, n_steps)
        self.phases = Phases(path, [base_between(path, self.neutral, samples)])
        self.leg = self.phases.forward(betas)
        self.from_data = None
        if starts is not None:
            self.from_data = path.sample(self.neutral, starts, n_steps)
            phases = Phases(path, [base_between(path, self.neutral, self.from_data)])
            leg = phases.forward(betas)
            if _is_better(leg.log_weights, self.leg.log_weights):
                self.phases, self.leg = phases, leg
        self.best = _higher(self.leg.log_weights, first.log_weights)
        spread = path.sample(self.neutral, spread_states(path.model, path.rng), n_steps)
        given = [spread, samples] if starts is None else [spread, starts, samples]
        self._bound([*given, *starts_of_bound(path.model, np.vstack(given))])
        while self._is_lacking() and self._anneal_from_phases(betas):
            pass

    def _is_lacking(self):
        """Whether the best estimate is significantly below the lower bound."""
        value, error = log_mean(self.best)
        tolerance = min(CLEAR_ERRORS * error, self.tolerance)
        return lacking(value, self.lower_bound, self.path.model.dtype, tolerance) > 0

    def _anneal_from_phases(self, betas):
        """Anneal from mean-field phases; return whether this gives a higher estimate."""
        phases = Phases(self.path, self._bases_of_phases())
        leg = phases.forward(betas)
        is_higher = log_mean(leg.log_weights)[0] > log_mean(self.best)[0]
        if is_higher:
            self.phases, self.leg, self.best = phases, leg, leg.log_weights
        self._bound([leg.ends])
        return is_higher

    def _bound(self, starts):
        """Compute a lower bound of the log-partition from these starts; keep the highest."""
        bounded = lower_bound(self.path.model, starts)
        if self.path.shift + bounded.value > self.lower_bound:
            self.lower_bound, self._bounded = self.path.shift + bounded.value, bounded

    def _bases_of_phases(self):
        """Return independent units of the mean-field solutions with the largest weights."""
        bound, model = self._bounded, self.path.model
        max_phases = max(1, self.path.n_chains // MIN_EFFECTIVE_SIZE)
        # Omit phases whose weight relative to the largest is below single precision.
        threshold = bound.bounds[0] + np.log(np.finfo(np.float32).eps)
        retained = [k for k in bound.phases if bound.bounds[k] > threshold]
        ends = np.cumsum([n_units(layer) for layer in model.layers])[:-1]
        return [np.split(bound.b[k].astype(model.dtype), ends) for k in retained[:max_phases]]

    def estimate(self, n_steps):
        """Anneal in both directions; return the `AnnealedEstimate`."""
        path, betas = self.path, refined(self.leg, n_steps)
        explored, self.leg = self.best, self.phases.forward(betas)
        self.best = _higher(self.leg.log_weights, explored)
        if self._is_lacking():
            self._anneal_from_phases(betas)
        forward = log_mean(self.best)
        if self.from_data is None or _agree(explored, self.leg.log_weights):
            samples = path.sample(self.neutral, self.leg.ends, max(1, n_steps // 2))
        else:
            samples = self.from_data = path.sample(self.neutral, self.from_data, n_steps)
        backward = self.phases.backward(betas, samples)
        value, error = log_mean(-backward)
        return AnnealedEstimate(
            *forward, -value, error, self.best, backward, samples, n_steps,
            self.tolerance, self.lower_bound,
        )  # fmt: skip


def starts_of_bound(model, starts):
    """Return states of large weight that chains may not reach: TAP solutions and max-product."""
    with np.errstate(all="ignore"):  # units without moments
        states = [starts_at(collapsed_tap(model, starts, max_iter=100))]
    if all(map(two_values, model.layers)):
        state = most_probable(model, max_iter=100).assignment
        states.append(np.atleast_2d(state[0] if isinstance(state, tuple) else state))
    return states


def _is_reliable(log_weights):
    """Whether the effective size of an estimate is at least ten chains, by its error."""
    return log_mean(log_weights)[1] < MIN_EFFECTIVE_SIZE**-0.5


def _is_higher(first, second):
    """Whether the first estimate is higher than the second by three standard errors."""
    (mean, error), (second_mean, second_error) = log_mean(first), log_mean(second)
    return mean - second_mean > CLEAR_ERRORS * np.hypot(error, second_error)


def _higher(usual, other):
    """Return `other` if its estimate is reliable and significantly higher, else `usual`."""
    return other if _is_higher(other, usual) and _is_reliable(other) else usual


def _is_better(first, second):
    """Whether the first forward estimate is significantly higher, or has the smaller error."""
    if _higher(first, second) is second:
        return False
    has_smaller_error = log_mean(first)[1] < log_mean(second)[1]
    return has_smaller_error or _higher(second, first) is first


def _agree(explored, forward):
    """Whether the forward estimate is reliable and not lower than the exploration's."""
    return _is_reliable(forward) and not _is_higher(explored, forward)


# --- several methods ------------------------------------------------------------------------------

ORDERS = {1: "NMF", 2: "TAP2", 3: "TAP3"}


class LogPartitionEntry(NamedTuple):
    """One row of a `LogPartitionReport`.

    Parameters
    ----------
    name : str
    log_partition : float
        In nats.
    error : float or None
        Standard error of estimates by sampling.
    seconds : float
        Wall time of the method; the same in all rows of one method.
    remark : str
    """

    name: str
    log_partition: float
    error: float | None
    seconds: float
    remark: str


class LogPartitionReport(tuple):
    """Estimates of a log-partition: a tuple of `LogPartitionEntry` that prints as a table.

    `report["AIS"]` is the entry with this name. The column "off by" of the table is the difference
    from the first row, which is the exact value if it was computed, otherwise AIS.

    Examples
    --------
    >>> import numpy as np, fastmf as mf
    >>> model = mf.RBM(np.zeros((3, 2)), mf.Ising(np.zeros(3)), mf.Ising(np.zeros(2)))
    >>> report = mf.evaluation.log_partition_report(model, n_chains=10, n_steps=10)
    >>> np.isclose(report["TAP2, largest"].log_partition, 5 * np.log(2))
    np.True_
    """

    def __getitem__(self, key):
        """Return an entry by its name, or by its index."""
        if not isinstance(key, str):
            return super().__getitem__(key)
        for entry in self:
            if entry.name == key:
                return entry
        raise KeyError(f"no entry {key!r}; there are {', '.join(e.name for e in self)}.")

    def __str__(self):
        lines = [f"{'log-partition':26}{'nats':>12}{'error':>9}{'off by':>10}{'seconds':>9}"]
        for entry in self:
            error = "" if entry.error is None else f"{entry.error:.3f}"
            difference = entry.log_partition - self[0].log_partition
            lines.append(
                f"{entry.name:26}{entry.log_partition:12.3f}{error:>9}{difference:+10.3f}"
                f"{entry.seconds:9.2f}  {entry.remark}".rstrip()
            )
        return "\n".join(lines)

    __repr__ = __str__

    def as_frame(self):
        """Return the entries as the rows of a pandas data frame."""
        return pandas().DataFrame(list(self))


def log_partition_report(
    model,
    X=None,
    *,
    n_chains=100,
    n_steps=1000,
    include_exact=None,
    n_threads=None,
    rng=0,
    verbose=False,
):
    """Compare estimates of the log-partition of a machine by annealing and mean field.

    Parameters
    ----------
    model : RBM, DBM or BoltzmannMachine
    X : array of shape (n_starts, n_visible), optional
        Starts of mean-field iterations, in addition to samples of the model, and of the chains that
        sample the model; for example, a thousand rows of training data.
    n_chains, n_steps : int
        Number of chains and steps of annealed importance sampling.
    include_exact : bool, optional
        True: include the exact sum; False: omit it. Default: include it if it is fast (2^24 states
        of the smaller layer times units of the other; graphs of small width of any size), and for a
        BoltzmannMachine then omit the estimates.
    n_threads : int, optional
    rng : numpy.random.Generator or int, default 0
    verbose : bool, default False
        Print each estimate to stderr once it is computed.

    Returns
    -------
    LogPartitionReport
        Entries "exact" (if included), "AIS", "reverse AIS", and for each of NMF, TAP2 and TAP3 (the
        latter for binary units): "TAP2, log-sum-exp" over the distinct solutions, "TAP2, largest"
        and "TAP2, mean" (Tramel et al. 2018). If all solutions diverge, there is a single entry
        with the value -inf.

    Raises
    ------
    ValueError, TypeError
        If the model is of another class, or an argument is invalid.
    FloatingPointError
        If samples of annealed importance sampling diverge.

    Examples
    --------
    >>> import numpy as np, fastmf as mf
    >>> rng = np.random.default_rng(0)
    >>> model = mf.RBM(rng.normal(size=(8, 5)) / 2, mf.Ising(np.zeros(8)), mf.Ising(np.ones(5) / 2))
    >>> report = mf.evaluation.log_partition_report(model, n_chains=50, n_steps=100)
    >>> [entry.name for entry in report][:4]
    ['exact', 'AIS', 'reverse AIS', 'NMF, log-sum-exp']
    >>> abs(report["AIS"].log_partition - report["exact"].log_partition) < 0.1
    True
    """
    check_machine(model)
    n_visible, rng = n_units(model.layers[0]), generator(rng, optional=True)
    X = rows("X", as_states("X", model.layers[0], X), n_visible, model.dtype)
    include_exact = None if include_exact is None else flag("include_exact", include_exact)
    n_chains, n_steps = count("n_chains", n_chains, 2), count("n_steps", n_steps)
    verbose, clock, entries = flag("verbose", verbose), time.perf_counter, []

    def add(*entry):
        entries.append(LogPartitionEntry(*entry))
        if verbose:
            name, value, _, seconds, _ = entry
            to_stderr(f"{name:26}{value:12.3f} nats{seconds:9.2f} s")

    start = clock()
    value = _exact_value(model, include_exact)
    if value is not None:
        exact_only = include_exact is None and not isinstance(model, Layered)
        remark = "estimates are left out: include_exact=True makes them, too" if exact_only else ""
        add("exact", value, None, clock() - start, remark)
        if exact_only:
            return LogPartitionReport(entries)
    start = clock()
    ais = annealed_quietly(model, n_chains, n_steps, data=X, n_threads=n_threads, rng=rng)
    seconds = clock() - start
    remark = (
        f"low on average; effectively {ais.effective_size:.0f} of {n_chains} chains; the "
        f"log-partition is at least {ais.lower_bound:.6g}"
    )
    add("AIS", ais.log_partition, ais.error, seconds, remark)
    size = ais.reverse_effective_size
    remark = f"high on average; effectively {size:.0f} chains; {ais.message}"
    add("reverse AIS", ais.reverse, ais.reverse_error, seconds, remark)
    _add_mean_field(add, model, X, ais, n_threads)
    return LogPartitionReport(entries)


def _add_mean_field(add, model, X, ais, n_threads):
    """Add the entries of mean-field methods, starting from data and samples by annealing."""
    starts = ais.samples if X is None else np.vstack([X, ais.samples])
    clock = time.perf_counter
    for order, name in ORDERS.items():
        if order == 3 and not all(map(has_third_cumulant, model.layers)):
            continue
        start = clock()
        solutions = collapsed_tap(model, starts, order=order, n_threads=n_threads)
        chosen, _ = distinct(model.layers[0], solutions)
        seconds = clock() - start
        values = solutions.log_partition[chosen]
        values = values[np.isfinite(values)]
        remark = f"distinct solutions: {len(chosen)} of {len(solutions.converged)} starts"
        if not solutions.converged.all():
            remark += f", {np.sum(~solutions.converged)} not converged"
        if not len(values):
            add(name, -np.inf, None, seconds, "diverged: " + remark)
            continue
        total = float(np.logaddexp.reduce(values))
        if shortfall := lacking(total, ais.lower_bound, model.dtype, ais.tolerance):
            remark += f", wrong: at least {shortfall:.3g} nats too low"
        add(f"{name}, log-sum-exp", total, None, seconds, remark)
        add(f"{name}, largest", float(values.max()), None, seconds, "")
        add(f"{name}, mean", float(values.mean()), None, seconds, "")


def _exact_value(model, include_exact):
    """Return the exact log-partition, or None; by default None if it is not fast."""
    if include_exact is None and isinstance(model, Layered):
        include_exact = enumerable(model)
    if include_exact is not None:
        return exact(model, averages=False).log_partition if include_exact else None
    has_sum = is_discrete(model.prior) and has_log_prob(model.prior)
    if not (has_sum and is_small(pairwise_graph(model))):
        return None
    try:
        return exact(model, averages=False, max_bytes=2**29).log_partition
    except ValueError:  # the graph is too wide, or no state is possible
        return None
