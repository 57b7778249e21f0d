"""Types of the public names; `tests/typing` compares them with what they describe."""

from collections.abc import Callable
from typing import Any, NamedTuple

from numpy.typing import ArrayLike

from fastmf import convert as convert
from fastmf import datasets as datasets
from fastmf import distributed as distributed
from fastmf import evaluation as evaluation
from fastmf import plotting as plotting
from fastmf import priors as priors
from fastmf._common.signatures import Array, Layers, Rng
from fastmf.estimators import ConditionalRBM as ConditionalRBM
from fastmf.estimators import DeepBoltzmannMachine as DeepBoltzmannMachine
from fastmf.estimators import FullyVisibleBoltzmannMachine as FullyVisibleBoltzmannMachine
from fastmf.estimators import GeneralizedRBM as GeneralizedRBM
from fastmf.estimators import OrdinalMachine as OrdinalMachine
from fastmf.estimators import PottsMachine as PottsMachine
from fastmf.estimators import SpikeSlabClassifier as SpikeSlabClassifier
from fastmf.estimators import SpikeSlabRegressor as SpikeSlabRegressor
from fastmf.models import CRBM as CRBM
from fastmf.models import DBM as DBM
from fastmf.models import RBM as RBM
from fastmf.models import BoltzmannMachine as BoltzmannMachine
from fastmf.models import SparseLinearModel as SparseLinearModel
from fastmf.models import exact as exact
from fastmf.models import load as load
from fastmf.priors import Bernoulli as Bernoulli
from fastmf.priors import Binomial as Binomial
from fastmf.priors import Categorical as Categorical
from fastmf.priors import Concatenated as Concatenated
from fastmf.priors import GaussBernoulli as GaussBernoulli
from fastmf.priors import Gaussian as Gaussian
from fastmf.priors import Ising as Ising
from fastmf.priors import Ordinal as Ordinal
from fastmf.priors import TruncatedGaussBernoulli as TruncatedGaussBernoulli
from fastmf.priors import TruncatedGaussian as TruncatedGaussian

__version__: str
__all__: list[str]
_HOME: dict[str, str]

class FixedPoint:
    mean: Any
    var: Any
    b: Any
    a: Any
    log_partition: Any
    converged: Any
    n_iter: Any
    residual: Any
    message: Any
    history: Array | None
    solutions: Any
    @property
    def reliable(self) -> Any: ...
    def as_frame(self) -> Any: ...
    def __init__(
        self,
        mean: Any,
        var: Any,
        b: Any,
        a: Any,
        log_partition: Any,
        converged: Any,
        n_iter: Any,
        residual: Any,
        message: Any,
        history: Any = None,
        solutions: Any = None,
    ) -> None: ...

class Beliefs(FixedPoint):
    assignment: Any
    score: Any
    bound: Any
    local_maximum: Any
    messages: Array | None
    pairwise: Array | None
    damping: Any
    method: str
    @property
    def objective(self) -> Any: ...
    @property
    def spectral_radius(self) -> float | None: ...
    @property
    def unique(self) -> bool | None: ...
    def __init__(
        self,
        mean: Any,
        var: Any,
        b: Any,
        a: Any,
        log_partition: Any,
        converged: Any,
        n_iter: Any,
        residual: Any,
        message: Any,
        history: Any = None,
        solutions: Any = None,
        assignment: Any = None,
        score: Any = None,
        bound: Any = None,
        local_maximum: Any = None,
        messages: Any = None,
        pairwise: Any = None,
        damping: Any = 0.0,
        method: Any = "belief propagation",
    ) -> None: ...

class GraphBeliefs(Beliefs):
    edges: Array | None
    edge_probability: Array | None
    n_states: Array | None
    def table(self, i: int, j: int, row: int | None = None) -> Array: ...
    def __init__(
        self,
        mean: Any,
        var: Any,
        b: Any,
        a: Any,
        log_partition: Any,
        converged: Any,
        n_iter: Any,
        residual: Any,
        message: Any,
        history: Any = None,
        solutions: Any = None,
        assignment: Any = None,
        score: Any = None,
        bound: Any = None,
        local_maximum: Any = None,
        messages: Any = None,
        pairwise: Any = None,
        damping: Any = 0.0,
        method: Any = "belief propagation",
        edges: Any = None,
        edge_probability: Any = None,
        n_states: Any = None,
    ) -> None: ...

class _LogPartitionBounds(NamedTuple):
    lower: Any
    upper: Any
    estimate: Any

class _ExpectationPropagation(FixedPoint):
    sites: Any
    log_evidence: Any
    energies: Any
    schedule: str
    block_sites: Any
    inclusion_probability: Any
    sole_probability: Any
    full_probability: Any
    most_included: Any

_Start = Layers | FixedPoint | None

def tap(
    model: RBM | DBM | BoltzmannMachine,
    init: _Start = None,
    *,
    order: int = 2,
    schedule: str = "blocked",
    field: Layers | None = None,
    precision: Layers | None = None,
    clamp: Layers | None = None,
    damping: float | None = None,
    tol: float = 1e-08,
    max_iter: int = 1000,
    acceleration: bool = True,
    history: bool = False,
    log_partition: bool = True,
    n_threads: int | None = None,
) -> FixedPoint: ...
def mixture(
    solver: Callable[..., FixedPoint],
    model: RBM | DBM | BoltzmannMachine,
    n_starts: int = 20,
    *,
    rng: Rng = 0,
    **options: Any,
) -> FixedPoint: ...
def log_partition_bounds(
    model: RBM | DBM | BoltzmannMachine,
    *,
    field: Layers | None = None,
    clamp: Layers | None = None,
    n_starts: int = 20,
    max_iter: int = 128,
    rng: Rng = 0,
) -> _LogPartitionBounds: ...
def relaxed_bp(
    model: RBM | DBM | BoltzmannMachine,
    init: _Start = None,
    *,
    field: Layers | None = None,
    precision: Layers | None = None,
    damping: float | None = None,
    tol: float = 1e-08,
    max_iter: int = 1000,
    history: bool = False,
    n_threads: int | None = None,
) -> FixedPoint: ...
def adaptive_tap(
    model: RBM | DBM | BoltzmannMachine,
    init: _Start = None,
    *,
    schedule: str = "auto",
    field: Layers | None = None,
    precision: Layers | None = None,
    damping: float | None = None,
    tol: float = 1e-08,
    max_iter: int = 1000,
    history: bool = False,
    n_threads: int | None = None,
) -> _ExpectationPropagation: ...
def belief_propagation(
    model: RBM | BoltzmannMachine,
    *,
    algorithm: str = "sum",
    field: Layers | None = None,
    clamp: Layers | None = None,
    init: ArrayLike | Beliefs | None = None,
    damping: float | None = None,
    tol: float = 1e-08,
    max_iter: int = 1000,
    pairwise: bool | str = False,
    n_threads: int | None = None,
) -> Beliefs: ...
def most_probable(
    model: RBM | BoltzmannMachine,
    *,
    sum_hidden: bool = False,
    search: bool = True,
    bound: bool = False,
    field: Layers | None = None,
    clamp: Layers | None = None,
    init: ArrayLike | Beliefs | None = None,
    n_starts: int | None = None,
    rng: Rng = None,
    max_iter: int = 1000,
    n_threads: int | None = None,
) -> Beliefs: ...
def tree_reweighted(
    model: RBM | BoltzmannMachine,
    *,
    field: Layers | None = None,
    clamp: Layers | None = None,
    max_iter: int = 1000,
) -> Beliefs: ...
def expectation_propagation(
    model: SparseLinearModel,
    init: _Start = None,
    *,
    schedule: str = "parallel",
    blocks: str | ArrayLike | None = None,
    damping: float | None = None,
    site_precision_min: float | None = None,
    tol: float = 1e-08,
    max_iter: int = 1000,
    history: bool = False,
    n_threads: int | None = None,
) -> _ExpectationPropagation: ...
def compare_groups(
    machine_a: Any,
    machine_b: Any,
    *,
    inclusion_probability: float | None = 0.5,
    scale: float | None = 1.0,
    errors: str = "sandwich",
    n_permutations: int = 0,
    rng: Any = 0,
    verbose: bool = False,
) -> Any: ...
