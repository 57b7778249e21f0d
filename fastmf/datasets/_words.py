"""Words of a text file, some at a time, each with its place for errors."""

from itertools import islice

import numpy as np

from fastmf.datasets._compressed import BLOCK_BYTES, open_decompressed

_MAX_WORD_BYTES = 1000


class Words:
    """Reader of words that are separated by blanks and line ends.

    Parameters
    ----------
    path : path
        Compressed by gzip or not. No more is decompressed than is asked for.
    """

    def __init__(self, path):
        self.path, self.n_taken = path, 0
        self._words = (word for _, words in _lines(path) for word in words)

    def take(self, n, what):
        """The next n words; `what` they are is told if there are fewer."""
        words = list(islice(self._words, n))
        if len(words) < n:
            raise ValueError(f"it ends after {self.n_taken + len(words)} words, within {what}.")
        self.n_taken += n
        return words

    def numbers(self, n, what, kind, low=0, high=np.inf):
        """The next n words as numbers of a kind, int or float, in [low, high]; infinity is not."""
        return self._as_numbers(self.take(n, what), what, kind, low, high)

    def _as_numbers(self, words, what, kind, low, high):
        try:
            # Python's numbers may have underscores, and any number of digits.
            array = np.array([kind(word.replace(b"_", b"?")) for word in words], kind)
            if (np.isfinite(array) & (low <= array) & (array <= high)).all():
                return array
        except (ValueError, OverflowError):
            pass
        return self._refuse(words, what, kind, low, high)

    def _refuse(self, words, what, kind, low, high):
        name = "an integer" if kind is int else "a number"
        for k, word in enumerate(words):
            try:
                value = kind(word.replace(b"_", b"?"))
                good = low <= value <= high and value < (2**63 if kind is int else np.inf)
            except ValueError:
                good = False
            if not good:
                self.n_taken += k + 1 - len(words)
                text = word.decode("ascii", "replace")
                limit = f"at least {low}" if high == np.inf else f"from {low} to {high}"
                self.fail(f"{what} must be {name} {limit}, got {text!r:.40}")

    def rest(self, n_most, what, kind, low=0):
        """All words that are left as numbers, if there are no more than `n_most`."""
        words = list(islice(self._words, n_most + 1))
        self.n_taken += len(words)
        if len(words) > n_most:
            self.fail(f"it has more than {n_most} numbers")
        return self._as_numbers(words, what, kind, low, np.inf)

    def number(self, what, low=0, high=np.inf):
        """The next word as an integer."""
        return int(self.numbers(1, what, int, low, high)[0])

    def fail(self, message):
        """Raise a ValueError with the line of the last word that was taken."""
        n_words = line = 0
        pieces = _lines(self.path)
        while n_words < self.n_taken:
            line, words = next(pieces)
            n_words += len(words)
        raise ValueError(f"line {line}: {message}.")

    def end(self):
        """Raise a ValueError unless no word is left."""
        if (word := next(self._words, None)) is not None:
            self.n_taken += 1
            self.fail(f"there are more words than were announced, from {word[:20]!a} on")


def _lines(path):
    """Numbers of lines, and their words; a very long line comes in several pieces."""
    number, rest = 1, b""
    for block in _blocks(path):
        *lines, rest = (rest + block).split(b"\n")
        for line in lines:
            yield number, line.split()
            number += 1
        if len(rest) > _MAX_WORD_BYTES:
            words, rest = _whole_words(rest)
            yield number, words
    yield number, rest.split()


def _blocks(path):
    with open_decompressed(path) as file:
        yield file.read(BLOCK_BYTES).removeprefix(b"\xef\xbb\xbf")
        while block := file.read(BLOCK_BYTES):
            yield block


def _whole_words(text):
    """The words of a text, and the last one, if it may go on in the next block."""
    words = text.split()
    rest = b"" if text[-1:].isspace() else words.pop()
    if len(rest) > _MAX_WORD_BYTES:
        raise ValueError(f"it has a word of more than {_MAX_WORD_BYTES} bytes.")
    return words, rest
