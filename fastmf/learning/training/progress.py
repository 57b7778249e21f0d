"""A progress bar, by tqdm where it is installed and by plain lines where it is not."""

import sys
from contextlib import contextmanager


class _Lines:
    """The few methods of a tqdm bar that training uses, as one line an epoch."""

    def update(self):
        """Nothing is shown between epochs."""

    def set_postfix_str(self, text):
        print(text, file=sys.stderr, flush=True)


class _Silent(_Lines):
    def set_postfix_str(self, text):
        pass


@contextmanager
def progress(total, initial, verbose):
    """A bar over all batches of a run.

    Parameters
    ----------
    total, initial : int
        Batches in all, and batches done before.
    verbose : int
        0 for silence.

    Yields
    ------
    object with methods update() and set_postfix_str(text)
    """
    if not verbose:
        yield _Silent()
        return
    try:
        from tqdm import tqdm
    except ImportError:
        yield _Lines()
        return
    with tqdm(total=total, initial=initial, unit="batch") as bar:
        yield bar
