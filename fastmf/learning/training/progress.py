"""A progress bar, by tqdm where it is installed and by plain lines where it is not."""

from contextlib import contextmanager

from fastmf._common.progress import Stderr
from fastmf._jit.messages import to_stderr


class _Lines:
    """The few methods of a tqdm bar that training uses, as one line an epoch."""

    def update(self, n=1):
        """Nothing is shown between epochs."""

    def set_postfix_str(self, text):
        to_stderr(text)


class _Silent(_Lines):
    def set_postfix_str(self, text):
        pass


@contextmanager
def progress(total, initial, verbose):
    """A bar over all batches of a run."""
    if not verbose:
        yield _Silent()
        return
    try:
        from tqdm import tqdm
    except ImportError:
        yield _Lines()
        return
    with tqdm(total=total, initial=initial, unit="batch", file=Stderr()) as bar:
        yield bar
