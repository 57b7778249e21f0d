"""Options of belief propagation, checked."""

from dataclasses import dataclass

from fastmf._common import arguments as check
from fastmf._outcomes import MAX_PRODUCT, MIXED_PRODUCT, SUM_PRODUCT

ALGORITHMS = {"sum": SUM_PRODUCT, "max": MAX_PRODUCT, "mixed": MIXED_PRODUCT}
# Bytes of the messages of rows that are solved together, and of residuals that are kept.
MAX_BYTES = 2**28


@dataclass(kw_only=True)
class BPOptions:
    """Checked options of a solve that do not depend on the model, as in the public functions."""

    algorithm: str = "sum"  # or "max", "mixed", "tree_reweighted"
    damping: float | None = None
    tol: float = 1e-8
    max_iter: int = 1000
    pairwise: bool | str = False
    messages: bool = False
    history: bool = True  # keep the residuals of all sweeps, unless they take more than MAX_BYTES
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
        affordable = 8 * n_rows * self.max_iter <= MAX_BYTES
        return self.max_iter if self.history and affordable else 0
