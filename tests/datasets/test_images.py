import gzip
import struct
import sys

import numpy as np
import pytest
from scipy.io import savemat

from fastmf.datasets import (
    load_caltech_silhouettes,
    load_cbcl_faces,
    load_digits,
    load_mnist,
)

FOLDER_LOADERS = [load_mnist, load_caltech_silhouettes, load_cbcl_faces]


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
    monkeypatch.setitem(sys.modules, "sklearn", None)
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


def test_mnist_is_downloaded_only_when_asked_and_missing(tmp_path, monkeypatch, mnist):
    pixels = np.repeat(np.arange(3), [60000, 9999, 1])[:, None].astype(np.float64)
    pixels = np.broadcast_to(pixels, (70000, 784))
    asked = []

    def fetch(name, **options):
        asked.append((name, options))
        return pixels, np.full(70000, "7")

    monkeypatch.setattr("sklearn.datasets.fetch_openml", fetch)
    write_mnist(tmp_path / "here", *mnist)
    assert len(load_mnist(tmp_path / "here", download=True).X) == 3
    assert asked == []
    images = load_mnist(tmp_path, split="test", download=True)
    assert asked == [("mnist_784", {"version": 1, "return_X_y": True, "as_frame": False})]
    assert images.X.shape == (10000, 784)
    np.testing.assert_array_equal(images.X[[0, -1], 0], np.float32([1, 2]) / np.float32(255))
    assert images.labels[0] == 7


def test_caltech_silhouettes_are_upright_with_object_one(tmp_path, rng):
    upright = (rng.random((4, 28, 28)) < 0.3).astype(np.uint8)
    stored = (1 - upright).transpose(0, 2, 1).reshape(4, 784)
    labels = np.array([[1], [2], [3], [101]], dtype=np.uint8)
    path = tmp_path / "caltech101_silhouettes_28_split1.mat"
    savemat(
        path,
        {
            "val_data": stored,
            "val_labels": labels,
            "train_data": stored[:1],
            "test_data": stored,
            "test_labels": labels[:3],
        },
    )
    images = load_caltech_silhouettes(tmp_path, split="validation")
    np.testing.assert_array_equal(images.X.reshape(-1, *images.shape), upright)
    np.testing.assert_array_equal(images.labels, labels.ravel())
    assert images.X.dtype == np.float32
    with pytest.raises(ValueError, match="is not the Caltech 101 Silhouettes file"):
        load_caltech_silhouettes(tmp_path, split="train")  # its labels are missing
    with pytest.raises(ValueError, match=r"images have the shape \(4, 784\)"):
        load_caltech_silhouettes(tmp_path, split="test")
    path.write_bytes(path.read_bytes()[:300])
    with pytest.raises(ValueError, match=r"caltech101_silhouettes_28_split1\.mat is not"):
        load_caltech_silhouettes(tmp_path, split="validation")


@pytest.mark.parametrize("shapes", [((2**14, 8), (1, 1)), ((3, 784), (2**7, 2**7))])
def test_a_file_of_other_shapes_is_not_read(tmp_path, monkeypatch, shapes):
    arrays = dict(zip(("train_data", "train_labels"), map(np.zeros, shapes), strict=True))
    savemat(tmp_path / "caltech101_silhouettes_28_split1.mat", arrays, do_compression=True)
    monkeypatch.setattr("scipy.io.loadmat", lambda *_, **__: pytest.fail("read"))
    with pytest.raises(ValueError, match="images have the shape") as caught:
        load_caltech_silhouettes(tmp_path)
    assert "\n" not in str(caught.value)


def test_cbcl_faces(tmp_path, rng):
    faces = rng.integers(0, 256, (5, 361), dtype=np.uint8)
    path = tmp_path / "cbcl_faces_19x19.npz"
    np.savez(path, faces_train=faces, faces_test=faces[:2])
    images = load_cbcl_faces(tmp_path, dtype=np.float64)
    np.testing.assert_array_equal(images.X, faces / 255)
    assert images.shape == (19, 19)
    assert images.labels is None
    assert len(load_cbcl_faces(tmp_path, split="test").X) == 2
    np.savez(path, faces_train=faces[:, :360])
    with pytest.raises(ValueError, match=r"faces_train has shape \(5, 360\)"):
        load_cbcl_faces(tmp_path)


@pytest.mark.parametrize("load", FOLDER_LOADERS)
def test_a_missing_file_says_what_to_do(tmp_path, monkeypatch, load):
    with pytest.raises(FileNotFoundError, match=f"^{load.__name__}.*folder=.*FASTMF_DATA"):
        load()
    with pytest.raises(FileNotFoundError, match=f"is not in {tmp_path}"):
        load(tmp_path)
    monkeypatch.setenv("FASTMF_DATA", str(tmp_path / "elsewhere"))
    with pytest.raises(FileNotFoundError, match="elsewhere"):
        load()
