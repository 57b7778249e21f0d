"""How far a long calculation is: a bar by tqdm on a terminal, and lines on stderr elsewhere."""

import sys
import time
from contextlib import suppress

# Seconds between lines.
SECONDS = 5.0


def followed(steps, what, verbose):
    """The steps of a long calculation, one after the other."""
    if verbose and sys.stderr and not sys.stderr.closed and sys.stderr.isatty():
        with suppress(ImportError):
            from tqdm import tqdm

            steps, verbose = tqdm(steps, desc=what), False
    shown = time.monotonic()
    for k, step in enumerate(steps):
        if verbose and time.monotonic() - shown >= SECONDS:
            _show(f"{k}/{len(steps)} {what}")
            shown = time.monotonic()
        yield step


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
    with suppress(AttributeError, OSError, ValueError):  # None, a full disk, closed
        sys.stderr.write(f"{text}\n")
        sys.stderr.flush()
