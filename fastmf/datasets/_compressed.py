"""Files that are perhaps compressed by gzip, and messages of errors in them."""

import gzip
import zlib
from contextlib import contextmanager

from fastmf.models._io import reason

# Bytes of a file that are read at a time.
BLOCK_BYTES = 2**20


def is_compressed(path):
    """Whether a file begins like one of gzip, or is named so."""
    with open(path, "rb") as file:
        begins = file.read(2) == b"\x1f\x8b"
    return begins or str(path).lower().endswith(".gz")


# How files of other compressions and encodings begin.
_OTHER_FORMATS = {
    b"BZh": "compressed by bzip2: decompress it first, or compress it by gzip",
    b"\xfd7zXZ": "compressed by xz: decompress it first, or compress it by gzip",
    b"\x28\xb5\x2f\xfd": "compressed by zstd: decompress it first, or compress it by gzip",
    b"\xff\xfe": "text in UTF-16: save it in UTF-8 (spreadsheets: CSV UTF-8)",
    b"\xfe\xff": "text in UTF-16: save it in UTF-8 (spreadsheets: CSV UTF-8)",
    b"PK\x03\x04": "a ZIP archive or a spreadsheet: unpack it, or save it as CSV in UTF-8",
}


def check_file(path):
    """Raise if there is no such file, nothing in it, or if it is of a format that is not read."""
    if str(path) == "-":
        raise ValueError("standard input (-) is not read: write its data to a file first.")
    if not path.exists():
        raise FileNotFoundError(f"{path}: there is no such file.")
    if path.is_dir():
        raise ValueError(f"{path} is a folder; give the name of a file.")
    if not path.is_file():
        raise ValueError(f"{path} is a pipe or device; write its data to a file first.")
    if path.stat().st_size == 0:
        raise ValueError(f"{path} is empty.")
    with open(path, "rb") as file:
        begin = file.read(8)
    for sign, what in _OTHER_FORMATS.items():
        if begin.startswith(sign) and not path.name.lower().endswith(".npz"):
            raise ValueError(f"{path} is {what}.")


def open_decompressed(path):
    """The file for reading bytes, uncompressed."""
    return gzip.open(path, "rb") if is_compressed(path) else open(path, "rb")


def contents(path, max_bytes, n_copies=1):
    """All bytes of a file, uncompressed, of which a reader makes some copies within the memory."""
    pieces, n_left = [], max_bytes // n_copies + 1
    with open_decompressed(path) as file:
        while piece := file.read(int(min(BLOCK_BYTES, n_left))):
            pieces.append(piece)
            n_left -= len(piece)
    if n_left == 0:
        raise ValueError(
            f"it is larger than max_bytes={max_bytes:.0f} allows; pass a larger one if there is "
            f"memory for {max(3, n_copies)} times the text"
        )
    return b"".join(pieces)


def beginning(path, n_bytes):
    """The first bytes of a file, uncompressed; none if it is damaged."""
    with open_decompressed(path) as file:
        try:
            return file.read(n_bytes)
        except (EOFError, zlib.error, gzip.BadGzipFile):
            return b""


@contextmanager
def reading(path, what):
    """Check that there is a file, and say in one line of it that its contents are not `what`."""
    check_file(path)
    try:
        yield
    except MemoryError as error:
        raise MemoryError(f"{path}: there is not enough memory for its array.") from error
    # On damaged files parsers raise errors of many types, some with the whole file as message.
    except Exception as error:
        raise ValueError(f"{path} cannot be read as {what}: {reason(error)}") from error


def check_memory(n_bytes, max_bytes):
    """Raise if the contents of a file would take more memory than there may be."""
    if n_bytes > max_bytes:
        raise ValueError(
            f"it needs {n_bytes:.0f} bytes, more than max_bytes={max_bytes}; decompress it, or "
            "pass a larger one if there is memory"
        )
