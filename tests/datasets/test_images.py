import gzip
import struct
import sys

import numpy as np
import pytest

from fastmf.datasets import load_digits, load_mnist


@pytest.fixture(autouse=True)
def no_data_folder(monkeypatch):
    monkeypatch.delenv("FASTMF_DATA", raising=False)


@pytest.fixture
def rng():
    return np.random.default_rng(0)


def write_mnist(folder, pixels, labels, prefix="train", suffix=".gz"):
    folder.mkdir(exist_ok=True)
    write = gzip.compress if suffix else bytes
    for kind, array in (("images-idx3", pixels), ("labels-idx1", labels)):
        header = struct.pack(f">HBB{array.ndim}I", 0, 8, array.ndim, *array.shape)
        (folder / f"{prefix}-{kind}-ubyte{suffix}").write_bytes(write(header + array.tobytes()))


@pytest.fixture
def mnist(rng):
    return rng.integers(0, 256, (3, 28, 28), dtype=np.uint8), np.array([5, 0, 9], dtype=np.uint8)


def test_digits():
    images = load_digits()
    assert images.X.shape == (1797, 64)
    assert images.X.dtype == np.float32
    assert (images.X.min(), images.X.max()) == (0, 1)
    assert images.shape == (8, 8)
    np.testing.assert_array_equal(np.unique(images.labels), np.arange(10))
    binary = load_digits(binary=True, dtype=np.float64)
    assert binary.X.dtype == np.float64
    np.testing.assert_array_equal(binary.X, images.X > 0.5)


def test_digits_without_scikit_learn(monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
    with pytest.raises(ImportError, match=r"pip install scikit-learn"):
        load_digits()


@pytest.mark.parametrize("suffix", ["", ".gz"])
@pytest.mark.parametrize("subfolder", ["", "mnist"])
def test_mnist(tmp_path, monkeypatch, mnist, suffix, subfolder):
    pixels, labels = mnist
    write_mnist(tmp_path / subfolder, pixels, labels, suffix=suffix)
    images = load_mnist(tmp_path)
    np.testing.assert_array_equal(images.X, (pixels / np.float32(255)).reshape(3, 784))
    np.testing.assert_array_equal(images.labels, labels)
    assert images.shape == (28, 28)
    monkeypatch.setenv("FASTMF_DATA", str(tmp_path))
    np.testing.assert_array_equal(load_mnist(binary=True).X, pixels.reshape(3, 784) > 127)


def test_mnist_splits_are_two_files(tmp_path, mnist):
    pixels, labels = mnist
    write_mnist(tmp_path, pixels, labels)
    write_mnist(tmp_path, pixels[:2], labels[:2], prefix="t10k")
    assert len(load_mnist(tmp_path).X) == 3
    assert len(load_mnist(tmp_path, split="test").X) == 2


def test_mnist_of_unequal_files(tmp_path, mnist):
    pixels, labels = mnist
    write_mnist(tmp_path, pixels, labels[:2])
    with pytest.raises(ValueError, match=r"shape \(3, 28, 28\) and .* shape \(2,\)"):
        load_mnist(tmp_path)


def test_a_missing_file_says_what_to_do(tmp_path, monkeypatch):
    with pytest.raises(FileNotFoundError, match=r"^load_mnist.*folder=.*FASTMF_DATA"):
        load_mnist()
    with pytest.raises(FileNotFoundError, match=f"is not in {tmp_path}"):
        load_mnist(tmp_path)
    monkeypatch.setenv("FASTMF_DATA", str(tmp_path / "elsewhere"))
    with pytest.raises(FileNotFoundError, match="elsewhere"):
        load_mnist()
