"""Options of belief propagation, checked, and the arguments of its kernels."""

from dataclasses import dataclass

import numpy as np

from fastmf._common import arguments as check
from fastmf._common.memory import aligned
from fastmf._outcomes import (
    BLOCK_UNITS,
    MAX_PRODUCT,
    MEAN_ROUNDING,
    MIXED_PRODUCT,
    RUNNING,
    SUM_PRODUCT,
)
from fastmf._threads.workers import in_parallel, workers_for
from fastmf.kernels.bp import belief_propagation as bp_kernels
from fastmf.kernels.bp.convergence import ConvergenceRecord, ConvergenceSettings
from fastmf.kernels.bp.messages import (
    PADDING_MULTIPLE,
    TILE_UNITS,
    BPProblem,
    BPRecord,
    BPSettings,
    BPWorkspaces,
)

ALGORITHMS = {"sum": SUM_PRODUCT, "max": MAX_PRODUCT, "mixed": MIXED_PRODUCT}
# Maximum bytes of the messages of rows that are solved together, and of the stored residuals.
MAX_BYTES = 2**28


@dataclass(kw_only=True)
class BPOptions:
    """Options of the public functions, checked, that do not depend on the model."""

    algorithm: str = "sum"  # or "max", "mixed", "tree_reweighted"
    damping: float | None = None
    tol: float = 1e-8
    max_iter: int = 1000
    pairwise: bool | str = False
    messages: bool = False
    history: bool = True  # store the residuals of all sweeps, up to MAX_BYTES
    search: bool = True
    bound: bool = False
    n_starts: int | None = None
    rng: object = None
    n_threads: int | None = None

    def __post_init__(self):
        self.damping, self.tol, self.max_iter, self.n_threads = check.iteration(
            self.damping, self.tol, self.max_iter, self.n_threads
        )
        check.one_of("pairwise", self.pairwise, (False, True, "mean"))
        self.n_starts = check.count("n_starts", self.n_starts, optional=True)

    @property
    def decodes(self):
        """Whether the result is an assignment."""
        return self.algorithm in ("max", "mixed")

    def history_length(self, n_rows):
        """Return the number of residuals to store for each row."""
        # Memory that is not written costs nothing.
        affordable = 8 * n_rows * self.max_iter <= MAX_BYTES
        return self.max_iter if self.history and affordable else 0


# Largest |weight| of {0, 1} units for which no message ratio overflows or underflows.
MAX_WEIGHT = {np.dtype(np.float32): 40.0, np.dtype(np.float64): 340.0}
# Largest logarithm of a product of messages that does not overflow.
MAX_LOG_OF_PRODUCT = {np.dtype(np.float32): 80, np.dtype(np.float64): 690}
# Field of the units that pad the hidden layer: their belief is 0, their log-odds are finite.
PADDING_FIELD = -1e4


def message_layout(options, units, n_rows, has_init):
    """Return the number of threads of a solve, and the shape of the messages.

    Messages are stored for each row if they were given or are read afterwards, and otherwise for
    each thread.
    """
    n, m = units.model.weights.shape
    n_workers = workers_for(n_rows, 10 * n_rows * n * m, options.n_threads, options.max_iter)
    if options.algorithm == "mixed":
        return n_workers, (n_workers, n, 0)
    for_each_row = options.messages or options.pairwise or has_init
    return n_workers, (n_rows if for_each_row else n_workers, n, _padded(m, options.algorithm))


class WeightTooLarge(ValueError):
    """Error for weights beyond the range in which messages are computed."""


def message_dtype(options, units):
    """Choose the type of the messages: float32 only if the largest weights allow it."""
    single = np.dtype(np.float32)
    dtype = units.model.dtype if units.max_weight <= MAX_WEIGHT[single] else np.dtype(np.float64)
    if units.max_weight > MAX_WEIGHT[dtype] and options.algorithm != "max":
        raise WeightTooLarge(
            f"weights must be at most {MAX_WEIGHT[dtype] / units.factor:g} in absolute value, "
            f"got {units.max_weight / units.factor:g}."
        )
    return dtype


def prepared(options, units, dtype, n_rows, memory=None):
    """Make the settings, problem and initial record of the kernels."""
    dtype = np.dtype(dtype)
    settings = _settings(options, units, dtype)
    problem = _problem(options, units, dtype, memory)
    n, n_padded = len(units.model.weights), problem.hidden_field.shape[1]
    record = BPRecord(
        visible=np.zeros((n_rows, n)),
        hidden=np.full((n_rows, n_padded), problem.hidden_field),
        best=np.zeros((n_rows, n), bool),
        objective=np.full(n_rows, -np.inf),
        bethe=np.zeros(n_rows),
        **record_of(n_rows, options)._asdict(),
    )
    return settings, problem, record


def _settings(options, units, dtype):
    max_weight = max(0.1, units.max_weight)
    flush_every = max(1, int(MAX_LOG_OF_PRODUCT[dtype] / max_weight))  # see MAX_WEIGHT
    n_factors = int(MAX_LOG_OF_PRODUCT[np.dtype(np.float64)] / max_weight)
    summed = max_weight if options.algorithm == "max" else 1.0
    error = rounding(units.model.weights.shape, dtype, max_weight, summed)
    algorithm = ALGORITHMS[options.algorithm]
    return BPSettings(
        algorithm=algorithm,
        **convergence_settings(options, error)._asdict(),
        max_factors=n_factors // 2 * 2,  # which are multiplied in pairs
        flush_every=flush_every,
        log_every=n_factors // flush_every * flush_every,
        **bp_kernels.addresses(algorithm, dtype),
    )


def convergence_settings(options, rounding_error):
    """Make the settings by which rows end or are damped, given the size of rounding errors."""
    return ConvergenceSettings(
        tol=float(max(options.tol, rounding_error)) if options.tol else -1.0,
        rounding_error=rounding_error if options.tol else -1.0,
        max_iter=int(options.max_iter),
        adaptive=options.damping is None and options.algorithm != "mixed",
    )


def rounding(shape, dtype, max_weight, max_term):
    """Estimate the change of log-odds that rounding may cause in a sweep."""
    degree = max(*shape, 1)
    messages = MEAN_ROUNDING * np.finfo(dtype).eps * np.sqrt(degree) * max_term
    return float(messages + np.finfo(np.float64).eps * degree * max_weight)


def _padded(n_hidden, algorithm):
    """Return the number of columns of messages; rows must not lie a multiple of 4 KB apart.

    Messages of several units are read together, and would share one place in the cache.
    """
    multiple = PADDING_MULTIPLE[algorithm]
    n_padded = -(-n_hidden // multiple) * multiple
    return n_padded + multiple if n_padded % 512 == 0 else n_padded


def _problem(options, units, dtype, memory):
    n, m = units.model.weights.shape
    n_padded = _padded(m, options.algorithm)
    weights = exponentials = starts = np.zeros((0, n_padded), dtype)
    if options.algorithm == "sum":
        exponentials, starts = memory or aligned((2, n, n_padded), dtype)
    else:
        weights = np.zeros((n, n_padded), dtype)
        factor = dtype.type(units.factor)
        np.multiply(units.model.weights, factor, out=weights[:, :m], casting="same_kind")
    if options.algorithm == "mixed":
        exponentials = aligned((n, n_padded), dtype)
    if options.algorithm != "max":
        exponentials[:, m:] = starts[:, m:] = 1
        couplings, queue = units.model.weights.astype(dtype, copy=False), np.zeros(1, np.int64)
        n_workers = workers_for(n, 10 * n * m, options.n_threads)
        arguments = couplings, float(units.factor), queue, starts, exponentials
        in_parallel(bp_kernels.exponentials, arguments, n_workers)
    hidden_field = np.full((len(units.fields[1]), n_padded), PADDING_FIELD)
    hidden_field[:, :m] = units.fields[1]
    row_sums = weights.sum(1, dtype=np.float64) if options.algorithm == "mixed" else np.zeros(0)
    visible_field = np.ascontiguousarray(units.fields[0])
    return BPProblem(weights, exponentials, starts, row_sums, visible_field, hidden_field)


def record_of(n_rows, options):
    """Make the initial `ConvergenceRecord` of rows."""
    n_history = options.history_length(n_rows)
    return ConvergenceRecord(
        status=np.full(n_rows, RUNNING),
        n_iter=np.zeros(n_rows, np.int64),
        residual=np.zeros(n_rows),
        damping=np.full(n_rows, options.damping or 0.0),
        min_residual=np.full(n_rows, np.inf),
        n_stalled=np.zeros(n_rows, np.int64),
        limit=np.full(n_rows, np.inf),
        history=np.zeros((n_rows, n_history) if n_history else (0, 0)),
    )


def new_workspaces(n_workers, record, dtype, algorithm):
    """Allocate the workspaces of the kernels for a record, one for each worker."""
    n_blocks = -(-record.visible.shape[1] // BLOCK_UNITS)
    n_padded = record.hidden.shape[1]
    n_decoded = n_blocks if algorithm == MAX_PRODUCT else 0
    return BPWorkspaces(
        beliefs=aligned((n_workers, 3, n_padded), dtype, np.zeros),
        message_sums=np.zeros((n_workers, n_blocks, n_padded)),
        decoded_sums=np.zeros((n_workers, n_decoded, n_padded)),
        change=np.zeros((n_workers, n_blocks)),
        decoded_field=np.zeros((n_workers, n_blocks)),
        received=aligned((n_workers, TILE_UNITS, n_padded), dtype, np.zeros),
        tile=np.zeros((n_workers, 5, TILE_UNITS)),
        product=aligned((n_workers, n_padded), dtype, np.zeros),
        message_changes=aligned((n_workers, n_padded), dtype, np.zeros),
        product64=aligned((n_workers, n_padded), np.float64, np.zeros),
    )
