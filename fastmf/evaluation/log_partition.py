"""Estimates of the log-partition of one model by several methods."""

import time
from functools import partial
from typing import NamedTuple

import numpy as np

from fastmf._common import html
from fastmf._common.arguments import count, flag, generator, rows
from fastmf._jit.messages import to_stderr
from fastmf.evaluation.annealed import annealed_quietly
from fastmf.inference.ep.adaptive_tap import parallel_sweeps_alone
from fastmf.inference.mean_field.discrete_units import is_discrete
from fastmf.inference.mean_field.gaussian_layers import collapsed_tap
from fastmf.inference.mean_field.likelihood import log_partition_estimate
from fastmf.inference.mean_field.lower_bound import lacking
from fastmf.inference.mean_field.solutions import distinct
from fastmf.inference.missing.layered import enumerable
from fastmf.models import exact
from fastmf.models._couplings import has_forbidden
from fastmf.models._graph import pairwise_graph
from fastmf.models._graph_sums import is_small
from fastmf.models._layered import Layered
from fastmf.models.boltzmann import check_machine
from fastmf.priors._groups import as_states
from fastmf.priors._protocol import has_log_prob, has_third_cumulant, n_units, parts_of

ORDERS = {1: "NMF", 2: "TAP2", 3: "TAP3"}
# Largest tables of graphs that are summed by default, and draws of units in one annealing up to
# which estimates are made beside an exact value.
MAX_EXACT_BYTES, MAX_DRAWS = 1 << 29, 25_000_000
ESTIMATES_LEFT_OUT = "estimates were left out: include_estimates=True makes them, too"


class LogPartitionEntry(NamedTuple):
    """One line of a `LogPartitionReport`.

    Parameters
    ----------
    name : str
    log_partition : float
        Nats.
    error : float or None
        Standard error, for estimates by sampling.
    seconds : float
        Wall time of the method; the same in all lines of one method.
    remark : str
    """

    name: str
    log_partition: float
    error: float | None
    seconds: float
    remark: str


class LogPartitionReport(tuple):
    """Estimates of a log-partition: a tuple of `LogPartitionEntry` that prints as a table.

    `report["AIS"]` is the entry of that name. The column "off by" of the table is the difference
    from the first line: the exact value if there is one, else AIS.

    Examples
    --------
    >>> import numpy as np, fastmf as mf
    >>> model = mf.RBM(np.zeros((3, 2)), mf.Ising(np.zeros(3)), mf.Ising(np.zeros(2)))
    >>> report = mf.log_partition_report(model, n_chains=10, n_steps=10)
    >>> np.isclose(report["TAP2, largest"].log_partition, 5 * np.log(2))
    np.True_
    """

    def __getitem__(self, key):
        """The entry of a name, or of an index as in any tuple."""
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
            off = entry.log_partition - self[0].log_partition
            lines.append(
                f"{entry.name:26}{entry.log_partition:12.3f}{error:>9}{off:+10.3f}"
                f"{entry.seconds:9.2f}  {entry.remark}".rstrip()
            )
        return "\n".join(lines)

    __repr__ = __str__

    def _repr_html_(self):
        """HTML for notebooks: the same table."""
        first = self[0].log_partition if self else 0.0
        rows = [
            (entry.name, f"{entry.log_partition:.3f}", html.number(entry.error),
             f"{entry.log_partition - first:+.3f}", f"{entry.seconds:.2f}", entry.remark)
            for entry in self
        ]  # fmt: skip
        header = "log-partition", "nats", "error", "off by", "seconds", ""
        return html.section("LogPartitionReport", html.table(rows, header))


class _Entries(list):
    """Entries of a report, which are shown as they come if `verbose`."""

    def __init__(self, verbose):
        super().__init__()
        self._verbose = verbose

    def begin(self, name):
        """Say what comes next, and return the time."""
        if self._verbose:
            to_stderr(f"{name} ...")
        return time.perf_counter()

    def add(self, *entries):
        """Append entries."""
        self.extend(entries)
        for entry in entries if self._verbose else ():
            to_stderr(f"{entry.name:26}{entry.log_partition:12.3f} nats{entry.seconds:9.2f} s")


def log_partition_report(
    model,
    X=None,
    *,
    n_chains=100,
    n_steps=1000,
    include_exact=None,
    include_estimates=None,
    include_adaptive=False,
    n_threads=None,
    rng=0,
    verbose=False,
):
    """Compare estimates of the log-partition of a machine by annealing and mean field.

    Parameters
    ----------
    model : RBM, DBM or BoltzmannMachine
    X : array of shape (n_starts, n_visible), optional
        Starts of the mean-field solutions and of the chains that sample the model, such as a
        thousand rows of training data. Samples of the model are starts, too.
    n_chains, n_steps : int
        Numbers of chains and steps of annealed importance sampling.
    include_exact : bool, optional
        Whether to sum exactly. Default: if that is quick (2^24 states of the smaller layer times
        units of the other; graphs of small width of any size).
    include_estimates : bool, optional
        Whether to estimate by annealing and mean field. Default: unless there is an exact value of
        a BoltzmannMachine, and annealing would take longer than a few seconds, or a coupling is
        -inf; the remark of "exact" says so.
    include_adaptive : bool, default False
        Whether to solve by adaptive TAP, too: often much more accurate than TAP, and much slower.
    n_threads : int, optional
    rng : numpy.random.Generator or int, default 0
    verbose : bool, default False
        Whether to print each estimate to stderr as soon as it is known.

    Returns
    -------
    LogPartitionReport
        Entries "exact" (if summed), "AIS", "reverse AIS", and for each of NMF, TAP2, TAP3 (binary
        and categorical units) and adaptive TAP (if included): "TAP2, log-sum-exp" over the distinct
        solutions, each taken as a phase, "TAP2, largest" and "TAP2, mean" (Tramel et al. 2018).
        Where all solutions diverge there is one entry, -inf.

    Raises
    ------
    ValueError, TypeError
        If the model is of another class, or an argument is invalid.
    FloatingPointError
        If the samples of annealed importance sampling diverge.

    Examples
    --------
    >>> import numpy as np, fastmf as mf
    >>> rng = np.random.default_rng(0)
    >>> model = mf.RBM(rng.normal(size=(8, 5)) / 2, mf.Ising(np.zeros(8)), mf.Ising(np.ones(5) / 2))
    >>> report = mf.log_partition_report(model, n_chains=50, n_steps=100)
    >>> [entry.name for entry in report][:4]
    ['exact', 'AIS', 'reverse AIS', 'NMF, log-sum-exp']
    >>> abs(report["AIS"].log_partition - report["exact"].log_partition) < 0.1
    True
    """
    X, rng = _checked_data(model, X), generator(rng, optional=True)
    include_exact = None if include_exact is None else flag("include_exact", include_exact)
    if include_estimates is not None:
        include_estimates = flag("include_estimates", include_estimates)
    include_adaptive = flag("include_adaptive", include_adaptive)
    n_chains, n_steps = count("n_chains", n_chains, 2), count("n_steps", n_steps)
    entries, clock = _Entries(flag("verbose", verbose)), time.perf_counter

    start = entries.begin("exact") if include_exact else clock()
    value = _exact_value(model, include_exact)
    if value is not None:
        if include_estimates is None:
            include_estimates = not _are_left_out(model, n_chains * n_steps)
        remark = "" if include_estimates else ESTIMATES_LEFT_OUT
        entries.add(LogPartitionEntry("exact", value, None, clock() - start, remark))
        if not include_estimates:
            return LogPartitionReport(entries)
    elif include_estimates is False:
        raise ValueError(
            "include_estimates=False leaves nothing: the model has no exact sum that is quick; "
            "pass include_exact=True."
        )

    start = entries.begin("AIS")
    ais = annealed_quietly(model, n_chains, n_steps, data=X, n_threads=n_threads, rng=rng)
    seconds = clock() - start
    entries.add(
        LogPartitionEntry(
            "AIS", ais.log_partition, ais.error, seconds,
            f"low on average; effectively {ais.effective_size:.0f} of {n_chains} chains; the "
            f"log-partition is at least {ais.lower_bound:.6g}",
        ),
        LogPartitionEntry(
            "reverse AIS", ais.reverse, ais.reverse_error, seconds,
            f"high on average; effectively {ais.reverse_effective_size:.0f} chains; {ais.message}",
        ),
    )  # fmt: skip
    _add_mean_field(entries, model, X, ais, include_adaptive, n_threads)
    return LogPartitionReport(entries)


def _add_mean_field(entries, model, X, ais, include_adaptive, n_threads):
    """Append the entries of all mean-field methods, from data and the samples of annealing."""
    clock = time.perf_counter
    starts = ais.samples
    if X is not None:
        starts = np.vstack([X, starts])
    solvers = {name: partial(collapsed_tap, order=order) for order, name in ORDERS.items()}
    if not all(has_third_cumulant(prior) for prior in model.layers):
        del solvers[ORDERS[3]]
    if include_adaptive:
        # The convergent schedule would take much longer, for the few rows that do not converge.
        solvers["adaptive TAP"] = partial(parallel_sweeps_alone, max_iter=300)
    for name, solve in solvers.items():
        start = entries.begin(name)
        solutions = solve(model, starts, n_threads=n_threads)
        chosen, _ = distinct(solutions)
        seconds = clock() - start
        values = solutions.log_partition[chosen]
        values = values[np.isfinite(values)]
        remark = f"distinct solutions: {len(chosen)} of {len(solutions.converged)} starts"
        if not solutions.converged.all():
            remark += f", {np.sum(~solutions.converged)} not converged"
        if not len(values):
            entries.add(LogPartitionEntry(name, -np.inf, None, seconds, "diverged: " + remark))
            continue
        total = log_partition_estimate(solutions)
        if too_low := lacking(total, ais.lower_bound, model.dtype, ais.tolerance):
            remark += f", wrong: at least {too_low:.3g} nats too low"
        for kind, value in (
            ("log-sum-exp", total),
            ("largest", float(values.max())),
            ("mean", log_partition_estimate(solutions, "mean")),
        ):
            entries.add(LogPartitionEntry(f"{name}, {kind}", value, None, seconds, remark))
            remark = ""


def _exact_value(model, include_exact):
    """The exact log-partition; by default None where it is not quick."""
    if include_exact is False:
        return None
    if include_exact:
        return exact(model, averages=False).log_partition
    if isinstance(model, Layered):
        return exact(model, averages=False).log_partition if enumerable(model) else None
    priors = parts_of(model.prior)
    if not (all(map(has_log_prob, priors)) and is_discrete(model.prior)):
        return None
    if not is_small(pairwise_graph(model)):
        return None
    try:
        return exact(model, averages=False, max_bytes=MAX_EXACT_BYTES).log_partition
    except ValueError:  # its graph is too wide, or no state is possible
        return None


def _are_left_out(model, n_sweeps):
    """Whether estimates are left out beside an exact value."""
    if isinstance(model, Layered):
        return False
    return n_sweeps * model.n_units > MAX_DRAWS or has_forbidden(model.couplings)


def _checked_data(model, X):
    """Data as values of the visible units of a layered model, or None."""
    check_machine(model)
    n_visible = n_units(model.layers[0])
    return rows("X", as_states("X", model.layers[0], X), n_visible, model.dtype)
