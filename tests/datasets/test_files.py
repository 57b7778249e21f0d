import bz2
import gzip
import lzma
import os
import pickle
import struct
import tracemalloc
import warnings

import numpy as np
import pytest

from fastmf.datasets import read_array
from fastmf.datasets.files import read_named, read_text

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
    (tmp_path / "two.npz").rename(tmp_path / "TWO.NPZ")
    np.testing.assert_array_equal(read_array(tmp_path / "x.npy"), PIXELS)
    np.testing.assert_array_equal(read_array(tmp_path / "one.npz"), PIXELS)
    np.testing.assert_array_equal(read_array(f"{tmp_path / 'TWO.NPZ'}:b"), PIXELS[0])


def test_npz_says_which_arrays_there_are(tmp_path):
    np.savez(tmp_path / "two.npz", a=PIXELS, b=PIXELS)
    with pytest.raises(ValueError, match=r"two\.npz holds several arrays: choose one of a, b"):
        read_array(tmp_path / "two.npz")
    with pytest.raises(ValueError, match="no array 'c': choose one of a, b"):
        read_array(f"{tmp_path / 'two.npz'}:c")


NAN = np.nan
# Rows, and texts that hold them.
TABLES = [
    ([[1, 2], [3, 4]], ["1,2\n3,4\n", "left,right\n1,2\n3,4", "# of\n# two\n1,2\n3,4\n",
                        "\ufeffa,b\r\n1,2\r\n\r\n3,4\r\n"]),
    ([[1, NAN, 3], [NAN, 2, NAN], [NAN, NAN, NAN], [4, NAN, 6]],
     ["a,b,c\n1,,3\n, 2 ,\n,,\r\n 4,nan,6\n"]),
    # A row of empty cells between tabs is a row.
    ([[1, 2], [NAN, NAN], [3, 4]], ["a\tb\n1\t2\n\t\n\n3\t4\n"]),
    ([[1, 2.5], [3, NAN]], [
        "1 2.5\n3 nan\n", "  1    2.5\n  3   NA  \n", "1\t2.5\n3\t\n", "1;2,5\n3;\n",
        "a;b\n1;2.5\n3;NA\n", "a\tb\n1\t2,5\n3\tNA\n", "first item,second item\n1, 2.5\n3, NA\n",
        '"a, b",c\n1,2.5\n3,""\n',
        # Names of rows, as R's write.csv, pandas and R's write.table write them.
        '"","a","b"\n"first, row",1,2.5\n"2",3,NA\n', ",a,b\n0,1,2.5\n1,3,\n",
        '"a" "b"\n"row 1" 1 2.5\n"row 2" 3 NA\n',
        "a,b\n1,2.5\n\t\n3,NA\n", '"a";"b"\n"1";"2,5"\n"3";"n/a"\n', '"1","2.5"\n"3","?"\n',
        '"a" "b"\n"1" "2.5"\n"3" "NULL"\n', "a,b\r1,2.5\r3,.\r", "a,b,\n1,2.5,\n3,None,\n",
    ]),
    # Truth values, and the line of the separator.
    ([[1, 2.5], [0, NAN]], [
        "sep=;\na;b\n1;2,5\n0;NA\n", "sep=,\r\n1,2.5\r\n0,\r\n", '"a","b"\nTRUE,2.5\nFALSE,NA\n',
        "a\tb\n true \t2,5\nfalse\t\n", '"True" 2.5\n"False" nan\n',
    ]),
    ([[1, 0], [0, 0]], ["true,false\nfalse,false\n"]),
    # No row is taken for a comment or a name.
    ([[1, 2], [NAN, 3], [4, 5]], ["a,b\n1,2\n#N/A,3\n4,5\n"]),
    ([[NAN, 3], [4, 5], [6, 7]], ["#NUM!,3\n4,5\n6,7\n"]),
    ([[2, 3], [3, 4], [7, 8]], [",a,b\n#1,2,3\n#2,3,4\nlast,7,8\n"]),
    ([[1, 2], [NAN, 4]], ["# a comment, of 2 lines\n#\na\tb\n1\t2\n#DIV/0!\t4\n"]),
    ([[5], [NAN], [6]], ["#made by hand\n5\n#N/A\n6\n"]),
    ([[0.5, 2], [1, 1]], ['"101","102"\n0.5,2\n1,1\n']),
]  # fmt: skip


@pytest.mark.parametrize("text, rows", [(text, rows) for rows, texts in TABLES for text in texts])
def test_tables_of_numbers(tmp_path, text, rows):
    content = text.encode()
    files = {f"x{suffix}": content for suffix in (".csv", ".tsv", ".txt", ".dat", ".TXT")}
    for name, written in (files | {"x.csv.gz": gzip.compress(content)}).items():
        (tmp_path / name).write_bytes(written)
        np.testing.assert_array_equal(read_array(tmp_path / name), rows, err_msg=name)


@pytest.mark.parametrize("k", [0, 2, 3])
def test_rows_of_truth_values_keep_their_text(tmp_path, k):
    (tmp_path / "x.csv").write_bytes(TABLES[4][1][k].encode())
    assert read_text(tmp_path / "x.csv")[1][0][-1] in ("0", "FALSE", "false")


@pytest.mark.parametrize("separator", [";", "\t"])
@pytest.mark.parametrize("rows, says", [
    # Read as decimals, one sign or the other would be wrong by a factor of 1000.
    (["1.234 0,5", "2.345 1,25"], "commas, such as 0,5, and with points, such as 1.234"),
    (["1,234 0.5", "2,345 1.25"], "commas, such as 1,234, and with points, such as 0.5"),
    (["1,234 5.678"], "no separators of thousands"),
    (["1,25 0.5", "2,345 1.234"], "commas, such as 1,25, and with points, such as 0.5"),
    (["1.234.567 1", "2 3"], "no separators of thousands"),
    (["1,234.5 1", "2 3"], "no separators of thousands"),
])  # fmt: skip
def test_signs_of_thousands_are_refused(tmp_path, rows, says, separator):
    (tmp_path / "x.tsv").write_text("a b\n".replace(" ", separator))
    with open(tmp_path / "x.tsv", "a") as file:
        file.writelines(row.replace(" ", separator) + "\n" for row in rows)
    with pytest.raises(ValueError, match=says):
        read_array(tmp_path / "x.tsv")


def test_commas_that_may_be_of_thousands_are_refused(tmp_path):
    (tmp_path / "x.csv").write_text("a;b\n1,234;5\n12,500;7\n")
    with pytest.raises(ValueError, match="1,234, may be decimal or separate thousands"):
        read_array(tmp_path / "x.csv")
    for certain in ("0,125", "1234,500", "1,25", "-,500", "1,250e3"):
        (tmp_path / "x.csv").write_text(f"a;b\n1,234;5\n{certain};7\n")
        assert read_array(tmp_path / "x.csv")[0, 0] == 1.234


@pytest.mark.parametrize("text, names", [
    ("1 2\n", None),
    ('"a, b",c\n1,2\n', ["a, b", "c"]),
    ("one  two\n1 2\n", ["one", "two"]),
    ('"","a","b"\n"x",1,2\n', ["a", "b"]),
    ('"a" "b"\n"x" 1 2\n', ["a", "b"]),
    ("item 1\n1\n", ["item 1"]),
])  # fmt: skip
def test_names_of_columns(tmp_path, text, names):
    (tmp_path / "x.txt").write_text(text)
    assert read_named(tmp_path / "x.txt")[1] == names
    np.save(tmp_path / "x.npy", PIXELS)
    assert read_named(tmp_path / "x.npy")[1] is None


@pytest.mark.parametrize("begin", ["a,b,c\n", ",a,b,c\n"])
def test_columns_that_are_left_out_may_hold_words(tmp_path, begin):
    row = "one," if begin[0] == "," else ""
    (tmp_path / "x.csv").write_text(f"{begin}{row}word,1,2\n{row}other,3,4\n")
    array, names = read_named(tmp_path / "x.csv", ["a"])
    np.testing.assert_array_equal(array, [[1, 2], [3, 4]])
    assert names == ["b", "c"]
    with pytest.raises(ValueError, match="no column 'd'"):
        read_named(tmp_path / "x.csv", ["d"])
    np.save(tmp_path / "x.npy", PIXELS)
    with pytest.raises(ValueError, match="no names of columns"):
        read_named(tmp_path / "x.npy", ["a"])


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no named pipes")
def test_a_pipe_is_said_to_be_one(tmp_path):
    for name, ignored in (("x.csv", ()), ("x", ["a"])):
        os.mkfifo(tmp_path / name)
        with pytest.raises(ValueError, match="is a pipe or device"):
            read_named(tmp_path / name, ignored)


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
        ("x.csv", b"a,b\n# 1,2\n", "is no number"),
        ("x.csv", b"1,2\n\n3\n", "line 3 has 1 cells, those above 2$"),
        ("x.csv", b"a,b,c\n1,2\n3,4\n", "line of names has 3 cells, the next one 2$"),
        ("x.csv", b"1,2\n3,x\n", "cannot be read"),
        ("x.csv", b"yield\n1,5\n2,5\n", "decimal comma, or the name of a row"),
        ("x.csv", b"1,5\n2,05\n-1,25\n", "'2,05' is a number with a decimal comma"),
        ("x.csv", b"1,2\n3,x\n", "'x' in column 2 of line 2 is no number"),
        ("x.csv", b"1,2\n3,4_5\n", "'4_5' in column 2 of line 2 is no number"),
        ("x.csv", b"title\n1,2,3\n", "line of names has 1 cells, the next one 3$"),
        ("x.csv", b"age,sex\n3,f\n", r"'f' in column 2 \('sex'\) of line 2 is no number"),
        ("x.csv", b',"sex"\n"a","f"\n', r"'f' in column 2 \('sex'\) of line 2"),
        ("x.csv", b"\xff\xfe\x00", "text in UTF-16: save it in UTF-8"),
        ("x.csv", "größe,b\n1,2\n".encode("latin-1"), "no text in UTF-8"),
        ("x.csv.gz", gzip.compress(b"1,2\n" * 99)[:-9], "cannot be read"),
        ("x.idx", idx(PIXELS, 8)[:-1], "needs 40 bytes, it has 39"),
        ("x.idx", idx(PIXELS, 8) + b"\0", "needs 40 bytes, it has 41"),
        ("x.idx", idx(PIXELS, 8)[:9], "within its header"),
        ("x.idx", idx(PIXELS, 7), "does not begin like one"),
        ("x.idx", struct.pack(">HBB3I", 0, 8, 3, *3 * [2**32 - 1]), "cannot be read"),
        ("x.csv.xz", lzma.compress(b"1,2\n"), "compressed by xz: decompress it first"),
        ("x.csv.bz2", bz2.compress(b"1,2\n"), "compressed by bzip2"),
        ("x.xlsx", npz(a=PIXELS), "spreadsheet: unpack it, or save it as CSV"),
        ("x.bin", b"1 2 3\n", "does not begin like one"),
        ("x.parquet", b"PAR1", "Parquet format: save it as CSV"),
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


@pytest.mark.parametrize("name", ["x", "x.npy", "x.csv", "x.npy.gz", "x.csv.gz", "x.gz"])
def test_compression_is_told_from_the_content(tmp_path, name):
    array, path = PIXELS.reshape(2, 12).astype(float), tmp_path / name
    table = "\n".join(",".join(f"{x:g}" for x in row) for row in array).encode()
    content = npy(array) if ".npy" in name else table if ".csv" in name else idx(array, 14)
    path.write_bytes(gzip.compress(content))
    found = read_array(path)
    np.testing.assert_array_equal(found, array)
    found[0, 0] = 7  # an array of one's own


def header(*shape, code=8):
    return struct.pack(f">HBB{len(shape)}I", 0, code, len(shape), *shape)


@pytest.mark.parametrize(
    "name, head, unit, n, says",
    [
        ("x.idx", header(2**5, 2**20), b"\0", 2**23, "more than max_bytes=262144"),
        # The header announces less, or as much, than there is.
        ("x.idx", header(2, 8), b"\0", 2**23, "it has more"),
        ("x.idx", header(1, 2**17), b"\0", 2**20, "it has more"),
        ("x.idx", header(1, 2**17), b"abc", 1, "it has 15"),
        ("x.idx", header(*3 * [2**32 - 1], code=14), b"", 0, "max_bytes="),
        ("x.csv", b"", b"0,0,0,0\n", 2**20, "more than max_bytes=262144"),
        ("x.csv.gz", b"", b"0", 2**22, "more than max_bytes=262144"),
        ("x.csv", b"", b"\n", 2**22, "more than max_bytes"),
        ("x.csv", b"", b"#\n", 2**18, "more than max_bytes"),
        ("x.npy.gz", npy(np.zeros(2**20))[:128], b"\0", 2**23, "more than max_bytes=262144"),
        ("x.npy", npy(np.zeros(2**20))[:128], b"\0", 2**23, "more than max_bytes=262144"),
    ],
    ids=range(11),
)
def test_a_bomb_needs_no_more_memory_than_allowed(tmp_path, monkeypatch, name, head, unit, n, says):
    monkeypatch.setattr("fastmf.models._io.MIN_MEMORY_BYTES", 2**18)
    path = tmp_path / name
    path.write_bytes(gzip.compress(head + unit * n, 1))
    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match=says) as caught:
            read_array(path)
        assert tracemalloc.get_traced_memory()[1] < 2**22
    finally:
        tracemalloc.stop()
    assert str(path) in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize("text", ["a,b\n1,2\n# 3 rows\n4,5\n", "#1,2,3\n#2,3,4\nlast,7,8\n"])
def test_comments_within_a_table_are_refused(tmp_path, text):
    (tmp_path / "x.csv").write_text(text)
    with pytest.raises(ValueError, match=r"cells|is no number"):
        read_array(tmp_path / "x.csv")


@pytest.mark.parametrize(
    ("header", "warns"),
    [
        ("1990,2000,2010", True), ("0,1,2", True), ("101,102,103", True), ("0,0,0", False),
        ("1,0,1", False),
    ],
)  # fmt: skip
@pytest.mark.parametrize("whole", [False, True])
def test_names_that_are_numbers_are_told(tmp_path, header, warns, whole):
    rows = np.random.default_rng(0).normal(size=(30, 3))
    rows = np.rint(rows) if whole else rows
    np.savetxt(tmp_path / "x.csv", rows, delimiter=",", header=header, comments="")
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        assert len(read_array(tmp_path / "x.csv")) == 31
    assert bool(said) == warns and all("in quotes" in str(one.message) for one in said)
