"""Estimates of the log-partition of one model by several methods."""

import time
from typing import NamedTuple

import numpy as np

from fastmf._common.arguments import count, flag, generator, rows
from fastmf._common.names import pandas
from fastmf._jit.messages import to_stderr
from fastmf.evaluation.annealed import annealed_quietly
from fastmf.inference.mean_field.gaussian_layers import collapsed_tap
from fastmf.inference.mean_field.likelihood import log_partition_estimate
from fastmf.inference.mean_field.lower_bound import lacking
from fastmf.inference.mean_field.solutions import distinct
from fastmf.inference.missing.layered import enumerable
from fastmf.models import exact
from fastmf.models._graph_sums import is_small
from fastmf.models._state_tables import pairwise_graph
from fastmf.models.boltzmann import check_machine
from fastmf.models.layered import Layered
from fastmf.priors._groups import as_states
from fastmf.priors._protocol import has_log_prob, has_third_cumulant, n_units, parts_of
from fastmf.priors._queries import is_discrete

ORDERS = {1: "NMF", 2: "TAP2", 3: "TAP3"}


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
    >>> report = mf.evaluation.log_partition_report(model, n_chains=10, n_steps=10)
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

    def as_frame(self):
        """Return the entries as the rows of a data frame of pandas."""
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
        Starts of the mean-field solutions and of the chains that sample the model, such as a
        thousand rows of training data. Samples of the model are starts, too.
    n_chains, n_steps : int
        Numbers of chains and steps of annealed importance sampling.
    include_exact : bool, optional
        True sums exactly, and estimates beside it; False estimates only. Default: exact if that is
        quick (2^24 states of the smaller layer times units of the other; graphs of small width of
        any size), and for a BoltzmannMachine then alone.
    n_threads : int, optional
    rng : numpy.random.Generator or int, default 0
    verbose : bool, default False
        Whether to print each estimate to stderr as soon as it is known.

    Returns
    -------
    LogPartitionReport
        Entries "exact" (if summed), "AIS", "reverse AIS", and for each of NMF, TAP2 and TAP3 (of
        binary and categorical units): "TAP2, log-sum-exp" over the distinct solutions, each taken
        as a phase, "TAP2, largest" and "TAP2, mean" (Tramel et al. 2018). Where all solutions
        diverge there is one entry, -inf.

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
        alone = include_exact is None and not isinstance(model, Layered)
        remark = "estimates are left out: include_exact=True makes them, too" if alone else ""
        add("exact", value, None, clock() - start, remark)
        if alone:
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
    """Add the entries of all mean-field methods, from data and the samples of annealing."""
    starts = ais.samples if X is None else np.vstack([X, ais.samples])
    clock = time.perf_counter
    for order, name in ORDERS.items():
        if order == 3 and not all(map(has_third_cumulant, model.layers)):
            continue
        start = clock()
        solutions = collapsed_tap(model, starts, order=order, n_threads=n_threads)
        chosen, _ = distinct(solutions)
        seconds = clock() - start
        values = solutions.log_partition[chosen]
        values = values[np.isfinite(values)]
        remark = f"distinct solutions: {len(chosen)} of {len(solutions.converged)} starts"
        if not solutions.converged.all():
            remark += f", {np.sum(~solutions.converged)} not converged"
        if not len(values):
            add(name, -np.inf, None, seconds, "diverged: " + remark)
            continue
        total = log_partition_estimate(solutions)
        if too_low := lacking(total, ais.lower_bound, model.dtype, ais.tolerance):
            remark += f", wrong: at least {too_low:.3g} nats too low"
        add(f"{name}, log-sum-exp", total, None, seconds, remark)
        add(f"{name}, largest", float(values.max()), None, seconds, "")
        add(f"{name}, mean", log_partition_estimate(solutions, "mean"), None, seconds, "")


def _exact_value(model, include_exact):
    """The exact log-partition; by default None where it is not quick."""
    if include_exact is None and isinstance(model, Layered):
        include_exact = enumerable(model)
    if include_exact is not None:
        return exact(model, averages=False).log_partition if include_exact else None
    if not is_discrete(model.prior):
        return None
    if not (all(map(has_log_prob, parts_of(model.prior))) and is_small(pairwise_graph(model))):
        return None
    try:
        return exact(model, averages=False, max_bytes=2**29).log_partition
    except ValueError:  # its graph is too wide, or no state is possible
        return None
