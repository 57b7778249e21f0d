from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from fastmf._common.signatures import Array, Path
from fastmf.models import BoltzmannMachine

class Alignment(NamedTuple):
    X: Array
    names: list[str]
    rows: Array
    columns: Array
    alphabet: str

class _PlmcParameters(NamedTuple):
    couplings: Array
    field: Array
    alphabet: str
    frequencies: Array
    pair_frequencies: Array
    target: str
    positions: Array
    n_neighbours: Array
    n_rows: int
    n_skipped: int
    n_iter: int
    theta: float
    lambda_field: float
    lambda_couplings: float
    lambda_group: float
    n_effective: float

class Images(NamedTuple):
    X: Array
    shape: tuple[int, int]
    labels: Any

class UAIModel(NamedTuple):
    model: BoltzmannMachine
    clamp: Array | None
    log_factor: float
    n_variables: int

def load_alignment(
    path: Path,
    alphabet: str | None = "protein",
    focus: str | None = None,
    gaps: str = "state",
    *,
    inserts: str = "drop",
    outside: str = "drop",
    max_gaps: float | tuple[float, float] = 1.0,
    max_bytes: int = ...,
) -> Alignment: ...
def load_digits(*, binary: bool = False, dtype: type[np.floating[Any]] = np.float32) -> Images: ...
def load_uai(path: Path, evidence: Path | None = None, *, max_bytes: float = ...) -> UAIModel: ...
def read_array(path: Path, *, max_bytes: int | None = ...) -> Array: ...
def read_plmc(path: Path) -> _PlmcParameters: ...
def save_uai(
    model: BoltzmannMachine, path: Path, *, clamp: ArrayLike | None = None, log_factor: float = 0.0
) -> None: ...
def sequence_weights(
    X: ArrayLike, identity: float = 0.8, *, n_threads: int | None = None
) -> Array: ...
def write_fasta(
    path: Path, X: ArrayLike, alphabet: str = "protein", names: Sequence[str] | Array | None = None
) -> None: ...
def write_plmc(
    path: Path, couplings: ArrayLike, field: ArrayLike, alphabet: str = "protein", **more: Any
) -> None: ...
