"""Arguments and working memory of the kernels of belief propagation.

Notation as in `fastmf.kernels.bp.belief_propagation`.
"""

from typing import NamedTuple

from fastmf._jit.argument_types import Bool, Float64, Int64, Real

# Visible units whose beliefs are computed together, so that the exponentials vectorise; and of one
# task of `pair_beliefs`.
TILE_UNITS = 16
# Hidden units are padded to a multiple of this: a vector of float32, or two.
PADDING_MULTIPLE = {"sum": 16, "max": 32, "mixed": 16}

# Rows of `BPWorkspaces.tile`.
LOG_ODDS, P, Q, CHANGES, LOGS = range(5)


class BPProblem(NamedTuple):
    """Couplings and fields of {0, 1} units."""

    weights: Real[2]  # (n_visible, n_padded): not read by sum-product; may then have no rows
    # (n_visible, n_padded): exp(weights). Not read by max-product; may then have no rows
    exponentials: Real[2]
    # (n_visible, n_padded): exp(weights / 2), the messages that rows start from. Read by
    # sum-product, if there are fewer entries of messages than rows; may otherwise have no rows
    starts: Real[2]
    row_sums: Float64[1]  # (n_visible,): sums of the rows of `weights`; read by mixed-product only
    visible_field: Float64[2]  # (1 or n_rows, n_visible)
    hidden_field: Float64[2]  # (1 or n_rows, n_padded)


class BPSettings(NamedTuple):
    """Options of the iteration.

    Parameters
    ----------
    algorithm : int
        SUM_PRODUCT, MAX_PRODUCT or MIXED_PRODUCT.
    adaptive, tol, rounding_error, max_iter
        As in `ConvergenceSettings`.
    max_factors : int
        Number of messages to one visible unit whose product is a number in float64.
    flush_every, log_every : int
        Number of visible units after which the products of their messages to the hidden units are
        moved to float64, and after which their logarithm is taken, a multiple of the first.
    block, bethe, finish, objective, pair_logs, log_products, visible_beliefs,
    hidden_beliefs, add_softplus : int
        Addresses of the functions of `fastmf.kernels.bp.blocks`, 0 for functions that the
        algorithm does not call.
    """

    algorithm: int
    adaptive: bool
    tol: float
    rounding_error: float
    max_iter: int
    max_factors: int
    flush_every: int
    log_every: int
    block: int = 0
    bethe: int = 0
    finish: int = 0
    objective: int = 0
    pair_logs: int = 0
    log_products: int = 0
    visible_beliefs: int = 0
    hidden_beliefs: int = 0
    add_softplus: int = 0


class BPRecord(NamedTuple):
    """Beliefs and convergence record of all rows."""

    visible: Float64[2]  # (n_rows, n_visible) and (n_rows, n_padded): log-odds of the beliefs
    hidden: Float64[2]  # (n_rows, n_visible) and (n_rows, n_padded)
    # bool (n_rows, n_visible): best assignment of all sweeps, of max- and mixed-product
    best: Bool[2]
    # (n_rows,): log-probability of that assignment plus log Z, with the hidden units maximised
    # (max-product) or summed out (mixed-product)
    objective: Float64[1]
    bethe: Float64[1]  # (n_rows,): Bethe log-partition, of sum-product
    status: Int64[1]  # as in `ConvergenceRecord` (this and the next 7)
    n_iter: Int64[1]
    residual: Float64[1]
    damping: Float64[1]
    min_residual: Float64[1]
    n_stalled: Int64[1]
    limit: Float64[1]
    history: Float64[2]


class BPWorkspaces(NamedTuple):
    """Results of the blocks of a sweep, and the buffers that this needs.

    All have one entry for each worker.
    """

    # (n_workers, 3, n_padded): p, q and log-odds of the hidden units, in the type of the messages
    beliefs: Real[3]
    # (n_workers, n_blocks, n_padded): sums over a block of the log-messages to each hidden unit
    message_sums: Float64[3]
    # (n_workers, n_blocks or 0, n_padded): sums over the units decoded as 1 of their couplings;
    # max-product only
    decoded_sums: Float64[3]
    # (n_workers, n_blocks): largest change of a belief or message, -1 before the first sweep of a
    # row whose messages are not set; sum of the fields of the units decoded as 1
    change: Float64[2]
    decoded_field: Float64[2]  # (n_workers, n_blocks)
    # (n_workers, TILE_UNITS, n_padded): messages to a tile of visible units, of max-product
    received: Real[3]
    # (n_workers, 5, TILE_UNITS): log-odds of these units, P, Q, the changes of their beliefs, and
    # logarithms of products
    tile: Float64[3]
    # (n_workers, n_padded): products of messages to the hidden units; sums, for max- and
    # mixed-product
    product: Real[2]
    # (n_workers, n_padded): largest change of a message to each hidden unit, relative for
    # sum-product
    message_changes: Real[2]
    # (n_workers, n_padded): products of these products; changes of the beliefs of the hidden units
    product64: Float64[2]
