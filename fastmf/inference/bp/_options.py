"""Options of `belief_propagation`, checked."""

from dataclasses import dataclass

from fastmf._common import arguments as check
from fastmf.kernels.bp import arguments as bp_types

ALGORITHMS = {
    "sum": bp_types.SUM_PRODUCT,
    "max": bp_types.MAX_PRODUCT,
    "mixed": bp_types.MIXED_PRODUCT,
}
ON_GRAPHS, AUTO = "tree_reweighted", "auto"
BP_SCHEDULES = "parallel", "sequential"
# Residuals beyond this number are kept only if asked for; cycles are then not recognised.
MAX_HISTORY_SIZE = 2**26


@dataclass(kw_only=True)
class BPOptions:
    """Options of `belief_propagation` that do not depend on the model; see there.

    Raises
    ------
    ValueError, TypeError
        For options out of range, or that the algorithm does not have.
    """

    algorithm: str = "sum"
    damping: float | None = None
    tol: float = 1e-8
    max_iter: int = 1000
    history: bool = False
    messages: bool = False
    pairwise: bool | str = False
    log_partition: bool = True
    polish: bool | None = None
    n_restarts: int = 0
    spectral_radius: bool = False
    schedule: str | None = None
    n_starts: int | None = None
    rng: object = None
    n_threads: int | None = None

    def __post_init__(self):
        check.one_of("algorithm", self.algorithm, (*ALGORITHMS, ON_GRAPHS, AUTO))
        self.damping, self.tol, self.max_iter, self.n_threads = check.iteration(
            self.damping, self.tol, self.max_iter, self.n_threads
        )
        if self.damping and self.algorithm == "mixed":
            raise ValueError("damping must be None or 0 for mixed-product: decisions are hard.")
        check.one_of("pairwise", self.pairwise, (False, True, "mean"))
        decodes = self.algorithm in ("max", "mixed")
        if self.polish and not decodes:
            raise ValueError("polish needs algorithm='max' or 'mixed'.")
        if self.pairwise and decodes:
            raise ValueError("pairwise needs algorithm='sum', 'tree_reweighted' or 'auto'.")
        if self.messages and self.algorithm == "mixed":
            raise ValueError(
                "messages must be False for mixed-product, which has none: start it from an "
                "assignment."
            )
        self.n_restarts = check.count("n_restarts", self.n_restarts, 0)
        check.one_of("schedule", self.schedule, (None, *BP_SCHEDULES))
        if self.algorithm == AUTO and (self.messages or self.history or self.spectral_radius):
            raise ValueError("messages, history and spectral_radius: not available with 'auto'.")
        if self.n_starts is not None:
            self._check_starts()

    def _check_starts(self):
        self.n_starts = check.count("n_starts", self.n_starts)
        if self.algorithm != "sum":
            raise ValueError("n_starts needs algorithm='sum'; n_restarts is for decoding.")
        if self.messages or self.history:
            raise ValueError("n_starts: not available with messages or history.")

    @property
    def kernel_algorithm(self):
        """The algorithm's code in the kernels."""
        return ALGORITHMS[self.algorithm]

    @property
    def polishes(self):
        """Whether the assignment is polished."""
        decodes = self.algorithm in ("max", "mixed")
        return decodes if self.polish is None else bool(self.polish)

    def history_length(self, n_rows):
        """Number of residuals of each row to keep; by default all, to recognise cycles."""
        # Memory that is not written costs nothing.
        affordable = self.tol and n_rows * self.max_iter <= MAX_HISTORY_SIZE
        return self.max_iter if self.history or affordable else 0
