"""Progress of long calculations: a bar by tqdm on a terminal, otherwise lines on stderr."""

import sys
import time
from contextlib import suppress

# Seconds between lines.
SECONDS = 5.0


def followed(steps, what, verbose):
    """Yield the steps of a long calculation, and report the progress if `verbose`."""
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
    """Return a function report(iteration, value) for a minimised objective; None if not verbose."""
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
