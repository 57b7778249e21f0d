import csv
import gzip
import importlib.util
import struct
import sys
from pathlib import Path

import numpy as np
import pytest

import fastmf

SCRIPTS = Path(fastmf.__file__).parent.parent / "scripts"


@pytest.fixture(scope="session")
def load():
    """A function that gives a script as a module."""

    def load(name):
        path = SCRIPTS / f"{name}.py"
        spec = importlib.util.spec_from_file_location(path.stem, path)
        module = importlib.util.module_from_spec(spec)
        sys.path.insert(0, str(path.parent))  # as for a script that is run
        try:
            spec.loader.exec_module(module)
        finally:
            sys.path.remove(str(path.parent))
        return module

    return load


@pytest.fixture(scope="session")
def rows():
    """A function that reads a CSV file as dictionaries."""
    return lambda path: list(csv.DictReader(path.read_text().splitlines()))


@pytest.fixture(scope="module")
def script(request, load):
    """The experiment of the name of the file of tests, as a module."""
    return load(f"experiments/{request.path.stem.removeprefix('test_')}")


@pytest.fixture
def mnist(tmp_path):
    """A folder with one like MNIST's, with images of 4 x 4 pixels."""
    rng = np.random.default_rng(0)
    (tmp_path / "mnist").mkdir()
    for prefix, n in (("train", 60), ("t10k", 20)):
        images = 255 * np.broadcast_to(rng.integers(0, 2, (n, 1, 4), np.uint8), (n, 4, 4))
        for kind, values in (("images-idx3", images), ("labels-idx1", np.zeros(n, np.uint8))):
            header = struct.pack(f">4B{values.ndim}I", 0, 0, 8, values.ndim, *values.shape)
            content = header + values.astype(np.uint8).tobytes()
            (tmp_path / "mnist" / f"{prefix}-{kind}-ubyte.gz").write_bytes(gzip.compress(content))
    return tmp_path
