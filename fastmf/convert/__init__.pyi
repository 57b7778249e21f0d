from collections.abc import Hashable, Sequence
from typing import Any, NamedTuple

from fastmf.models import BoltzmannMachine

class Converted(NamedTuple):
    model: BoltzmannMachine
    names: list[Any]
    states: list[list[Any]]
    log_factor: float = 0.0

def from_pgmpy(network: Any) -> Converted: ...
def to_pgmpy(
    model: BoltzmannMachine,
    names: Sequence[Hashable] | None = None,
    states: Sequence[Sequence[Any]] | None = None,
) -> Any: ...
