from typing import Any, NamedTuple

import numpy as np

from fastmf._common.types import Array, Path

class Images(NamedTuple):
    X: Array
    shape: tuple[int, int]
    labels: Any

def load_caltech_silhouettes(
    folder: Path | None = None, *, split: str = "train", dtype: type[np.floating[Any]] = np.float32
) -> Images: ...
def load_cbcl_faces(
    folder: Path | None = None, *, split: str = "train", dtype: type[np.floating[Any]] = np.float32
) -> Images: ...
def load_digits(*, binary: bool = False, dtype: type[np.floating[Any]] = np.float32) -> Images: ...
def load_mnist(
    folder: Path | None = None,
    *,
    split: str = "train",
    binary: bool = False,
    dtype: type[np.floating[Any]] = np.float32,
    download: bool = False,
) -> Images: ...
def read_array(path: Path) -> Array: ...
