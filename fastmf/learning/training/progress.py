"""A progress bar, by tqdm where it is installed and by plain lines where it is not."""

import time
from contextlib import contextmanager

from fastmf._common.progress import Stderr
from fastmf._jit.messages import announced, seconds_compiling, to_stderr
from fastmf.models import CRBM


class _Lines:
    """The few methods of a tqdm bar that training uses, as one line an epoch."""

    def update(self, n=1):
        """Nothing is shown between epochs."""

    def set_postfix_str(self, text):
        to_stderr(text)


class _Silent(_Lines):
    def set_postfix_str(self, text):
        pass


class _Bar(_Lines):
    """A tqdm bar whose clock stands still while code is compiled.

    The first batch, and the first look at the log-likelihood, may take a thousand times as long as
    all others: an estimate of the time left that counts them is wrong for the rest of the run.
    """

    def __init__(self, bar):
        self._bar = bar
        self._now, self._compiling = time.monotonic(), seconds_compiling()

    def update(self, n=1):
        self._leave_out_compilation()
        self._bar.update(n)

    def set_postfix_str(self, text):
        self._leave_out_compilation()
        self._bar.set_postfix_str(text)

    def _leave_out_compilation(self):
        now, compiling = time.monotonic(), seconds_compiling()
        # No more than has passed: what another thread compiles may have begun earlier.
        seconds = min(compiling - self._compiling, now - self._now)
        self._now, self._compiling = now, compiling
        self._bar.start_t += seconds
        self._bar.last_print_t += seconds


@contextmanager
def progress(total, initial, verbose, what):
    """A bar over all batches of a run; above it, a line if kernels are compiled."""
    if not verbose:
        with announced(what):
            yield _Silent()
        return
    try:
        from tqdm import tqdm
    except ImportError:
        with announced(what):
            yield _Lines()
        return
    with tqdm(total=total, initial=initial, unit="batch", file=Stderr()) as bar:

        def write(text):
            bar.write(text, file=bar.fp)

        with announced(what, show=write):
            yield _Bar(bar)


def units_of(model):
    """The units of a model in words, such as "Bernoulli x Bernoulli, float32"."""
    if isinstance(model, CRBM):
        return f"a conditional RBM, {model.dtype}"
    return f"{' x '.join(type(prior).__name__ for prior in model.layers)}, {model.dtype}"
