from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple

from numpy.typing import ArrayLike

from fastmf import FixedPoint
from fastmf._common.signatures import Array, Path, Rng
from fastmf.models import DBM, RBM, BoltzmannMachine

class AnnealedEstimate(NamedTuple):
    log_partition: float
    error: float
    reverse: float
    reverse_error: float
    log_weights: Array
    reverse_log_weights: Array
    samples: Array
    n_steps: int = 0
    tolerance: float = 0.5
    lower_bound: float = ...
    @property
    def lacking(self) -> float: ...
    @property
    def gap(self) -> float: ...
    @property
    def effective_size(self) -> float: ...
    @property
    def reverse_effective_size(self) -> float: ...
    @property
    def converged(self) -> bool: ...
    @property
    def message(self) -> str: ...

class _Entry(NamedTuple):
    name: str
    log_partition: float
    error: float | None
    seconds: float
    remark: str

class LogPartitionReport(tuple[_Entry, ...]):
    def __getitem__(self, key: Any) -> Any: ...
    def as_frame(self) -> Any: ...

class Solutions(NamedTuple):
    visible: Array
    hidden: Array | None
    free_energy: Array
    log_partition: Array
    converged: Array
    members: Array
    fixed_points: FixedPoint | None = None
    @property
    def reliable(self) -> Any: ...
    @property
    def message(self) -> Any: ...
    @property
    def counts(self) -> Array: ...
    @property
    def weights(self) -> Array: ...
    def as_frame(self) -> Any: ...

class Tracker:
    epochs: set[int] | None
    quantities: dict[str, Callable[[Any], Any]]
    epoch: list[int]
    values: dict[str, list[Any]]
    def __init__(
        self, *, epochs: Sequence[int] | None = None, **quantities: Callable[[Any], Any]
    ) -> None: ...
    def __call__(self, state: Any) -> None: ...
    def record(self, model: Any, epoch: int) -> None: ...

class Checkpoint:
    path: Path
    def __init__(self, path: Path) -> None: ...
    def __call__(self, state: Any) -> None: ...

class IterateAverage:
    n_averaged: int
    def __init__(self, first_epoch: int = 1) -> None: ...
    @property
    def model(self) -> Any: ...
    def __call__(self, state: Any) -> None: ...
    def add(self, model: Any) -> None: ...

def annealed_importance_sampling(
    model: RBM | DBM,
    n_chains: int = 100,
    n_steps: int = 1000,
    *,
    data: ArrayLike | None = None,
    tolerance: float = 0.5,
    max_steps: int | None = None,
    n_threads: int | None = None,
    rng: Rng = None,
    verbose: bool = False,
) -> AnnealedEstimate: ...
def log_partition_report(
    model: RBM | DBM | BoltzmannMachine,
    X: ArrayLike | None = None,
    *,
    n_chains: int = 100,
    n_steps: int = 1000,
    include_exact: bool | None = None,
    n_threads: int | None = None,
    rng: Rng = 0,
    verbose: bool = False,
) -> LogPartitionReport: ...
def gibbs_chains(
    model: RBM | DBM | BoltzmannMachine,
    n_chains: int = 4,
    n_draws: int = 1000,
    *,
    n_warmup: int = 500,
    thin: int = 1,
    init: ArrayLike | None = None,
    n_threads: int | None = None,
    rng: Rng = None,
) -> dict[str, Array]: ...
def pseudo_log_likelihood(model: RBM | DBM, X: ArrayLike) -> Array: ...
def log_likelihood(
    model: RBM | DBM, X: ArrayLike, log_partition: float, **options: Any
) -> Array: ...
def solutions(
    model: RBM | DBM | BoltzmannMachine,
    starts: int | ArrayLike = 1000,
    *,
    solver: Literal["tap", "relaxed_bp", "adaptive_tap"] = "tap",
    merge_tol: float = 0.01,
    **options: Any,
) -> Solutions: ...
def susceptibility(model: RBM | DBM | BoltzmannMachine, result: FixedPoint) -> Array: ...
def flip(X: ArrayLike, p: float, rng: Rng) -> Array: ...
def matthews_correlation(truth: ArrayLike, estimate: ArrayLike) -> Any: ...
def nearest_neighbour(Y: ArrayLike, X: ArrayLike) -> Array: ...
def pointwise_estimate(Y: ArrayLike, means: ArrayLike, flip_probability: float) -> Array: ...
def contact_precision(
    scores: ArrayLike,
    distances: ArrayLike,
    n_top: int | ArrayLike,
    separation: int = 5,
    cutoff: float = 8.0,
) -> Any: ...
def contact_scores(
    couplings: ArrayLike,
    gauge: str | None = "zero-sum",
    ignore: int | None = None,
    apc: bool = True,
    *,
    sizes: ArrayLike | None = None,
) -> Array: ...
def effective_couplings(
    model: RBM,
    X: ArrayLike,
    *,
    n_background: int = 50,
    sample_weight: ArrayLike | None = None,
    n_threads: int | None = None,
    rng: Rng = 0,
) -> Array: ...
def ranked_pairs(
    scores: ArrayLike, separation: int = 5, allowed: ArrayLike | None = None
) -> tuple[Array, Array]: ...
