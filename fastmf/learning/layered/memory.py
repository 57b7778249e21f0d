"""Memory of compiled training steps, and the tables that say where it is."""

from typing import NamedTuple

import numpy as np

from fastmf.inference.mean_field._layout import rows_per_worker
from fastmf.kernels.linear.product import empty_panels, panel_width
from fastmf.kernels.mean_field.arguments import TapSettings, Tilt
from fastmf.kernels.mean_field.rows import MEAN, SLOT_SIZE, VAR, A, ActiveRows, worker_shapes
from fastmf.kernels.training import arguments as types
from fastmf.priors._compiled import AddressTable


class Term(NamedTuple):
    """A term of the gradient by couplings: scales * W^power * (below' above), summed over rows.

    Parameters
    ----------
    rows : array of shape (n_rows, n_units)
        In which the units below and above are.
    scales : array of shape (n_rows,)
    power : int
    """

    rows: np.ndarray
    scales: np.ndarray
    power: int


class Gradient(NamedTuple):
    """The terms of the gradient by all couplings.

    Parameters
    ----------
    table : AddressTable of shape (n_terms, N_TERM_COLUMNS)
    ends : list of int
        The term after the last one of each matrix of couplings.
    scales : array of shape (n_rows,)
        Weight of each row of the terms, one after another.
    hidden : int64 array of shape (n_rows, 4)
        The hidden units of these rows, and where they are packed.
    n_rows : int
        Most rows of the terms of one matrix.
    """

    table: AddressTable
    ends: list
    scales: np.ndarray
    hidden: np.ndarray
    n_rows: int


def terms_of(k, data, state, order):
    """The terms of the gradient by the couplings `k`, those of the highest power first."""
    n_starts = len(state[MEAN])
    of_model = np.full(n_starts, -1 / n_starts)
    terms = [Term(state[A], of_model / 2, 2)] if order == 3 else []
    terms += [Term(state[VAR], of_model, 1)] if order >= 2 else []
    if data is None:
        return terms + ([Term(state[MEAN], of_model, 0)] if order else [])
    of_data = np.full(len(data.mean), 1 / len(data.mean))
    if k > 0:  # the lowest units are data, of no variance
        terms += [Term(data.a, of_data / 2, 2)] if order == 3 else []
        terms += [Term(data.var, of_data, 1)] if order >= 2 else []
        terms.sort(key=lambda term: -term.power)
    # After data come the means of the model.
    return [*terms, Term(data.mean, np.append(of_data, of_model), 0)]


def gradient_of(terms, bounds, dtype):
    """The table of the terms of all couplings, with memory for their packed hidden units."""
    table, owners, scales, hidden, sizes = [], [], [np.zeros(0, dtype)], [], [0]
    size, row_bytes = dtype.itemsize, panel_width(dtype) * dtype.itemsize
    for of_coupling, below, above in zip(terms, bounds[:-1], bounds[1:], strict=True):
        n_above, n_rows = above.stop - above.start, sum(len(t.scales) for t in of_coupling)
        rights, first = empty_panels(n_rows, n_above, dtype), 0
        rights[:] = 0  # and the padding stays so
        for rows, of_rows, power in of_coupling:
            start, stride, n = rows.ctypes.data, rows.shape[1], len(of_rows)
            packed = rights.ctypes.data, n_rows, first
            table.append([start + below.start * size, n, stride, power, *packed])
            places = np.arange(n)[:, None] * [stride * size, 0, row_bytes, 0]
            origin = rights.ctypes.data + first * row_bytes
            hidden.append(
                places + [start + above.start * size, n_above, origin, n_rows * row_bytes]
            )
            first += n
        owners += [rights, *(term.rows for term in of_coupling)]
        scales += [term.scales for term in of_coupling]
        sizes.append(n_rows)
    ends = np.cumsum([len(of_coupling) for of_coupling in terms]).tolist()
    table = AddressTable(np.array(table, np.int64).reshape(-1, types.N_TERM_COLUMNS), owners)
    hidden = np.concatenate([np.zeros((0, 4), np.int64), *hidden])
    return Gradient(table, ends, np.concatenate(scales).astype(dtype), hidden, max(sizes))


def tasks_of(starts, sizes, n_units):
    """Tasks that take so many units of each layer: the layer, the first one, and their number."""
    tasks = [
        [k, start + first, min(n_units, size - first)]
        for k, (start, size) in enumerate(zip(starts, sizes, strict=True))
        for first in range(0, size, n_units)
    ]
    return np.array(tasks, np.int64)


class Couplings:
    """The matrices of couplings, their last steps, and the table that kernels take.

    Parameters
    ----------
    model : RBM or DBM
    ends : list of int
        See `Gradient`.
    with_effects, conditioned : bool
        Whether there is memory for what groups of states, or covariances of Gaussian units that
        are integrated out, add to the gradient, and for the packed gradient times the
        preconditioner above.

    Attributes
    ----------
    weights, velocity : list of array of shape (n_below, n_above)
    offset_products : list of array of shape (n_panels, n_above)
        Inner products of the gradient with the offsets below, some rows of couplings after others.
    effects : list of array of shape (n_below, n_above), or (0, n_above)
    table : AddressTable of shape (n_couplings, N_COUPLING_COLUMNS)
    """

    def __init__(self, model, ends, with_effects=False, conditioned=False):
        width = panel_width(model.dtype)
        self.weights, self.velocity = (
            [np.zeros_like(w, order="C") for w in model.couplings] for _ in range(2)
        )
        self.offset_products = [
            np.zeros((-(-len(w) // width), w.shape[1]), w.dtype) for w in model.couplings
        ]
        self.effects = [np.zeros_like(w if with_effects else w[:0]) for w in self.weights]
        shapes = [w.shape if conditioned else (0, 0) for w in self.weights]
        products = [empty_panels(*shape, model.dtype) for shape in shapes]
        for packed in products:
            packed[:] = 0  # and the padding stays so
        arrays = [self.weights, self.velocity, self.offset_products, self.effects, products]
        arrays = list(zip(*arrays, strict=True))
        terms = zip([0, *ends[:-1]], ends, strict=True)
        self.table = AddressTable(
            [
                [*(a.ctypes.data if a.size else 0 for a in of), *of_terms]
                for of, of_terms in zip(arrays, terms, strict=True)
            ],
            arrays,
        )

    def load(self, weights, velocity):
        """Take over weights and their last step."""
        for mine, given in zip(self.weights + self.velocity, (*weights, *velocity), strict=True):
            mine[:] = given

    def copies(self):
        """Copies of the weights, for a model to keep, and of their last step."""
        weights = [w.copy() for w in self.weights]
        for w in weights:
            w.flags.writeable = False
        return tuple(weights), tuple(v.copy() for v in self.velocity)


def solver_of(layout, order, n_rows, n_workers, **options):
    """The solver of a model, with memory for so many threads and no external tilts."""
    dtype = layout.layers.of_model[0].couplings.dtype
    settings = TapSettings(
        order=order,
        **{"tol": 1e-8, "late_residual": 0.0} | options,
        **layout.addresses(),
        rows_per_worker=rows_per_worker(n_rows, n_workers, layout.max_worker_rows),
        resolution=float(np.finfo(dtype).eps),
    )
    shapes = worker_shapes(settings, layout.n_units, layout.max_columns, layout.n_group_fields)
    slots = np.empty((n_workers, 1, settings.rows_per_worker, SLOT_SIZE))
    parts = (np.empty((n_workers, *shape), dtype) for shape in shapes)
    none = np.zeros((1, layout.n_units), dtype)
    tilt = Tilt(none, none, none.astype(bool))
    return types.Solver(layout.sweep, settings, tilt, ActiveRows(slots, *parts))
