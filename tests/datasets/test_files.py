import gzip
import pickle
import struct

import numpy as np
import pytest

from fastmf.datasets import read_array

PIXELS = np.arange(24, dtype=np.uint8).reshape(2, 3, 4)


def idx(array, code):
    header = struct.pack(f">HBB{array.ndim}I", 0, code, array.ndim, *array.shape)
    return header + array.astype(array.dtype.newbyteorder(">")).tobytes()


@pytest.mark.parametrize(
    "dtype, code", [("u1", 8), ("i1", 9), ("i2", 11), ("i4", 12), ("f4", 13), ("f8", 14)]
)
@pytest.mark.parametrize("compress", [False, True])
def test_idx(tmp_path, dtype, code, compress):
    content = idx(PIXELS.astype(dtype), code)
    path = tmp_path / ("images.gz" if compress else "images-idx3-ubyte")
    path.write_bytes(gzip.compress(content) if compress else content)
    array = read_array(path)
    np.testing.assert_array_equal(array, PIXELS)
    assert array.dtype == np.dtype(dtype)


def test_npy_and_npz(tmp_path):
    np.save(tmp_path / "x.npy", PIXELS)
    np.savez(tmp_path / "one.npz", a=PIXELS)
    np.savez_compressed(tmp_path / "two.npz", a=PIXELS, b=PIXELS[0])
    np.testing.assert_array_equal(read_array(tmp_path / "x.npy"), PIXELS)
    np.testing.assert_array_equal(read_array(tmp_path / "one.npz"), PIXELS)
    np.testing.assert_array_equal(read_array(f"{tmp_path / 'two.npz'}:b"), PIXELS[0])


def test_npz_says_which_arrays_there_are(tmp_path):
    np.savez(tmp_path / "two.npz", a=PIXELS, b=PIXELS)
    with pytest.raises(ValueError, match=r"two\.npz holds several arrays: choose one of a, b"):
        read_array(tmp_path / "two.npz")
    with pytest.raises(ValueError, match="no array 'c': choose one of a, b"):
        read_array(f"{tmp_path / 'two.npz'}:c")


@pytest.mark.parametrize(
    "text",
    [
        "1,2\n3,4\n",
        "left,right\n1,2\n3,4",
        "# of\n# two\n1,2\n3,4\n",
        "\ufeffa,b\r\n1,2\r\n\r\n3,4\r\n",
    ],
)
def test_csv_with_and_without_names(tmp_path, text):
    (tmp_path / "x.csv").write_bytes(text.encode())
    np.testing.assert_array_equal(read_array(tmp_path / "x.csv"), [[1, 2], [3, 4]])
    (tmp_path / "x.csv.gz").write_bytes(gzip.compress(text.encode()))
    np.testing.assert_array_equal(read_array(tmp_path / "x.csv.gz"), [[1, 2], [3, 4]])


def test_csv_of_one_column_is_a_column(tmp_path):
    (tmp_path / "x.csv").write_text("1\n2\n3\n")
    assert read_array(tmp_path / "x.csv").shape == (3, 1)


def npy(array):
    import io

    buffer = io.BytesIO()
    np.save(buffer, array, allow_pickle=True)
    return buffer.getvalue()


def npz(**arrays):
    import io

    buffer = io.BytesIO()
    np.savez(buffer, **arrays)
    return buffer.getvalue()


def strangely_compressed(archive):
    """The archive, its first file said to be compressed by a method that there is not."""
    method = archive.index(b"PK\1\2") + 10
    return archive[:method] + b"\x63" + archive[method + 1 :]


@pytest.mark.parametrize(
    "name, content, says",
    [
        ("x.npy", b"", "is empty"),
        ("x.npy", npy(PIXELS)[:-3], "cannot be read"),
        ("x.npy", b"1,2\n3,4\n", "cannot be read"),
        ("x.npy", npy(PIXELS).replace(b"{'descr'", b"{('escr'"), "cannot be read"),
        ("x.npy", pickle.dumps([1.0]), "cannot be read"),
        ("x.npy", npy(np.array([{}], dtype=object)), "cannot be read"),
        ("x.npy", npy(np.array(["a"])), "not numbers"),
        ("x.npy", npy(np.zeros((0, 3))), "without entries"),
        ("x.npz", npz(a=PIXELS)[:-30], "cannot be read"),
        ("x.npz", strangely_compressed(npz(a=PIXELS)), "cannot be read"),
        ("x.npz", npz(a=PIXELS).replace(b"NUMPY", b"NUMPX"), "cannot be read"),
        ("x.npz", npz(a=np.array([{}], dtype=object)), "cannot be read"),
        ("x.npz", npz(), "holds no arrays"),
        ("x.csv", b"\n\n", "no line of numbers"),
        ("x.csv", b"a,b\n", "no line of numbers"),
        ("x.csv", b"a,b\n# 1,2\n", "no line of numbers"),
        ("x.csv", b"1,2\n3\n", "cannot be read"),
        ("x.csv", b"1,2\n3,x\n", "cannot be read"),
        ("x.csv", b"\xff\xfe\x00", "cannot be read"),
        ("x.csv.gz", gzip.compress(b"1,2\n" * 99)[:-9], "cannot be read"),
        ("x.idx", idx(PIXELS, 8)[:-1], "needs 40 bytes, it has 39"),
        ("x.idx", idx(PIXELS, 8) + b"\0", "needs 40 bytes, it has 41"),
        ("x.idx", idx(PIXELS, 8)[:9], "within its header"),
        ("x.idx", idx(PIXELS, 7), "does not begin like one"),
        ("x.idx", struct.pack(">HBB3I", 0, 8, 3, *3 * [2**32 - 1]), "cannot be read"),
        ("x.txt", b"1 2 3\n", "does not begin like one"),
        ("x.gz", gzip.compress(idx(PIXELS, 8))[:-9], "cannot be read"),
        ("x.gz", idx(PIXELS, 8), "cannot be read"),
    ],
    # gzip writes the time into its files: in a name, it would differ from process to process.
    ids=lambda value: value if isinstance(value, str) else f"{len(value)} bytes",
)
def test_a_damaged_file_is_a_value_error_with_its_name(tmp_path, name, content, says):
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(ValueError, match=says) as caught:
        read_array(path)
    assert str(path) in str(caught.value)


def test_a_missing_file_and_a_folder(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"x\.npy"):
        read_array(tmp_path / "x.npy")
    with pytest.raises(ValueError, match="is a folder"):
        read_array(tmp_path)
