from typing import Any

from fastmf import FixedPoint
from fastmf.learning.layered.settings import LayeredSettings as LayeredSettings
from fastmf.models import DBM, RBM, BoltzmannMachine

def tap(
    model: RBM | DBM | BoltzmannMachine,
    init: Any = None,
    *,
    field: Any = None,
    precision: Any = None,
    clamp: Any = None,
    n_threads: int = 1,
    **options: Any,
) -> FixedPoint: ...
def score_samples(estimator: Any, X: Any, log_partition: str | float = "auto") -> Any: ...
def fit(
    estimator: Any,
    X: Any,
    *,
    validation_data: Any = None,
    sample_weight: Any = None,
    chunk_rows: int = 256,
    n_threads: int = 1,
) -> Any: ...
def transform(estimator: Any, X: Any) -> Any: ...
