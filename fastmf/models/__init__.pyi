from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from fastmf._common.signatures import Array, Path, UnitPrior

class _Model:
    def save(self, path: Path) -> None: ...
    @property
    def dtype(self) -> np.dtype[Any]: ...

class _Layered(_Model):
    @property
    def sizes(self) -> tuple[int, ...]: ...
    @property
    def deep(self) -> bool: ...
    def bipartite(self) -> RBM: ...
    def integrate_gaussians(self) -> _IntegratedMachine: ...

class _IntegratedMachine:
    machine: BoltzmannMachine | None
    field: Array
    precision: Array
    log_partition: float
    def moments(
        self, mean: ArrayLike, var: ArrayLike, order: int = 2
    ) -> tuple[tuple[Array, ...], tuple[Array, ...]]: ...

class RBM(_Layered):
    weights: Array
    visible: Any
    hidden: Any
    def __init__(self, weights: ArrayLike, visible: UnitPrior, hidden: UnitPrior) -> None: ...
    @property
    def n_visible(self) -> int: ...
    @property
    def n_hidden(self) -> int: ...
    @property
    def layers(self) -> tuple[Any, ...]: ...
    @property
    def couplings(self) -> tuple[Array, ...]: ...
    def energy(self, visible: ArrayLike, hidden: ArrayLike) -> Any: ...

class DBM(_Layered):
    weights: tuple[Array, ...]
    layers: tuple[Any, ...]
    def __init__(self, weights: Sequence[ArrayLike], layers: Sequence[UnitPrior]) -> None: ...
    @property
    def couplings(self) -> tuple[Array, ...]: ...
    def energy(self, *states: ArrayLike) -> Any: ...

class BoltzmannMachine(_Model):
    couplings: Any  # an array, or a csr_array of SciPy
    prior: Any
    def __init__(self, couplings: Any, prior: UnitPrior) -> None: ...
    @property
    def n_units(self) -> int: ...
    @property
    def layers(self) -> tuple[Any, ...]: ...
    def energy(self, x: ArrayLike) -> Any: ...

class CRBM(_Model):
    weights: Array
    visible_weights: Array
    hidden_weights: Array
    visible_bias: Array
    hidden_bias: Array
    def __init__(
        self,
        weights: ArrayLike,
        visible_weights: ArrayLike,
        hidden_weights: ArrayLike,
        visible_bias: ArrayLike,
        hidden_bias: ArrayLike,
    ) -> None: ...
    @property
    def n_visible(self) -> int: ...
    @property
    def n_hidden(self) -> int: ...
    @property
    def n_features(self) -> int: ...
    def fields(self, X: ArrayLike) -> tuple[Any, Any]: ...
    def given(self, x: ArrayLike) -> RBM: ...
    def energy(self, visible: ArrayLike, hidden: ArrayLike, X: ArrayLike) -> Any: ...
    def free_energy(self, visible: ArrayLike, X: ArrayLike) -> Any: ...

class SparseLinearModel(_Model):
    X: Array
    y: Array
    noise_variance: float
    prior: Any
    total_rows: float | None
    absent_square: float
    row_weights: float | Array
    def __init__(
        self,
        X: ArrayLike,
        y: ArrayLike,
        noise_variance: float,
        prior: UnitPrior,
        total_rows: float | None = None,
        absent_square: float = 0.0,
        row_weights: float | ArrayLike = 1.0,
    ) -> None: ...
    @property
    def log_absent(self) -> float: ...
    @property
    def n_samples(self) -> int: ...
    @property
    def n_features(self) -> int: ...
    @property
    def n_units(self) -> int: ...
    @property
    def has_latent(self) -> bool: ...
    @property
    def has_weights(self) -> bool: ...
    def unit_weights(self) -> Array | None: ...
    @property
    def layers(self) -> tuple[Any, ...]: ...
    def energy(self, w: ArrayLike) -> Any: ...
    def prediction(self, w: ArrayLike) -> Array: ...

class Exact(NamedTuple):
    log_partition: float
    mean: Any = None
    var: Any = None
    pairwise: Any = None
    mode: Array | None = None

def exact(
    model: RBM | DBM | BoltzmannMachine,
    *,
    field: ArrayLike | None = None,
    clamp: ArrayLike | None = None,
    averages: bool = True,
    mode: bool = False,
    max_bytes: float = 2**31,
) -> Exact: ...
def load(path: Path, *, max_bytes: int | None = ...) -> Any: ...
