"""How far a long calculation is: a bar by tqdm where it is installed, and lines on stderr."""

import sys
import time
from contextlib import suppress

# Seconds between lines.
SECONDS = 5.0


class Stderr:
    """The file of progress bars: stderr, or nothing where there is none that takes a text."""

    encoding = "utf-8"

    def write(self, text):
        """Write a text, if that is possible."""
        with suppress(AttributeError, OSError, ValueError):  # None, a full disk, closed
            sys.stderr.write(text)

    def flush(self):
        """Flush stderr, if that is possible."""
        with suppress(AttributeError, OSError, ValueError):
            sys.stderr.flush()

    def isatty(self):
        """Whether stderr is a terminal."""
        return bool(sys.stderr) and not sys.stderr.closed and sys.stderr.isatty()

    def fileno(self):
        """The number of stderr, by which tqdm finds the width of a terminal."""
        return sys.stderr.fileno()


def followed(steps, what, verbose):
    """The steps of a long calculation, one after the other."""
    if not verbose:
        yield from steps
        return
    try:
        from tqdm import tqdm
    except ImportError:
        shown = time.monotonic()
        for k, step in enumerate(steps):
            if time.monotonic() - shown >= SECONDS:
                _show(f"{k}/{len(steps)} {what}")
                shown = time.monotonic()
            yield step
        return
    yield from tqdm(steps, desc=what, file=Stderr())


def reported(verbose, what="penalised log-pseudo-likelihood"):
    """A function of the iteration and the value of an objective that is minimised, or None."""
    if not verbose:
        return None
    shown = time.monotonic()

    def report(iteration, value):
        nonlocal shown
        if time.monotonic() - shown >= SECONDS:
            _show(f"iteration {iteration + 1}, {what} {-value:.7g}")
            shown = time.monotonic()

    return report


def _show(text):
    print(text, file=Stderr(), flush=True)
