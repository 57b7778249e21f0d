"""Options of belief propagation, checked."""

from dataclasses import dataclass

from fastmf._common import arguments as check
from fastmf.kernels.bp import arguments as bp_types

ALGORITHMS = {
    "sum": bp_types.SUM_PRODUCT,
    "max": bp_types.MAX_PRODUCT,
    "mixed": bp_types.MIXED_PRODUCT,
}
# Residuals beyond this number are not kept; cycles are then not recognised.
MAX_HISTORY_SIZE = 2**26


@dataclass(kw_only=True)
class BPOptions:
    """Options of a solve that do not depend on the model.

    Parameters
    ----------
    algorithm : {"sum", "max", "mixed", "tree_reweighted"}
    damping, tol, max_iter, n_starts, rng, n_threads
        As in `belief_propagation`.
    pairwise : bool or "mean"
        Compute pair beliefs, of all rows or averaged over rows.
    messages : bool
        Return the messages.
    log_partition : bool
        Compute the log-partition.
    history : bool
        Keep the residuals of all sweeps, unless they are more than `MAX_HISTORY_SIZE`.
    search : bool
        Improve decoded assignments by a local search.

    Raises
    ------
    ValueError, TypeError
        For options out of range.
    """

    algorithm: str = "sum"
    damping: float | None = None
    tol: float = 1e-8
    max_iter: int = 1000
    pairwise: bool | str = False
    messages: bool = False
    log_partition: bool = True
    history: bool = True
    search: bool = True
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
    def kernel_algorithm(self):
        """The algorithm's code in the kernels."""
        return ALGORITHMS[self.algorithm]

    @property
    def decodes(self):
        """Whether the result is an assignment."""
        return self.algorithm in ("max", "mixed")

    def history_length(self, n_rows):
        """Number of residuals to keep of each row."""
        # Memory that is not written costs nothing.
        affordable = n_rows * self.max_iter <= MAX_HISTORY_SIZE
        return self.max_iter if self.history and affordable else 0
