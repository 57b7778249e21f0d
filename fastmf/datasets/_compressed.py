"""Files that are perhaps compressed by gzip."""

import gzip


def is_compressed(path):
    """Whether a file begins like one of gzip, or is named so."""
    with open(path, "rb") as file:
        begins = file.read(2) == b"\x1f\x8b"
    return begins or str(path).lower().endswith(".gz")


def open_decompressed(path):
    """The file for reading bytes, uncompressed."""
    return gzip.open(path, "rb") if is_compressed(path) else open(path, "rb")
