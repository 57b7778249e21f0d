"""Sequences of alignments as they stand in files: FASTA, A2M, A3M, Stockholm, Clustal."""

import re

import numpy as np

_SPACES = b" \t\r\n\v\f"
_TEXT = bytes(range(33, 127)) + _SPACES
# Lines are read in pieces of so many bytes, so that a line without end needs no memory.
_PIECE_BYTES = 2**20
# What a line counts for at least, as it takes time, and a sequence, whose name is kept, in all.
_LINE_BYTES = 32
_ROW_BYTES = 100
# First words of Clustal's format, as other programs write it, too.
_CLUSTAL = (b"CLUSTAL", b"MUSCLE", b"PROBCONS", b"MSAPROBS", b"Kalign")
# In Clustal's files, marks of conserved columns below a block, and the count at the end of a line.
_CONSERVED = re.compile(rb"[*:. ]*")
# In Stockholm's files these are gaps, too.
_GAPS_OF_STOCKHOLM = bytes.maketrans(b"~_", b"..")
_COUNT = re.compile(rb"\s+[0-9]+$")


class Lines:
    """Lines of a file, long ones in pieces, which count what is read against the limit."""

    def __init__(self, file, max_bytes):
        self.file, self.max_bytes = file, max_bytes
        self.n_bytes, self.number, self.ended = 0, 0, True

    def __iter__(self):
        """Yield (whether a line begins, the piece without spaces at its ends)."""
        while piece := self.file.readline(_PIECE_BYTES):
            self.count(max(len(piece), _LINE_BYTES))
            begins, self.ended = self.ended, piece.endswith(b"\n")
            self.number += begins
            if self.number == 1 and begins:
                piece = piece.removeprefix(b"\xef\xbb\xbf")
            yield begins, piece.strip()

    def count(self, n_bytes):
        self.n_bytes += n_bytes
        if self.n_bytes > self.max_bytes:
            raise ValueError(
                f"it is larger than max_bytes={self.max_bytes}; pass a larger one if there is "
                "memory for three times as much."
            )

    def whole(self):
        """Raise if the piece is not a whole line."""
        if not self.ended and self.file.peek(1):
            raise ValueError(f"line {self.number} is longer than {_PIECE_BYTES} bytes.")

    def letters(self, piece):
        """The letters of a piece of a sequence."""
        if strange := piece.translate(None, _TEXT):
            raise ValueError(
                f"line {self.number} holds the byte 0x{strange[0]:02x}, which is no letter; it is "
                "damaged or of another format."
            )
        return piece.translate(None, _SPACES)


def begins_like_alignment(text):
    """Whether a text begins like one of the formats, after lines of comments."""
    text = text.removeprefix(b"\xef\xbb\xbf").lstrip()
    while text.startswith((b"#", b";")) and not text.startswith(b"# STOCKHOLM"):
        text = text.partition(b"\n")[2].lstrip()
    return text.startswith((b">", b"# STOCKHOLM", *_CLUSTAL))


def sequences(lines):
    """Titles' first words, all letters one after the other, and lengths, of any format.

    Lines before the first title that begin with '#', as HHblits writes, or ';' are comments.
    """
    for begins, piece in lines:
        if piece.startswith(b"# STOCKHOLM"):
            return _in_blocks(lines)
        if not piece or not begins or piece.startswith((b"#", b";")):
            continue
        if piece.startswith(_CLUSTAL):
            return _in_blocks(lines, clustal=True)
        if piece.startswith(b">"):
            return _fasta(lines, piece)
        raise ValueError(
            "it begins neither with '>' (FASTA, A2M, A3M) nor with '# STOCKHOLM' or 'CLUSTAL'."
        )
    raise ValueError("it is empty.")


def _name(words):
    return words.split(None, 1)[0].decode("utf-8", "replace") if words.split() else ""


def _fasta(lines, first):
    lines.whole()
    lines.count(_ROW_BYTES)
    names, letters, ends = [_name(first[1:])], bytearray(), []
    for begins, piece in lines:
        if begins and piece.startswith(b">"):
            lines.whole()
            lines.count(_ROW_BYTES)
            names.append(_name(piece[1:]))
            ends.append(len(letters))
        else:
            letters += lines.letters(piece)
    ends.append(len(letters))
    return names, letters, np.diff(ends, prepend=0)


def _in_blocks(lines, clustal=False):
    """Sequences of Stockholm or Clustal, whose blocks may each hold a part of every sequence."""
    found: dict[bytes, bytearray] = {}
    block: set[bytes] = set()
    closed = False
    for _, piece in lines:
        if closed and piece:
            raise ValueError("it holds more than one alignment; split it at the lines '//'.")
        if not piece:
            block.clear()
        closed = closed or (piece == b"//" and not clustal)
        comment = _CONSERVED.fullmatch(piece) if clustal else piece.startswith(b"#")
        if not piece or comment or closed:
            continue
        lines.whole()
        name, *letters = piece.split(None, 1)
        if not letters or name in block:
            what = "holds no letters" if not letters else "repeats a name of its block"
            raise ValueError(f"line {lines.number}, {name[:60]!r}, {what}.")
        if name not in found:
            lines.count(_ROW_BYTES)
        block.add(name)
        text = _COUNT.sub(b"", letters[0]) if clustal else letters[0].translate(_GAPS_OF_STOCKHOLM)
        found.setdefault(name, bytearray()).extend(lines.letters(text))
    if not closed and not clustal:
        raise ValueError("it ends without the line '//': it is truncated.")
    lengths = [len(letters) for letters in found.values()]
    return [_name(name) for name in found], bytearray().join(found.values()), lengths
