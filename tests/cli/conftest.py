import numpy as np
import pytest

from fastmf.cli import main


@pytest.fixture(scope="session")
def stripes():
    """Binary 4 x 4 images of one or two full columns."""
    rng = np.random.default_rng(0)
    columns = rng.random((120, 1, 4)) < 0.4
    return np.broadcast_to(columns, (120, 4, 4)).reshape(120, 16).astype(np.uint8)


@pytest.fixture(scope="session")
def model(stripes, tmp_path_factory):
    """A trained machine in a file."""
    folder = tmp_path_factory.mktemp("model")
    np.save(folder / "data.npy", stripes)
    command = ["train", "rbm", str(folder / "data.npy"), "--output", str(folder / "model.npz")]
    options = ["--hidden-units", "6", "--epochs", "100", "--batch-size", "20", "--quiet"]
    assert main([*command, *options, "--learning-rate", "0.1"]) == 0
    return folder / "model.npz"


@pytest.fixture(scope="session")
def family(tmp_path_factory):
    """A Potts machine written by `fastmf dca`, its alignment and that as states."""
    folder = tmp_path_factory.mktemp("family")
    rng = np.random.default_rng(0)
    X = rng.integers(0, 5, (300, 6))
    X[:, 5] = np.where(rng.random(300) < 0.8, 4 - X[:, 0], X[:, 5])
    rows = ["".join("-ACGU"[k] for k in row) for row in X]
    text = "".join(f">s{k}\n{row[:2]}.{row[2:]}\n" for k, row in enumerate(rows))
    (folder / "rna.fasta").write_text(text)
    command = ["dca", str(folder / "rna.fasta"), "--alphabet", "rna", "--l2", "0.1"]
    files = ["--out", str(folder / "contacts.csv"), "--model", str(folder / "family.npz")]
    assert main([*command, *files]) == 0
    return folder / "family.npz", folder / "rna.fasta", X
