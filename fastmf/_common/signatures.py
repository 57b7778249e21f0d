"""Types in public signatures, for the stubs beside `__init__.py` of packages, and for programs.

Results that are numbers, or arrays if arguments have rows, have the type `Any`: a union would make
each use of them an error.
"""

from os import PathLike
from typing import Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array: TypeAlias = NDArray[Any]
# One array, or one for each layer.
Layers: TypeAlias = ArrayLike | tuple[ArrayLike | None, ...]
Path: TypeAlias = str | PathLike[str]
Rng: TypeAlias = int | np.random.Generator | None
RandomState: TypeAlias = int | np.random.RandomState | None


class UnitPrior(Protocol):
    """Requirements of a unit prior: a NamedTuple of arrays with these two methods."""

    def log_partition(self, b: Any, a: Any) -> Any:
        """Log of the integral of the prior times exp(b x - a x^2 / 2)."""

    def moments(self, b: Any, a: Any) -> tuple[Any, Any]:
        """Mean and variance of this tilted distribution."""
