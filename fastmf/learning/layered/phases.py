"""The phases of compiled training steps: their kernels, their memory, and what they require.

A step has four phases. Here are those of rows of data and of states of the model; those that move
couplings and units are in `fastmf.learning.layered.moves`.
"""

import weakref
from collections.abc import Callable, Sequence
from functools import cache
from typing import NamedTuple

import numpy as np
from scipy.sparse import csr_array

from fastmf.inference.mean_field._rows import record_from
from fastmf.inference.mean_field.data import sparse_rows
from fastmf.kernels.linear.product import panel_width
from fastmf.kernels.mean_field.rows import MEAN
from fastmf.kernels.training import arguments as types
from fastmf.kernels.training import gradients, groups, rows, sparse
from fastmf.learning.layered.gradients import MEAN_FIELD, ORDER_OF_GRADIENT
from fastmf.learning.layered.memory import solver_of
from fastmf.learning.layered.starts import starts
from fastmf.learning.training.hidden_scales import has_free_units
from fastmf.models._layered import is_integrated
from fastmf.priors import Bernoulli, Ising
from fastmf.priors._compiled import AddressTable
from fastmf.priors._groups import has_groups
from fastmf.priors._protocol import can_draw, has_third_cumulant


class Problem(NamedTuple):
    """Model, settings and data of a run.

    Parameters
    ----------
    model : RBM or DBM
    settings : LayeredSettings
    sparse : bool
        Whether rows of data are sparse.
    """

    model: object
    settings: object
    sparse: bool

    @property
    def order(self):
        """Order of the expansion in the couplings between layers, or 0 for samples.

        Where Gaussian units are integrated out, these couplings are no part of an expansion.
        """
        return min(ORDER_OF_GRADIENT.get(self.settings.gradient, 0), 1 if self.integrated else 3)

    @property
    def integrated(self):
        """Whether there are mean-field solutions without Gaussian units, integrated out."""
        return self.settings.gradient in MEAN_FIELD and is_integrated(self.model)

    @property
    def persistent(self):
        """Whether solutions or samples go on from those of the step before."""
        gradient, kind = self.settings.gradient, self.settings.starts
        return gradient == "pcd" or (gradient in MEAN_FIELD and kind == "persistent")

    @property
    def fields_only(self):
        """Whether it is an RBM of binary units, of which fields alone are learned."""
        binary = all(type(prior) in (Bernoulli, Ising) for prior in self.model.layers)
        return binary and not self.model.deep

    @property
    def scaled(self):
        """Whether there are units whose scale is free: their steps are scaled."""
        return has_free_units(self.model.layers)

    @property
    def grouped(self):
        """Whether there are mean-field solutions of groups of states."""
        return self.order > 0 and any(map(has_groups, self.model.layers))


class Phase:
    """One phase of a step.

    Parameters
    ----------
    run : CompiledSteps
        Whose phase it is.
    arguments : dict
        Arguments of `fastmf.kernels.training.train.train` by their names; those of this phase are
        added.

    Attributes
    ----------
    kernels : sequence
        The kernels that it consists of: see `fastmf.kernels.training.train.phase_table`.
    after : callable or None
        Function that is called after these; no phase has one where units are moved in the kernel.
    """

    kernels: Sequence = ()
    after: Callable | None = None

    def __init__(self, run, arguments):
        # A cycle of references would keep the memory until the garbage collector runs.
        self.run = weakref.proxy(run)

    @staticmethod
    def requires(problem):
        """Requirements in words, and whether the problem meets them: a dict."""
        return {}

    def load(self, state, rows):
        """Take over what a state has; `rows` are those of data of the next batch."""

    def store(self, state):
        """Give a state what it keeps between steps."""


# --- rows of data ---------------------------------------------------------------------------------


class DenseRows(Phase):
    """Moments of the hidden units of an RBM given dense rows."""

    kernels: Sequence = (rows.read_rows,)

    def __init__(self, run, arguments):
        super().__init__(run, arguments)
        # The rows of data lie before those of the model, so that one product is of both.
        memory = np.zeros((run.n_batch + 4 * run.n_starts, run.n_units), run.dtype)
        others = np.zeros((3, run.n_batch, run.n_units), run.dtype)
        state = memory[run.n_batch :].reshape(4, run.n_starts, run.n_units)
        # Several tasks for each thread, but of not so few rows that products are slow.
        each = -(-run.n_batch // (4 * run.n_workers))
        arguments |= {
            "data": types.Moments(memory[: run.n_batch], *others),
            "model": record_from(state, run.options.n_sweeps, False),
            "task_rows": min(gradients.TASK_ROWS, max(4, each // 4 * 4)),
        }

    def batches(self, rows, seeds, rates):
        """The `Batches` of some rows of the data."""
        data = AddressTable([self.run.X.ctypes.data], self.run.X)
        return types.Batches(data, rows, seeds, rates, _no_rows(self.run.dtype))


@cache
def _no_rows(dtype):
    """The sparse rows of dense data."""
    return sparse_rows(csr_array((0, 0), dtype=dtype), dtype)


# --- states of the model --------------------------------------------------------------------------


class States(Phase):
    """Solutions or samples, which may go on from those of the step before."""

    def load(self, state, rows):
        """Let states go on from those of a step, or start from data."""
        if not self.run.problem.persistent:
            return
        planes, bounds = self.run.statistics.model.state, self.run.layout.bounds
        planes[:] = 0
        if state.chains:
            for part, chain in zip(self.kept(*planes[:2]), state.chains, strict=True):
                part[:] = chain
            return
        X, n_starts = self.run.X[rows], self.run.n_starts
        planes[MEAN][:, bounds[0]] = starts("data", state.model, X, n_starts, 0.0, None)
        for units in bounds[2:]:
            planes[MEAN][:, units] = self.run.statistics.uncoupled[MEAN, units]

    def store(self, state):
        """Give a state what the next step goes on from."""
        if self.run.problem.persistent:
            kept = self.kept(*self.run.statistics.model.state[:2])
            state.chains = tuple(part.copy() for part in kept)

    def kept(self, mean, var):
        """Arrays that persistent solutions go on from: means of all layers, then variances."""
        return [plane[:, units] for plane in (mean, var) for units in self.run.layout.bounds]


class Solve(States):
    """Mean-field solutions of the model."""

    @staticmethod
    def requires(problem):
        """The solver iterates all units, from starts that need no draws."""
        model, order = problem.model, problem.order
        third = all(map(has_third_cumulant, model.layers))
        return {
            "a gradient other than 'adaptive_tap'": order > 0,
            "starts='data' or 'persistent'": problem.settings.starts in ("data", "persistent"),
            "third cumulants of all units": order < 3 or third,
            "no groups of states of deep machines or in the third order": not (
                problem.grouped and (model.deep or order == 3)
            ),
        }

    def __init__(self, run, arguments):
        super().__init__(run, arguments)
        order, grouped, deep = run.problem.order, run.problem.grouped, run.problem.model.deep
        from_data = run.options.starts == "data"
        # The deeper layers, and the fields of single groups, need the whole of the first sweep.
        half = from_data and run.n_starts <= run.n_batch and not (deep or grouped)
        run.solvers[types.MODEL] = solver_of(
            *(run.layout, order, run.n_starts, run.n_workers),
            max_iter=run.options.n_sweeps,
            half_sweep_done=half,
            tilts_kept=not run.problem.fields_only,
        )
        of_groups = grouped and order == 2
        self.kernels = [
            types.MODEL,
            *[rows.find_cumulants] * (order == 3),
            *[groups.find_effects] * of_groups,
        ]
        if of_groups:
            width = panel_width(run.dtype)
            shape = run.n_workers, -(-max(run.sizes[1:]) // width), run.n_starts, width
            second_moments = np.zeros((run.n_starts, run.n_units), run.dtype)
            arguments |= {"second_moments": second_moments, "right": np.zeros(shape, run.dtype)}


class Sample(States):
    """Gibbs samples of the even layers, and moments of the odd ones given these."""

    @staticmethod
    def requires(problem):
        """Kernels draw the units."""
        return {
            "gradient='cd' or 'pcd'": problem.settings.gradient in ("cd", "pcd"),
            "units that are drawn in kernels": all(map(can_draw, problem.model.layers)),
        }

    def __init__(self, run, arguments):
        super().__init__(run, arguments)
        self.kernels = [sparse.sample_sparse_rows if run.problem.sparse else rows.sample_rows]
        each = max(4, -(-run.n_starts // run.n_workers))
        arguments["task_samples"] = min(gradients.TASK_ROWS, each)

    def kept(self, mean, var):
        """Arrays that persistent samples go on from: the even layers, which come first."""
        return [mean[:, : self.run.layout.bounds[1].start]]
